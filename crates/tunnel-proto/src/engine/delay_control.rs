//! Controlled delay (CoDel, RFC 8289) of one flow: a queue that stands longer than a round trip is answered by single
//! drops, more often the longer it stands.

use std::time::{Duration, Instant};

use crate::limits;

/// What CoDel remembers of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DelayControl {
    /// When the delay will have been too long for a whole interval; `None` while it is short.
    too_long_at: Option<Instant>,
    /// While dropping: when the next datagram goes.
    next_drop: Option<Instant>,
    /// Drops since dropping began, carried over where it begins again soon (RFC 8289 section 5.5).
    drops: u32,
    drops_before: u32,
}

impl DelayControl {
    /// Whether the datagram at the front, which waited for `waited` with `behind` more of its flow, should be dropped
    /// (RFC 8289 section 5.3 to 5.5).
    pub(crate) fn should_drop(&mut self, now: Instant, waited: Duration, behind: usize) -> bool {
        if waited < limits::STANDING_DELAY || behind <= 1 {
            self.too_long_at = None;
            self.next_drop = None;
            return false;
        }
        let is_standing = match self.too_long_at {
            None => {
                self.too_long_at = Some(now + limits::STANDING_INTERVAL);
                false
            }
            Some(at) => now >= at,
        };
        match self.next_drop {
            Some(next) if now >= next => {
                self.drops += 1;
                self.next_drop = Some(control_law(next, self.drops));
                true
            }
            Some(_) => false,
            None if is_standing => {
                let since_last = self.drops - self.drops_before;
                let was_recent = self
                    .too_long_at
                    .is_some_and(|at| now.saturating_duration_since(at) < 16 * limits::STANDING_INTERVAL);
                self.drops = if since_last > 1 && was_recent {
                    since_last
                } else {
                    1
                };
                self.drops_before = self.drops;
                self.next_drop = Some(control_law(now, self.drops));
                true
            }
            None => false,
        }
    }
}

/// The interval shrinks with the square root of the drops: that lowers a TCP's rate linearly (RFC 8289 section 5.4).
fn control_law(from: Instant, drops: u32) -> Instant {
    from + limits::STANDING_INTERVAL.div_f64(f64::from(drops).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Drops within `span` when a datagram that waited for `waited` comes to the front every millisecond.
    fn drops(control: &mut DelayControl, start: Instant, span: Duration, waited: Duration) -> Vec<u64> {
        (0..span.as_millis() as u64)
            .filter(|at| control.should_drop(start + Duration::from_millis(*at), waited, 10))
            .collect()
    }

    #[test]
    fn a_short_delay_drops_nothing_however_long_it_lasts() {
        // tidy-allow(pure): first instant of virtual time
        let start = Instant::now();
        let waited = limits::STANDING_DELAY - Duration::from_millis(1);
        assert!(
            drops(
                &mut DelayControl::default(),
                start,
                Duration::from_secs(5),
                waited
            )
            .is_empty()
        );
    }

    #[test]
    fn a_standing_delay_drops_one_after_an_interval_and_then_ever_sooner() {
        // tidy-allow(pure): first instant of virtual time
        let start = Instant::now();
        let mut control = DelayControl::default();
        let dropped = drops(
            &mut control,
            start,
            Duration::from_secs(1),
            3 * limits::STANDING_DELAY,
        );
        let interval = limits::STANDING_INTERVAL.as_millis() as u64;
        assert_eq!(dropped[0], interval);
        let gaps: Vec<u64> = dropped.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(
            gaps.len() > 5 && gaps.windows(2).all(|pair| pair[1] <= pair[0] + 1),
            "{gaps:?}"
        );
        assert!(
            gaps[0] <= interval && gaps[gaps.len() - 1] < interval / 2,
            "{gaps:?}"
        );
    }

    #[test]
    fn one_short_delay_ends_the_dropping() {
        // tidy-allow(pure): first instant of virtual time
        let start = Instant::now();
        let mut control = DelayControl::default();
        drops(
            &mut control,
            start,
            Duration::from_millis(300),
            3 * limits::STANDING_DELAY,
        );
        let later = start + Duration::from_millis(300);
        assert!(!control.should_drop(later, Duration::ZERO, 10));
        let after = drops(
            &mut control,
            later,
            limits::STANDING_INTERVAL,
            3 * limits::STANDING_DELAY,
        );
        assert!(after.is_empty(), "{after:?}");
    }
}
