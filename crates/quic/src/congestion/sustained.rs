//! Delivery rates that last.
//!
//! Acknowledgements that were late come together with those that are on time, and the rate of packets which left just before
//! looks higher than the path is. The largest of such rates would be believed for two probing cycles, and what is sent by it
//! would stand in the queue. A faster path shows the higher rate for as long as packets go on leaving, so only what the
//! samples of an eighth of a round trip agree on counts.

use std::time::{Duration, Instant};

/// Parts of a base round trip: samples of the present part and of the one before are held against each other.
const PARTS: u32 = 16;

#[derive(Clone, Copy, Debug)]
pub(super) struct Sustained {
    since: Instant,
    /// Smallest rates of the last part and of this one, in bytes per second.
    last: u64,
    this: u64,
}

impl Sustained {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            since: now,
            last: u64::MAX,
            this: u64::MAX,
        }
    }

    /// What has lasted up to and with `rate`, in bytes per second; never more than `rate`.
    pub(super) fn update(&mut self, now: Instant, rate: u64, base: Duration) -> u64 {
        if now.saturating_duration_since(self.since) >= base / PARTS {
            self.since = now;
            self.last = std::mem::replace(&mut self.this, u64::MAX);
        }
        self.this = self.this.min(rate);
        self.this.min(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(160);

    #[test]
    fn a_rate_that_is_high_for_a_moment_never_counts_and_one_that_stays_does() {
        // tidy-allow(pure): first instant of virtual time
        let start = Instant::now();
        let mut sustained = Sustained::new(start);
        let mut seen = Vec::new();
        for millis in 0..60 {
            let rate = match millis {
                20..28 => 130,
                40.. => 120,
                _ => 100,
            };
            seen.push(sustained.update(start + Duration::from_millis(millis), rate, BASE));
        }
        assert!(seen[..40].iter().all(|rate| *rate == 100), "{seen:?}");
        assert_eq!(seen[59], 120);
    }
}
