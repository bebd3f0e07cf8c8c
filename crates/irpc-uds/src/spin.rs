//! How long to look for datagrams before sleeping: a window that follows the pauses of the traffic, up to a bound.
//!
//! A wake-up costs more than the whole call on many machines, a spin costs the processor it spins on. As a hypervisor
//! does before it halts a guest: a sleep that ended within the bound doubles the window, since a longer spin would have
//! caught it; a longer sleep halves it, since spinning was in vain. Pure, the clock is the caller's.

use std::time::{Duration, Instant};

use crate::limits::{SPIN_MAX, SPIN_MIN};

/// The window and what the last pause taught; with a bound of zero it never spins.
#[derive(Debug)]
pub(crate) struct Spin {
    bound: Duration,
    window: Duration,
    idle_since: Option<Instant>,
}

impl Spin {
    pub(crate) fn new(bound: Duration) -> Self {
        let bound = bound.min(SPIN_MAX);
        Self {
            bound,
            window: bound,
            idle_since: None,
        }
    }

    /// Whether it is switched on at all.
    pub(crate) fn enabled(&self) -> bool {
        !self.bound.is_zero()
    }

    /// Datagrams came at `now`.
    pub(crate) fn received(&mut self, now: Instant) {
        let Some(since) = self.idle_since.take() else {
            return;
        };
        let pause = now.saturating_duration_since(since);
        if pause <= self.bound {
            if pause > self.window {
                self.window = (self.window * 2).clamp(SPIN_MIN, self.bound);
            }
        } else {
            self.window /= 2;
            if self.window < SPIN_MIN {
                self.window = Duration::ZERO;
            }
        }
    }

    /// There is nothing to do at `now`: whether to look again at once rather than to sleep.
    pub(crate) fn idle(&mut self, now: Instant) -> bool {
        let since = *self.idle_since.get_or_insert(now);
        now.saturating_duration_since(since) < self.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets `count` pauses of `pause` go by and returns how much of the last one was spun.
    fn after_pauses(spin: &mut Spin, count: usize, pause: Duration) -> Duration {
        let mut now = Instant::now();
        let step = Duration::from_micros(1);
        let mut spun = Duration::ZERO;
        for _ in 0..count {
            let end = now + pause;
            spun = Duration::ZERO;
            while now < end && spin.idle(now) {
                now += step;
                spun += step;
            }
            now = end;
            spin.received(now);
        }
        spun
    }

    #[test]
    fn short_pauses_are_spun_through_and_long_ones_are_slept() {
        let bound = Duration::from_micros(100);
        let mut spin = Spin::new(bound);
        let short = Duration::from_micros(60);
        assert_eq!(after_pauses(&mut spin, 10, short), short);
        assert_eq!(
            after_pauses(&mut spin, 10, Duration::from_millis(5)),
            Duration::ZERO
        );
        assert_eq!(after_pauses(&mut spin, 10, short), short, "it learns again");
    }

    #[test]
    fn without_a_bound_it_never_spins_and_a_bound_is_never_exceeded() {
        let mut off = Spin::new(Duration::ZERO);
        assert!(!off.enabled());
        assert_eq!(
            after_pauses(&mut off, 5, Duration::from_micros(1)),
            Duration::ZERO
        );
        let mut wide = Spin::new(Duration::from_secs(5));
        assert!(after_pauses(&mut wide, 20, Duration::from_micros(900)) <= SPIN_MAX);
    }
}
