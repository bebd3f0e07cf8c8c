//! One bound that holds for all shards of a process together.
//!
//! Half of it is divided evenly, so that no shard can be starved by the others; the other half goes to whoever comes
//! first, so that a user whose connection is on one shard gets most of the whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One shard's part of a bound.
#[derive(Debug)]
pub struct Room {
    taken: usize,
    guaranteed: usize,
    shared: Arc<AtomicUsize>,
}

impl Room {
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

    fn fill(room: &mut Room) -> usize {
        (0..).take_while(|_| room.take()).count()
    }

    #[test]
    fn one_shard_has_the_whole() {
        let mut room = Room::whole(101);
        assert_eq!(fill(&mut room), 101);
        room.give_back();
        assert_eq!(fill(&mut room), 1);
    }

    #[test]
    fn the_total_holds_whoever_comes_first_and_nobody_is_starved() {
        let mut rooms = Room::divided(100, 4);
        assert_eq!(fill(&mut rooms[0]), 12 + 52);
        assert_eq!(fill(&mut rooms[1]), 12);
        for _ in 0..64 {
            rooms[0].give_back();
        }
        assert_eq!(fill(&mut rooms[1]), 52);
        let others: usize = [0, 2, 3].into_iter().map(|index| fill(&mut rooms[index])).sum();
        assert_eq!(others, 36);
    }
}
