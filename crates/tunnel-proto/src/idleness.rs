//! Who gives up a place where all are taken: the idlest entry of the holder that has most. Entries are UDP sessions, or TCP
//! connections; holders are users, machines or sockets. Neither a choice nor a change looks at all entries.
//!
//! Activity does not move an entry: it is listed under a moment at which it was active, and listed anew when it comes to
//! the front and was active since. So each move is paid for by a datagram, and a datagram pays for one move at most.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Entries by holder and by how long they have been idle.
#[derive(Debug)]
pub struct Idleness<Holder, Id> {
    by_holder: BTreeMap<Holder, BTreeSet<(Instant, Id)>>,
    /// The holder that has most is last; of several, the one with the idlest entry as listed.
    ranks: BTreeSet<Rank<Holder, Id>>,
    listed: BTreeMap<Id, (Holder, Instant)>,
}

/// How many entries a holder has, and the idlest of them as listed.
type Rank<Holder, Id> = (usize, Reverse<Option<(Instant, Id)>>, Holder);

impl<Holder, Id> Default for Idleness<Holder, Id> {
    fn default() -> Self {
        Self {
            by_holder: BTreeMap::new(),
            ranks: BTreeSet::new(),
            listed: BTreeMap::new(),
        }
    }
}

impl<Holder: Copy + Ord, Id: Copy + Ord> Idleness<Holder, Id> {
    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.listed.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// Whether it is listed.
    #[must_use]
    pub fn contains(&self, id: Id) -> bool {
        self.listed.contains_key(&id)
    }

    /// Lists an entry that was active at a moment. One that is listed already is listed anew.
    pub fn add(&mut self, id: Id, holder: Holder, last_active: Instant) {
        self.remove(id);
        self.listed.insert(id, (holder, last_active));
        self.change(holder, |order| {
            order.insert((last_active, id));
        });
    }

    /// An entry has ended.
    pub fn remove(&mut self, id: Id) {
        if let Some((holder, at)) = self.listed.remove(&id) {
            self.change(holder, |order| {
                order.remove(&(at, id));
            });
        }
    }

    /// Of the entries of the holder that has most, the one that was active longest ago; `None` where there is none.
    /// `last_active` says when an entry was active; without an answer it has ended, and is the idlest.
    pub fn idlest(&mut self, last_active: impl Fn(Id) -> Option<Instant>) -> Option<Id> {
        let (_, _, holder) = *self.ranks.last()?;
        self.idlest_of(holder, last_active)
    }

    /// Which entry gives its place to one of `holder`, which is listed already: the idlest of the holder that has most.
    /// Where that is `holder` itself, only an entry that has been idle for `rest`.
    pub fn yielding(
        &mut self,
        now: Instant,
        holder: Holder,
        rest: Duration,
        last_active: impl Fn(Id) -> Option<Instant>,
    ) -> Option<Id> {
        let own = self.by_holder.get(&holder).map_or(0, BTreeSet::len);
        let (count, _, most) = *self.ranks.last()?;
        if count > own {
            return self.idlest_of(most, last_active);
        }
        let idlest = self.idlest_of(holder, &last_active)?;
        let has_rested = |at| now.saturating_duration_since(at) >= rest;
        last_active(idlest).is_none_or(has_rested).then_some(idlest)
    }

    fn idlest_of(&mut self, holder: Holder, last_active: impl Fn(Id) -> Option<Instant>) -> Option<Id> {
        loop {
            let (listed, id) = *self.by_holder.get(&holder)?.first()?;
            match last_active(id) {
                Some(at) if at != listed => self.add(id, holder, at),
                _ => return Some(id),
            }
        }
    }

    /// Changes what a holder has, and so its rank.
    fn change(&mut self, holder: Holder, change: impl FnOnce(&mut BTreeSet<(Instant, Id)>)) {
        let order = self.by_holder.entry(holder).or_default();
        self.ranks.remove(&rank(holder, order));
        change(order);
        if order.is_empty() {
            self.by_holder.remove(&holder);
        } else {
            self.ranks.insert(rank(holder, order));
        }
    }
}

fn rank<Holder, Id: Copy + Ord>(holder: Holder, order: &BTreeSet<(Instant, Id)>) -> Rank<Holder, Id> {
    (order.len(), Reverse(order.first().copied()), holder)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries by number, and when each was active.
    struct Bed {
        idleness: Idleness<u8, usize>,
        last_active: Vec<Instant>,
        start: Instant,
    }

    impl Bed {
        fn new() -> Self {
            Self {
                idleness: Idleness::default(),
                last_active: Vec::new(),
                // tidy-allow(pure): first instant of virtual time
                start: Instant::now(),
            }
        }

        fn at(&self, second: u64) -> Instant {
            self.start + Duration::from_secs(second)
        }

        fn open(&mut self, holder: u8, second: u64) -> usize {
            let (id, at) = (self.last_active.len(), self.at(second));
            self.last_active.push(at);
            self.idleness.add(id, holder, at);
            id
        }

        fn idlest(&mut self) -> Option<usize> {
            self.idleness.idlest(|id| self.last_active.get(id).copied())
        }
    }

    #[test]
    fn the_idlest_is_the_one_that_was_active_longest_ago_whenever_it_was_listed() {
        let mut bed = Bed::new();
        let ids = [0, 1, 2].map(|second| bed.open(1, second));
        assert_eq!(bed.idlest(), Some(ids[0]));
        bed.last_active[ids[0]] = bed.at(5);
        bed.last_active[ids[1]] = bed.at(4);
        assert_eq!(bed.idlest(), Some(ids[2]));
        bed.idleness.remove(ids[2]);
        assert_eq!(bed.idlest(), Some(ids[1]));
        assert_eq!(bed.idleness.len(), 2);
        for id in ids {
            bed.idleness.remove(id);
        }
        assert_eq!(bed.idlest(), None);
        assert!(
            bed.idleness.is_empty() && bed.idleness.ranks.is_empty() && bed.idleness.by_holder.is_empty()
        );
    }

    #[test]
    fn who_has_most_gives_its_idlest_however_idle_those_of_others_are() {
        let mut bed = Bed::new();
        let quiet = bed.open(1, 0);
        let greedy = [10, 11, 12].map(|second| bed.open(2, second));
        for id in [greedy[0], greedy[1], quiet, greedy[2]] {
            assert_eq!(bed.idlest(), Some(id));
            bed.idleness.remove(id);
        }
        assert_eq!(bed.idlest(), None);
    }

    #[test]
    fn who_has_most_itself_gives_only_what_has_rested() {
        let mut bed = Bed::new();
        let rest = Duration::from_secs(60);
        let (alice, bob) = (bed.open(1, 0), bed.open(2, 50));
        bed.open(1, 10);
        let asked = |bed: &mut Bed, holder, second| {
            let (now, last_active) = (bed.at(second), &bed.last_active);
            bed.idleness
                .yielding(now, holder, rest, |id| last_active.get(id).copied())
        };
        assert_eq!(asked(&mut bed, 2, 51), Some(alice), "of the one who has more");
        assert_eq!(asked(&mut bed, 1, 59), None);
        assert_eq!(asked(&mut bed, 1, 60), Some(alice));
        bed.idleness.remove(bob);
        assert!(!bed.idleness.contains(bob) && bed.idleness.contains(alice));
    }
}
