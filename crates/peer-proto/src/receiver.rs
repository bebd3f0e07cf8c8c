//! What comes from one peer: each message is taken once, put in its order, and waits until the program reads it; what
//! has come is acknowledged.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use bytes::Bytes;

use crate::delivery::{Order, Received};
use crate::frame::{Ack, Head, Place};
use crate::limits::{
    ACK_AFTER, ACK_DELAY, CHANNELS_MAX, FIRST_CREDIT, KEYS_MAX, MESSAGE_COST_BYTES, RECEIVE_BYTES_RESERVED,
    WINDOW_NUMBERS,
};
use crate::window::Window;

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
}

/// A body, and the bytes of memory that it keeps.
#[derive(Debug)]
pub(crate) struct Kept {
    body: Bytes,
    bytes: usize,
}

impl Kept {
    /// A body that has memory of its own.
    pub(crate) fn own(body: Bytes, bytes: usize) -> Self {
        Self { body, bytes }
    }

    /// A body out of a packet of at most `packet_bytes_max` bytes. A short one would keep all of the packet.
    fn out_of_packet(body: Bytes, packet_bytes_max: usize) -> Self {
        let length = body.len();
        if length < packet_bytes_max / 2 {
            Self::own(Bytes::copy_from_slice(&body), length)
        } else {
            Self::own(body, length.max(packet_bytes_max))
        }
    }
}

#[derive(Debug, Default)]
struct Channel {
    /// The highest position that was delivered or skipped.
    resolved: u64,
    /// Later ones, which wait; without a body where skipped.
    held: BTreeMap<u64, (Place, Option<Kept>)>,
}

#[derive(Debug, Default)]
pub(crate) struct Receiver {
    message_bytes_max: usize,
    packet_bytes_max: usize,
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
        let kept = Kept::out_of_packet(body, self.packet_bytes_max);
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
        let Head::Ordered(place) = head else {
            return Ok(());
        };
        if self.held_bytes > 2 * self.bytes_max && !self.is_next(head) {
            return Err("too many messages that are too long");
        }
        self.place(place, None)
    }

    /// An acknowledgement was asked for.
    pub(crate) fn handle_probe(&mut self, now: Instant) {
        self.ack_due = Some(now);
    }

    fn is_repeated(&mut self, now: Instant, number: u64) -> bool {
        let has_come = self.window.has(number);
        if has_come {
            self.counters.duplicates += 1;
            // Its acknowledgement was lost.
            self.ack_due = Some(now);
        }
        has_come
    }

    fn take_number(&mut self, now: Instant, number: u64) {
        self.window.insert(number);
        self.unacknowledged += 1;
        let due = if self.unacknowledged >= ACK_AFTER {
            now
        } else {
            now + ACK_DELAY
        };
        self.ack_due = Some(self.ack_due.map_or(due, |earlier| earlier.min(due)));
    }

    /// Whether a message can be delivered as soon as it is whole.
    pub(crate) fn is_next(&self, head: Head) -> bool {
        match head {
            Head::Unordered | Head::Latest { .. } => true,
            Head::Ordered(place) => {
                let channel = self.channels.get(&place.channel);
                place.waits_for() <= channel.map_or(0, |channel| channel.resolved)
            }
        }
    }

    fn deliver(&mut self, head: Head, kept: Kept) -> Result<(), Violation> {
        self.counters.received += 1;
        match head {
            Head::Unordered => self.enqueue(Order::Unordered, kept, false),
            Head::Ordered(place) => self.place(place, Some(kept))?,
            Head::Latest { key, version } => self.replace(key, version, kept)?,
        }
        Ok(())
    }

    /// Takes a message of a channel, or its absence, and delivers what it was waited for.
    fn place(&mut self, place: Place, kept: Option<Kept>) -> Result<(), Violation> {
        if !self.channels.contains_key(&place.channel) && self.channels.len() >= CHANNELS_MAX {
            return Err("too many ordered channels");
        }
        let counts = kept.is_some();
        let channel = self.channels.entry(place.channel).or_default();
        if place.position <= channel.resolved || channel.held.contains_key(&place.position) {
            self.counters.overtaken += u64::from(counts);
            return Ok(());
        }
        self.held_bytes += cost(kept.as_ref());
        self.counters.held += u64::from(counts);
        channel.held.insert(place.position, (place, kept));
        let mut ready = Vec::new();
        while let Some(first) = channel.held.first_entry()
            && first.get().0.waits_for() <= channel.resolved
        {
            let (place, kept) = first.remove();
            channel.resolved = place.position;
            ready.push(kept);
        }
        if !ready.is_empty() {
            self.advanced.insert(place.channel);
        }
        self.release(place.channel, ready, false);
        Ok(())
    }

    /// Lets messages of a channel be read.
    fn release(&mut self, channel: u32, ready: impl IntoIterator<Item = Option<Kept>>, is_behind_gap: bool) {
        for kept in ready {
            self.held_bytes -= cost(kept.as_ref());
            if let Some(kept) = kept {
                self.counters.held -= 1;
                self.enqueue(Order::Ordered(channel), kept, is_behind_gap);
            }
        }
    }

    /// The connection has ended: nothing comes any more that messages could wait for.
    pub(crate) fn end(&mut self) {
        for (channel, of_channel) in std::mem::take(&mut self.channels) {
            let waiting = of_channel.held.into_values().map(|(_, kept)| kept);
            self.release(channel, waiting, true);
        }
    }

    fn replace(&mut self, key: u32, version: u64, kept: Kept) -> Result<(), Violation> {
        if !self.latest.contains_key(&key) && self.latest.len() >= KEYS_MAX {
            return Err("too many keys of latest values");
        }
        let (newest, queued) = self.latest.entry(key).or_default();
        if version <= *newest {
            self.counters.superseded += 1;
            return Ok(());
        }
        *newest = version;
        let next = self.read + self.queue.len() as u64;
        let waiting = queued.filter(|place| *place >= self.read);
        *queued = Some(waiting.unwrap_or(next));
        match waiting {
            Some(place) => {
                let (older, bytes) = &mut self.queue[(place - self.read) as usize];
                self.queued_bytes = self.queued_bytes - *bytes + kept.bytes;
                (older.body, *bytes) = (kept.body, kept.bytes);
                self.counters.superseded += 1;
            }
            None => self.enqueue(Order::Latest(key), kept, false),
        }
        Ok(())
    }

    fn enqueue(&mut self, order: Order, kept: Kept, is_behind_gap: bool) {
        self.queued_bytes += cost(Some(&kept));
        let received = Received {
            body: kept.body,
            order,
            is_behind_gap,
        };
        self.queue.push_back((received, kept.bytes));
    }

    /// Messages that can be read.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// The next message.
    pub(crate) fn read(&mut self, now: Instant) -> Option<Received> {
        let (received, bytes) = self.queue.pop_front()?;
        self.read += 1;
        self.counters.delivered += 1;
        self.queued_bytes -= bytes + MESSAGE_COST_BYTES;
        // A sender that waits for credit hears of room before it has used up the rest.
        let step = if self.queue.is_empty() {
            FIRST_CREDIT / 2
        } else {
            WINDOW_NUMBERS / 32
        };
        if self.credit_now() >= self.credit + step {
            self.ack_due.get_or_insert(now + ACK_DELAY);
        }
        Some(received)
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

    /// Channels that went on since the last question, each with the position up to which nothing waits any more.
    pub(crate) fn take_advanced(&mut self) -> impl Iterator<Item = (u32, u64)> {
        let channels = &self.channels;
        std::mem::take(&mut self.advanced)
            .into_iter()
            .filter_map(|number| channels.get(&number).map(|channel| (number, channel.resolved)))
    }

    /// Whether what was received and not read fills its bound.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes() > self.bytes_max
    }

    /// Whether what can be read fills the bound by itself.
    pub(crate) fn is_queue_full(&self) -> bool {
        self.queued_bytes > self.bytes_max
    }

    /// When an acknowledgement is to be sent.
    pub(crate) fn ack_due(&self) -> Option<Instant> {
        self.ack_due
    }

    /// The acknowledgement to send now.
    pub(crate) fn take_ack(&mut self) -> Ack {
        self.ack_due = None;
        self.unacknowledged = 0;
        self.credit = self.credit.max(self.credit_now());
        Ack {
            credit: self.credit,
            runs: self.window.runs(),
        }
    }

    /// The credit that the room allows, where numbers beyond those that came bring the largest bodies.
    fn credit_now(&self) -> u64 {
        let room = self.bytes_max.saturating_sub(self.bytes());
        // Where only messages that wait fill it, what they wait for may need a number yet.
        let room = if self.queued_bytes <= self.bytes_max / 2 {
            room.max(RECEIVE_BYTES_RESERVED)
        } else {
            room
        };
        let numbers = (room / (self.largest.max(1_200) + MESSAGE_COST_BYTES)) as u64;
        self.window.end() + numbers.min(WINDOW_NUMBERS / 2)
    }
}

fn cost(kept: Option<&Kept>) -> usize {
    kept.map_or(0, |kept| kept.bytes) + MESSAGE_COST_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_body_does_not_keep_its_packet_and_a_long_one_counts_as_all_of_it() {
        let now = sim::Clock::default().now();
        let mut receiver = Receiver::new(1 << 20, 1_452);
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
}
