//! Messages to one peer, from the program's call to the end of their tickets.
//!
//! A message waits in the queue of its priority, and leaves in a DATAGRAM frame or on a stream of its own. What left
//! in a DATAGRAM frame is lost when a frame that left later was acknowledged and 1.5 round trips have passed, or when
//! nothing was heard for a probe timeout; it is then repeated with the same number, or given up. An entry lives until
//! its ticket has ended, and a SKIP until it is acknowledged.

mod table;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quic::StreamId;

use crate::delivery::{Delivery, DropReason, Order, Outcome, Reliability, Ticket};
use crate::error::SendError;
use crate::frame::{Ack, Frame, Head, Place, StreamHead};
use crate::limits::{
    ACK_DELAY, ARENA_BYTES, CHANNELS_MAX, FIRST_CREDIT, KEYS_MAX, LOSS_ROUND_TRIP_EIGHTHS, LOSS_TIME_MIN,
    MESSAGE_COST_BYTES, PROBE_DOUBLINGS_MAX, PROBE_SLACK, STALE_MAX, WINDOW_NUMBERS,
};
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

impl Entry {
    /// Whether it counts in [`ChannelEnd::waiting`] of its channel.
    fn waits_in_channel(&self) -> Option<u32> {
        let waits = !self.is_skip
            && self.number.is_none()
            && matches!(self.stage, Stage::Queued | Stage::WantsStream);
        match self.head {
            Head::Ordered(place) if waits => Some(place.channel),
            _ => None,
        }
    }
}

/// A DATAGRAM frame that left.
#[derive(Clone, Copy, Debug)]
struct Flight {
    id: u64,
    order: u64,
    at: Instant,
}

#[derive(Debug, Default)]
struct ChannelEnd {
    position: u64,
    /// Messages that have not left yet, and the priority of the last one.
    waiting: usize,
    priority: u8,
    /// The highest position whose message is repeated on loss.
    repeated: u64,
}

/// A message that needs a stream.
pub(crate) struct ForStream {
    pub(crate) id: u64,
    pub(crate) head: StreamHead,
    pub(crate) priority: u8,
}

#[derive(Debug)]
pub(crate) struct Sender {
    bytes_max: usize,
    bytes: usize,
    /// Messages that cost more than `bytes_max`, at most one.
    oversized: usize,
    wants_room: bool,
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
            wants_room: false,
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
            self.wants_room = true;
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

    /// The place of a message in its order. A value that waits makes room for a newer one.
    fn head(&mut self, delivery: Delivery, id: u64) -> Result<Head, SendError> {
        Ok(match delivery.order {
            Order::Unordered => Head::Unordered,
            Order::Ordered(channel) => {
                if !self.channels.contains_key(&channel) && self.channels.len() >= CHANNELS_MAX {
                    return Err(SendError::TooManyChannels);
                }
                let end = self.channels.entry(channel).or_default();
                end.position += 1;
                let distance = match end.repeated {
                    0 => 0,
                    repeated => end.position - repeated,
                };
                if delivery.reliability != Reliability::Unreliable {
                    end.repeated = end.position;
                }
                Head::Ordered(Place {
                    channel,
                    position: end.position,
                    distance,
                })
            }
            Order::Latest(key) => {
                if !self.latest.contains_key(&key) && self.latest.len() >= KEYS_MAX {
                    return Err(SendError::TooManyKeys);
                }
                let former = self.latest.get(&key).copied();
                if let Some((_, former)) = former
                    && let Some(entry) = self.entries.get(former)
                    && matches!(entry.stage, Stage::Queued | Stage::WantsStream)
                {
                    self.end(former, Outcome::Dropped(DropReason::Superseded));
                }
                let version = former.map_or(0, |(version, _)| version) + 1;
                self.latest.insert(key, (version, id));
                Head::Latest { key, version }
            }
        })
    }

    /// Messages of a channel leave in its order: later ones would use up the credit that the earlier ones need.
    fn priority(&mut self, delivery: Delivery) -> u8 {
        let Order::Ordered(channel) = delivery.order else {
            return delivery.priority;
        };
        let end = self.channels.entry(channel).or_default();
        if end.waiting == 0 {
            end.priority = delivery.priority;
        }
        end.priority = end.priority.min(delivery.priority);
        end.priority
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

    /// An entry of this channel leaves, or ends before it does.
    fn leave(channels: &mut BTreeMap<u32, ChannelEnd>, channel: Option<u32>) {
        if let Some(end) = channel.and_then(|channel| channels.get_mut(&channel)) {
            end.waiting -= 1;
        }
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

    /// Whether a send was refused for want of room, and there is enough again; told once.
    pub(crate) fn take_room(&mut self) -> bool {
        let has_room = self.wants_room && self.bytes <= self.bytes_max / 2;
        if has_room {
            self.wants_room = false;
        }
        has_room
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

    /// An ACK came, and the round trip at present.
    pub(crate) fn handle_ack(
        &mut self,
        now: Instant,
        ack: &Ack,
        round_trip: Duration,
    ) -> Result<(), &'static str> {
        if ack
            .runs
            .first()
            .is_some_and(|(_, end)| *end > self.numbers.next_id())
        {
            return Err("an acknowledgement of a number that was not sent");
        }
        self.credit = self.credit.max(ack.credit);
        self.starved_since = None;
        for (start, end) in &ack.runs {
            for number in (*start).max(self.numbers.first_id())..*end {
                let Some(id) = self.numbers.get(number).copied() else {
                    continue;
                };
                match self.entries.get(id).map(|entry| (entry.stage, entry.repeats)) {
                    // Which of several flights arrived is unknown.
                    Some((Stage::Flying(order), 0)) => {
                        self.acknowledged = self.acknowledged.max(Some(order));
                    }
                    // It was taken for lost, and nobody needs the stream.
                    Some((Stage::Streaming(stream), _)) => self.resets.push(stream),
                    _ => {}
                }
                self.probe_doublings = 0;
                self.end(id, Outcome::Acked);
            }
        }
        self.find_losses(now, round_trip);
        Ok(())
    }

    /// How long a flight waits for its acknowledgement before it counts as lost.
    fn patience(&self, flight: &Flight, round_trip: Duration) -> Duration {
        if self.acknowledged.is_some_and(|latest| flight.order < latest) {
            (round_trip * LOSS_ROUND_TRIP_EIGHTHS / 8 + ACK_DELAY).max(LOSS_TIME_MIN)
        } else {
            (2 * round_trip + PROBE_SLACK) * (1 << self.probe_doublings)
        }
    }

    /// Repeats or gives up what is lost.
    fn find_losses(&mut self, now: Instant, round_trip: Duration) {
        let mut was_silent = false;
        while let Some(flight) = self.flights.front().copied() {
            let is_current = self
                .entries
                .get(flight.id)
                .is_some_and(|entry| entry.stage == Stage::Flying(flight.order));
            if is_current {
                if flight.at + self.patience(&flight, round_trip) > now {
                    break;
                }
                was_silent |= self.acknowledged.is_none_or(|latest| flight.order >= latest);
                self.lose(flight.id);
            }
            self.flights.pop_front();
        }
        if was_silent {
            self.probe_doublings = (self.probe_doublings + 1).min(PROBE_DOUBLINGS_MAX);
        }
    }

    fn lose(&mut self, id: u64) {
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        let is_newest = match entry.head {
            Head::Latest { key, .. } => self.latest.get(&key).is_none_or(|(_, newest)| *newest == id),
            Head::Unordered | Head::Ordered(_) => true,
        };
        if entry.reliability == Reliability::Unreliable {
            self.end(id, Outcome::Dropped(DropReason::Lost));
        } else if !is_newest {
            self.end(id, Outcome::Dropped(DropReason::Superseded));
        } else {
            entry.stage = Stage::Queued;
            entry.repeats += 1;
            self.counters.repeated += 1;
            self.repeats.push_back(id);
        }
    }

    /// Whether only credit keeps messages from leaving, and nothing is under way that an ACK would follow.
    fn is_starved(&self) -> bool {
        self.flights.is_empty()
            && self.numbers.next_id() >= self.credit
            && self.queues.values().any(|queue| !queue.is_empty())
    }

    /// When [`Self::handle_timeout`] is due.
    pub(crate) fn poll_timeout(&mut self, now: Instant, round_trip: Duration) -> Option<Instant> {
        let expiry = self.expiries.first().map(|(at, _)| *at);
        let loss = self
            .flights
            .front()
            .map(|flight| flight.at + self.patience(flight, round_trip));
        let probe = (self.is_starved() && !self.probe_due)
            .then(|| *self.starved_since.get_or_insert(now) + 2 * round_trip + PROBE_SLACK);
        [expiry, loss, probe].into_iter().flatten().min()
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant, round_trip: Duration) {
        while let Some((at, id)) = self.expiries.first().copied()
            && at <= now
        {
            if let Some(Stage::Streaming(stream)) = self.entries.get(id).map(|entry| entry.stage) {
                self.resets.push(stream);
            }
            self.end(id, Outcome::Expired);
        }
        self.find_losses(now, round_trip);
        let is_due = |since: Instant| since + 2 * round_trip + PROBE_SLACK <= now;
        if self.is_starved() && self.starved_since.is_some_and(is_due) {
            self.probe_due = true;
        }
    }

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
