//! Messages that come on streams of their own, put together; and streams whose type is not known yet.
//!
//! What is incomplete counts in the receiver's bound. Beyond the bound only the oldest stream whose message can be
//! delivered is read, so that one message always makes progress and the others wait in QUIC, which holds their sender
//! back.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use quic::{ConnectionKey, Endpoint, Read, StreamError, StreamId};

use crate::frame::{PROGRAM_STREAM, StreamHead, Unread};
use crate::limits::{RECEIVE_BYTES_MAX, RESERVE_BYTES_MAX, STREAM_HEAD_BYTES_MAX};
use crate::peers::code;
use crate::receiver::{Receiver, Violation};

/// How far a stream has come.
#[derive(Debug, Default)]
struct Partial {
    kind: Option<u8>,
    head: Option<StreamHead>,
    /// The head's bytes, then the body's.
    bytes: BytesMut,
}

/// What a stream turned out to be.
enum Step {
    /// More will come.
    Wait,
    /// It belongs to the program.
    Program,
    Message(StreamHead, Bytes),
    /// Given up by the peer, or refused.
    Gone,
}

#[derive(Debug)]
pub(crate) struct Incoming {
    message_bytes_max: usize,
    streams: BTreeMap<StreamId, Partial>,
    /// Bytes of incomplete messages.
    bytes: usize,
    /// A stream was left unread for want of room.
    is_held_back: bool,
}

impl Incoming {
    pub(crate) fn new(message_bytes_max: usize) -> Self {
        Self {
            message_bytes_max,
            streams: BTreeMap::new(),
            bytes: 0,
            is_held_back: false,
        }
    }

    pub(crate) fn opened(&mut self, stream: StreamId) {
        self.streams.insert(stream, Partial::default());
    }

    /// Whether the stream is, or may be, that of a message.
    pub(crate) fn has(&self, stream: StreamId) -> bool {
        self.streams.contains_key(&stream)
    }

    /// Whether streams were left unread that may be read now; told once.
    pub(crate) fn take_is_held_back(&mut self, receiver: &Receiver) -> bool {
        let may_go_on = self.is_held_back && !receiver.is_queue_full();
        if may_go_on {
            self.is_held_back = false;
        }
        may_go_on
    }

    fn is_over(&self, receiver: &Receiver) -> bool {
        receiver.is_queue_full() || receiver.is_full() || self.bytes > RECEIVE_BYTES_MAX
    }

    fn may_read(&self, stream: StreamId, receiver: &Receiver) -> bool {
        if !self.is_over(receiver) {
            return true;
        }
        let is_next = |partial: &Partial| partial.head.is_none_or(|head| receiver.is_next(head.head));
        let first = self.streams.iter().find(|(_, partial)| is_next(partial));
        !receiver.is_queue_full() && first.is_some_and(|(first, _)| *first == stream)
    }

    /// Reads all streams that may be read again. The streams that are the program's.
    pub(crate) fn resume(
        &mut self,
        quic: &mut Endpoint,
        connection: ConnectionKey,
        receiver: &mut Receiver,
    ) -> Result<Vec<StreamId>, Violation> {
        let streams: Vec<StreamId> = self.streams.keys().copied().collect();
        let mut of_program = Vec::new();
        for stream in streams {
            if self.read(quic, connection, stream, receiver)? {
                of_program.push(stream);
            }
        }
        Ok(of_program)
    }

    /// Reads what has come on a stream; whether it is the program's.
    pub(crate) fn read(
        &mut self,
        quic: &mut Endpoint,
        connection: ConnectionKey,
        stream: StreamId,
        receiver: &mut Receiver,
    ) -> Result<bool, Violation> {
        loop {
            if !self.may_read(stream, receiver) {
                self.is_held_back |= self.has(stream);
                return Ok(false);
            }
            let Some(partial) = self.streams.get_mut(&stream) else {
                return Ok(false);
            };
            // The bytes after the type of a program's stream are the program's.
            let length_max = if partial.kind.is_none() { 1 } else { usize::MAX };
            let before = partial.bytes.len();
            let step = match quic.read(connection, stream, length_max) {
                Ok(Read::Blocked) => return Ok(false),
                Ok(Read::Data(bytes)) => partial.take(&bytes, self.message_bytes_max)?,
                Ok(Read::Finished) => partial.finish()?,
                Err(StreamError::Reset(_) | StreamError::Closed) => Step::Gone,
            };
            // The head's bytes go once it is whole, and the body with the message.
            self.bytes = self.bytes - before + partial.bytes.len();
            let too_large = partial
                .head
                .filter(|head| head.length > self.message_bytes_max as u64);
            match step {
                Step::Wait => {}
                Step::Program => {
                    self.forget(stream);
                    return Ok(true);
                }
                Step::Message(head, body) => {
                    self.forget(stream);
                    receiver.handle_stream_message(head.number, head.head, body)?;
                }
                Step::Gone => {
                    self.forget(stream);
                    if let Some(head) = too_large {
                        quic.stop(connection, stream, code::TOO_LARGE);
                        receiver.refuse(head.head)?;
                    }
                }
            }
        }
    }

    fn forget(&mut self, stream: StreamId) {
        if let Some(partial) = self.streams.remove(&stream) {
            self.bytes -= partial.bytes.len();
        }
        debug_assert!(!self.streams.is_empty() || self.bytes == 0, "bytes of no stream");
    }
}

impl Partial {
    fn take(&mut self, mut bytes: &[u8], message_bytes_max: usize) -> Result<Step, Violation> {
        let kind = match self.kind {
            Some(kind) => kind,
            None => {
                let Some((kind, rest)) = bytes.split_first() else {
                    return Ok(Step::Wait);
                };
                if *kind == PROGRAM_STREAM {
                    return Ok(Step::Program);
                }
                bytes = rest;
                *self.kind.insert(*kind)
            }
        };
        let head = match self.head {
            Some(head) => head,
            None => {
                self.bytes.extend_from_slice(bytes);
                match StreamHead::read(kind, &self.bytes) {
                    Ok((head, used)) => {
                        bytes = &[];
                        drop(self.bytes.split_to(used));
                        *self.head.insert(head)
                    }
                    Err(Unread::Incomplete) if self.bytes.len() < STREAM_HEAD_BYTES_MAX => {
                        return Ok(Step::Wait);
                    }
                    Err(_) => return Err("a stream of no known type"),
                }
            }
        };
        if head.length > message_bytes_max as u64 {
            return Ok(Step::Gone);
        }
        let left = (head.length as usize).saturating_sub(self.bytes.len());
        if self.bytes.capacity() - self.bytes.len() < bytes.len() {
            self.bytes
                .reserve(left.min(RESERVE_BYTES_MAX.max(self.bytes.len())).max(bytes.len()));
        }
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() as u64 > head.length {
            return Err("a message's stream goes on after the message");
        }
        Ok(Step::Wait)
    }

    fn finish(&mut self) -> Result<Step, Violation> {
        match self.head {
            Some(head) if head.length == self.bytes.len() as u64 => {
                Ok(Step::Message(head, std::mem::take(&mut self.bytes).freeze()))
            }
            _ => Err("a message's stream ends before the message"),
        }
    }
}
