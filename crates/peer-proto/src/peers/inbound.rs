//! The program's streams towards us: which of them it has not read to their end, and what is left to read of those
//! that had come whole when the connection ended. QUIC's windows bound what that is; it was in memory before.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use quic::{ConnectionKey, Endpoint, Read, StreamError, StreamId};

#[derive(Debug, Default)]
pub(crate) struct Inbound {
    /// The program has read neither their end nor their reset.
    unfinished: BTreeSet<StreamId>,
    /// Those of them of which something may have come that the program has not read.
    unread: BTreeSet<StreamId>,
    /// What is left of those that had come whole; the connection has ended.
    rests: BTreeMap<StreamId, VecDeque<Bytes>>,
    /// Bytes of these.
    rest_bytes: usize,
}

impl Inbound {
    /// The program may read this stream.
    pub(super) fn opened(&mut self, stream: StreamId) {
        self.unfinished.insert(stream);
    }

    /// Something may have come on a stream.
    pub(super) fn came(&mut self, stream: StreamId) {
        if self.unfinished.contains(&stream) {
            self.unread.insert(stream);
        }
    }

    /// The program has read all that came on a stream so far.
    pub(super) fn caught_up(&mut self, stream: StreamId) {
        self.unread.remove(&stream);
    }

    /// Whether something may have come that the program has not read.
    pub(super) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// The program has read the stream to its end, or wants no more of it.
    pub(super) fn forget(&mut self, stream: StreamId) {
        self.unfinished.remove(&stream);
        self.unread.remove(&stream);
        if let Some(rest) = self.rests.remove(&stream) {
            self.rest_bytes -= rest.iter().map(Bytes::len).sum::<usize>();
        }
    }

    /// The connection has ended: takes what the program has not read of streams that have come whole, because the other
    /// end may know that they have.
    pub(super) fn take_rests(&mut self, quic: &mut Endpoint, connection: ConnectionKey) {
        self.unread.clear();
        for stream in std::mem::take(&mut self.unfinished) {
            let mut rest = VecDeque::new();
            let end = loop {
                match quic.read(connection, stream, usize::MAX) {
                    Ok(Read::Data(bytes)) => rest.push_back(bytes),
                    end => break end,
                }
            };
            if end == Ok(Read::Finished) {
                self.rest_bytes += rest.iter().map(Bytes::len).sum::<usize>();
                self.rests.insert(stream, rest);
            }
        }
    }

    /// Whether the stream has a rest.
    pub(super) fn has_rest(&self, stream: StreamId) -> bool {
        self.rests.contains_key(&stream)
    }

    /// Whether the program may read something after the end of the connection.
    pub(crate) fn has_rests(&self) -> bool {
        !self.rests.is_empty()
    }

    /// Bytes of rests.
    pub(crate) fn rest_bytes(&self) -> usize {
        self.rest_bytes
    }

    /// Reads from a rest.
    pub(super) fn read_rest(&mut self, stream: StreamId, length_max: usize) -> Result<Read, StreamError> {
        let rest = self.rests.get_mut(&stream).ok_or(StreamError::Closed)?;
        let Some(front) = rest.front_mut() else {
            self.rests.remove(&stream);
            return Ok(Read::Finished);
        };
        let bytes = front.split_to(front.len().min(length_max));
        if front.is_empty() {
            rest.pop_front();
        }
        self.rest_bytes -= bytes.len();
        Ok(Read::Data(bytes))
    }
}
