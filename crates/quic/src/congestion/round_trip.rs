//! The round trip without a queue, and the queue that the path has at present.
//!
//! The base is the shortest round trip seen. A longer one replaces it only after a search, during which so little is in
//! flight that a queue cannot be ours: then the path has become longer, or others keep a queue there.

use std::time::{Duration, Instant};

/// A base that was not seen again for this long is looked for, by sending less (draft-ietf-ccwg-bbr: `ProbeRTTInterval` is
/// half of it; emptying the queue in every probing cycle makes it rare).
const BASE_MEMORY: Duration = Duration::from_secs(10);

/// The same for a base that is longer than an earlier one: it may be somebody's queue.
const LONGER_MEMORY: Duration = Duration::from_millis(2_500);

/// A queue above this, and above a twentieth of the base, is one.
const QUEUE_SEEN: Duration = Duration::from_millis(1);

/// A queue below this part of the base is shallow: a window cut to 0.7 of base and queue is less than the base fills where
/// the queue is below 0.43 of it, less a margin for a base that was measured too long.
const SHALLOW_PART: u32 = 3;

/// Round trips so close to the base are the base, seen again.
const BASE_SLACK: Duration = Duration::from_micros(500);

#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrip {
    base: Option<Duration>,
    base_seen: Instant,
    is_longer: bool,
    latest: Duration,
    round_shortest: Duration,
    last_shortest: Duration,
    round_longest: Duration,
    last_longest: Duration,
    /// The shortest since the last search.
    since_search: Duration,
}

impl RoundTrip {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            base: None,
            base_seen: now,
            is_longer: false,
            latest: Duration::ZERO,
            round_shortest: Duration::MAX,
            last_shortest: Duration::ZERO,
            round_longest: Duration::ZERO,
            last_longest: Duration::ZERO,
            since_search: Duration::MAX,
        }
    }

    pub(super) fn base(&self) -> Option<Duration> {
        self.base
    }

    pub(super) fn update(&mut self, now: Instant, round_trip: Duration) {
        self.latest = round_trip;
        self.round_shortest = self.round_shortest.min(round_trip);
        self.round_longest = self.round_longest.max(round_trip);
        self.since_search = self.since_search.min(round_trip);
        match self.base {
            Some(base) if round_trip > base => {
                if round_trip <= base + base / 32 + BASE_SLACK {
                    self.base_seen = now;
                }
            }
            _ => {
                self.base = Some(round_trip);
                self.base_seen = now;
                self.is_longer = false;
            }
        }
    }

    pub(super) fn end_round(&mut self) {
        self.last_shortest = std::mem::replace(&mut self.round_shortest, Duration::MAX);
        self.last_longest = std::mem::take(&mut self.round_longest);
    }

    /// Whether the newest acknowledged packet met a queue.
    pub(super) fn is_queued_now(&self) -> bool {
        self.queue_now() > QUEUE_SEEN.max(self.base.unwrap_or_default() / 20)
    }

    /// Whether every packet of the last round met a queue.
    pub(super) fn has_standing_queue(&self) -> bool {
        self.queue() > QUEUE_SEEN.max(self.base.unwrap_or_default() / 20)
    }

    /// Whether some packet of this round or the last met a queue.
    pub(super) fn had_queue(&self) -> bool {
        let base = self.base.unwrap_or_default();
        let longest = self.last_longest.max(self.round_longest);
        longest.saturating_sub(base) > QUEUE_SEEN.max(base / 20)
    }

    /// Whether the longest queue of this round and the last is so short that a sender who cuts its window to 0.7 leaves the
    /// path partly idle. Not where a part of the base may be somebody's queue.
    pub(super) fn is_queue_shallow(&self) -> bool {
        if self.is_longer {
            return false;
        }
        let base = self.base.unwrap_or_default();
        let longest = self.last_longest.max(self.round_longest);
        longest.saturating_sub(base) < base / SHALLOW_PART
    }

    /// The queue in the last round, at its shortest.
    pub(super) fn queue(&self) -> Duration {
        self.last_shortest.saturating_sub(self.base.unwrap_or_default())
    }

    /// The queue that the newest acknowledged packet met.
    pub(super) fn queue_now(&self) -> Duration {
        self.latest.saturating_sub(self.base.unwrap_or_default())
    }

    /// Whether the base has to be looked for.
    pub(super) fn is_stale(&self, now: Instant) -> bool {
        let memory = if self.is_longer {
            LONGER_MEMORY
        } else {
            BASE_MEMORY
        };
        now.saturating_duration_since(self.base_seen) >= memory
    }

    /// The search begins: only what is seen from here on counts.
    pub(super) fn begin_search(&mut self) {
        self.since_search = Duration::MAX;
    }

    /// The search has ended: what it saw is the base, shorter or longer.
    pub(super) fn end_search(&mut self, now: Instant) {
        if self.since_search < Duration::MAX {
            let longer = self.base.is_some_and(|base| self.since_search > base);
            self.base = Some(self.since_search);
            self.is_longer = longer;
        }
        self.base_seen = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn the_queue_is_what_the_shortest_round_trip_of_a_round_is_longer_than_the_base() {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let mut path = RoundTrip::new(now);
        path.update(now, 20 * MILLISECOND);
        path.end_round();
        path.update(now, 50 * MILLISECOND);
        path.update(now, 26 * MILLISECOND);
        path.end_round();
        assert_eq!(path.queue(), 6 * MILLISECOND);
        assert!(path.has_standing_queue() && path.had_queue());
    }

    #[test]
    fn a_longer_base_needs_a_search_and_is_doubted_sooner() {
        // tidy-allow(pure): first instant of virtual time
        let start = Instant::now();
        let mut path = RoundTrip::new(start);
        path.update(start, 20 * MILLISECOND);
        let later = start + Duration::from_secs(9);
        path.update(later, 200 * MILLISECOND);
        assert_eq!(path.base(), Some(20 * MILLISECOND));
        assert!(!path.is_stale(later) && path.is_stale(start + BASE_MEMORY));
        path.begin_search();
        path.update(later, 200 * MILLISECOND);
        path.end_search(later);
        assert_eq!(path.base(), Some(200 * MILLISECOND));
        assert!(path.is_stale(later + LONGER_MEMORY));
    }
}
