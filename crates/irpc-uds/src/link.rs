//! One connected socket: batches of datagrams in and out, whichever kind it is. Never waits.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Mutex;

#[cfg(any(target_os = "linux", target_os = "android"))]
use packet_io::{SeqpacketMessage, receive_seqpackets, send_seqpackets};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::address::SocketKind;
use crate::farewell::{Code, End};
use crate::frame::{BadLength, Deframer, PREFIX_BYTES, prefix};
use crate::limits::{RECEIVE_BATCH, SEGMENTS_MAX};

/// A socket, registered for reading only: being told of each room to write would wake this side once for every
/// datagram that the peer reads. See [`crate::sender`] for the one who waits for room.
#[derive(Debug)]
pub(crate) struct Link {
    io: AsyncFd<OwnedFd>,
    kind: SocketKind,
    /// Of a byte stream, the rest of a datagram that the kernel took in part; nothing may be written before it.
    rest: Mutex<Vec<u8>>,
}

/// Registers `socket` with the current runtime for the given direction only.
pub(crate) fn watch(socket: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    #[expect(
        deprecated,
        reason = "its successor is unsafe, for descriptors that are not owned; an OwnedFd keeps its promise"
    )]
    AsyncFd::with_interest(socket, interest)
}

/// What one attempt to receive brought.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Buffers filled, from the first.
    pub(crate) count: usize,
    /// The socket was empty at the end of it.
    pub(crate) drained: bool,
    /// The socket ends after what was received.
    pub(crate) end: Option<End>,
}

impl Link {
    /// Takes over a socket that does not block. To be called within a tokio runtime.
    pub(crate) fn new(socket: OwnedFd, kind: SocketKind) -> io::Result<Self> {
        Ok(Self {
            io: watch(socket, Interest::READABLE)?,
            kind,
            rest: Mutex::default(),
        })
    }

    pub(crate) fn io(&self) -> &AsyncFd<OwnedFd> {
        &self.io
    }

    /// What collects the datagrams of this socket, where the kernel doesn't.
    pub(crate) fn deframer(&self, datagram_bytes: u16) -> Option<Deframer> {
        (self.kind == SocketKind::Stream).then(|| Deframer::new(datagram_bytes))
    }

    /// Receives one datagram per buffer and tells their lengths.
    pub(crate) fn receive(
        &self,
        deframer: Option<&mut Deframer>,
        buffers: &mut [IoSliceMut<'_>],
        lengths: &mut [usize; RECEIVE_BATCH],
    ) -> Batch {
        match deframer {
            Some(deframer) => self.receive_stream(deframer, buffers, lengths),
            #[cfg(any(target_os = "linux", target_os = "android"))]
            None => self.receive_packets(buffers, lengths),
            #[cfg(not(any(target_os = "linux", target_os = "android")))]
            None => Batch::default(),
        }
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn receive_packets(&self, buffers: &mut [IoSliceMut<'_>], lengths: &mut [usize; RECEIVE_BATCH]) -> Batch {
        let mut messages = [SeqpacketMessage::default(); RECEIVE_BATCH];
        let room = buffers.len().min(messages.len());
        let received = loop {
            match receive_seqpackets(&self.io, &mut buffers[..room], &mut messages) {
                // Tells once that the peer closed before it read everything; what it sent can still be read.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let received = match received {
            Ok(received) => received,
            Err(error) => return failed(&error),
        };
        let mut batch = Batch {
            drained: received < room,
            ..Batch::default()
        };
        for message in &messages[..received] {
            if message.len == 0 {
                batch.end = Some(End::GONE);
            } else if message.truncated {
                batch.end = Some(too_long(buffers[batch.count].len()));
            }
            if batch.end.is_some() {
                break;
            }
            lengths[batch.count] = message.len;
            batch.count += 1;
        }
        batch
    }

    fn receive_stream(
        &self,
        deframer: &mut Deframer,
        buffers: &mut [IoSliceMut<'_>],
        lengths: &mut [usize; RECEIVE_BATCH],
    ) -> Batch {
        let mut batch = Batch::default();
        let room = buffers.len().min(lengths.len());
        while batch.count < room {
            match deframer.next() {
                Ok(Some(datagram)) => {
                    buffers[batch.count][..datagram.len()].copy_from_slice(datagram);
                    lengths[batch.count] = datagram.len();
                    batch.count += 1;
                    continue;
                }
                Ok(None) if batch.drained => break,
                Ok(None) => {}
                Err(BadLength(len)) => {
                    batch.end = Some(End::violation(format!(
                        "the peer announced a datagram of {len} bytes"
                    )));
                    break;
                }
            }
            let mut capacity = 0;
            let read = deframer.fill(|bytes| {
                capacity = bytes.len();
                Ok(rustix::net::recv(self.io.get_ref(), bytes, RecvFlags::DONTWAIT)?.0)
            });
            match read {
                Ok(0) => {
                    batch.end = Some(End::GONE);
                    break;
                }
                Ok(count) => batch.drained = count < capacity,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // As above: the end of the stream follows.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
                Err(error) => {
                    let failure = failed(&error);
                    batch.drained |= failure.drained;
                    batch.end = failure.end;
                    break;
                }
            }
        }
        batch
    }

    /// Sends the segments of `contents` from number `from` on; each has `segment` bytes, the last may have less.
    ///
    /// Returns how many the kernel took, at least one.
    ///
    /// # Errors
    /// `WouldBlock` while the peer does not read; another one when it is gone.
    pub(crate) fn send(&self, contents: &[u8], segment: usize, from: usize) -> io::Result<usize> {
        let contents = contents.get(from * segment..).unwrap_or_default();
        match self.kind {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            SocketKind::Seqpacket => send_seqpackets(&self.io, contents, segment),
            SocketKind::Stream => self.send_stream(contents, segment),
        }
    }

    fn send_stream(&self, contents: &[u8], segment: usize) -> io::Result<usize> {
        let mut rest = self.rest.lock().expect("nothing panics while it holds this lock");
        self.flush_rest(&mut rest)?;
        let mut prefixes = [[0; PREFIX_BYTES]; SEGMENTS_MAX];
        let datagrams = || contents.chunks(segment).take(SEGMENTS_MAX);
        for (room, datagram) in prefixes.iter_mut().zip(datagrams()) {
            *room = prefix(datagram.len());
        }
        let mut slices = [IoSlice::new(&[]); 2 * SEGMENTS_MAX];
        for ((pair, prefix), datagram) in slices.chunks_mut(2).zip(&prefixes).zip(datagrams()) {
            pair[0] = IoSlice::new(prefix);
            pair[1] = IoSlice::new(datagram);
        }
        let count = datagrams().count();
        let mut written = send_slices(self.io.get_ref(), &slices[..2 * count])?;
        for (index, (prefix, datagram)) in prefixes.iter().zip(datagrams()).enumerate() {
            let whole = PREFIX_BYTES + datagram.len();
            if written == 0 {
                return Ok(index);
            }
            if written < whole {
                rest.extend(prefix.iter().chain(datagram).skip(written));
                // The datagram counts as sent; whoever sends next sends its rest first, or waits for room to.
                self.flush_rest(&mut rest).ok();
                return Ok(index + 1);
            }
            written -= whole;
        }
        Ok(count)
    }

    /// Writes what is left of a datagram that was taken in part.
    ///
    /// # Errors
    /// As [`Link::send`].
    pub(crate) fn flush(&self) -> io::Result<()> {
        if self.kind != SocketKind::Stream {
            return Ok(());
        }
        let mut rest = self.rest.lock().expect("nothing panics while it holds this lock");
        self.flush_rest(&mut rest)
    }

    fn flush_rest(&self, rest: &mut Vec<u8>) -> io::Result<()> {
        while !rest.is_empty() {
            let written = send_slices(self.io.get_ref(), &[IoSlice::new(rest)])?;
            rest.drain(..written);
        }
        Ok(())
    }

    /// Ends both directions, though others may still hold the socket.
    pub(crate) fn shut_down(&self) {
        rustix::net::shutdown(self.io.get_ref(), Shutdown::Both).ok();
    }
}

fn send_slices(socket: &OwnedFd, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let flags = SendFlags::DONTWAIT;
    #[cfg(not(any(target_os = "macos", target_os = "ios")))]
    let flags = flags | SendFlags::NOSIGNAL;
    loop {
        match rustix::net::sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), flags) {
            Err(Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
}

/// An empty batch: the socket has nothing, or cannot be read any more, which is not the peer's doing.
fn failed(error: &io::Error) -> Batch {
    let blocked = error.kind() == io::ErrorKind::WouldBlock;
    Batch {
        count: 0,
        drained: blocked,
        end: (!blocked).then(|| End {
            code: Code::Gone,
            reason: format!("the Unix socket cannot be read: {error}").into(),
        }),
    }
}

fn too_long(bytes: usize) -> End {
    End::violation(format!(
        "the peer sent a datagram of more than the {bytes} bytes it was told"
    ))
}

/// Sends one datagram over a socket that has not carried any, as far as it takes it at once.
pub(crate) fn say(socket: &OwnedFd, kind: SocketKind, datagram: &[u8]) {
    let length = prefix(datagram.len());
    let parts = [IoSlice::new(&length), IoSlice::new(datagram)];
    let parts = if kind == SocketKind::Stream {
        &parts[..]
    } else {
        &parts[1..]
    };
    send_slices(socket, parts).ok();
}
