//! Whose work is next, where one owner may have a thousand pieces of it and another one a single piece.
//!
//! Owners take turns by cost (deficit round robin): one spends up to [`limits::TURN_BYTES`], then the next one. What it
//! spends beyond that is a debt, which it pays by missing turns while others wait. Work of one owner keeps its order.

use std::collections::{BTreeMap, VecDeque};

use crate::limits::{TURN_BYTES, TURN_DEBT_BYTES_MAX};

/// An owner in its [`Turns`]. Each call of [`Turns::join`] is matched by one of [`Turns::leave`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerKey(usize);

/// Work that waits, by owner.
#[derive(Debug)]
pub struct Turns<K, T> {
    owners: Vec<Owner<K, T>>,
    by_id: BTreeMap<K, usize>,
    /// Places in `owners` that nobody has.
    free: Vec<usize>,
    /// Owners with work. The first one has the turn, and keeps it where it gets more work before the next look.
    waiting: VecDeque<usize>,
    len: usize,
    /// Number of the present period, and the most that an owner has spent in it.
    period: u64,
    spent_bytes_max: usize,
}

#[derive(Debug)]
struct Owner<K, T> {
    id: Option<K>,
    members: usize,
    work: VecDeque<T>,
    /// It is among those who wait.
    is_waiting: bool,
    /// Bytes that it may spend in this turn; a debt below zero.
    credit: isize,
    /// The period in which it spent something last, and how much.
    spent_bytes: (u64, usize),
}

impl<K, T> Default for Turns<K, T> {
    fn default() -> Self {
        Self {
            owners: Vec::new(),
            by_id: BTreeMap::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            len: 0,
            period: 0,
            spent_bytes_max: 0,
        }
    }
}

impl<K: Ord + Clone, T> Turns<K, T> {
    /// One more member of an owner: something that may have work for it.
    pub fn join(&mut self, id: K) -> OwnerKey {
        if let Some(&place) = self.by_id.get(&id) {
            self.owners[place].members += 1;
            return OwnerKey(place);
        }
        let owner = Owner {
            id: Some(id.clone()),
            members: 1,
            work: VecDeque::new(),
            is_waiting: false,
            credit: TURN_BYTES as isize,
            spent_bytes: (self.period, 0),
        };
        let place = if let Some(place) = self.free.pop() {
            self.owners[place] = owner;
            place
        } else {
            self.owners.push(owner);
            self.owners.len() - 1
        };
        self.by_id.insert(id, place);
        OwnerKey(place)
    }

    /// A member of the owner is gone. Its work may still be queued.
    pub fn leave(&mut self, owner: OwnerKey) {
        let entry = &mut self.owners[owner.0];
        debug_assert!(entry.members > 0, "a member leaves once");
        entry.members -= 1;
        self.forget_if_gone(owner.0);
    }

    /// Queues work behind the other work of its owner.
    pub fn push(&mut self, owner: OwnerKey, work: T) {
        let entry = &mut self.owners[owner.0];
        if !std::mem::replace(&mut entry.is_waiting, true) {
            // Rest is not saved up.
            entry.credit = entry.credit.min(TURN_BYTES as isize);
            self.waiting.push_back(owner.0);
        }
        entry.work.push_back(work);
        self.len += 1;
    }

    /// Takes the next work, with the owner that [`Turns::charge`] is to be told.
    pub fn pop(&mut self) -> Option<(OwnerKey, T)> {
        let place = self.turn()?;
        let work = self.owners[place].work.pop_front()?;
        self.len -= 1;
        Some((OwnerKey(place), work))
    }

    /// The owner has had so many bytes' worth.
    pub fn charge(&mut self, owner: OwnerKey, bytes: usize) {
        if let Some(entry) = self.owners.get_mut(owner.0) {
            let credit = entry.credit.saturating_sub_unsigned(bytes);
            entry.credit = credit.max(-(TURN_DEBT_BYTES_MAX as isize));
            if entry.spent_bytes.0 != self.period {
                entry.spent_bytes = (self.period, 0);
            }
            entry.spent_bytes.1 += bytes;
            self.spent_bytes_max = self.spent_bytes_max.max(entry.spent_bytes.1);
        }
    }

    /// From here on it is counted anew who has spent how much.
    pub fn begin_period(&mut self) {
        self.period += 1;
        self.spent_bytes_max = 0;
    }

    /// Whether another owner has spent more in this period.
    #[must_use]
    pub fn is_behind(&self, owner: OwnerKey) -> bool {
        let (period, bytes) = self.owners[owner.0].spent_bytes;
        let spent = if period == self.period { bytes } else { 0 };
        spent < self.spent_bytes_max
    }

    /// How much work waits.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no work waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether work of several owners waits.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        // All but the first one have some.
        let first = self.waiting.front();
        let spent = first.is_some_and(|place| self.owners[*place].work.is_empty());
        self.waiting.len() - usize::from(spent) > 1
    }

    /// Whether work of another owner waits.
    #[must_use]
    pub fn others_wait(&self, owner: OwnerKey) -> bool {
        let mut others = self.waiting.iter().take(3).filter(|place| **place != owner.0);
        others.any(|place| !self.owners[*place].work.is_empty())
    }

    /// The owner who is next, with credit.
    fn turn(&mut self) -> Option<usize> {
        loop {
            let place = *self.waiting.front()?;
            if self.owners[place].work.is_empty() {
                self.waiting.pop_front();
                self.owners[place].is_waiting = false;
                self.forget_if_gone(place);
                continue;
            }
            let is_alone = self.waiting.len() == 1;
            let credit = &mut self.owners[place].credit;
            if *credit > 0 {
                return Some(place);
            }
            if is_alone {
                *credit = TURN_BYTES as isize;
            } else {
                *credit += TURN_BYTES as isize;
                self.waiting.rotate_left(1);
            }
        }
    }

    fn forget_if_gone(&mut self, place: usize) {
        let entry = &mut self.owners[place];
        if entry.members == 0
            && !entry.is_waiting
            && let Some(id) = entry.id.take()
        {
            self.by_id.remove(&id);
            self.free.push(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets each owner have its next `rounds` pieces of this size; how many bytes each got.
    fn served(turns: &mut Turns<char, char>, piece_bytes: usize, rounds: usize) -> BTreeMap<char, usize> {
        let mut served = BTreeMap::new();
        for _ in 0..rounds {
            let (owner, work) = turns.pop().expect("work waits");
            turns.charge(owner, piece_bytes);
            *served.entry(work).or_default() += piece_bytes;
            turns.push(owner, work);
        }
        served
    }

    #[test]
    fn an_owner_with_a_thousand_pieces_gets_no_more_than_one_with_a_single_piece() {
        let mut turns = Turns::default();
        let [alice, bob] = ['a', 'b'].map(|id| turns.join(id));
        (0..1_000).for_each(|_| turns.push(alice, 'a'));
        turns.push(bob, 'b');
        for piece_bytes in [100, 1_500, TURN_BYTES, 4 * TURN_BYTES] {
            let rounds = 2_000.max(200 * TURN_BYTES / piece_bytes);
            let served = served(&mut turns, piece_bytes, rounds);
            let difference = served[&'a'].abs_diff(served[&'b']);
            let bound = 2 * TURN_BYTES.max(piece_bytes) + TURN_DEBT_BYTES_MAX / 100;
            assert!(difference <= bound, "{piece_bytes}: {served:?}");
        }
    }

    #[test]
    fn an_owner_alone_is_never_held_up_by_its_debt() {
        let mut turns = Turns::default();
        let alice = turns.join('a');
        turns.charge(alice, usize::MAX / 4);
        turns.push(alice, 'a');
        assert_eq!(turns.pop().map(|(_, work)| work), Some('a'));
        assert!(turns.is_empty() && turns.pop().is_none());
    }

    #[test]
    fn a_debt_is_paid_while_another_waits_and_is_bounded() {
        let mut turns = Turns::default();
        let [alice, bob] = ['a', 'b'].map(|id| turns.join(id));
        turns.charge(alice, 100 * TURN_DEBT_BYTES_MAX);
        turns.push(alice, 'a');
        turns.push(bob, 'b');
        let mut bobs = 0;
        loop {
            let (owner, work) = turns.pop().unwrap();
            if work == 'a' {
                break;
            }
            turns.charge(owner, 1_000);
            bobs += 1_000;
            turns.push(owner, 'b');
        }
        assert!(bobs >= TURN_DEBT_BYTES_MAX, "{bobs}");
        assert!(bobs <= TURN_DEBT_BYTES_MAX + 2 * TURN_BYTES, "{bobs}");
    }

    #[test]
    fn work_of_one_owner_keeps_its_order() {
        let mut turns = Turns::default();
        let sole = turns.join(());
        (0..100).for_each(|number| turns.push(sole, number));
        let order: Vec<_> = std::iter::from_fn(|| {
            let (owner, number) = turns.pop()?;
            turns.charge(owner, TURN_BYTES);
            Some(number)
        })
        .collect();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn an_owner_is_forgotten_with_its_last_member_and_its_last_work() {
        let mut turns = Turns::default();
        let [first, second] = [turns.join('a'), turns.join('a')];
        assert_eq!(first, second);
        turns.push(first, 1);
        turns.leave(first);
        turns.leave(second);
        assert_eq!(turns.pop().map(|(_, work)| work), Some(1));
        assert!(turns.pop().is_none() && turns.by_id.is_empty());
        let other = turns.join('b');
        assert_eq!(other, first, "the place is used again");
        assert!(!turns.others_wait(other));
        turns.push(other, 2);
        assert!(!turns.others_wait(other));
        let third = turns.join('c');
        assert!(turns.others_wait(third) && !turns.is_contended());
        turns.push(third, 3);
        assert!(turns.others_wait(other) && turns.is_contended());
        turns.pop();
        assert!(!turns.is_contended());
    }
}
