//! What comes from one peer: each message is taken once, put in its order, and waits until the program reads it; what
//! has come is acknowledged.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use bytes::Bytes;

use crate::delivery::{Order, Received};
use crate::frame::{Ack, Head, Place};
use crate::limits::{
    ACK_AFTER, ACK_DELAY, CHANNELS_MAX, FIRST_CREDIT, KEYS_MAX, MESSAGE_COST_BYTES, RECEIVE_BYTES_MAX,
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

#[derive(Debug, Default)]
struct Channel {
    /// The highest position that was delivered or skipped.
    resolved: u64,
    /// Later ones, which wait; without a body where skipped.
    held: BTreeMap<u64, (Place, Option<Bytes>)>,
}

#[derive(Debug, Default)]
pub(crate) struct Receiver {
    message_bytes_max: usize,
    window: Window,
    channels: BTreeMap<u32, Channel>,
    /// The newest version of each key, and the place in the whole queue of one that can be read.
    latest: BTreeMap<u32, (u64, Option<u64>)>,
    queue: VecDeque<Received>,
    /// Messages that were read.
    read: u64,
    queued_bytes: usize,
    held_bytes: usize,
    /// Numbers below this may be sent, as the peer was told.
    credit: u64,
    /// The largest body that a DATAGRAM frame brought.
    largest: usize,
    /// Frames that wait for an acknowledgement, and until when.
    unacknowledged: u32,
    ack_due: Option<Instant>,
    pub(crate) counters: ReceiveCounters,
}

impl Receiver {
    pub(crate) fn new(message_bytes_max: usize) -> Self {
        Self {
            message_bytes_max,
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
        self.largest = self.largest.max(body.len());
        // Without this exception, messages that wait could keep out the one that they wait for.
        if self.is_full() && !(self.is_next(head) && self.queued_bytes <= RECEIVE_BYTES_MAX) {
            self.counters.no_room += 1;
            return Ok(());
        }
        self.take_number(now, number);
        self.deliver(head, body)
    }

    /// A SKIP.
    pub(crate) fn handle_skip(&mut self, now: Instant, number: u64, place: Place) -> Result<(), Violation> {
        if number >= self.credit.max(self.window.end()) + WINDOW_NUMBERS {
            return Err("a number is beyond its window");
        }
        if self.is_repeated(now, number) {
            return Ok(());
        }
        if self.held_bytes > 2 * RECEIVE_BYTES_MAX && !self.is_next(Head::Ordered(place)) {
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
        body: Bytes,
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
        self.deliver(head, body)
    }

    /// A message that is longer than we take (PEER-14). Its sender may believe that it came, and send no SKIP.
    pub(crate) fn refuse(&mut self, head: Head) -> Result<(), Violation> {
        self.counters.too_large += 1;
        let Head::Ordered(place) = head else {
            return Ok(());
        };
        if self.held_bytes > 2 * RECEIVE_BYTES_MAX && !self.is_next(head) {
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

    fn deliver(&mut self, head: Head, body: Bytes) -> Result<(), Violation> {
        self.counters.received += 1;
        match head {
            Head::Unordered => self.enqueue(Order::Unordered, body),
            Head::Ordered(place) => self.place(place, Some(body))?,
            Head::Latest { key, version } => self.replace(key, version, body)?,
        }
        Ok(())
    }

    /// Takes a message of a channel, or its absence, and delivers what it was waited for.
    fn place(&mut self, place: Place, body: Option<Bytes>) -> Result<(), Violation> {
        if !self.channels.contains_key(&place.channel) && self.channels.len() >= CHANNELS_MAX {
            return Err("too many ordered channels");
        }
        let counts = body.is_some();
        let channel = self.channels.entry(place.channel).or_default();
        if place.position <= channel.resolved || channel.held.contains_key(&place.position) {
            self.counters.overtaken += u64::from(counts);
            return Ok(());
        }
        self.held_bytes += cost(body.as_ref());
        self.counters.held += u64::from(counts);
        channel.held.insert(place.position, (place, body));
        let mut ready = Vec::new();
        while let Some(first) = channel.held.first_entry()
            && first.get().0.waits_for() <= channel.resolved
        {
            let (place, body) = first.remove();
            channel.resolved = place.position;
            ready.push(body);
        }
        for body in ready {
            self.held_bytes -= cost(body.as_ref());
            if let Some(body) = body {
                self.counters.held -= 1;
                self.enqueue(Order::Ordered(place.channel), body);
            }
        }
        Ok(())
    }

    fn replace(&mut self, key: u32, version: u64, body: Bytes) -> Result<(), Violation> {
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
                let older = &mut self.queue[(place - self.read) as usize].body;
                self.queued_bytes = self.queued_bytes - older.len() + body.len();
                *older = body;
                self.counters.superseded += 1;
            }
            None => self.enqueue(Order::Latest(key), body),
        }
        Ok(())
    }

    fn enqueue(&mut self, order: Order, body: Bytes) {
        self.queued_bytes += cost(Some(&body));
        self.queue.push_back(Received { body, order });
    }

    /// Messages that can be read.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// The next message.
    pub(crate) fn read(&mut self, now: Instant) -> Option<Received> {
        let received = self.queue.pop_front()?;
        self.read += 1;
        self.counters.delivered += 1;
        self.queued_bytes -= cost(Some(&received.body));
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

    /// Whether what was received and not read fills its bound.
    pub(crate) fn is_full(&self) -> bool {
        self.queued_bytes + self.held_bytes > RECEIVE_BYTES_MAX
    }

    /// Whether what can be read fills the bound by itself.
    pub(crate) fn is_queue_full(&self) -> bool {
        self.queued_bytes > RECEIVE_BYTES_MAX
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
        let room = RECEIVE_BYTES_MAX.saturating_sub(self.queued_bytes + self.held_bytes);
        let numbers = (room / (self.largest.max(1_200) + MESSAGE_COST_BYTES)) as u64;
        self.window.end() + numbers.min(WINDOW_NUMBERS / 2)
    }
}

fn cost(body: Option<&Bytes>) -> usize {
    body.map_or(0, Bytes::len) + MESSAGE_COST_BYTES
}
