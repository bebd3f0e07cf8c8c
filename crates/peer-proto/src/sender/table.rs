//! Values by growing numbers. Its memory is that of the values that are alive, however old the oldest is.
//!
//! The latest values stand in a ring by their numbers, with a bit for each that is alive, so that a message costs no
//! search. Where few of the ring are alive, its oldest move to a map.

use std::collections::{BTreeMap, VecDeque};

/// Numbers of one word of bits; the ring begins at a multiple of it.
const WORD: usize = u64::BITS as usize;

/// Places of the ring beyond twice the values that are alive in it.
const DEAD_MAX: usize = 4 * WORD;

#[derive(Debug)]
pub(super) struct Table<T> {
    next: u64,
    /// The number of the ring's first place.
    base: u64,
    ring: VecDeque<Option<T>>,
    /// Which places of the ring have a value.
    bits: VecDeque<u64>,
    /// Values in the ring.
    alive: usize,
    /// Those with numbers below `base`.
    old: BTreeMap<u64, T>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            next: 0,
            base: 0,
            ring: VecDeque::new(),
            bits: VecDeque::new(),
            alive: 0,
            old: BTreeMap::new(),
        }
    }
}

impl<T> Table<T> {
    /// The number of the next value.
    pub(super) fn next_id(&self) -> u64 {
        self.next
    }

    /// No value has a lower number than this.
    pub(super) fn first_id(&self) -> u64 {
        let old = self.old.first_key_value().map(|(id, _)| *id);
        old.or_else(|| self.first_in_ring(0, self.ring.len()))
            .unwrap_or(self.next)
    }

    pub(super) fn push(&mut self, value: T) -> u64 {
        let id = self.next;
        self.next += 1;
        let place = self.ring.len();
        if place.is_multiple_of(WORD) {
            self.bits.push_back(0);
        }
        if let Some(word) = self.bits.back_mut() {
            *word |= 1 << (place % WORD);
        }
        self.ring.push_back(Some(value));
        self.alive += 1;
        id
    }

    fn place(&self, id: u64) -> Option<usize> {
        id.checked_sub(self.base).and_then(|place| place.try_into().ok())
    }

    pub(super) fn get(&self, id: u64) -> Option<&T> {
        match self.place(id) {
            Some(place) => self.ring.get(place)?.as_ref(),
            None => self.old.get(&id),
        }
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        match self.place(id) {
            Some(place) => self.ring.get_mut(place)?.as_mut(),
            None => self.old.get_mut(&id),
        }
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<T> {
        let Some(place) = self.place(id) else {
            return self.old.remove(&id);
        };
        let value = self.ring.get_mut(place)?.take()?;
        self.bits[place / WORD] &= !(1 << (place % WORD));
        self.alive -= 1;
        self.shorten();
        Some(value)
    }

    /// Removes the value with the lowest number from `start` to before `end`; at the cost of one value, and of a word
    /// for each 64 places of the ring in the range.
    pub(super) fn remove_first_in(&mut self, start: u64, end: u64) -> Option<T> {
        let old = self.old.range(start..end.max(start)).next().map(|(id, _)| *id);
        let place = |id: u64| self.place(id).map_or(0, |place| place.min(self.ring.len()));
        let id = old.or_else(|| self.first_in_ring(place(start), place(end)))?;
        self.remove(id)
    }

    /// The lowest number with a value at the ring's places from `start` to before `end`.
    fn first_in_ring(&self, start: usize, end: usize) -> Option<u64> {
        let mut word = start / WORD;
        let mut from = start % WORD;
        while word * WORD < end {
            let bits = self.bits[word] & (u64::MAX << from);
            if bits != 0 {
                let place = word * WORD + bits.trailing_zeros() as usize;
                return (place < end).then_some(self.base + place as u64);
            }
            (word, from) = (word + 1, 0);
        }
        None
    }

    /// Cuts off the front of the ring what has no value, and more where few places have one.
    fn shorten(&mut self) {
        while self.ring.len() >= WORD
            && (self.bits.front() == Some(&0) || self.ring.len() > 2 * self.alive + DEAD_MAX)
        {
            self.bits.pop_front();
            for (number, value) in (self.base..).zip(self.ring.drain(..WORD)) {
                if let Some(value) = value {
                    self.alive -= 1;
                    self.old.insert(number, value);
                }
            }
            self.base += WORD as u64;
        }
    }

    /// The numbers of all values.
    pub(super) fn ids(&self) -> Vec<u64> {
        let ring = (self.base..).zip(&self.ring);
        let in_ring = ring.filter_map(|(id, value)| value.is_some().then_some(id));
        self.old.keys().copied().chain(in_ring).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_old_value_keeps_no_room_for_those_behind_it() {
        let mut table = Table::default();
        let old = table.push("old");
        for _ in 0..100_000 {
            let id = table.push("young");
            assert_eq!(table.remove(id), Some("young"));
        }
        assert!(table.ring.len() <= DEAD_MAX + WORD);
        assert_eq!(
            (table.old.len(), table.first_id(), table.next_id()),
            (1, old, 100_001)
        );
        assert_eq!(table.remove_first_in(1, 100_001), None);
        assert_eq!(table.remove_first_in(5, 2), None);
        assert_eq!(table.remove_first_in(0, 100_001), Some("old"));
        assert_eq!(table.first_id(), 100_001);
    }

    proptest! {
        #[test]
        fn it_has_what_a_map_has(steps in proptest::collection::vec((0_u8..5, 0_u64..900, 0_u64..900), 0..3_000)) {
            let (mut table, mut map) = (Table::default(), BTreeMap::new());
            for (step, one, other) in steps {
                match step {
                    0 | 1 => {
                        let id = table.push(one);
                        prop_assert_eq!(map.insert(id, one), None);
                    }
                    2 | 3 => prop_assert_eq!(table.remove(one), map.remove(&one)),
                    _ => {
                        let first = map.range(one..other.max(one)).next().map(|(id, _)| *id);
                        let removed = first.and_then(|id| map.remove(&id));
                        prop_assert_eq!(table.remove_first_in(one, other), removed);
                    }
                }
                prop_assert_eq!(table.get(one), map.get(&one));
                prop_assert_eq!(table.get_mut(other).copied(), map.get(&other).copied());
                let first = map.first_key_value().map_or(table.next_id(), |(id, _)| *id);
                prop_assert_eq!(table.first_id(), first);
                prop_assert!(table.ring.len() <= 2 * table.alive + DEAD_MAX + WORD);
            }
            prop_assert_eq!(table.ids(), map.into_keys().collect::<Vec<_>>());
        }
    }
}
