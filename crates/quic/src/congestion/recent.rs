//! What arrived and what was lost within the last quarter of a second, whatever the model makes of it.

use std::time::{Duration, Instant};

use super::delivery::rate;

/// Long beside the round trips of a local path, in which a policer passes a whole train or nothing.
const WINDOW: Duration = Duration::from_millis(250);

/// Bytes from which on a part of them says something: single packets of a path at rest do not.
const TELLING_BYTES: u64 = 32 * 1_200;

/// A part of all bytes that is lost only where far more is sent than passes.
const POLICED: f64 = 0.3;

#[derive(Clone, Copy, Debug)]
pub(super) struct Recent {
    since: Instant,
    /// Bytes delivered until then, and lost since.
    delivered: u64,
    lost: u64,
    bytes_per_second: u64,
    is_policed: bool,
}

impl Recent {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            since: now,
            delivered: 0,
            lost: 0,
            bytes_per_second: 0,
            is_policed: false,
        }
    }

    pub(super) fn on_lost(&mut self, bytes: u64) {
        self.lost += bytes;
    }

    /// Acknowledgements came; `delivered` are all bytes that ever arrived.
    pub(super) fn update(&mut self, now: Instant, delivered: u64) {
        let elapsed = now.saturating_duration_since(self.since);
        if elapsed < WINDOW {
            return;
        }
        let arrived = delivered - self.delivered;
        self.bytes_per_second = rate(arrived, elapsed);
        let tried = self.lost + arrived;
        // A longer one is of a path that was at rest in between.
        let is_telling = tried >= TELLING_BYTES && elapsed < 2 * WINDOW;
        self.is_policed = is_telling && self.lost as f64 > tried as f64 * POLICED;
        (self.since, self.delivered, self.lost) = (now, delivered, 0);
    }

    /// The rate at which bytes arrived.
    pub(super) fn bytes_per_second(&self) -> u64 {
        self.bytes_per_second
    }

    /// The same where far more was sent.
    pub(super) fn policed(&self) -> Option<u64> {
        self.is_policed.then_some(self.bytes_per_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_tells_what_passes_and_whether_far_more_was_sent() {
        // tidy-allow(pure): first instant of virtual time
        let start = Instant::now();
        let mut recent = Recent::new(start);
        recent.on_lost(30_000);
        recent.update(start + WINDOW / 2, 10_000);
        assert_eq!((recent.bytes_per_second(), recent.policed()), (0, None));
        recent.update(start + WINDOW, 25_000);
        assert_eq!(recent.policed(), Some(100_000));
        recent.on_lost(10_000);
        recent.update(start + 2 * WINDOW, 50_000);
        assert_eq!((recent.bytes_per_second(), recent.policed()), (100_000, None));
    }

    #[test]
    fn single_losses_of_a_path_at_rest_say_nothing() {
        // tidy-allow(pure): first instant of virtual time
        let start = Instant::now();
        let mut recent = Recent::new(start);
        recent.on_lost(1_200);
        recent.update(start + WINDOW, 1_200);
        assert_eq!(recent.policed(), None);
        recent.on_lost(60_000);
        recent.update(start + 20 * WINDOW, 2_400);
        assert_eq!(recent.policed(), None);
        recent.on_lost(60_000);
        recent.update(start + 21 * WINDOW, 3_600);
        assert_eq!(recent.policed(), Some(4_800));
    }
}
