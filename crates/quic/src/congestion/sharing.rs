//! Competing traffic, and whether it yields.
//!
//! If the queue overflows while we do not probe, or by a probe on top of a queue that stood, others fill it. If they respond
//! to loss, as CUBIC and Reno do, we do so, too, and probe rarely. If the queue overflows again within a few round trips
//! after a cut of ours, they do not respond (BBRv1, a sender of UDP), and further cuts would help nobody.

use std::time::{Duration, Instant};

/// How long others are taken to share the path after the last overflow: a probe that finds room finds theirs, and takes it
/// in small steps.
const SHARED_MEMORY: Duration = Duration::from_secs(10);

/// Overflows within this many round trips of each other are caused by traffic that does not respond to loss: CUBIC with a
/// window of a hundred packets takes four seconds to recover.
const SOON_ROUND_TRIPS: u32 = 20;

/// Such overflows in a row after which competing traffic is assumed not to respond.
const SOON_MAX: u32 = 2;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sharing {
    /// When others were last noticed.
    noticed: Option<Instant>,
    last_overflow: Option<Instant>,
    soon: u32,
}

impl Sharing {
    /// The queue overflowed without a probe of ours.
    pub(super) fn overflowed(&mut self, now: Instant, base: Duration) {
        let is_soon = self
            .last_overflow
            .is_some_and(|last| now.saturating_duration_since(last) < base * SOON_ROUND_TRIPS);
        self.soon = if is_soon { self.soon.saturating_add(1) } else { 0 };
        self.last_overflow = Some(now);
        self.noticed = Some(now);
    }

    /// A probe of ours overflowed a queue that others keep filled: it does not show whether they respond.
    pub(super) fn displaced(&mut self, now: Instant) {
        self.noticed = Some(now);
    }

    pub(super) fn is_shared(&self, now: Instant) -> bool {
        self.noticed
            .is_some_and(|last| now.saturating_duration_since(last) < SHARED_MEMORY)
    }

    pub(super) fn others_do_not_yield(&self, now: Instant) -> bool {
        self.is_shared(now) && self.soon >= SOON_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(50);

    #[test]
    fn overflows_seconds_apart_are_of_somebody_who_yields() {
        let mut sharing = Sharing::default();
        // tidy-allow(pure): first instant of virtual time
        let mut now = Instant::now();
        for _ in 0..10 {
            sharing.overflowed(now, BASE);
            assert!(sharing.is_shared(now) && !sharing.others_do_not_yield(now));
            now += Duration::from_secs(3);
        }
        assert!(!sharing.is_shared(now + SHARED_MEMORY));
    }

    #[test]
    fn overflows_round_after_round_are_not() {
        let mut sharing = Sharing::default();
        // tidy-allow(pure): first instant of virtual time
        let mut now = Instant::now();
        for _ in 0..3 {
            sharing.overflowed(now, BASE);
            now += 3 * BASE;
        }
        assert!(sharing.others_do_not_yield(now));
        assert!(!sharing.others_do_not_yield(now + SHARED_MEMORY));
    }

    #[test]
    fn probes_of_our_own_do_not_tell_that_others_never_yield() {
        let mut sharing = Sharing::default();
        // tidy-allow(pure): first instant of virtual time
        let mut now = Instant::now();
        for _ in 0..10 {
            sharing.displaced(now);
            assert!(sharing.is_shared(now) && !sharing.others_do_not_yield(now));
            now += BASE;
        }
    }
}
