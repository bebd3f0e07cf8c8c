//! How fast a user may be: a token bucket for each direction that all its connections on all shards share.
//!
//! A bucket is kept as the moment until which what was taken is paid for. Whoever has paid may take as much as it has at
//! hand, so that nothing is cut, and the debt holds all others of the user up: the mean is exact. A user that rests may
//! take what [`USER_BURST`] is worth at once. Its rate is its own, or its share of the server's line ([`super::line`]) where
//! that is less.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::limits::USER_BURST;

/// A direction, as the server has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    FromClient,
    ToClient,
}

#[derive(Debug, Default)]
pub(super) struct Rate {
    /// 0: any.
    bits_per_second: AtomicU64,
    /// Of the line; 0: any.
    shares: [AtomicU64; 2],
    /// Since the shares were computed, while there are some.
    moved_bytes: [AtomicU64; 2],
    /// Since then it would have had more.
    has_waited: [AtomicBool; 2],
    /// From when the moments below are counted, less [`USER_BURST`].
    begin: OnceLock<Instant>,
    /// In nanoseconds.
    paid_until: [AtomicU64; 2],
}

impl Rate {
    /// Another rate begins without debts: those of a low one would hold a user up for long after it was raised.
    pub(super) fn set(&self, bits_per_second: Option<u64>) {
        let rate = bits_per_second.unwrap_or(0);
        if self.bits_per_second.swap(rate, Ordering::Relaxed) != rate {
            for paid_until in &self.paid_until {
                paid_until.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Its share of the line from here on; 0: any.
    pub(super) fn set_share(&self, way: Way, bits_per_second: u64) {
        self.shares[way as usize].store(bits_per_second, Ordering::Relaxed);
    }

    /// What it asks for, in bits per second, by what it did in the time that has passed since the last question:
    /// Where it would have had more: its own rate, or `u64::MAX` without one.
    pub(super) fn take_demand(&self, way: Way, passed: Duration) -> u64 {
        let moved = self.moved_bytes[way as usize].swap(0, Ordering::Relaxed);
        if self.has_waited[way as usize].swap(false, Ordering::Relaxed) {
            // Its own rate is the most that it can ask for.
            return match self.bits_per_second.load(Ordering::Relaxed) {
                0 => u64::MAX,
                own => own,
            };
        }
        let bits_per_second = u128::from(moved) * 8_000_000_000 / passed.as_nanos().max(1);
        u64::try_from(bits_per_second).unwrap_or(u64::MAX)
    }

    /// The lower one of its own rate and its share; 0: any.
    fn bits_per_second(&self, way: Way) -> u64 {
        let own = self.bits_per_second.load(Ordering::Relaxed);
        let share = self.shares[way as usize].load(Ordering::Relaxed);
        match (own, share) {
            (0, rate) | (rate, 0) => rate,
            (own, share) => own.min(share),
        }
    }

    /// When there may be more; `None`: at once.
    pub(super) fn free_at(&self, way: Way, now: Instant) -> Option<Instant> {
        if self.bits_per_second(way) == 0 {
            return None;
        }
        let debt = self.paid_until[way as usize]
            .load(Ordering::Relaxed)
            .saturating_sub(self.nanoseconds(now));
        if debt == 0 {
            return None;
        }
        self.has_waited[way as usize].store(true, Ordering::Relaxed);
        Some(now + Duration::from_nanos(debt))
    }

    /// So many bytes go.
    pub(super) fn charge(&self, way: Way, now: Instant, bytes: usize) {
        let rate = self.bits_per_second(way);
        if rate == 0 {
            return;
        }
        self.moved_bytes[way as usize].fetch_add(bytes as u64, Ordering::Relaxed);
        let cost = (bytes as u64).saturating_mul(8_000_000_000) / rate;
        let burst_begin = self.nanoseconds(now) - USER_BURST.as_nanos() as u64;
        let paid = &self.paid_until[way as usize];
        let _ = paid.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |paid| {
            Some(paid.max(burst_begin).saturating_add(cost))
        });
    }

    fn nanoseconds(&self, now: Instant) -> u64 {
        let begin = self.begin.get_or_init(|| now);
        (now.saturating_duration_since(*begin) + USER_BURST).as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_exact_after_a_burst_that_is_bounded_and_directions_are_apart() {
        // tidy-allow(pure): first instant of virtual time
        let start = Instant::now();
        let rate = Rate::default();
        let take = |way, now| {
            let taken = (0..10_000).take_while(|_| {
                let is_free = rate.free_at(way, now).is_none();
                if is_free {
                    rate.charge(way, now, 1_000);
                }
                is_free
            });
            taken.count()
        };
        assert_eq!(take(Way::ToClient, start), 10_000, "without a rate all goes");
        rate.set(Some(8_000_000));
        // A byte in a microsecond, 50 ms, and the one that goes into debt.
        assert_eq!(take(Way::ToClient, start), 51);
        assert_eq!(take(Way::FromClient, start), 51);
        let free_at = rate.free_at(Way::ToClient, start);
        assert_eq!(free_at, Some(start + Duration::from_millis(1)));
        let milliseconds = |count| start + Duration::from_millis(count);
        let later: usize = (1..=1_000)
            .map(|time| take(Way::ToClient, milliseconds(time)))
            .sum();
        assert_eq!(later, 1_000);
        assert_eq!(
            take(Way::ToClient, milliseconds(9_000)),
            51,
            "rest is not saved up"
        );
        rate.set(None);
        assert_eq!(rate.free_at(Way::ToClient, milliseconds(9_000)), None);
    }

    #[test]
    fn a_debt_ends_with_its_rate() {
        // tidy-allow(pure): first instant of virtual time
        let start = Instant::now();
        let rate = Rate::default();
        rate.set(Some(1_000_000));
        rate.charge(Way::ToClient, start, 10_000_000);
        let in_debt = rate.free_at(Way::ToClient, start).unwrap();
        assert!(in_debt > start + Duration::from_secs(70));
        // Each look at the store says it again.
        rate.set(Some(1_000_000));
        assert_eq!(rate.free_at(Way::ToClient, start), Some(in_debt));
        rate.set(Some(100_000_000));
        assert_eq!(rate.free_at(Way::ToClient, start), None);
    }
}
