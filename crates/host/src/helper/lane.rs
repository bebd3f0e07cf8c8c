//! One end of the way to the helper: messages, and calls that are answered in turn.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use packet_io::LaneMessage;
use rustix::net::shutdown;

use super::call::Call;
use crate::changes::{Answer, decode, encode};

/// One end.
#[derive(Debug)]
pub(super) struct Lane {
    socket: packet_io::Lane,
    /// One call at a time.
    turn: Mutex<()>,
}

impl Lane {
    /// A lane, and its other end for another process. Whoever calls waits so long for an answer.
    pub(super) fn pair(patience: Duration) -> io::Result<(Self, OwnedFd)> {
        let (socket, theirs) = packet_io::Lane::pair(patience)?;
        Ok((Self::of(socket), theirs))
    }

    fn of(socket: packet_io::Lane) -> Self {
        Self {
            socket,
            turn: Mutex::default(),
        }
    }

    pub(super) fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.socket.set_patience(patience)
    }

    /// Asks, and waits for the answer. After a failure nothing can be asked any more: an answer that comes late would
    /// be taken for another one's.
    pub(super) fn call(&self, call: &Call, with: Option<&OwnedFd>) -> io::Result<(Answer, Vec<OwnedFd>)> {
        let message = encode(call)?;
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = || {
            let descriptors: Vec<_> = with.iter().map(|descriptor| descriptor.as_fd()).collect();
            self.send(&message, &descriptors)?;
            let (answer, descriptors) = self.receive()?.ok_or(io::ErrorKind::BrokenPipe)?;
            Ok((decode(&answer)?, descriptors))
        };
        asked().inspect_err(|_| {
            let _ = shutdown(&self.socket, rustix::net::Shutdown::Both);
        })
    }

    pub(super) fn send(&self, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.socket.send(message, descriptors)
    }

    /// `None` where the other end is closed.
    pub(super) fn receive(&self) -> io::Result<Option<LaneMessage>> {
        self.socket.receive()
    }
}

impl From<OwnedFd> for Lane {
    fn from(socket: OwnedFd) -> Self {
        Self::of(socket.into())
    }
}

impl AsFd for Lane {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::Request;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn pair() -> (Lane, Lane) {
        let (ours, theirs) = Lane::pair(PATIENCE).unwrap();
        (ours, Lane::from(theirs))
    }

    #[test]
    fn after_an_answer_that_is_none_nothing_is_asked_any_more() {
        let (ours, theirs) = pair();
        let answering = std::thread::spawn(move || {
            theirs.receive().unwrap();
            theirs.send(b"{}", &[]).unwrap();
            theirs.receive().unwrap().is_none()
        });
        let call = Call::Change(Request::Undo);
        assert_eq!(
            ours.call(&call, None).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
        assert!(ours.call(&call, None).is_err());
        assert!(answering.join().unwrap());
    }

    #[test]
    fn an_answer_that_does_not_come_is_not_waited_for_without_end() {
        let (ours, theirs) = Lane::pair(Duration::from_millis(1)).unwrap();
        let call = Call::Change(Request::Undo);
        assert!(ours.call(&call, None).is_err());
        // It would be the answer to what is asked next.
        let theirs = Lane::from(theirs);
        assert!(theirs.send(&encode(&Answer::Done).unwrap(), &[]).is_err());
        assert!(ours.call(&call, None).is_err());
    }
}
