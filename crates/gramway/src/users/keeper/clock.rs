//! Notices that the machine's clock jumps.
//!
//! Ends of users and periods of quotas go by the clock, so that a jump may shut users out or let them in. They are
//! judged by the new time, which is the right one more often than not, and the operator is told.

use std::time::{Duration, Instant};

use crate::limits::CLOCK_JUMP;

/// Compares the clock with time as it passes.
#[derive(Default)]
pub(super) struct ClockWatch {
    /// Both at the last look.
    last: Option<(Instant, u64)>,
}

impl ClockWatch {
    /// What to tell, where the clock has jumped since the last look.
    pub(super) fn look(&mut self, now: Instant, unix_now: u64) -> Option<String> {
        let (then, unix_then) = self.last.replace((now, unix_now))?;
        let expected = unix_then + now.saturating_duration_since(then).as_secs();
        let jump = Duration::from_secs(unix_now.abs_diff(expected));
        let direction = if unix_now > expected { "forward" } else { "back" };
        (jump >= CLOCK_JUMP).then(|| {
            format!(
                "warning: the clock went {direction} by {} s, or the machine slept; ends and quotas of users go by the new \
                 time",
                jump.as_secs()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_either_way_is_told_once_and_slow_drift_never() {
        let (mut watch, mut now, mut unix_now) = (ClockWatch::default(), Instant::now(), 1_800_000_000);
        let mut pass = |seconds: u64, clock: i64| {
            now += Duration::from_secs(seconds);
            unix_now = u64::saturating_add_signed(unix_now, clock);
            watch.look(now, unix_now)
        };
        assert_eq!(pass(0, 0), None);
        assert_eq!(pass(1, 2), None);
        let told = pass(1, 3_601).expect("an hour is a jump");
        assert!(told.contains("forward by 3600 s"), "{told}");
        assert_eq!(pass(1, 1), None);
        let told = pass(10, -86_390).expect("a day is a jump");
        assert!(told.contains("back by 86400 s"), "{told}");
        assert_eq!(pass(600, 600), None, "a thread that was late is no jump");
    }
}
