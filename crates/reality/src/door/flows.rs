//! The table of flows: by path, and in the order of their last datagrams, so that the one that was quiet longest is
//! known at once.
//!
//! Flows whose client has proved its address stay longer than others. Each kind is a list in that order, linked through
//! the table, and a datagram moves its flow to the end without a search.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use packet::Path;

use super::flow::Flow;
use crate::limits::{FLOW_IDLE_TIME, FLOW_IDLE_TIME_AT_FIRST};

/// Names a flow; that of an ended one stands for no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    index: u32,
    generation: u32,
}

const NOBODY: u32 = u32::MAX;

#[derive(Debug)]
struct Slot {
    generation: u32,
    flow: Option<Flow>,
    /// In its list: the neighbour that was heard of before.
    before: u32,
    /// And the one after.
    after: u32,
}

/// Flows in the order of their last datagrams.
#[derive(Clone, Copy, Debug)]
struct List {
    quietest: u32,
    latest: u32,
    idle_time: Duration,
}

#[derive(Debug)]
pub(super) struct Flows {
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_path: BTreeMap<Path, FlowKey>,
    /// Those that are not established, and those that are.
    lists: [List; 2],
}

impl Flows {
    pub(super) fn new() -> Self {
        let list = |idle_time| List {
            quietest: NOBODY,
            latest: NOBODY,
            idle_time,
        };
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_path: BTreeMap::new(),
            lists: [list(FLOW_IDLE_TIME_AT_FIRST), list(FLOW_IDLE_TIME)],
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_path.len()
    }

    pub(super) fn find(&self, path: &Path) -> Option<FlowKey> {
        self.by_path.get(path).copied()
    }

    pub(super) fn get(&self, key: FlowKey) -> Option<&Flow> {
        let slot = self.slots.get(key.index as usize)?;
        slot.flow.as_ref().filter(|_| slot.generation == key.generation)
    }

    pub(super) fn get_mut(&mut self, key: FlowKey) -> Option<&mut Flow> {
        let slot = self.slots.get_mut(key.index as usize)?;
        slot.flow.as_mut().filter(|_| slot.generation == key.generation)
    }

    /// A flow of a path that has none.
    pub(super) fn insert(&mut self, flow: Flow) -> FlowKey {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                flow: None,
                before: NOBODY,
                after: NOBODY,
            });
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        let key = FlowKey {
            index,
            generation: slot.generation,
        };
        self.by_path.insert(flow.path, key);
        slot.flow = Some(flow);
        self.link(index);
        key
    }

    pub(super) fn remove(&mut self, key: FlowKey) -> Option<Flow> {
        self.get(key)?;
        self.unlink(key.index);
        let slot = &mut self.slots[key.index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        let flow = slot.flow.take()?;
        self.by_path.remove(&flow.path);
        Some(flow)
    }

    /// A datagram came.
    pub(super) fn touch(&mut self, key: FlowKey, now: Instant) {
        self.change(key, |flow| flow.last = now);
    }

    /// The client's address is proved.
    pub(super) fn establish(&mut self, key: FlowKey) {
        self.change(key, |flow| flow.is_established = true);
    }

    fn change(&mut self, key: FlowKey, change: impl FnOnce(&mut Flow)) {
        if self.get(key).is_some() {
            self.unlink(key.index);
            if let Some(flow) = self.get_mut(key) {
                change(flow);
            }
            self.link(key.index);
        }
    }

    /// The flow that was quiet longest.
    pub(super) fn quietest(&self) -> Option<FlowKey> {
        let first = self.lists.iter().filter_map(|list| self.at(list.quietest));
        first.min_by_key(|(flow, _)| flow.last).map(|(_, key)| key)
    }

    /// When the next flow was quiet for too long, and which one it is.
    pub(super) fn next_end(&self) -> Option<(Instant, FlowKey)> {
        let ends = self.lists.iter().filter_map(|list| {
            let (flow, key) = self.at(list.quietest)?;
            Some((flow.last + list.idle_time, key))
        });
        ends.min()
    }

    fn at(&self, index: u32) -> Option<(&Flow, FlowKey)> {
        let slot = self.slots.get(index as usize)?;
        let generation = slot.generation;
        Some((slot.flow.as_ref()?, FlowKey { index, generation }))
    }

    /// At the end of its list.
    fn link(&mut self, index: u32) {
        let list = self.list_of(index);
        let last = std::mem::replace(&mut self.lists[list].latest, index);
        match self.slots.get_mut(last as usize) {
            Some(slot) => slot.after = index,
            None => self.lists[list].quietest = index,
        }
        let slot = &mut self.slots[index as usize];
        (slot.before, slot.after) = (last, NOBODY);
    }

    fn unlink(&mut self, index: u32) {
        let list = self.list_of(index);
        let Slot { before, after, .. } = self.slots[index as usize];
        match self.slots.get_mut(before as usize) {
            Some(slot) => slot.after = after,
            None => self.lists[list].quietest = after,
        }
        match self.slots.get_mut(after as usize) {
            Some(slot) => slot.before = before,
            None => self.lists[list].latest = before,
        }
    }

    fn list_of(&self, index: u32) -> usize {
        let flow = self.slots[index as usize].flow.as_ref();
        usize::from(flow.is_some_and(|flow| flow.is_established))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(port: u16) -> Path {
        Path {
            remote: ([192, 0, 2, 1], port).into(),
            local: None,
        }
    }

    fn filled(count: u16) -> (Flows, Vec<FlowKey>, Instant) {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let mut flows = Flows::new();
        let at = |port| now + Duration::from_secs(u64::from(port));
        let keys = (0..count)
            .map(|port| flows.insert(Flow::new(at(port), path(port))))
            .collect();
        (flows, keys, now)
    }

    /// All, from the quietest, by taking them out.
    fn order(flows: &mut Flows) -> Vec<u16> {
        let mut ports = Vec::new();
        while let Some(key) = flows.quietest() {
            ports.push(flows.remove(key).expect("there").path.remote.port());
        }
        ports
    }

    /// QR1-25.
    #[test]
    fn the_quietest_is_found_whatever_moved_and_left() {
        let (mut flows, keys, now) = filled(6);
        let at = |second| now + Duration::from_secs(second);
        flows.touch(keys[0], at(10));
        flows.touch(keys[5], at(11));
        flows.establish(keys[2]);
        flows.establish(keys[4]);
        flows.touch(keys[2], at(12));
        flows.remove(keys[3]);
        assert_eq!(flows.len(), 5);
        assert_eq!(order(&mut flows), [1, 4, 0, 5, 2]);
        assert_eq!((flows.len(), flows.next_end()), (0, None));
    }

    #[test]
    fn the_key_of_an_ended_flow_stands_for_no_other() {
        let (mut flows, keys, now) = filled(2);
        assert!(flows.remove(keys[0]).is_some());
        let again = flows.insert(Flow::new(now + Duration::from_secs(2), path(0)));
        assert_eq!(again.index, keys[0].index);
        assert!(flows.get(keys[0]).is_none() && flows.remove(keys[0]).is_none());
        flows.touch(keys[0], now + Duration::from_secs(99));
        assert_eq!(flows.find(&path(0)), Some(again));
        assert_eq!(order(&mut flows), [1, 0]);
    }

    /// QR1-25.
    #[test]
    fn established_flows_end_later() {
        let (mut flows, keys, now) = filled(2);
        flows.establish(keys[0]);
        let second = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(flows.next_end(), Some((second(1 + 15), keys[1])));
        flows.remove(keys[1]);
        assert_eq!(flows.next_end(), Some((second(180), keys[0])));
    }
}
