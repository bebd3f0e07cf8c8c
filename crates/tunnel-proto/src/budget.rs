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
        let is_there = self.taken < self.guaranteed
            || self
                .shared
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                .is_ok();
        self.taken += usize::from(is_there);
        is_there
    }

    /// Gives one place back that was taken.
    pub fn give_back(&mut self) {
        if self.taken > self.guaranteed {
            self.shared.fetch_add(1, Ordering::Relaxed);
        }
        self.taken -= 1;
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
