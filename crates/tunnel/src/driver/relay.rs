//! One TCP connection of a forward: bytes both ways, half-close, reset and backpressure.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use bytes::{Buf, Bytes};
use packet_io::Interest;
use rustix::buffer::spare_capacity;
use rustix::net::sockopt;
use tunnel_proto::{Body, Engine, RequestId, Role};

use crate::limits;
use crate::snapshot::TcpCounters;

/// What a relay needs after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It waits for readiness or the engine.
    Wait,
    /// It has more to do than one turn allows.
    Again,
    /// Both directions are done.
    Done,
    /// The local connection failed: the stream has to be aborted.
    Failed,
    /// The engine has ended the request; its `Ended` action closes the relay.
    Ended,
}

pub(super) struct Relay {
    pub(super) stream: TcpStream,
    /// Bytes of the tunnel that the local connection has not taken.
    outbound: VecDeque<Bytes>,
    /// Bytes before those that are not the tunnel's.
    own_bytes: usize,
    /// The tunnel may have bytes for us.
    body_readable: bool,
    body_finished: bool,
    /// The tunnel takes bytes from us.
    body_writable: bool,
    read_closed: bool,
    write_closed: bool,
    /// The interest that the poller knows.
    pub(super) interest: Interest,
    /// Bytes have moved since somebody asked.
    has_moved: bool,
}

impl Relay {
    /// Both ends are there: the target is connected, the server has answered. The poller watches `stream` with this
    /// interest.
    pub(super) fn new(stream: TcpStream, interest: Interest) -> Self {
        // Small writes of a request and its answer must not wait for each other.
        let _ = stream.set_nodelay(true);
        Self {
            stream,
            outbound: VecDeque::new(),
            own_bytes: 0,
            body_readable: false,
            body_finished: false,
            body_writable: true,
            read_closed: false,
            write_closed: false,
            interest,
            has_moved: false,
        }
    }

    /// Whether bytes have moved since this was last asked.
    pub(super) fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.has_moved)
    }

    /// Before all else: what the program is told by us, and what it has sent for the target already.
    pub(super) fn begin_with(
        &mut self,
        answer: Bytes,
        early: Bytes,
        id: RequestId,
        engine: &mut Engine<impl Role>,
        counters: &mut TcpCounters,
    ) {
        if !answer.is_empty() {
            self.own_bytes = answer.len();
            self.outbound.push_back(answer);
        }
        if !early.is_empty() {
            counters.bytes_in += early.len() as u64;
            self.body_writable = engine.write_body(id, early);
        }
    }

    pub(super) fn body_is_readable(&mut self) {
        self.body_readable = true;
    }

    /// The tunnel takes no bytes at present.
    pub(super) fn body_is_full(&mut self) {
        self.body_writable = false;
    }

    /// What came from the tunnel before the local connection was there.
    pub(super) fn begin_late(&mut self, bytes: VecDeque<Bytes>) {
        self.outbound = bytes;
    }

    pub(super) fn body_is_writable(&mut self) {
        self.body_writable = true;
    }

    /// Whether the local reader is slow: bytes wait for it.
    pub(super) fn is_stalled(&self) -> bool {
        !self.outbound.is_empty()
    }

    /// What the poller should watch.
    pub(super) fn wanted(&self) -> Interest {
        Interest {
            readable: self.body_writable && !self.read_closed,
            writable: self.is_stalled(),
        }
    }

    /// Moves what can be moved, both ways.
    pub(super) fn step(
        &mut self,
        id: RequestId,
        engine: &mut Engine<impl Role>,
        counters: &mut TcpCounters,
    ) -> Step {
        let outward = self.step_out(id, engine, counters);
        if matches!(outward, Step::Failed | Step::Ended) {
            return outward;
        }
        let inward = self.step_in(id, engine, counters);
        if inward == Step::Failed {
            return inward;
        }
        if self.read_closed && self.write_closed {
            return Step::Done;
        }
        if outward == Step::Again || inward == Step::Again {
            Step::Again
        } else {
            Step::Wait
        }
    }

    /// From the tunnel to the local connection.
    fn step_out(
        &mut self,
        id: RequestId,
        engine: &mut Engine<impl Role>,
        counters: &mut TcpCounters,
    ) -> Step {
        let mut moved = 0;
        while moved < limits::TCP_WRITE_BYTES {
            if self.outbound.is_empty() {
                if !self.body_readable {
                    break;
                }
                match engine.read_body(id, &mut self.outbound, limits::TCP_WRITE_BYTES) {
                    Body::More => {}
                    Body::Blocked => self.body_readable = false,
                    Body::Finished => {
                        self.body_readable = false;
                        self.body_finished = true;
                    }
                    Body::Reset => return Step::Ended,
                }
                if self.outbound.is_empty() {
                    break;
                }
            }
            match self.write_some() {
                Ok(written) => {
                    moved += written;
                    self.has_moved = true;
                    let own = written.min(self.own_bytes);
                    self.own_bytes -= own;
                    counters.bytes_out += (written - own) as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.unpin();
                    break;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Step::Failed,
            }
        }
        if self.outbound.is_empty() && self.body_finished && !self.write_closed {
            self.write_closed = true;
            // A peer that has gone already cannot be told.
            let _ = self.stream.shutdown(Shutdown::Write);
        }
        if self.body_readable && !self.is_stalled() {
            Step::Again
        } else {
            Step::Wait
        }
    }

    fn write_some(&mut self) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); limits::TCP_WRITE_PIECES];
        let mut used = 0;
        for (slice, bytes) in slices.iter_mut().zip(&self.outbound) {
            *slice = IoSlice::new(bytes);
            used += 1;
        }
        let written = (&self.stream).write_vectored(&slices[..used])?;
        let mut left = written;
        while let Some(front) = self.outbound.front_mut() {
            if left < front.len() {
                front.advance(left);
                break;
            }
            left -= front.len();
            self.outbound.pop_front();
        }
        Ok(written)
    }

    /// Bytes that wait for a slow reader must not pin the batch buffers that they arrived in.
    fn unpin(&mut self) {
        for bytes in &mut self.outbound {
            *bytes = Bytes::copy_from_slice(bytes);
        }
    }

    /// From the local connection to the tunnel.
    fn step_in(&mut self, id: RequestId, engine: &mut Engine<impl Role>, counters: &mut TcpCounters) -> Step {
        let mut moved = 0;
        while self.body_writable && !self.read_closed {
            if moved >= limits::TCP_WRITE_BYTES {
                return Step::Again;
            }
            let mut buffer = Vec::with_capacity(limits::TCP_READ_BYTES);
            match rustix::io::read(&self.stream, spare_capacity(&mut buffer)) {
                Ok(0) => {
                    self.read_closed = true;
                    engine.finish_body(id);
                }
                Ok(read) => {
                    moved += read;
                    self.has_moved = true;
                    counters.bytes_in += read as u64;
                    // Unacknowledged bytes are kept: a short read must not keep a long buffer.
                    let content = if read * 2 < buffer.capacity() {
                        Bytes::copy_from_slice(&buffer)
                    } else {
                        Bytes::from(buffer)
                    };
                    self.body_writable = engine.write_body(id, content);
                }
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Step::Failed,
            }
        }
        Step::Wait
    }
}

/// Has the kernel probe a silent peer, and end the connection where it does not answer or acknowledge.
pub(super) fn keep_alive(stream: &impl AsFd) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, limits::TCP_KEEP_ALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, limits::TCP_KEEP_ALIVE_INTERVAL)?;
    Ok(sockopt::set_tcp_keepcnt(stream, limits::TCP_KEEP_ALIVE_PROBES)?)
}

/// Makes the close that follows a reset instead of an orderly end.
pub(super) fn reset_on_close(stream: &TcpStream) {
    // Without it the peer sees an orderly end; nothing else is lost.
    let _ = sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_target_is_probed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        keep_alive(&stream).unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(
            sockopt::tcp_keepidle(&stream).unwrap(),
            limits::TCP_KEEP_ALIVE_IDLE
        );
        assert_eq!(
            sockopt::tcp_keepintvl(&stream).unwrap(),
            limits::TCP_KEEP_ALIVE_INTERVAL
        );
        assert_eq!(
            sockopt::tcp_keepcnt(&stream).unwrap(),
            limits::TCP_KEEP_ALIVE_PROBES
        );
    }
}
