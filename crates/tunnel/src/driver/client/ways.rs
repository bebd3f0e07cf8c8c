//! How a client's packets to the server leave this machine: the uplink, and the exception route that keeps them on it
//! whatever routes the TUN has in the main table, where a strict reverse-path filter needs that. A default route is in
//! a table of its own, which marked packets do not see (`host::DefaultRoute`).
//!
//! The host's thread finds and makes both: a list of all routes may be long, the first exception route starts the
//! guardian, and each waits for a lock between processes. A shard asks again until it has its answer, each time it
//! needs one: the kernel forgets routes with their interface.

use std::net::IpAddr;
use std::sync::mpsc::{self, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use host::{HostChanges, Network, ReversePathFilter, Uplink, reverse_path_filter};

use crate::driver::host_worker::{HostWorker, JobWaker};

/// What a shard wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) server: IpAddr,
    /// A route of the TUN in the main table leads to the server, whatever marks packets have.
    pub(super) leads_into_tun: bool,
}

/// The way at present.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// `None` where nothing leads to the server.
    pub(super) uplink: Option<Uplink>,
    /// Why the exception route that is needed could not be made: then the server may not be reachable.
    pub(super) warning: Option<String>,
}

/// The ways of a client's shards.
pub(super) struct Ways {
    /// Locked by the host's thread alone.
    finder: Arc<Mutex<Finder>>,
    /// By shard: what it asked, until it has heard the answer.
    asked: Vec<Option<Asked>>,
}

struct Asked {
    question: Question,
    answer: mpsc::Receiver<Answer>,
}

struct Finder {
    network: Network,
    /// Index of the TUN device, whose routes do not count.
    tun: u32,
    /// Makes the exception routes.
    changes: HostChanges,
}

impl Ways {
    /// Routes over the interface `tun` do not count.
    pub(super) fn new(network: Network, tun: u32, changes: HostChanges, shards: usize) -> Self {
        let finder = Finder {
            network,
            tun,
            changes,
        };
        Self {
            finder: Arc::new(Mutex::new(finder)),
            asked: std::iter::repeat_with(|| None).take(shards).collect(),
        }
    }

    /// Has `worker` find the way, and wake the shard when it is found. The question after the answer has it found
    /// again.
    pub(super) fn poll(
        &mut self,
        shard: usize,
        question: Question,
        worker: &HostWorker,
        waker: &JobWaker,
    ) -> Poll<Answer> {
        let asked = &mut self.asked[shard];
        if let Some(known) = asked.as_ref().filter(|known| known.question == question) {
            let answer = match known.answer.try_recv() {
                Ok(answer) => answer,
                // The job panicked, and has said so.
                Err(TryRecvError::Disconnected) => Answer::default(),
                Err(TryRecvError::Empty) => return Poll::Pending,
            };
            *asked = None;
            return Poll::Ready(answer);
        }
        let (found, answer) = mpsc::channel();
        let finder = Arc::clone(&self.finder);
        let is_taken = worker.run_and_wake(waker, move || {
            let mut finder = finder.lock().unwrap_or_else(PoisonError::into_inner);
            // A shard that has ended wants no answer.
            let _ = found.send(finder.find(question));
            None
        });
        // Where it was not taken, the next question gives it anew.
        *asked = is_taken.then_some(Asked { question, answer });
        Poll::Pending
    }

    /// The network has changed: what is being found may be what was before.
    pub(super) fn forget(&mut self, shard: usize) {
        self.asked[shard] = None;
    }
}

impl Finder {
    fn find(&mut self, question: Question) -> Answer {
        let server = question.server.to_canonical();
        // Where the kernel does not answer, the old way is as good as any.
        let Ok(Some(uplink)) = self.network.uplink_towards(server, Some(self.tun)) else {
            return Answer::default();
        };
        let is_filtered =
            question.leads_into_tun && reverse_path_filter(&uplink.name) == ReversePathFilter::Strict;
        let warning = is_filtered.then(|| self.make_exception(server, &uplink));
        Answer {
            uplink: Some(uplink),
            warning: warning.flatten(),
        }
    }

    /// Why that failed, where it did.
    fn make_exception(&mut self, server: IpAddr, uplink: &Uplink) -> Option<String> {
        let error = self.changes.set_exception_route(server, uplink).err()?;
        let name = &uplink.name;
        Some(format!(
            "the strict reverse-path filter of {name} may drop what the server answers: {error}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use host::GuardianProgram;
    use packet_io::{Poller, Waker};
    use tempfile::TempDir;

    use super::*;

    /// Every machine has a way to it.
    const SELF: Question = Question {
        server: IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
        leads_into_tun: false,
    };

    /// Nothing is changed: a route is made after its guardian runs, and this one ends at once.
    fn without_guardian(directory: &TempDir) -> Ways {
        let program = GuardianProgram {
            program: "/bin/false".into(),
            arguments: Vec::new(),
        };
        let changes = HostChanges::by_this_process(directory.path(), program).unwrap();
        Ways::new(Network::open().unwrap(), u32::MAX, changes, 2)
    }

    /// A shard's poller, and what wakes it.
    fn shard() -> (Poller, JobWaker) {
        let poller = Poller::new().unwrap();
        let waker = Waker::new(&poller, 0).unwrap();
        (poller, JobWaker::new(waker))
    }

    #[test]
    fn a_shard_goes_on_while_its_way_is_found_and_is_woken_then() {
        let directory = TempDir::new().unwrap();
        let (mut ways, worker) = (without_guardian(&directory), HostWorker::start().unwrap());
        let ((mut poller, waker), mut ready) = (shard(), Vec::new());
        let (release, blocked) = mpsc::channel::<()>();
        assert!(worker.run(move || {
            let _ = blocked.recv();
            None
        }));
        for _ in 0..3 {
            assert!(ways.poll(0, SELF, &worker, &waker).is_pending());
        }
        assert!(!waker.take_done());
        drop(release);
        poller.wait(&mut ready, Some(Duration::from_secs(60))).unwrap();
        assert_eq!(ready.len(), 1, "the shard is woken");
        assert!(waker.take_done() && !waker.take_done());
        let Poll::Ready(answer) = ways.poll(0, SELF, &worker, &waker) else {
            panic!("it is told what came of it");
        };
        assert_eq!(answer.uplink.map(|uplink| uplink.name).as_deref(), Some("lo"));
        assert_eq!(answer.warning, None);
        // It has been heard: the next question has the way found again.
        assert!(ways.poll(0, SELF, &worker, &waker).is_pending());
        assert!(ways.asked[0].is_some() && ways.asked[1].is_none());
    }

    #[test]
    fn a_way_of_before_a_change_does_not_count_for_what_is_asked_after_it() {
        let directory = TempDir::new().unwrap();
        let (mut ways, worker) = (without_guardian(&directory), HostWorker::start().unwrap());
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
        let other = Question {
            server: [127, 0, 0, 2].into(),
            ..SELF
        };
        assert!(ways.poll(0, SELF, &worker, &waker).is_pending());
        settle();
        // Another server, another shard, the network changed: each is found on its own.
        assert!(ways.poll(0, other, &worker, &waker).is_pending());
        settle();
        assert!(ways.poll(1, other, &worker, &waker).is_pending());
        ways.forget(0);
        assert!(ways.poll(0, other, &worker, &waker).is_pending());
        settle();
        assert!(ways.poll(0, other, &worker, &waker).is_ready());
        assert!(ways.poll(1, other, &worker, &waker).is_ready());
    }

    #[test]
    fn an_exception_route_that_cannot_be_made_is_told_with_the_reason() {
        let directory = TempDir::new().unwrap();
        let ways = without_guardian(&directory);
        let uplink = Uplink {
            index: 1,
            name: "up0".to_owned(),
            gateway: None,
            source: None,
        };
        let mut finder = ways.finder.lock().unwrap();
        let told = finder.make_exception([192, 0, 2, 1].into(), &uplink).unwrap();
        assert!(told.contains("up0") && told.contains("guardian"), "{told}");
    }
}
