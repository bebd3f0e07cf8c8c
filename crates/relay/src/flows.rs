//! The flows of one worker: found by their key, and forgotten when they carry nothing.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::Hash;
use std::time::{Duration, Instant};

use slab::Slab;

use crate::limits::FLOWS_MAX;

/// What a flow is besides its place in the table.
pub(crate) struct Flow<K, T> {
    pub(crate) key: K,
    pub(crate) state: T,
    used: Instant,
    generation: u64,
}

/// See the module's text. `K` names a flow on the side that begins it, `T` is the user's state of it.
pub(crate) struct Flows<K, T> {
    flows: Slab<Flow<K, T>>,
    by_key: HashMap<K, usize>,
    /// When each flow is looked at again, one entry for each.
    checks: BinaryHeap<Reverse<(Instant, usize, u64)>>,
    idle: Duration,
    generation: u64,
}

impl<K: Copy + Eq + Hash, T> Flows<K, T> {
    pub(crate) fn new(idle: Duration) -> Self {
        Self {
            flows: Slab::new(),
            by_key: HashMap::new(),
            checks: BinaryHeap::new(),
            idle,
            generation: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.flows.len() >= FLOWS_MAX
    }

    pub(crate) fn find(&self, key: &K) -> Option<usize> {
        self.by_key.get(key).copied()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Flow<K, T>> {
        self.flows.get(index)
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut Flow<K, T>> {
        self.flows.get_mut(index)
    }

    /// A new flow, which is used now.
    pub(crate) fn insert(&mut self, now: Instant, key: K, state: T) -> usize {
        self.generation += 1;
        let index = self.flows.insert(Flow {
            key,
            state,
            used: now,
            generation: self.generation,
        });
        self.by_key.insert(key, index);
        self.checks
            .push(Reverse((now + self.idle, index, self.generation)));
        index
    }

    /// The flow carries something.
    pub(crate) fn touch(&mut self, now: Instant, index: usize) {
        if let Some(flow) = self.flows.get_mut(index) {
            flow.used = now;
        }
    }

    pub(crate) fn remove(&mut self, index: usize) -> Flow<K, T> {
        let flow = self.flows.remove(index);
        self.by_key.remove(&flow.key);
        flow
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Flow<K, T>)> {
        self.flows.iter()
    }

    /// When [`Flows::poll_expired`] may have something.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.checks.peek().map(|Reverse((at, ..))| *at)
    }

    /// A flow that carried nothing for the whole time; the caller removes it.
    pub(crate) fn poll_expired(&mut self, now: Instant) -> Option<usize> {
        while self.poll_timeout().is_some_and(|at| at <= now) {
            let Reverse((_, index, generation)) = self.checks.pop()?;
            let Some(flow) = self.flows.get(index).filter(|flow| flow.generation == generation) else {
                continue;
            };
            let due = flow.used + self.idle;
            if due <= now {
                return Some(index);
            }
            self.checks.push(Reverse((due, index, generation)));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_forgotten_when_it_carries_nothing() {
        let second = Duration::from_secs(1);
        let start = Instant::now();
        let mut flows = Flows::new(10 * second);
        let (one, two) = (flows.insert(start, 'a', ()), flows.insert(start, 'b', ()));
        flows.touch(start + 5 * second, two);
        assert_eq!(flows.poll_expired(start + 9 * second), None);
        assert_eq!(flows.poll_expired(start + 10 * second), Some(one));
        flows.remove(one);
        assert_eq!((flows.find(&'a'), flows.len()), (None, 1));
        // Another one in the same place has its own time.
        let again = flows.insert(start + 12 * second, 'c', ());
        assert_eq!(flows.poll_expired(start + 14 * second), None);
        assert_eq!(flows.poll_expired(start + 15 * second), Some(two));
        flows.remove(two);
        assert_eq!(flows.poll_expired(start + 21 * second), None);
        assert_eq!(flows.poll_expired(start + 22 * second), Some(again));
    }
}
