//! The helper's whole life.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::call::Call;
use super::lane::Lane;
use crate::changes::{Answer, Device, Executor, Place, decode, encode};
use crate::error::{Explain, HostError};
use crate::holder::Process;
use crate::limits::LANES_MAX;
use crate::undo::GuardianProgram;

/// The process that started this helper, at the other end of standard input.
#[derive(Debug)]
pub struct HelperOwner {
    lane: Lane,
    process: Process,
}

impl HelperOwner {
    /// Identifies it. This has to come before the helper gives up capabilities: `/proc` may hide processes that have
    /// more than the one that looks.
    ///
    /// # Errors
    /// Standard input is no lane.
    pub fn identify() -> Result<Self, HostError> {
        let identify = || {
            let lane = Lane::from(io::stdin().as_fd().try_clone_to_owned()?);
            let peer = packet_io::peer_credentials(lane.as_fd())?.process;
            let id = peer.and_then(|peer| u32::try_from(peer).ok());
            let process = Process::running(id.ok_or(io::ErrorKind::NotFound)?)?;
            Ok::<_, io::Error>(Self { lane, process })
        };
        identify().explain(|| EXPLANATION.to_owned())
    }
}

const EXPLANATION: &str = "start as helper; gramway starts it itself";

/// Serves the owner, and tells it `ready` first. Changes are listed in `directory`. The caller has seen to it that
/// signals do not end this process; it ends with its owner.
///
/// # Errors
/// The owner is gone.
pub fn serve(
    owner: HelperOwner,
    directory: &Path,
    guardian: GuardianProgram,
    ready: &[u8],
) -> Result<(), HostError> {
    // Signals to the terminal's group and its end do not concern it; it fails only for who already leads a session.
    let _ = rustix::process::setsid();
    let HelperOwner { lane, process: owner } = owner;
    lane.send(ready, &[]).explain(|| EXPLANATION.to_owned())?;
    let server = Server {
        place: Place {
            directory: directory.to_owned(),
            guardian,
            owner,
        },
        device: Device::default(),
        lanes: Arc::new(AtomicUsize::new(1)),
    };
    server.serve(&lane);
    Ok(())
}

/// What serves a lane needs.
#[derive(Clone)]
struct Server {
    place: Place,
    device: Device,
    lanes: Arc<AtomicUsize>,
}

impl Server {
    /// Until the lane ends. What stands then is the guardian's: nobody is left to say how the kill switch ends.
    fn serve(&self, lane: &Lane) {
        let mut executor = Executor::new(&self.place, Arc::clone(&self.device));
        while let Ok(Some((message, descriptors))) = lane.receive() {
            let (answer, descriptors) = match decode(&message) {
                Ok(call) => self.answer(call, descriptors, &mut executor),
                Err(_) => break,
            };
            let handed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            if encode(&answer)
                .and_then(|answer| lane.send(&answer, &handed))
                .is_err()
            {
                break;
            }
        }
        std::mem::forget(executor);
    }

    fn answer(
        &self,
        call: Call,
        descriptors: Vec<OwnedFd>,
        executor: &mut Executor,
    ) -> (Answer, Vec<OwnedFd>) {
        let answer = match (call, descriptors.into_iter().next()) {
            (Call::Change(request), None) => return executor.execute(request),
            (Call::SetOption(option), Some(socket)) => option.set(socket).map_or_else(
                |error| Answer::OptionRefused(error.raw_os_error()),
                |()| Answer::Done,
            ),
            (Call::ServeToo, Some(lane)) => self.serve_too(lane),
            // Gramway does not call like this.
            _ => Answer::Is(false),
        };
        (answer, Vec::new())
    }

    fn serve_too(&self, lane: OwnedFd) -> Answer {
        if self.lanes.fetch_add(1, Ordering::Relaxed) >= LANES_MAX {
            return Answer::Is(false);
        }
        let server = self.clone();
        let serve = move || server.serve(&Lane::from(lane));
        match thread::Builder::new().name("lane".to_owned()).spawn(serve) {
            Ok(_) => Answer::Done,
            Err(_) => Answer::Is(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::time::Duration;

    use super::*;
    use crate::changes::Request;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A thread that serves a lane, and the other end. No guardian starts: nothing is ever changed.
    fn served() -> (Lane, thread::JoinHandle<()>) {
        let (lane, theirs) = Lane::pair(PATIENCE).unwrap();
        let server = Server {
            place: Place {
                directory: "/nonexistent".into(),
                guardian: GuardianProgram {
                    program: "/bin/false".into(),
                    arguments: Vec::<OsString>::new(),
                },
                owner: Process::this().unwrap(),
            },
            device: Device::default(),
            lanes: Arc::new(AtomicUsize::new(1)),
        };
        (lane, thread::spawn(move || server.serve(&Lane::from(theirs))))
    }

    fn is_failure(answer: &Answer, text: &str) -> bool {
        matches!(answer, Answer::Failed(_)) && format!("{answer:?}").contains(text)
    }

    #[test]
    fn nothing_is_changed_before_there_is_a_device_nor_by_values_that_are_not_ours() {
        let (lane, serving) = served();
        let call = |request| lane.call(&Call::Change(request), None).unwrap().0;
        for request in [
            Request::SetMtu(1_400),
            Request::StartDefaultRoute,
            Request::AddRoutes(vec!["10.0.0.0/8".parse().unwrap()]),
            Request::StartNat(vec!["10.0.0.0/8".parse().unwrap()]),
            Request::SetNameServers {
                servers: vec!["9.9.9.9".parse().unwrap()],
                all_names: true,
            },
        ] {
            let answer = call(request.clone());
            assert!(is_failure(&answer, "not there"), "{request:?}: {answer:?}");
        }
        let answer = call(Request::AddRoutes(vec!["127.0.0.0/8".parse().unwrap()]));
        assert!(is_failure(&answer, "stays out of tunnels"), "{answer:?}");
        assert_eq!(call(Request::Undo), Answer::Done);
        drop(lane);
        serving.join().unwrap();
    }

    #[test]
    fn sockets_come_and_lanes_are_few() {
        let (lane, serving) = served();
        let socket = OwnedFd::from(std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        let option = |value: usize| Call::SetOption(super::super::call::SocketOption::ReceiveBuffer(value));
        let answer = lane.call(&option(0), Some(&socket)).unwrap().0;
        assert_eq!(
            answer,
            Answer::OptionRefused(rustix::io::Errno::INVAL.raw_os_error())
        );
        assert_eq!(lane.call(&option(4_096), None).unwrap().0, Answer::Is(false));
        let mut more = Vec::new();
        for number in 1..=LANES_MAX {
            let (ours, theirs) = Lane::pair(PATIENCE).unwrap();
            let answer = lane.call(&Call::ServeToo, Some(&theirs)).unwrap().0;
            assert_eq!(answer == Answer::Done, number < LANES_MAX);
            more.push(ours);
        }
        let undo = Call::Change(Request::Undo);
        assert_eq!(more[0].call(&undo, None).unwrap().0, Answer::Done);
        drop(lane);
        serving.join().unwrap();
        // The others end by themselves.
        assert_eq!(more[1].call(&undo, None).unwrap().0, Answer::Done);
    }

    #[test]
    fn what_is_no_call_ends_the_lane() {
        for message in [&b"{"[..], b"\"format_disk\"", &[0xff; 100]] {
            let (lane, serving) = served();
            lane.send(message, &[]).unwrap();
            assert!(lane.receive().unwrap().is_none());
            serving.join().unwrap();
        }
    }
}
