//! One end of a socket pair (`SOCK_SEQPACKET`): messages of bounded length, and descriptors with them.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_send_buffer_size, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, shutdown, socketpair,
};

use super::call::Call;
use crate::changes::{Answer, decode, encode};
use crate::limits::{MESSAGE_BYTES_MAX, QUEUES_MAX};

const DESCRIPTORS_BYTES: usize = rustix::cmsg_space!(ScmRights(QUEUES_MAX));

/// A message and its descriptors.
pub(super) type Message = (Vec<u8>, Vec<OwnedFd>);

/// One end.
#[derive(Debug)]
pub(super) struct Lane {
    socket: OwnedFd,
    /// One call at a time.
    turn: Mutex<()>,
}

impl Lane {
    /// A lane, and its other end for another process. Whoever calls waits so long for an answer.
    pub(super) fn pair(patience: Duration) -> io::Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let lane = Self::from(ours);
        lane.set_patience(patience)?;
        set_socket_send_buffer_size(&theirs, MESSAGE_BYTES_MAX)?;
        Ok((lane, theirs))
    }

    pub(super) fn set_patience(&self, patience: Duration) -> io::Result<()> {
        set_socket_send_buffer_size(&self.socket, MESSAGE_BYTES_MAX)?;
        for direction in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&self.socket, direction, Some(patience))?;
        }
        Ok(())
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
        let mut space = [MaybeUninit::uninit(); DESCRIPTORS_BYTES];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "too many descriptors",
            ));
        }
        loop {
            match sendmsg(
                &self.socket,
                &[IoSlice::new(message)],
                &mut control,
                SendFlags::NOSIGNAL,
            ) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// `None` where the other end is closed.
    pub(super) fn receive(&self) -> io::Result<Option<Message>> {
        let mut bytes = vec![0; MESSAGE_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); DESCRIPTORS_BYTES];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            match recvmsg(&self.socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => break received,
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        };
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        if received.bytes == 0 {
            return Ok(None);
        }
        if received
            .flags
            .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
        {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the message is cut off",
            ));
        }
        bytes.truncate(received.bytes);
        Ok(Some((bytes, descriptors)))
    }
}

impl From<OwnedFd> for Lane {
    fn from(socket: OwnedFd) -> Self {
        Self {
            socket,
            turn: Mutex::default(),
        }
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
    fn the_longest_message_and_all_descriptors_arrive_and_more_do_not() {
        let (ours, theirs) = pair();
        let longest = vec![b'x'; MESSAGE_BYTES_MAX];
        ours.send(&longest, &vec![ours.as_fd(); QUEUES_MAX]).unwrap();
        let (bytes, descriptors) = theirs.receive().unwrap().unwrap();
        assert_eq!((bytes, descriptors.len()), (longest.clone(), QUEUES_MAX));
        assert!(ours.send(b"x", &vec![ours.as_fd(); 2 * QUEUES_MAX]).is_err());
        ours.send(&[longest, vec![b'x']].concat(), &[]).unwrap();
        assert_eq!(theirs.receive().unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop((ours, descriptors));
        assert!(theirs.receive().unwrap().is_none());
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
