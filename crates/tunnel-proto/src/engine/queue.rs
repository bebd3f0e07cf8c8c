//! Datagrams that wait for one peer: a fair queue of flows, bounded in bytes and time.
//!
//! Flows take turns by bytes (deficit round robin); one that has just begun to wait, as a flow that sends little always
//! has, goes before those that stand. No flow takes more than a multiple of the room that is left, so one that offers
//! more than the path carries loses its own datagrams and nobody else's. Order within a flow is kept.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use slab::Slab;

use super::delay_control::DelayControl;
use crate::config::QueuePolicy;
use crate::limits;

/// One DATAGRAM frame's payload that waits.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) bytes: Bytes,
    /// Since when.
    pub(crate) since: Instant,
    /// How long it may wait.
    pub(crate) patience: Patience,
    /// No two datagrams with the same number here share a QUIC packet (REPAIR-11).
    pub(crate) apart: Option<u64>,
}

/// How long a datagram may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Where others of its flow wait behind it.
    time_max: Duration,
    /// Where it is the last of its flow, it keeps nothing newer waiting, and may be a question or an answer that stands
    /// alone: it may wait [`limits::ALONE_TIME_MAX`].
    is_whole: bool,
}

impl Patience {
    /// For what is worth nothing later, alone or not: fragments, parity.
    pub(crate) fn strict(time_max: Duration) -> Self {
        Self {
            time_max,
            is_whole: false,
        }
    }

    /// For a whole datagram.
    pub(crate) fn whole(time_max: Duration) -> Self {
        Self {
            time_max,
            is_whole: true,
        }
    }
}

/// The datagram whose turn it is.
pub(crate) struct Front<'a> {
    pub(crate) entry: &'a Queued,
    /// Nothing of its flow waits behind it.
    is_last: bool,
}

impl Front<'_> {
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        let Patience { time_max, is_whole } = self.entry.patience;
        let time_max = if self.is_last && is_whole {
            limits::ALONE_TIME_MAX
        } else {
            time_max
        };
        now.saturating_duration_since(self.entry.since) > time_max
    }
}

/// What a datagram belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FlowId {
    /// The same for all datagrams of the flow, and seldom for those of another.
    pub(crate) hash: u64,
    /// It answers loss by sending less: standing delay is answered by single drops.
    pub(crate) is_controlled: bool,
}

/// Why a datagram found no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// Its flow holds its share.
    Flow,
    /// The queue is full.
    Queue,
}

#[derive(Debug)]
struct Flow {
    id: FlowId,
    entries: VecDeque<Queued>,
    bytes: usize,
    /// Bytes that it may still send in this turn.
    credit: usize,
    delay: DelayControl,
}

#[derive(Debug, Default)]
pub(crate) struct FairQueue {
    flows: Slab<Flow>,
    by_id: HashMap<FlowId, usize>,
    /// The flow of the last push: packets come in bursts of one flow, and looking it up costs more than the rest.
    recent: Option<(FlowId, usize)>,
    /// Flows that began to wait since they were last served.
    fresh: VecDeque<usize>,
    /// Flows that have had a turn and still wait.
    standing: VecDeque<usize>,
    /// Emptied queues of entries, kept for the next flows.
    spare: Vec<VecDeque<Queued>>,
    bytes: usize,
    len: usize,
}

impl FairQueue {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Since when the oldest datagram waits.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        let oldest = self.flows.iter().filter_map(|(_, flow)| flow.entries.front());
        oldest.map(|entry| entry.since).min()
    }

    /// Flows that have something waiting.
    #[cfg(test)]
    fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Makes room for `bytes` of `flow` by the policy. How many of its datagrams had to go for it.
    ///
    /// # Errors
    /// There is no room; nothing was changed.
    pub(crate) fn make_room(
        &mut self,
        flow: FlowId,
        bytes: usize,
        policy: QueuePolicy,
    ) -> Result<u64, NoRoom> {
        let index = self.find(flow);
        let waiting = index.map_or(0, |index| self.flows[index].bytes);
        let room = |gone: usize| {
            let free = limits::QUEUE_BYTES_MAX - (self.bytes - gone);
            if bytes > free {
                Err(NoRoom::Queue)
            } else if waiting - gone + bytes > limits::FLOW_SHARES_OF_FREE_ROOM * (free - bytes) {
                Err(NoRoom::Flow)
            } else {
                Ok(())
            }
        };
        let refused = match (room(0), policy) {
            (Ok(()), _) => return Ok(0),
            (Err(refused), QueuePolicy::DropNewest) => return Err(refused),
            (Err(refused), QueuePolicy::DropOldest) => refused,
        };
        let Some(index) = index else {
            return Err(refused);
        };
        let (mut gone, mut count) = (0, 0);
        for entry in &self.flows[index].entries {
            gone += entry.bytes.len();
            count += 1;
            if room(gone).is_ok() {
                (0..count).for_each(|_| {
                    self.take_oldest(index);
                });
                self.forget_if_empty(index);
                return Ok(count);
            }
        }
        Err(refused)
    }

    /// Appends an entry for which [`FairQueue::make_room`] found room.
    pub(crate) fn push(&mut self, id: FlowId, entry: Queued) {
        self.bytes += entry.bytes.len();
        self.len += 1;
        debug_assert!(
            self.bytes <= limits::QUEUE_BYTES_MAX,
            "room is made before a push"
        );
        let index = match self.find(id) {
            Some(index) => index,
            None => {
                let index = self.flows.insert(Flow {
                    id,
                    entries: self.spare.pop().unwrap_or_default(),
                    bytes: 0,
                    credit: limits::FLOW_TURN_BYTES,
                    delay: DelayControl::default(),
                });
                self.by_id.insert(id, index);
                self.fresh.push_back(index);
                index
            }
        };
        self.recent = Some((id, index));
        let flow = &mut self.flows[index];
        flow.bytes += entry.bytes.len();
        flow.entries.push_back(entry);
    }

    fn find(&self, id: FlowId) -> Option<usize> {
        match self.recent {
            Some((recent, index)) if recent == id => Some(index),
            _ => self.by_id.get(&id).copied(),
        }
    }

    /// The datagram whose turn it is.
    pub(crate) fn front(&mut self) -> Option<Front<'_>> {
        let index = self.turn()?;
        let entries = &self.flows[index].entries;
        let is_last = entries.len() == 1;
        entries.front().map(|entry| Front { entry, is_last })
    }

    /// Takes the datagram whose turn it is.
    pub(crate) fn pop(&mut self) -> Option<Queued> {
        let index = self.turn()?;
        let entry = self.take_oldest(index);
        self.forget_if_empty(index);
        entry
    }

    /// Whether the datagram whose turn it is should be dropped, because its flow makes a standing delay and would answer
    /// the loss. To be asked once for each datagram that would be sent.
    pub(crate) fn front_delays_its_flow(&mut self, now: Instant) -> bool {
        let Some(index) = self.turn() else {
            return false;
        };
        let flow = &mut self.flows[index];
        let Some(entry) = flow.entries.front() else {
            return false;
        };
        let waited = now.saturating_duration_since(entry.since);
        flow.id.is_controlled && flow.delay.should_drop(now, waited, flow.entries.len())
    }

    /// The flow whose turn it is, with credit for a datagram.
    fn turn(&mut self) -> Option<usize> {
        loop {
            let is_fresh = !self.fresh.is_empty();
            let list = if is_fresh {
                &mut self.fresh
            } else {
                &mut self.standing
            };
            let index = *list.front()?;
            if self.flows[index].credit > 0 {
                return Some(index);
            }
            list.pop_front();
            self.flows[index].credit = limits::FLOW_TURN_BYTES;
            self.standing.push_back(index);
        }
    }

    fn take_oldest(&mut self, index: usize) -> Option<Queued> {
        let flow = &mut self.flows[index];
        let entry = flow.entries.pop_front()?;
        flow.bytes -= entry.bytes.len();
        flow.credit = flow.credit.saturating_sub(entry.bytes.len());
        self.bytes -= entry.bytes.len();
        self.len -= 1;
        Some(entry)
    }

    fn forget_if_empty(&mut self, index: usize) {
        if !self.flows[index].entries.is_empty() {
            return;
        }
        let flow = self.flows.remove(index);
        self.by_id.remove(&flow.id);
        self.recent = self.recent.filter(|(_, recent)| *recent != index);
        // It is at the front of its list, except where it emptied to make room for itself.
        for list in [&mut self.fresh, &mut self.standing] {
            if list.front() == Some(&index) {
                list.pop_front();
                break;
            }
            if let Some(place) = list.iter().position(|other| *other == index) {
                list.remove(place);
                break;
            }
        }
        if self.spare.len() < limits::SPARE_FLOWS && flow.entries.capacity() <= limits::SPARE_FLOW_ENTRIES {
            self.spare.push(flow.entries);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(hash: u64) -> FlowId {
        FlowId {
            hash,
            is_controlled: false,
        }
    }

    fn entry(bytes: usize, first: u8) -> Queued {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        Queued {
            bytes: Bytes::from(vec![first; bytes]),
            since: now,
            patience: Patience::whole(Duration::ZERO),
            apart: None,
        }
    }

    /// Pushes as long as there is room, and tells how many bytes went in.
    fn fill(queue: &mut FairQueue, id: FlowId, bytes: usize) -> usize {
        let before = queue.bytes();
        while queue.make_room(id, bytes, QueuePolicy::DropNewest) == Ok(0) {
            queue.push(id, entry(bytes, id.hash as u8));
        }
        queue.bytes() - before
    }

    fn drained(queue: &mut FairQueue) -> Vec<u8> {
        std::iter::from_fn(|| queue.pop())
            .map(|entry| entry.bytes[0])
            .collect()
    }

    #[test]
    fn one_flow_takes_three_quarters_and_the_next_still_finds_its_share() {
        let mut queue = FairQueue::default();
        let size = 1_024;
        let greedy = fill(&mut queue, flow(1), size);
        assert_eq!(greedy / size, limits::QUEUE_BYTES_MAX / size / 4 * 3);
        assert_eq!(
            queue.make_room(flow(1), size, QueuePolicy::DropNewest),
            Err(NoRoom::Flow)
        );
        let second = fill(&mut queue, flow(2), size);
        assert!(second >= limits::QUEUE_BYTES_MAX / 8, "{second}");
        assert!(fill(&mut queue, flow(3), size) >= limits::QUEUE_BYTES_MAX / 32);
    }

    #[test]
    fn what_never_fits_is_refused_whatever_the_policy() {
        let mut queue = FairQueue::default();
        for policy in [QueuePolicy::DropNewest, QueuePolicy::DropOldest] {
            assert_eq!(
                queue.make_room(flow(1), limits::QUEUE_BYTES_MAX + 1, policy),
                Err(NoRoom::Queue)
            );
        }
    }

    #[test]
    fn drop_oldest_gives_up_the_oldest_of_the_same_flow_only() {
        let mut queue = FairQueue::default();
        queue.push(flow(2), entry(500, 2));
        let filled = fill(&mut queue, flow(1), 1_000);
        let evicted = queue
            .make_room(flow(1), 2_500, QueuePolicy::DropOldest)
            .expect("it may evict its own");
        assert!((1..=3).contains(&evicted), "{evicted}");
        assert_eq!(queue.bytes(), filled - evicted as usize * 1_000 + 500);
        assert_eq!(drained(&mut queue).iter().filter(|first| **first == 2).count(), 1);
    }

    #[test]
    fn order_within_a_flow_is_kept_and_flows_take_turns_by_bytes() {
        let mut queue = FairQueue::default();
        for id in [1, 2] {
            for _ in 0..100 {
                queue.push(flow(id), entry(1_000, id as u8));
            }
        }
        let order = drained(&mut queue);
        let turn = limits::FLOW_TURN_BYTES.div_ceil(1_000);
        assert!(order[..turn].iter().all(|first| *first == 1));
        assert!(order[turn..2 * turn].iter().all(|first| *first == 2));
        let (head, _) = order.split_at(100);
        let ones = head.iter().filter(|first| **first == 1).count();
        assert!((100 - turn..=100 + turn).contains(&(2 * ones)), "{ones}");
        let mut numbered = FairQueue::default();
        (0..50).for_each(|number| numbered.push(flow(7), entry(1_000, number)));
        assert_eq!(drained(&mut numbered), (0..50).collect::<Vec<_>>());
        assert!(numbered.is_empty() && numbered.bytes() == 0 && numbered.flows() == 0);
    }

    #[test]
    fn a_flow_that_sends_little_goes_before_those_that_stand() {
        let mut queue = FairQueue::default();
        fill(&mut queue, flow(1), 1_000);
        let turn = limits::FLOW_TURN_BYTES.div_ceil(1_000);
        (0..turn).for_each(|_| assert_eq!(queue.pop().map(|entry| entry.bytes[0]), Some(1)));
        for _ in 0..20 {
            queue.push(flow(2), entry(100, 2));
            assert_eq!(queue.pop().map(|entry| entry.bytes[0]), Some(2));
            assert_eq!(queue.pop().map(|entry| entry.bytes[0]), Some(1));
        }
    }

    #[test]
    fn only_a_controlled_flow_loses_to_delay() {
        let mut queue = FairQueue::default();
        for is_controlled in [false, true] {
            let id = FlowId {
                hash: 1,
                is_controlled,
            };
            (0..10).for_each(|_| queue.push(id, entry(100, 1)));
            let later = queue.front().expect("ten wait").entry.since + 2 * limits::STANDING_DELAY;
            assert!(!queue.front_delays_its_flow(later));
            let standing = later + limits::STANDING_INTERVAL;
            assert_eq!(queue.front_delays_its_flow(standing), is_controlled);
            drained(&mut queue);
        }
    }

    #[test]
    fn the_last_datagram_of_a_flow_is_kept_longer_where_it_may() {
        for (patience, is_kept) in [
            (Patience::whole(Duration::ZERO), true),
            (Patience::strict(Duration::ZERO), false),
        ] {
            let mut queue = FairQueue::default();
            (0..2).for_each(|_| {
                queue.push(
                    flow(1),
                    Queued {
                        patience,
                        ..entry(100, 1)
                    },
                );
            });
            let mut is_overdue = |late: Duration| {
                let front = queue.front().expect("one waits");
                let overdue = front.is_overdue(front.entry.since + late);
                queue.pop();
                overdue
            };
            assert!(is_overdue(limits::ALONE_TIME_MAX));
            assert_eq!(is_overdue(limits::ALONE_TIME_MAX), !is_kept);
        }
        let mut queue = FairQueue::default();
        queue.push(flow(1), entry(100, 1));
        let front = queue.front().expect("one waits");
        let late = limits::ALONE_TIME_MAX + limits::STANDING_DELAY;
        assert!(front.is_overdue(front.entry.since + late));
    }
}
