//! The new process of an upgrade. It receives the offer at its standard input and answers there that it is ready. It
//! reads no socket of clients before the former process has told it to go: one that is too slow ends instead.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use packet_io::Lane;
use rustix::net::{Shutdown, shutdown};
use tunnel::config::OfferedSocket;

use super::launcher::Launcher;
use super::message::{Answer, Offer, is_go};
use crate::exit::{Problem, sentence};
use crate::limits::UPGRADE_LIMIT;

/// What another process has offered.
pub(crate) struct Takeover {
    lane: Lane,
    predecessor: u8,
    sockets: Arc<[OfferedSocket]>,
    lock: File,
    launcher: OwnedFd,
    listeners: Vec<OwnedFd>,
}

impl Takeover {
    /// Takes it from the standard input.
    ///
    /// # Errors
    /// There is no offer, or none that this program understands.
    pub(crate) fn receive() -> Result<Self, Problem> {
        let stdin = io::stdin().as_fd().try_clone_to_owned();
        let lane = stdin.and_then(|stdin| {
            let lane = Lane::from(stdin);
            lane.set_patience(UPGRADE_LIMIT)?;
            Ok(lane)
        });
        let lane = lane.map_err(|_| {
            Problem::usage("--takeover is for `gramway ctl upgrade`, which starts the program with it")
        })?;
        let received = lane.receive().map_err(|error| {
            Problem::unavailable(format!("cannot receive the sockets: {}", sentence(&error)))
        })?;
        let (bytes, descriptors) =
            received.ok_or_else(|| Problem::unavailable("the process that offered its sockets has ended"))?;
        let taken = Offer::decode(&bytes).and_then(|offer| {
            if Some(descriptors.len()) == offer.descriptors() {
                Ok(offer)
            } else {
                Err("some of the sockets are missing".to_owned())
            }
        });
        let offer = match taken {
            Ok(offer) => offer,
            Err(why) => {
                let _ = lane.send(&Answer::Failed(why.clone()).encode(), &[]);
                return Err(Problem::unavailable(why));
            }
        };
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next().expect("they were counted");
        let lock = File::from(next());
        let launcher = next();
        let sockets = (0..offer.shards).map(|_| OfferedSocket {
            socket: next(),
            back: next(),
        });
        let sockets = sockets.collect();
        Ok(Self {
            lane,
            predecessor: offer.predecessor,
            sockets,
            lock,
            launcher,
            listeners: descriptors.collect(),
        })
    }

    /// The sockets, for the tunnel.
    pub(crate) fn sockets(&self) -> tunnel::config::Takeover {
        tunnel::config::Takeover {
            sockets: Arc::clone(&self.sockets),
            predecessor: self.predecessor,
        }
    }

    /// The generation of this process.
    pub(crate) fn generation(&self) -> u8 {
        self.predecessor.wrapping_add(1)
    }

    /// The open state directory, whose lock it holds.
    pub(crate) fn lock(&self) -> Result<File, Problem> {
        self.lock.try_clone().map_err(|error| cannot_keep(&error))
    }

    /// The launcher that started this process; it starts the next one as well.
    pub(crate) fn launcher(&self) -> Result<Launcher, Problem> {
        let way = self.launcher.try_clone().map_err(|error| cannot_keep(&error))?;
        Ok(Launcher::over(Lane::from(way)))
    }

    /// The listeners that are open already.
    pub(crate) fn listeners(&self) -> Result<Vec<OwnedFd>, Problem> {
        let listeners = self.listeners.iter().map(OwnedFd::try_clone);
        let listeners: io::Result<Vec<_>> = listeners.collect();
        listeners.map_err(|error| cannot_keep(&error))
    }

    /// Says that this process is ready, and waits until the sockets are its own.
    ///
    /// # Errors
    /// The former process has given this one up, and goes on.
    pub(crate) fn complete(&self) -> Result<(), Problem> {
        let told = self.lane.send(&Answer::Ready.encode(), &[]);
        // The word may come just after the last wait for it, and the former process would believe that it was heard.
        if told.is_ok() && (self.is_told_to_go() || self.refuse_more() && self.is_told_to_go()) {
            return Ok(());
        }
        Err(Problem::unavailable(
            "the former process has stopped waiting for this one; where it still runs, it serves on",
        ))
    }

    fn is_told_to_go(&self) -> bool {
        matches!(self.lane.receive(), Ok(Some((bytes, _))) if is_go(&bytes))
    }

    /// From here on the former process cannot say anything: it sees that nobody hears it. What it has said before is
    /// still received.
    fn refuse_more(&self) -> bool {
        shutdown(&self.lane, Shutdown::Read).is_ok()
    }

    /// Tells the former process why this one ends; it no longer listens once this one serves.
    pub(crate) fn fail(&self, problem: &Problem) {
        let _ = self.lane.send(&Answer::Failed(problem.to_string()).encode(), &[]);
    }
}

fn cannot_keep(error: &io::Error) -> Problem {
    Problem::unavailable(format!("cannot keep what was taken over: {}", sentence(error)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::upgrade::message::go;

    /// The former process's lane, and one that waits so long for its word.
    fn takeover(patience: Duration) -> (Lane, Takeover) {
        let (ours, theirs) = Lane::pair(UPGRADE_LIMIT).unwrap();
        let lane = Lane::from(theirs);
        lane.set_patience(patience).unwrap();
        let takeover = Takeover {
            lane,
            predecessor: 0,
            sockets: Arc::default(),
            lock: tempfile::tempfile().unwrap(),
            launcher: tempfile::tempfile().unwrap().into(),
            listeners: Vec::new(),
        };
        (ours, takeover)
    }

    #[test]
    fn a_process_that_is_ready_serves_when_it_is_told_to_go_and_not_otherwise() {
        let (former, next) = takeover(UPGRADE_LIMIT);
        former.send(&go(), &[]).unwrap();
        next.complete().unwrap();
        let (bytes, _) = former.receive().unwrap().unwrap();
        assert_eq!(Answer::decode(&bytes), Ok(Answer::Ready));

        former.send(b"{}", &[]).unwrap();
        assert!(next.complete().is_err(), "another word is no permission");
        let (former, next) = takeover(UPGRADE_LIMIT);
        drop(former);
        let problem = next.complete().unwrap_err().to_string();
        assert!(problem.contains("stopped waiting"), "{problem}");
    }

    #[test]
    fn a_process_that_has_given_up_cannot_be_told_to_go() {
        let (former, next) = takeover(Duration::from_millis(1));
        assert!(next.complete().is_err(), "nobody said anything in time");
        assert!(former.send(&go(), &[]).is_err(), "the former process serves on");
    }

    #[test]
    fn a_word_that_came_before_a_process_gave_up_is_heard() {
        let (former, next) = takeover(UPGRADE_LIMIT);
        former.send(b"{}", &[]).unwrap();
        former.send(&go(), &[]).unwrap();
        next.complete().unwrap();
    }
}
