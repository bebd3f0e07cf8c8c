//! The local end of a TCP forward: a script instead of a socket. Its bytes follow from session and place.

use std::collections::VecDeque;

use bytes::Bytes;
use tunnel_proto::{Body, Engine, RequestId, Role};

use super::book::Way;

/// Bytes of one write, as a driver reads them from a socket.
const CHUNK_BYTES: u64 = 64 << 10;

/// What one end of a connection does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    /// Bytes that it writes.
    pub(crate) bytes: u64,
    /// Whether it ends its side after them.
    pub(crate) ends: bool,
    /// Whether it reads.
    pub(crate) reads: bool,
    /// Whether it writes only after the peer has ended its side.
    pub(crate) waits: bool,
}

impl Script {
    /// Writes so many bytes, then ends; reads everything.
    pub(crate) fn sending(bytes: u64) -> Self {
        Self {
            bytes,
            ends: true,
            reads: true,
            waits: false,
        }
    }

    /// Writes so many bytes after the peer has ended its side.
    pub(crate) fn answering(bytes: u64) -> Self {
        Self {
            waits: true,
            ..Self::sending(bytes)
        }
    }

    /// Reads and never ends.
    pub(crate) fn listening() -> Self {
        Self {
            ends: false,
            ..Self::sending(0)
        }
    }
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct TcpEnd {
    pub(crate) session: u32,
    sends: Way,
    pub(crate) script: Script,
    pub(crate) open: bool,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// Bytes given to the tunnel.
    pub(crate) written: u64,
    /// Bytes taken from the tunnel.
    pub(crate) read: u64,
    /// The peer has ended its side.
    pub(crate) read_end: bool,
    sent_end: bool,
}

impl TcpEnd {
    pub(crate) fn new(session: u32, sends: Way, script: Script, open: bool) -> Self {
        Self {
            session,
            sends,
            script,
            open,
            readable: false,
            writable: true,
            written: 0,
            read: 0,
            read_end: false,
            sent_end: false,
        }
    }

    /// Moves what can be moved. Whether both sides have ended.
    pub(crate) fn step(&mut self, engine: &mut Engine<impl Role>, id: RequestId) -> bool {
        if !self.open {
            return false;
        }
        if self.readable && self.script.reads {
            self.take(engine, id);
        }
        if self.script.waits && !self.read_end {
            return false;
        }
        while self.writable && self.written < self.script.bytes {
            let length = CHUNK_BYTES.min(self.script.bytes - self.written);
            let content: Vec<u8> = (self.written..self.written + length)
                .map(|place| byte(self.session, self.sends, place))
                .collect();
            self.written += length;
            self.writable = engine.write_body(id, Bytes::from(content));
        }
        if self.written == self.script.bytes && self.script.ends && !self.sent_end {
            self.sent_end = true;
            engine.finish_body(id);
        }
        self.sent_end && self.read_end
    }

    fn take(&mut self, engine: &mut Engine<impl Role>, id: RequestId) {
        let comes = if self.sends == Way::Up { Way::Down } else { Way::Up };
        let mut pieces = VecDeque::new();
        loop {
            let state = engine.read_body(id, &mut pieces, usize::MAX);
            for piece in pieces.drain(..) {
                for taken in piece {
                    assert_eq!(
                        taken,
                        byte(self.session, comes, self.read),
                        "at byte {}",
                        self.read
                    );
                    self.read += 1;
                }
            }
            match state {
                Body::More => {}
                Body::Finished => {
                    self.read_end = true;
                    self.readable = false;
                    return;
                }
                // The end of the request follows as an action.
                Body::Blocked | Body::Reset => {
                    self.readable = false;
                    return;
                }
            }
        }
    }
}

fn byte(session: u32, way: Way, place: u64) -> u8 {
    let mixed = place ^ (place >> 8) ^ (place >> 16);
    (mixed as u8)
        .wrapping_mul(7)
        .wrapping_add(session as u8)
        .wrapping_add(way as u8)
}
