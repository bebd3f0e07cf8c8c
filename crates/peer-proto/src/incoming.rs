//! Messages that come on streams of their own, put together; and streams whose type is not known yet.
//!
//! What is incomplete counts in the receiver's bound. Beyond the bound only the oldest stream whose message can be
//! delivered is read, so that one message makes progress while the endpoint has room, and the others wait in QUIC,
//! which holds their sender back. Where room is short, messages that stand still are refused, the oldest first, until
//! there is room: otherwise whoever begins some and finishes none keeps their room for as long as it likes.

mod turns;

use std::collections::BTreeMap;
use std::time::Instant;

use bytes::BytesMut;
use quic::{ConnectionKey, Endpoint, Read, StreamError, StreamId};

use crate::frame::{Head, PROGRAM_STREAM, StreamHead, Unread};
use crate::limits::{RESERVE_BYTES_MAX, REST_BYTES_MAX, STALLED_BYTES, STALLED_TIME, STREAM_HEAD_BYTES_MAX};
use crate::peers::code;
use crate::receiver::{Kept, Receiver, Violation};
use turns::{Turns, Wait};

/// How far a stream has come.
#[derive(Debug, Default)]
struct Partial {
    kind: Option<u8>,
    head: Option<StreamHead>,
    /// The head's bytes, then the body's.
    bytes: BytesMut,
    /// Bytes of the body at the last look for messages that stand still, where all was read since.
    seen: Option<usize>,
}

/// What a stream turned out to be.
enum Step {
    /// More will come.
    Wait,
    /// It belongs to the program.
    Program,
    Message(StreamHead, Kept),
    /// Given up by the peer, or refused.
    Gone,
}

#[derive(Debug)]
pub(crate) struct Incoming {
    message_bytes_max: usize,
    streams: BTreeMap<StreamId, Partial>,
    turns: Turns,
    /// Messages that were whole.
    completed: u64,
    /// Bytes that incomplete messages keep.
    bytes: usize,
    /// When messages that stand still are looked for.
    look_at: Option<Instant>,
}

impl Incoming {
    pub(crate) fn new(message_bytes_max: usize) -> Self {
        Self {
            message_bytes_max,
            streams: BTreeMap::new(),
            turns: Turns::default(),
            completed: 0,
            bytes: 0,
            look_at: None,
        }
    }

    pub(crate) fn opened(&mut self, stream: StreamId) {
        self.streams.insert(stream, Partial::default());
        self.turns.opened(stream);
    }

    /// Whether the stream is, or may be, that of a message.
    pub(crate) fn has(&self, stream: StreamId) -> bool {
        self.streams.contains_key(&stream)
    }

    /// Bytes that incomplete messages keep.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Messages that were whole.
    pub(crate) fn completed(&self) -> u64 {
        self.completed
    }

    /// Whether streams were left unread for want of room.
    pub(crate) fn holds_back(&self) -> bool {
        self.turns.holds_back()
    }

    /// When [`Self::give_up_stalled`] is due, where something incomplete is kept.
    pub(crate) fn poll_timeout(&mut self, now: Instant) -> Option<Instant> {
        self.look_at = (self.bytes > 0).then(|| self.look_at.unwrap_or(now + STALLED_TIME));
        self.look_at
    }

    /// Refuses messages of which little came since the last look, although all that came was read, where room is short
    /// (PEER-21): the oldest first, until `excess` bytes are free, and room for those that wait in QUIC. All are spared
    /// where their sender has no credit for them, because the program does not read its streams.
    pub(crate) fn give_up_stalled(
        &mut self,
        now: Instant,
        excess: usize,
        is_spared: bool,
        quic: &mut Endpoint,
        connection: ConnectionKey,
        receiver: &mut Receiver,
    ) -> Result<(), Violation> {
        if self.look_at.is_none_or(|at| at > now) {
            return Ok(());
        }
        self.look_at = None;
        let mut stalled = Vec::new();
        for (stream, partial) in &mut self.streams {
            let Some(head) = partial.head.filter(|_| !self.turns.is_held_back(*stream)) else {
                continue;
            };
            let length = partial.bytes.len();
            if is_spared {
                partial.seen = None;
                continue;
            }
            let grew = partial.seen.replace(length).map(|seen| length - seen);
            if grew.is_some_and(|grew| grew < STALLED_BYTES) {
                stalled.push((*stream, head.head));
            }
        }
        let before = self.bytes;
        for (stream, head) in stalled {
            let holds_back = self.holds_back() && self.is_over(receiver);
            if before - self.bytes >= excess && !holds_back {
                break;
            }
            if receiver.may_skip(head) {
                self.forget(stream);
                quic.stop(connection, stream, code::STALLED);
                receiver.give_up(head)?;
            }
        }
        Ok(())
    }

    fn is_over(&self, receiver: &Receiver) -> bool {
        receiver.is_full() || self.bytes > receiver.bytes_max()
    }

    fn may_read(&mut self, stream: StreamId, receiver: &mut Receiver) -> bool {
        if !self.is_over(receiver) {
            return true;
        }
        self.advance(receiver);
        !receiver.is_queue_full() && receiver.may_exceed() && self.turns.first() == Some(stream)
    }

    /// Learns which messages have been waited for long enough.
    fn advance(&mut self, receiver: &mut Receiver) {
        for (channel, position) in receiver.take_advanced() {
            self.turns.resolved(channel, position);
        }
    }

    /// The next stream that was left unread and may be read.
    fn next_held_back(&mut self, receiver: &mut Receiver) -> Option<StreamId> {
        let is_over = self.is_over(receiver);
        if !self.holds_back() || (is_over && (receiver.is_queue_full() || !receiver.may_exceed())) {
            return None;
        }
        self.advance(receiver);
        self.turns.take(is_over)
    }

    /// Reads all streams that may be read again. The streams that are the program's.
    pub(crate) fn resume(
        &mut self,
        quic: &mut Endpoint,
        connection: ConnectionKey,
        receiver: &mut Receiver,
    ) -> Result<Vec<StreamId>, Violation> {
        let mut of_program = Vec::new();
        while let Some(stream) = self.next_held_back(receiver) {
            if self.read(quic, connection, stream, receiver)? {
                of_program.push(stream);
            }
        }
        Ok(of_program)
    }

    /// The connection has ended: reads what waited in QUIC for room, because the other end may know that it has come.
    /// It takes the memory that QUIC had for it, which its windows bound. The streams that turn out to be the
    /// program's.
    pub(crate) fn take_rest(
        &mut self,
        quic: &mut Endpoint,
        connection: ConnectionKey,
        receiver: &mut Receiver,
    ) -> Vec<StreamId> {
        receiver.set_bound(REST_BYTES_MAX, true);
        // Who breaks rules at the connection's end breaks them for nobody.
        self.resume(quic, connection, receiver).unwrap_or_default()
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
            if !self.has(stream) {
                return Ok(false);
            }
            if !self.may_read(stream, receiver) {
                self.hold_back(stream);
                return Ok(false);
            }
            let Some(partial) = self.streams.get_mut(&stream) else {
                return Ok(false);
            };
            // The bytes after the type of a program's stream are the program's.
            let length_max = if partial.kind.is_none() { 1 } else { usize::MAX };
            let (before, had_head) = (partial.bytes.capacity(), partial.head.is_some());
            let step = match quic.read(connection, stream, length_max) {
                Ok(Read::Blocked) => return Ok(false),
                Ok(Read::Data(bytes)) => {
                    let reserve_max = RESERVE_BYTES_MAX.min(receiver.bytes_max());
                    partial.take(&bytes, self.message_bytes_max, reserve_max)?
                }
                Ok(Read::Finished) => partial.finish()?,
                Err(StreamError::Reset(_) | StreamError::Closed) => Step::Gone,
            };
            // The head's bytes go once it is whole, and the body with the message.
            self.bytes = self.bytes - before + partial.bytes.capacity();
            if let Some(head) = partial
                .head
                .filter(|head| !had_head && !receiver.is_next(head.head))
                && let Some(wait) = wait(head.head)
            {
                self.turns.waits(stream, wait);
            }
            let too_large = partial
                .head
                .filter(|head| head.length > self.message_bytes_max as u64);
            match step {
                Step::Wait => {}
                Step::Program => {
                    self.forget(stream);
                    return Ok(true);
                }
                Step::Message(head, kept) => {
                    self.forget(stream);
                    self.completed += 1;
                    receiver.handle_stream_message(head.number, head.head, kept)?;
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

    /// The stream is not read for want of room: it stands still by our fault.
    fn hold_back(&mut self, stream: StreamId) {
        self.turns.hold_back(stream);
        if let Some(partial) = self.streams.get_mut(&stream) {
            partial.seen = None;
        }
    }

    fn forget(&mut self, stream: StreamId) {
        if let Some(partial) = self.streams.remove(&stream) {
            self.bytes -= partial.bytes.capacity();
            self.turns
                .forget(stream, partial.head.and_then(|head| wait(head.head)));
        }
        debug_assert!(!self.streams.is_empty() || self.bytes == 0, "bytes of no stream");
    }
}

impl Partial {
    fn take(
        &mut self,
        mut bytes: &[u8],
        message_bytes_max: usize,
        reserve_max: usize,
    ) -> Result<Step, Violation> {
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
                // Most heads come in one piece, with the first bytes of the body behind them.
                let before = self.bytes.len();
                self.bytes
                    .extend_from_slice(&bytes[..bytes.len().min(STREAM_HEAD_BYTES_MAX - before)]);
                match StreamHead::read(kind, &self.bytes) {
                    Ok((head, used)) => {
                        bytes = &bytes[used - before..];
                        self.bytes.clear();
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
                .reserve(left.min(reserve_max.max(self.bytes.len())).max(bytes.len()));
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
                let body = std::mem::take(&mut self.bytes);
                let bytes = body.capacity();
                Ok(Step::Message(head, Kept::own(body.freeze(), bytes)))
            }
            _ => Err("a message's stream ends before the message"),
        }
    }
}

/// What a message of a channel waits for.
fn wait(head: Head) -> Option<Wait> {
    match head {
        Head::Ordered(place) => Some((place.channel, place.waits_for())),
        Head::Unordered | Head::Latest { .. } => None,
    }
}
