//! One bound that holds for all shards of a process together.
//!
//! Half of it is divided evenly, so that no shard can be starved by the others; the other half goes to whoever comes
//! first, so that a user whose connection is on one shard gets most of the whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One shard's part of a bound.
#[derive(Debug)]
pub struct Budget {
    taken: usize,
    guaranteed: usize,
    shared: Arc<AtomicUsize>,
}

impl Budget {
    /// A bound of `total` for one shard alone.
    #[must_use]
    pub fn whole(total: usize) -> Self {
        Self::divided(total, 1).remove(0)
    }

    /// A bound of `total` for `shards` shards together.
    #[must_use]
    pub fn divided(total: usize, shards: usize) -> Vec<Self> {
        let guaranteed = total / 2 / shards;
        let shared = Arc::new(AtomicUsize::new(total - guaranteed * shards));
        let part = || Self {
            taken: 0,
            guaranteed,
            shared: Arc::clone(&shared),
        };
        (0..shards).map(|_| part()).collect()
    }

    /// Takes one place; false where there is none left for this shard.
    pub fn take(&mut self) -> bool {
        self.take_many(1)
    }

    /// Takes so many places, or none; false where there are fewer left for this shard.
    pub fn take_many(&mut self, count: usize) -> bool {
        let own = count.min(self.guaranteed.saturating_sub(self.taken));
        let is_there = own == count
            || self
                .shared
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    left.checked_sub(count - own)
                })
                .is_ok();
        self.taken += if is_there { count } else { 0 };
        is_there
    }

    /// How many places this shard could take now.
    #[must_use]
    pub fn left(&self) -> usize {
        let shared = self.shared.load(Ordering::Relaxed);
        self.guaranteed.saturating_sub(self.taken) + shared
    }

    /// Gives one place back that was taken.
    pub fn give_back(&mut self) {
        self.give_many_back(1);
    }

    /// Gives so many places back that were taken.
    pub fn give_many_back(&mut self, count: usize) {
        let beyond = self.taken.saturating_sub(self.guaranteed).min(count);
        if beyond > 0 {
            self.shared.fetch_add(beyond, Ordering::Relaxed);
        }
        self.taken -= count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(budget: &mut Budget) -> usize {
        (0..).take_while(|_| budget.take()).count()
    }

    #[test]
    fn one_shard_has_the_whole() {
        let mut budget = Budget::whole(101);
        assert_eq!(fill(&mut budget), 101);
        budget.give_back();
        assert_eq!(fill(&mut budget), 1);
    }

    #[test]
    fn many_places_are_taken_together_or_not_at_all_across_what_is_guaranteed_and_what_is_shared() {
        let mut budgets = Budget::divided(100, 2);
        assert!(budgets[0].take_many(20) && budgets[0].take_many(40));
        assert_eq!([budgets[0].left(), budgets[1].left()], [15, 40]);
        assert!(!budgets[1].take_many(41));
        assert!(budgets[1].take_many(40) && !budgets[1].take() && !budgets[0].take());
        budgets[0].give_many_back(50);
        assert!(!budgets[1].take_many(36));
        assert!(budgets[1].take_many(35));
        budgets[1].give_many_back(75);
        assert_eq!(fill(&mut budgets[0]), 65);
    }

    #[test]
    fn the_total_holds_whoever_comes_first_and_nobody_is_starved() {
        let mut budgets = Budget::divided(100, 4);
        assert_eq!(fill(&mut budgets[0]), 12 + 52);
        assert_eq!(fill(&mut budgets[1]), 12);
        for _ in 0..64 {
            budgets[0].give_back();
        }
        assert_eq!(fill(&mut budgets[1]), 52);
        let others: usize = [0, 2, 3].into_iter().map(|index| fill(&mut budgets[index])).sum();
        assert_eq!(others, 36);
    }
}
