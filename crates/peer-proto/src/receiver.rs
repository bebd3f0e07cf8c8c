//! What comes from one peer: each message is taken once, put in its order, and waits until the program reads it; what
//! has come is acknowledged.

mod acknowledgement;
mod kept;
mod order;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use bytes::Bytes;

use crate::delivery::Received;
use crate::frame::{Head, Place};
use crate::limits::{FIRST_CREDIT, RECEIVE_BYTES_RESERVED, WINDOW_NUMBERS};
use crate::window::Window;
pub(crate) use kept::Kept;
use order::Channel;

/// The peer breaks a rule of `specs/peer.md`; a sentence for it.
pub(crate) type Violation = &'static str;

/// What became of received messages:
/// `received = delivered + superseded + overtaken + held + waiting`, where waiting are those that can be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveCounters {
    /// Whole messages that came for the first time, and were kept.
    pub received: u64,
    /// Read by the program.
    pub delivered: u64,
    /// A newer value of the key came before it was read, or before it came.
    pub superseded: u64,
    /// Later messages of the channel were delivered before it came.
    pub overtaken: u64,
    /// Waiting for earlier messages of their channel.
    pub held: u64,
    /// Came once more; not in `received`.
    pub duplicates: u64,
    /// Not kept, and not acknowledged, because the program reads too slowly; not in `received`.
    pub no_room: u64,
    /// Messages that are longer than this end takes; not in `received`.
    pub too_large: u64,
    /// Incomplete messages that stood still while room was short, and were refused; not in `received`.
    pub stalled: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Receiver {
    message_bytes_max: usize,
    packet_bytes_max: usize,
    /// Packets have memory of their own.
    packets_are_copies: bool,
    /// What it may keep at present, in bytes, and whether one message may go beyond it.
    bytes_max: usize,
    may_exceed: bool,
    window: Window,
    channels: BTreeMap<u32, Channel>,
    /// Channels that went on since the last question.
    advanced: BTreeSet<u32>,
    /// The newest version of each key, and the place in the whole queue of one that can be read.
    latest: BTreeMap<u32, (u64, Option<u64>)>,
    /// With the bytes that each keeps.
    queue: VecDeque<(Received, usize)>,
    /// Messages that were read.
    read: u64,
    queued_bytes: usize,
    held_bytes: usize,
    /// Numbers below this may be sent, as the peer was told.
    credit: u64,
    /// The most that the body of a DATAGRAM frame kept.
    largest: usize,
    /// Frames that wait for an acknowledgement, and until when.
    unacknowledged: u32,
    ack_due: Option<Instant>,
    pub(crate) counters: ReceiveCounters,
}

impl Receiver {
    pub(crate) fn new(message_bytes_max: usize, packet_bytes_max: u16) -> Self {
        Self {
            message_bytes_max,
            packet_bytes_max: packet_bytes_max.into(),
            bytes_max: RECEIVE_BYTES_RESERVED,
            credit: FIRST_CREDIT,
            ..Self::default()
        }
    }

    /// Whether packets are copied out of the buffers that they are received in, from here on.
    pub(crate) fn set_packets_are_copies(&mut self, copies: bool) {
        self.packets_are_copies = copies;
    }

    /// A MESSAGE in a DATAGRAM frame.
    pub(crate) fn handle_message(
        &mut self,
        now: Instant,
        number: u64,
        head: Head,
        body: Bytes,
    ) -> Result<(), Violation> {
        if number >= self.credit {
            return Err("a number is beyond its credit");
        }
        if self.is_repeated(now, number) {
            return Ok(());
        }
        if body.len() > self.message_bytes_max {
            self.take_number(now, number);
            return self.refuse(head);
        }
        // Without this exception, messages that wait could keep out the one that they wait for.
        if self.is_full() && !(self.is_next(head) && self.queued_bytes <= self.bytes_max) {
            self.counters.no_room += 1;
            return Ok(());
        }
        self.take_number(now, number);
        let kept = Kept::out_of_packet(body, self.packets_are_copies.then_some(self.packet_bytes_max));
        self.largest = self.largest.max(kept.bytes);
        self.deliver(head, kept)
    }

    /// A SKIP.
    pub(crate) fn handle_skip(&mut self, now: Instant, number: u64, place: Place) -> Result<(), Violation> {
        if number >= self.credit.max(self.window.end()) + WINDOW_NUMBERS {
            return Err("a number is beyond its window");
        }
        if self.is_repeated(now, number) {
            return Ok(());
        }
        if self.held_bytes > 2 * self.bytes_max && !self.is_next(Head::Ordered(place)) {
            return Ok(());
        }
        self.take_number(now, number);
        self.place(place, None)
    }

    /// A whole message that came on a stream.
    pub(crate) fn handle_stream_message(
        &mut self,
        number: Option<u64>,
        head: Head,
        kept: Kept,
    ) -> Result<(), Violation> {
        if let Some(number) = number {
            if number >= self.credit {
                return Err("a number is beyond its credit");
            }
            if self.window.has(number) {
                self.counters.duplicates += 1;
                return Ok(());
            }
            self.window.insert(number);
        }
        self.deliver(head, kept)
    }

    /// A message that is longer than we take (PEER-14). Its sender may believe that it came, and send no SKIP.
    pub(crate) fn refuse(&mut self, head: Head) -> Result<(), Violation> {
        self.counters.too_large += 1;
        if !self.may_skip(head) {
            return Err("too many messages that are too long");
        }
        self.skip(head)
    }

    /// A message that came too slowly (PEER-21).
    pub(crate) fn give_up(&mut self, head: Head) -> Result<(), Violation> {
        self.counters.stalled += 1;
        self.skip(head)
    }

    /// Whether there is room to note that the message will not come.
    pub(crate) fn may_skip(&self, head: Head) -> bool {
        self.held_bytes <= 2 * self.bytes_max || self.is_next(head)
    }

    /// The message will not come.
    fn skip(&mut self, head: Head) -> Result<(), Violation> {
        match head {
            Head::Ordered(place) => self.place(place, None),
            Head::Unordered | Head::Latest { .. } => Ok(()),
        }
    }

    /// Sets how much it may keep from here on, and whether one message may go beyond it.
    pub(crate) fn set_bound(&mut self, bytes_max: usize, may_exceed: bool) {
        (self.bytes_max, self.may_exceed) = (bytes_max, may_exceed);
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    pub(crate) fn may_exceed(&self) -> bool {
        self.may_exceed
    }

    /// Bytes that it keeps.
    pub(crate) fn bytes(&self) -> usize {
        self.queued_bytes + self.held_bytes
    }

    /// Whether what was received and not read fills its bound.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes() > self.bytes_max
    }

    /// Whether what can be read fills the bound by itself.
    pub(crate) fn is_queue_full(&self) -> bool {
        self.queued_bytes > self.bytes_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::COPIED_BYTES_MAX;
    use crate::limits::MESSAGE_COST_BYTES;

    #[test]
    fn a_short_body_does_not_keep_its_packet_and_a_long_one_counts_as_all_of_it() {
        let now = sim::Clock::default().now();
        let mut receiver = Receiver::new(1 << 20, 1_452);
        receiver.set_packets_are_copies(true);
        let packet = Bytes::from(vec![7; 1_400]);
        let taken = receiver.handle_message(now, 0, Head::Unordered, packet.slice(..100));
        assert_eq!((taken, packet.is_unique()), (Ok(()), true));
        assert_eq!(receiver.bytes(), 100 + MESSAGE_COST_BYTES);
        let taken = receiver.handle_message(now, 1, Head::Unordered, packet.slice(..1_000));
        assert_eq!((taken, packet.is_unique()), (Ok(()), false));
        assert_eq!(receiver.bytes(), 100 + 1_452 + 2 * MESSAGE_COST_BYTES);
        let bodies = std::iter::from_fn(|| receiver.read(now)).map(|received| received.body.len());
        assert_eq!(bodies.collect::<Vec<_>>(), [100, 1_000]);
        assert_eq!(receiver.bytes(), 0);
    }

    #[test]
    fn what_lies_in_the_receive_buffer_is_not_copied_unless_it_is_very_short() {
        let now = sim::Clock::default().now();
        let mut receiver = Receiver::new(1 << 20, 16_376);
        let packet = Bytes::from(vec![7; 1_400]);
        let taken = receiver.handle_message(now, 0, Head::Unordered, packet.slice(..COPIED_BYTES_MAX));
        assert_eq!((taken, packet.is_unique()), (Ok(()), true));
        let taken = receiver.handle_message(now, 1, Head::Unordered, packet.slice(..1_000));
        assert_eq!((taken, packet.is_unique()), (Ok(()), false));
        let kept = COPIED_BYTES_MAX + 1_000 + 2 * MESSAGE_COST_BYTES;
        assert_eq!(receiver.bytes(), kept);
    }
}
