//! Messages on streams of their own: which is next, what is left to write, and how it ends.

use bytes::Bytes;
use quic::StreamId;

use super::{Sender, Stage};
use crate::delivery::{DropReason, Outcome};
use crate::frame::StreamHead;

/// A message that needs a stream.
pub(crate) struct ForStream {
    pub(crate) id: u64,
    pub(crate) head: StreamHead,
    pub(crate) priority: u8,
}

impl Sender {
    /// The next message that needs a stream.
    pub(crate) fn peek_stream(&mut self) -> Option<ForStream> {
        loop {
            let queue = self.for_streams.values_mut().find(|queue| !queue.is_empty())?;
            let id = *queue.front()?;
            let entry = self
                .entries
                .get(id)
                .filter(|entry| entry.stage == Stage::WantsStream);
            let Some(entry) = entry else {
                queue.pop_front();
                continue;
            };
            return Some(ForStream {
                id,
                head: StreamHead {
                    number: entry.number,
                    head: entry.head,
                    length: entry.parts[1].len() as u64,
                },
                priority: entry.priority,
            });
        }
    }

    /// The message of [`Self::peek_stream`] has this stream, which begins with `head`.
    pub(crate) fn give_stream(&mut self, id: u64, head: Bytes, stream: StreamId) {
        if let Some(entry) = self.entries.get_mut(id) {
            Self::leave(&mut self.channels, entry.waits_in_channel());
            entry.stage = Stage::Streaming(stream);
            entry.parts[0] = head;
            self.streams.insert(stream, id);
        }
    }

    /// What is left to write of the message on this stream.
    pub(crate) fn parts_on(&mut self, stream: StreamId) -> Option<&mut [Bytes; 2]> {
        let id = self.streams.get(&stream)?;
        self.entries.get_mut(*id).map(|entry| &mut entry.parts)
    }

    /// The peer has all of a message's stream. Whether there is one.
    pub(crate) fn stream_finished(&mut self, stream: StreamId) -> bool {
        let id = self.streams.get(&stream).copied();
        if let Some(id) = id {
            self.end(id, Outcome::Acked);
        }
        id.is_some()
    }

    /// The peer refuses a message. Whether there is one.
    pub(crate) fn stream_refused(&mut self, stream: StreamId) -> bool {
        let id = self.streams.get(&stream).copied();
        if let Some(id) = id {
            self.end(id, Outcome::Dropped(DropReason::Refused));
        }
        id.is_some()
    }

    /// A stream that is to be reset, because its message expired.
    pub(crate) fn poll_reset(&mut self) -> Option<StreamId> {
        self.resets.pop()
    }
}
