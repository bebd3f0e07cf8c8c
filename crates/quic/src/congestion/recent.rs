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
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    /// Most of what was sent was lost, in a window so long that the path may have been at rest in between. The same
    /// again is no accident: where nothing but probes passes, their timeouts are all that ends a window.
    Doubtful,
    /// Far more is sent than passes.
    Policed,
}

impl Recent {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            since: now,
            delivered: 0,
            lost: 0,
            bytes_per_second: 0,
            state: State::Free,
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
        let tried = self.lost + arrived;
        let part_lost = self.lost as f64 / tried.max(1) as f64;
        self.bytes_per_second = rate(arrived, elapsed);
        self.state = match self.state {
            _ if tried < TELLING_BYTES || part_lost <= POLICED => State::Free,
            State::Free if elapsed >= 2 * WINDOW => State::Doubtful,
            _ => State::Policed,
        };
        (self.since, self.delivered, self.lost) = (now, delivered, 0);
    }

    /// The rate at which bytes arrived.
    pub(super) fn bytes_per_second(&self) -> u64 {
        self.bytes_per_second
    }

    /// The same where far more was sent.
    pub(super) fn policed(&self) -> Option<u64> {
        (self.state == State::Policed).then_some(self.bytes_per_second)
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
    fn a_loss_of_a_path_at_rest_says_nothing_and_the_same_again_all() {
        // tidy-allow(pure): first instant of virtual time
        let start = Instant::now();
        let mut recent = Recent::new(start);
        recent.on_lost(1_200);
        recent.update(start + WINDOW, 1_200);
        assert_eq!(recent.policed(), None);
        recent.on_lost(60_000);
        recent.update(start + 20 * WINDOW, 2_400);
        assert_eq!(recent.policed(), None);
        recent.update(start + 30 * WINDOW, 62_400);
        recent.on_lost(60_000);
        recent.update(start + 40 * WINDOW, 63_600);
        assert_eq!(recent.policed(), None);
        recent.on_lost(60_000);
        recent.update(start + 44 * WINDOW, 64_800);
        assert_eq!(recent.policed(), Some(1_200));
    }
}
