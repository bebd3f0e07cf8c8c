//! Batches of messages over one connected Unix SEQPACKET socket: which parts of a buffer are messages, and what an
//! end of file looks like. The socket itself is made elsewhere; nothing here keeps state.

use std::io::{self, IoSliceMut};
use std::os::fd::AsFd;

use crate::limits::SEQPACKET_BATCH_MAX;
use crate::sys::seqpacket;

/// One received message.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SeqpacketMessage {
    /// Bytes received. Zero means that the peer has closed its end, unless it sends empty messages.
    pub len: usize,
    /// Whether the message was longer than its buffer; the rest is lost.
    pub truncated: bool,
}

/// Receives without waiting: one message per buffer, at most [`SEQPACKET_BATCH_MAX`] of them, described in `messages`.
///
/// Returns how many were received. Fewer than there was room for means that the socket was empty at that moment.
///
/// # Errors
/// `WouldBlock` when there is none; what the kernel says otherwise.
pub fn receive_seqpackets(
    socket: impl AsFd,
    buffers: &mut [IoSliceMut<'_>],
    messages: &mut [SeqpacketMessage],
) -> io::Result<usize> {
    let room = buffers.len().min(messages.len()).min(SEQPACKET_BATCH_MAX);
    if room == 0 {
        return Ok(0);
    }
    seqpacket::receive(socket.as_fd(), &mut buffers[..room], &mut messages[..room])
}

/// Sends `contents` without waiting, as messages of `segment` bytes each (at least 1), of which the last may be
/// shorter.
///
/// Returns how many messages the kernel took, at most [`SEQPACKET_BATCH_MAX`] a call; the caller goes on from there.
///
/// # Errors
/// `WouldBlock` when the peer has not read enough, `BrokenPipe` when it is gone (no signal is raised), or what else
/// the kernel says; always about the first message.
pub fn send_seqpackets(socket: impl AsFd, contents: &[u8], segment: usize) -> io::Result<usize> {
    if contents.is_empty() {
        return Ok(0);
    }
    seqpacket::send(socket.as_fd(), contents, segment.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::fd::OwnedFd;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .expect("a socket pair")
    }

    fn receive(socket: &OwnedFd, buffer_bytes: usize, count: usize) -> io::Result<Vec<(Vec<u8>, bool)>> {
        let mut room = vec![vec![0; buffer_bytes]; count];
        let mut messages = vec![SeqpacketMessage::default(); count];
        let received = {
            let mut buffers: Vec<_> = room.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
            receive_seqpackets(socket, &mut buffers, &mut messages)?
        };
        let described = messages.iter().zip(&room).take(received);
        Ok(described
            .map(|(message, bytes)| (bytes[..message.len].to_vec(), message.truncated))
            .collect())
    }

    #[test]
    fn a_train_arrives_as_messages_of_its_segments() {
        let (left, right) = pair();
        assert_eq!(
            send_seqpackets(&left, &[7; 2500], 1000).expect("room for three"),
            3
        );
        let lengths: Vec<_> = receive(&right, 4096, 8)
            .expect("three")
            .iter()
            .map(|(bytes, _)| bytes.len())
            .collect();
        assert_eq!(lengths, [1000, 1000, 500]);
        let error = receive(&right, 4096, 8).expect_err("nothing is left");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_long_train_is_taken_in_pieces_of_the_batch() {
        let (left, right) = pair();
        let train = vec![1; SEQPACKET_BATCH_MAX + 3];
        assert_eq!(
            send_seqpackets(&left, &train, 1).expect("room"),
            SEQPACKET_BATCH_MAX
        );
        assert_eq!(
            send_seqpackets(&left, &train[SEQPACKET_BATCH_MAX..], 1).expect("room"),
            3
        );
        assert_eq!(
            receive(&right, 16, 64).expect("messages").len(),
            SEQPACKET_BATCH_MAX
        );
        assert_eq!(receive(&right, 16, 64).expect("messages").len(), 3);
    }

    #[test]
    fn a_message_longer_than_its_buffer_is_marked() {
        let (left, right) = pair();
        send_seqpackets(&left, &[3; 100], 100).expect("room");
        assert_eq!(receive(&right, 10, 1).expect("one"), [(vec![3; 10], true)]);
    }

    #[test]
    fn a_closed_peer_reads_as_empty_and_writes_as_broken() {
        let (left, right) = pair();
        send_seqpackets(&left, b"last words", 64).expect("room");
        drop(left);
        assert_eq!(
            receive(&right, 64, 1).expect("what was sent before"),
            [(b"last words".to_vec(), false)]
        );
        assert_eq!(receive(&right, 64, 1).expect("the end"), [(Vec::new(), false)]);
        let error = send_seqpackets(&right, b"x", 1).expect_err("nobody reads");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_full_socket_takes_a_part_and_then_blocks() {
        let (left, right) = pair();
        rustix::net::sockopt::set_socket_send_buffer_size(&left, 64 << 10).expect("a small buffer");
        let train = vec![0; 16 << 14];
        let mut sent = 0;
        let error = loop {
            match send_seqpackets(&left, &train[..(16 - sent % 16) << 14], 1 << 14) {
                Ok(count) => sent += count,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(sent > 0);
        drop(right);
    }
}
