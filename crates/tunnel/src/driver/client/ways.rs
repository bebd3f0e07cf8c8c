//! Exception routes: packets to the server keep to the uplink, whatever routes the TUN has, where a strict reverse-path
//! filter needs that.
//!
//! The host's thread makes them, because the first one starts the guardian and each waits for a lock between
//! processes. A shard asks again until its route has been made, each time it needs one: the kernel forgets routes with
//! their interface.

use std::net::IpAddr;
use std::sync::mpsc::{self, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use host::{Undo, Uplink};

use crate::driver::host_worker::{HostWorker, JobWaker};

/// The exception routes of a client.
pub(super) struct ExceptionRoutes {
    /// Locked by the host's thread alone.
    undo: Arc<Mutex<Undo>>,
    /// By shard: the route that it asked for, until it has heard of it.
    asked: Vec<Option<Asked>>,
}

struct Asked {
    server: IpAddr,
    uplink: Uplink,
    /// Gives the error, where there is one, and ends with the job.
    outcome: mpsc::Receiver<String>,
}

impl ExceptionRoutes {
    /// What is made is on the list of `undo`.
    pub(super) fn new(undo: Undo, shards: usize) -> Self {
        Self {
            undo: Arc::new(Mutex::new(undo)),
            asked: std::iter::repeat_with(|| None).take(shards).collect(),
        }
    }

    /// Has `worker` make the route to `server`, and wake the shard by its waker when it was tried. Then: why it failed,
    /// where it did. The question after that has it made again.
    pub(super) fn poll(
        &mut self,
        shard: usize,
        server: IpAddr,
        uplink: &Uplink,
        worker: &HostWorker,
        waker: &JobWaker,
    ) -> Poll<Option<String>> {
        let server = server.to_canonical();
        let asked = &mut self.asked[shard];
        let is_same = |known: &&mut Asked| known.server == server && known.uplink == *uplink;
        if let Some(known) = asked.as_mut().filter(is_same) {
            let outcome = match known.outcome.try_recv() {
                Ok(error) => Some(error),
                Err(TryRecvError::Disconnected) => None,
                Err(TryRecvError::Empty) => return Poll::Pending,
            };
            *asked = None;
            return Poll::Ready(outcome);
        }
        let (failed, outcome) = mpsc::channel();
        let (undo, by) = (Arc::clone(&self.undo), uplink.clone());
        let is_taken = worker.run_and_wake(waker, move || {
            let mut undo = undo.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(error) = undo.set_exception_route(server, &by) {
                // A shard that has ended wants no answer.
                let _ = failed.send(error.to_string());
            }
            None
        });
        // Where it was not taken, the next question gives it anew.
        *asked = is_taken.then(|| Asked {
            server,
            uplink: uplink.clone(),
            outcome,
        });
        Poll::Pending
    }

    /// The network has changed: what the shard asked for may have been made before.
    pub(super) fn forget(&mut self, shard: usize) {
        self.asked[shard] = None;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use host::GuardianProgram;
    use packet_io::{Poller, Waker};
    use tempfile::TempDir;

    use super::*;

    fn uplink(name: &str) -> Uplink {
        Uplink {
            index: 1,
            name: name.to_owned(),
            gateway: None,
            source: None,
        }
    }

    /// Nothing is changed: a route is made after its guardian runs, and this one ends at once.
    fn without_guardian(directory: &TempDir) -> ExceptionRoutes {
        let program = GuardianProgram {
            program: "/bin/false".into(),
            arguments: Vec::new(),
        };
        ExceptionRoutes::new(Undo::new(directory.path(), program), 2)
    }

    /// A shard's poller, and what wakes it.
    fn shard() -> (Poller, JobWaker) {
        let poller = Poller::new().unwrap();
        let waker = Waker::new(&poller, 0).unwrap();
        (poller, JobWaker::new(waker))
    }

    #[test]
    fn a_shard_goes_on_while_its_route_is_made_and_hears_why_it_was_not() {
        let directory = TempDir::new().unwrap();
        let (mut routes, worker) = (without_guardian(&directory), HostWorker::start().unwrap());
        let server: IpAddr = [192, 0, 2, 1].into();
        let ((mut poller, waker), mut ready) = (shard(), Vec::new());
        let (release, blocked) = mpsc::channel::<()>();
        assert!(worker.run(move || {
            let _ = blocked.recv();
            None
        }));
        for _ in 0..3 {
            assert!(
                routes
                    .poll(0, server, &uplink("up0"), &worker, &waker)
                    .is_pending()
            );
        }
        drop(release);
        poller.wait(&mut ready, Some(Duration::from_secs(60))).unwrap();
        assert_eq!(ready.len(), 1, "the shard is woken");
        assert!(waker.take_done() && !waker.take_done());
        let Poll::Ready(Some(error)) = routes.poll(0, server, &uplink("up0"), &worker, &waker) else {
            panic!("it is told what came of it");
        };
        assert!(error.contains("guardian"), "{error}");
        // It has been heard: the next question has the route made again.
        assert!(
            routes
                .poll(0, server, &uplink("up0"), &worker, &waker)
                .is_pending()
        );
        assert!(routes.asked[0].is_some() && routes.asked[1].is_none());
    }

    #[test]
    fn a_route_of_before_a_change_does_not_count_for_what_is_asked_after_it() {
        let directory = TempDir::new().unwrap();
        let (mut routes, worker) = (without_guardian(&directory), HostWorker::start().unwrap());
        let server: IpAddr = [192, 0, 2, 1].into();
        let (_poller, waker) = shard();
        let (done, is_done) = mpsc::channel();
        let settle = || {
            let done = done.clone();
            assert!(worker.run(move || {
                done.send(()).unwrap();
                None
            }));
            is_done.recv_timeout(Duration::from_secs(60)).unwrap();
        };
        assert!(
            routes
                .poll(0, server, &uplink("up0"), &worker, &waker)
                .is_pending()
        );
        settle();
        // Another uplink, another shard, the network changed: each is made on its own.
        assert!(
            routes
                .poll(0, server, &uplink("up1"), &worker, &waker)
                .is_pending()
        );
        settle();
        assert!(
            routes
                .poll(1, server, &uplink("up1"), &worker, &waker)
                .is_pending()
        );
        routes.forget(0);
        assert!(
            routes
                .poll(0, server, &uplink("up1"), &worker, &waker)
                .is_pending()
        );
        settle();
        assert!(routes.poll(0, server, &uplink("up1"), &worker, &waker).is_ready());
        assert!(routes.poll(1, server, &uplink("up1"), &worker, &waker).is_ready());
    }
}
