//! The virtual clock: an anchor and an offset that only grows.

use std::time::{Duration, Instant};

/// Virtual time. Two clocks that advance alike show the same [`Clock::elapsed`].
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    anchor: Instant,
    offset: Duration,
}

impl Clock {
    /// A clock whose anchor is given, for tests that already have an instant.
    #[must_use]
    pub fn anchored_at(anchor: Instant) -> Self {
        Self {
            anchor,
            offset: Duration::ZERO,
        }
    }

    /// The virtual present.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.anchor + self.offset
    }

    /// Virtual time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.offset
    }

    /// Moves forward by `by`.
    pub fn advance(&mut self, by: Duration) {
        self.offset += by;
    }

    /// Moves forward to `to`; an instant in the past leaves the clock where it is.
    pub fn advance_to(&mut self, to: Instant) {
        self.offset = self.offset.max(to.saturating_duration_since(self.anchor));
    }
}

impl Default for Clock {
    /// A clock at offset zero. Its anchor is the only reading of the real clock, because an `Instant` can't be made
    /// otherwise.
    fn default() -> Self {
        // tidy-allow(pure): first instant of virtual time
        Self::anchored_at(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_never_goes_back() {
        let mut clock = Clock::default();
        let start = clock.now();
        clock.advance(Duration::from_secs(5));
        clock.advance_to(start);
        assert_eq!(clock.elapsed(), Duration::from_secs(5));
        clock.advance_to(start + Duration::from_secs(6));
        assert_eq!(clock.now(), start + Duration::from_secs(6));
    }
}
