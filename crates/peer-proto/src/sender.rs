//! Messages to one peer, from the program's call to the end of their tickets.
//!
//! A message waits in the queue of its priority, and leaves in a DATAGRAM frame or on a stream of its own. What is lost
//! ([`loss`]) is repeated with the same number, or given up. An entry lives until its ticket has ended, and a SKIP
//! until it is acknowledged.

mod channels;
mod loss;
mod streams;
mod table;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use quic::StreamId;

use crate::delivery::{Delivery, DropReason, Outcome, Reliability, Ticket};
use crate::error::SendError;
use crate::frame::{Ack, Frame, Head};
use crate::limits::{ARENA_BYTES, FIRST_CREDIT, MESSAGE_COST_BYTES, STALE_MAX, WINDOW_NUMBERS};
use channels::ChannelEnd;
use loss::Flight;
use table::Table;

/// What became of the messages that were taken for sending:
/// `accepted = acked + expired + superseded + lost + refused + connection_ended + pending`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCounters {
    /// Taken.
    pub accepted: u64,
    /// The peer has them.
    pub acked: u64,
    /// Their deadline passed.
    pub expired: u64,
    /// Dropped as [`DropReason::Superseded`].
    pub superseded: u64,
    /// Dropped as [`DropReason::Lost`].
    pub lost: u64,
    /// Dropped as [`DropReason::Refused`].
    pub refused: u64,
    /// Dropped as [`DropReason::ConnectionEnded`].
    pub connection_ended: u64,
    /// Waiting or under way.
    pub pending: u64,
    /// Sent once more; says nothing of tickets.
    pub repeated: u64,
}

/// Where a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It waits to leave in a DATAGRAM frame.
    Queued,
    /// It left in a DATAGRAM frame, as the so many-th that did.
    Flying(u64),
    /// It waits for a stream.
    WantsStream,
    /// It is on a stream.
    Streaming(StreamId),
}

#[derive(Debug)]
struct Entry {
    head: Head,
    /// What is not on a stream yet: the stream's head, and the body.
    parts: [Bytes; 2],
    cost: usize,
    priority: u8,
    reliability: Reliability,
    expires: Option<Instant>,
    /// Since it first left in a DATAGRAM frame.
    number: Option<u64>,
    repeats: u32,
    stage: Stage,
    /// It stands for a message that was given up, and has no ticket.
    is_skip: bool,
}

#[derive(Debug)]
pub(crate) struct Sender {
    bytes_max: usize,
    bytes: usize,
    /// Messages that cost more than `bytes_max`, at most one.
    oversized: usize,
    /// How much may be held at most for a caller that wants room.
    wants_room: Option<usize>,
    entries: Table<Entry>,
    /// By priority, in order of sending; some may have ended meanwhile.
    queues: BTreeMap<Reverse<u8>, VecDeque<u64>>,
    /// Lost ones, which leave before all others.
    repeats: VecDeque<u64>,
    /// Entries that ended in a queue since stale ones were last taken out of all queues.
    stale: usize,
    /// SKIPs, which leave before all messages.
    skips: VecDeque<u64>,
    for_streams: BTreeMap<Reverse<u8>, VecDeque<u64>>,
    streams: BTreeMap<StreamId, u64>,
    /// Entries by number.
    numbers: Table<u64>,
    credit: u64,
    flights: VecDeque<Flight>,
    flights_begun: u64,
    /// The latest flight that was acknowledged.
    acknowledged: Option<u64>,
    probe_doublings: u32,
    /// Since when it waits for credit, or for the answer to the last PROBE.
    starved_since: Option<Instant>,
    probe_due: bool,
    expiries: BTreeSet<(Instant, u64)>,
    channels: BTreeMap<u32, ChannelEnd>,
    /// The newest version of each key, and its entry.
    latest: BTreeMap<u32, (u64, u64)>,
    ended: VecDeque<(Ticket, Outcome)>,
    /// Streams of messages that expired.
    resets: Vec<StreamId>,
    pub(crate) counters: SendCounters,
}

impl Sender {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            bytes: 0,
            oversized: 0,
            wants_room: None,
            entries: Table::default(),
            queues: BTreeMap::new(),
            repeats: VecDeque::new(),
            stale: 0,
            skips: VecDeque::new(),
            for_streams: BTreeMap::new(),
            streams: BTreeMap::new(),
            numbers: Table::default(),
            credit: FIRST_CREDIT,
            flights: VecDeque::new(),
            flights_begun: 0,
            acknowledged: None,
            probe_doublings: 0,
            starved_since: None,
            probe_due: false,
            expiries: BTreeSet::new(),
            channels: BTreeMap::new(),
            latest: BTreeMap::new(),
            ended: VecDeque::new(),
            resets: Vec::new(),
            counters: SendCounters::default(),
        }
    }

    /// Takes a message; `frame_bytes_max` is what a DATAGRAM frame holds at present.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        body: Bytes,
        delivery: Delivery,
        frame_bytes_max: usize,
    ) -> Result<Ticket, SendError> {
        let cost = body.len() + MESSAGE_COST_BYTES;
        // A message that is longer than all room would never find enough of it beside shorter ones.
        let is_full = if cost > self.bytes_max {
            self.oversized > 0
        } else {
            self.bytes + cost > self.bytes_max
        };
        if is_full {
            self.want_room(self.bytes_max / 2);
            return Err(SendError::Full);
        }
        let id = self.entries.next_id();
        let head = self.head(delivery, id)?;
        let expires = match delivery.reliability {
            Reliability::Deadline(after) => now.checked_add(after),
            Reliability::Unreliable | Reliability::Reliable => None,
        };
        if let Some(expires) = expires {
            self.expiries.insert((expires, id));
        }
        let priority = self.priority(delivery);
        let fits = head.frame_bytes(self.numbers.next_id()) + body.len() <= frame_bytes_max;
        self.add(Entry {
            head,
            parts: [Bytes::new(), body],
            cost,
            priority,
            reliability: delivery.reliability,
            expires,
            number: None,
            repeats: 0,
            stage: if fits { Stage::Queued } else { Stage::WantsStream },
            is_skip: false,
        });
        self.counters.accepted += 1;
        self.counters.pending += 1;
        Ok(Ticket(id))
    }

    /// Puts an entry in the queue of its stage.
    fn add(&mut self, entry: Entry) {
        self.bytes += entry.cost;
        self.oversized += usize::from(entry.cost > self.bytes_max);
        if let Some(channel) = entry.waits_in_channel() {
            self.channels.entry(channel).or_default().waiting += 1;
        }
        let queue = match entry.stage {
            _ if entry.is_skip => &mut self.skips,
            Stage::WantsStream => self.for_streams.entry(Reverse(entry.priority)).or_default(),
            _ => self.queues.entry(Reverse(entry.priority)).or_default(),
        };
        queue.push_back(self.entries.push(entry));
    }

    /// Ends the entry and its ticket.
    fn end(&mut self, id: u64, outcome: Outcome) {
        let Some(entry) = self.entries.remove(id) else {
            return;
        };
        self.bytes -= entry.cost;
        self.oversized -= usize::from(entry.cost > self.bytes_max);
        Self::leave(&mut self.channels, entry.waits_in_channel());
        if matches!(entry.stage, Stage::Queued | Stage::WantsStream) {
            self.stale += 1;
            self.purge();
        }
        if let Some(number) = entry.number {
            self.numbers.remove(number);
        }
        if let Stage::Streaming(stream) = entry.stage {
            self.streams.remove(&stream);
        }
        if let Some(expires) = entry.expires {
            self.expiries.remove(&(expires, id));
        }
        if entry.is_skip {
            return;
        }
        let counters = &mut self.counters;
        counters.pending -= 1;
        *match outcome {
            Outcome::Acked => &mut counters.acked,
            Outcome::Expired => &mut counters.expired,
            Outcome::Dropped(DropReason::Superseded) => &mut counters.superseded,
            Outcome::Dropped(DropReason::Lost) => &mut counters.lost,
            Outcome::Dropped(DropReason::Refused) => &mut counters.refused,
            Outcome::Dropped(DropReason::ConnectionEnded) => &mut counters.connection_ended,
        } += 1;
        self.ended.push_back((Ticket(id), outcome));
        if matches!(outcome, Outcome::Expired | Outcome::Dropped(DropReason::Refused))
            && entry.reliability != Reliability::Unreliable
            && let Head::Ordered(place) = entry.head
        {
            // Later messages wait for it (PEER-8).
            self.add(Entry {
                head: Head::Ordered(place),
                parts: [Bytes::new(), Bytes::new()],
                cost: MESSAGE_COST_BYTES,
                priority: entry.priority,
                reliability: Reliability::Reliable,
                expires: None,
                number: None,
                repeats: 0,
                stage: Stage::Queued,
                is_skip: true,
            });
        }
    }

    /// Takes ended entries out of the queues: while nothing may leave, values of a key could supersede each other and
    /// messages could expire without end.
    fn purge(&mut self) {
        if self.stale <= STALE_MAX + self.counters.pending as usize {
            return;
        }
        self.stale = 0;
        let queues = self.queues.values_mut().chain(self.for_streams.values_mut());
        for queue in queues.chain([&mut self.repeats, &mut self.skips]) {
            queue.retain(|id| self.entries.get(*id).is_some());
        }
    }

    /// The connection has ended, and every ticket with it.
    pub(crate) fn end_all(&mut self) {
        self.queues.clear();
        self.skips.clear();
        for id in self.entries.ids() {
            self.end(id, Outcome::Dropped(DropReason::ConnectionEnded));
        }
    }

    pub(crate) fn poll_ended(&mut self) -> Option<(Ticket, Outcome)> {
        self.ended.pop_front()
    }

    /// A caller wants to know once no more than `held_max` bytes wait or are under way.
    pub(crate) fn want_room(&mut self, held_max: usize) {
        self.wants_room = self.wants_room.max(Some(held_max));
    }

    /// Whether a caller wants room, and there is enough; told once.
    pub(crate) fn take_room(&mut self) -> bool {
        let has_room = |held_max: &mut usize| self.bytes <= *held_max;
        self.wants_room.take_if(has_room).is_some()
    }

    /// Whether something could leave in a DATAGRAM frame.
    pub(crate) fn waits(&self) -> bool {
        self.probe_due
            || !self.repeats.is_empty()
            || (self.may_skip() && !self.skips.is_empty())
            || (self.may_number() && self.queues.values().any(|queue| !queue.is_empty()))
    }

    /// Whether a message may have another number (PEER-5, PEER-12).
    fn may_number(&self) -> bool {
        self.may_skip() && self.numbers.next_id() < self.credit
    }

    /// Whether a SKIP may have another number (PEER-5).
    fn may_skip(&self) -> bool {
        self.numbers.next_id() < self.numbers.first_id() + WINDOW_NUMBERS
    }

    /// The next frame of at most `room` bytes. What fits no frame of `size_max` bytes is left to a stream.
    pub(crate) fn next_frame(
        &mut self,
        now: Instant,
        size_max: usize,
        room: usize,
        arena: &mut BytesMut,
    ) -> Option<Bytes> {
        if self.probe_due {
            self.probe_due = false;
            self.starved_since = Some(now);
            return Some(cut(&Frame::Probe, 1, arena));
        }
        while let Some(id) = self.front() {
            let number = match self.entries.get(id).filter(|entry| entry.stage == Stage::Queued) {
                Some(entry) => entry.number.unwrap_or(self.numbers.next_id()),
                None => {
                    self.pop_front();
                    continue;
                }
            };
            let entry = self.entries.get_mut(id)?;
            let bytes = entry.head.frame_bytes(number) + entry.parts[1].len();
            if bytes > size_max && !entry.is_skip {
                entry.stage = Stage::WantsStream;
                let queue = self.for_streams.entry(Reverse(entry.priority)).or_default();
                queue.push_back(id);
                self.pop_front();
                continue;
            }
            if bytes > room {
                return None;
            }
            if entry.number.is_none() {
                Self::leave(&mut self.channels, entry.waits_in_channel());
                entry.number = Some(self.numbers.push(id));
            }
            entry.stage = Stage::Flying(self.flights_begun);
            let frame = match (entry.is_skip, entry.head) {
                (true, Head::Ordered(place)) => Frame::Skip { number, place },
                (_, head) => Frame::Message {
                    number,
                    head,
                    body: entry.parts[1].clone(),
                },
            };
            self.flights.push_back(Flight {
                id,
                order: self.flights_begun,
                at: now,
            });
            self.flights_begun += 1;
            self.pop_front();
            return Some(cut(&frame, bytes, arena));
        }
        None
    }

    /// The next entry that may leave in a DATAGRAM frame.
    fn front(&self) -> Option<u64> {
        let skip = || self.skips.front().filter(|_| self.may_skip());
        let new = || self.queues.values().find_map(VecDeque::front);
        let first = self.repeats.front().or_else(skip);
        first.or_else(|| self.may_number().then(new).flatten()).copied()
    }

    fn pop_front(&mut self) {
        let is_older = self.repeats.pop_front().is_some() || self.skips.pop_front().is_some();
        if !is_older && let Some(queue) = self.queues.values_mut().find(|queue| !queue.is_empty()) {
            queue.pop_front();
        }
    }

    /// Bytes of messages that wait or are under way, with what each costs besides.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Writes a frame of `bytes` bytes to the arena's end and cuts it off.
fn cut(frame: &Frame, bytes: usize, arena: &mut BytesMut) -> Bytes {
    if arena.capacity() < bytes {
        arena.reserve(bytes.max(ARENA_BYTES));
    }
    frame.write(arena);
    debug_assert_eq!(arena.len(), bytes);
    arena.split().freeze()
}

/// An acknowledgement as a frame of at most `room` bytes, without the lowest runs where they do not fit.
pub(crate) fn ack_frame(mut ack: Ack, room: usize, arena: &mut BytesMut) -> Option<Bytes> {
    loop {
        ack.write(arena);
        if arena.len() <= room {
            return Some(arena.split().freeze());
        }
        arena.clear();
        ack.runs.pop()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_supersede_each_other_before_they_leave_take_no_room() {
        let now = sim::Clock::default().now();
        let mut sender = Sender::new(1 << 20);
        for _ in 0..100_000 {
            let sent = sender.send(now, Bytes::from_static(b"value"), Delivery::latest(1), 1_200);
            assert!(sent.is_ok());
        }
        let queued: usize = sender.queues.values().map(VecDeque::len).sum();
        assert!(queued <= STALE_MAX + 2, "{queued} entries");
    }
}
