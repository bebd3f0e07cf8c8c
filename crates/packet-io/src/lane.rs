//! One end of a socket pair (`SOCK_SEQPACKET`) between processes: messages of bounded length, and descriptors with
//! them.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_send_buffer_size, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use crate::limits::{LANE_DESCRIPTORS_MAX, LANE_MESSAGE_BYTES_MAX};

const DESCRIPTORS_BYTES: usize = rustix::cmsg_space!(ScmRights(LANE_DESCRIPTORS_MAX));

/// A message and its descriptors.
pub type LaneMessage = (Vec<u8>, Vec<OwnedFd>);

/// One end; calls block.
///
/// ```
/// use std::os::fd::AsFd;
/// use std::time::Duration;
///
/// # fn main() -> std::io::Result<()> {
/// let (ours, theirs) = packet_io::Lane::pair(Duration::from_secs(1))?;
/// let theirs = packet_io::Lane::from(theirs);
/// ours.send(b"take this", &[ours.as_fd()])?;
/// let (bytes, descriptors) = theirs.receive()?.expect("the other end is open");
/// assert_eq!((&bytes[..], descriptors.len()), (&b"take this"[..], 1));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Lane(OwnedFd);

impl Lane {
    /// A lane, and its other end for another process. Sending and receiving wait so long.
    ///
    /// # Errors
    /// The kernel's refusal, e.g. for want of descriptors.
    pub fn pair(patience: Duration) -> io::Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let lane = Self(ours);
        lane.set_patience(patience)?;
        set_socket_send_buffer_size(&theirs, LANE_MESSAGE_BYTES_MAX)?;
        Ok((lane, theirs))
    }

    /// How long sending and receiving wait from here on.
    ///
    /// # Errors
    /// None in practice; the kernel's otherwise.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        set_socket_send_buffer_size(&self.0, LANE_MESSAGE_BYTES_MAX)?;
        for direction in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&self.0, direction, Some(patience))?;
        }
        Ok(())
    }

    /// Sends a message of 1 to [`LANE_MESSAGE_BYTES_MAX`] bytes, with at most [`LANE_DESCRIPTORS_MAX`] descriptors.
    ///
    /// # Errors
    /// `InvalidInput` where there are more, `WouldBlock` where the other end does not read, `BrokenPipe` where it is
    /// gone.
    pub fn send(&self, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
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
                &self.0,
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

    /// The next message; `None` where the other end is closed.
    ///
    /// # Errors
    /// `WouldBlock` where none comes in time, `InvalidData` where it is too long.
    pub fn receive(&self) -> io::Result<Option<LaneMessage>> {
        let mut bytes = vec![0; LANE_MESSAGE_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); DESCRIPTORS_BYTES];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            match recvmsg(&self.0, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
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
        Self(socket)
    }
}

impl AsFd for Lane {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_message_and_all_descriptors_arrive_and_more_do_not() {
        let (ours, theirs) = Lane::pair(Duration::from_secs(60)).unwrap();
        let theirs = Lane::from(theirs);
        let longest = vec![b'x'; LANE_MESSAGE_BYTES_MAX];
        ours.send(&longest, &vec![ours.as_fd(); LANE_DESCRIPTORS_MAX])
            .unwrap();
        let (bytes, descriptors) = theirs.receive().unwrap().unwrap();
        assert_eq!(
            (bytes, descriptors.len()),
            (longest.clone(), LANE_DESCRIPTORS_MAX)
        );
        assert!(
            ours.send(b"x", &vec![ours.as_fd(); 2 * LANE_DESCRIPTORS_MAX])
                .is_err()
        );
        ours.send(&[longest, vec![b'x']].concat(), &[]).unwrap();
        assert_eq!(theirs.receive().unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop((ours, descriptors));
        assert!(theirs.receive().unwrap().is_none());
    }
}
