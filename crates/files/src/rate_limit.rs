//! The user's limit of bytes a second: a token bucket that all carriers of a transfer share.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::limits::RATE_BURST;

/// Holds senders to a rate.
#[derive(Debug)]
pub(crate) struct RateLimit {
    bytes_per_second: u64,
    granted: Mutex<Granted>,
}

#[derive(Debug, Default)]
struct Granted {
    /// When what was granted so far has passed at that rate.
    paid_until: Option<Instant>,
    /// Pauses, together.
    waited: Duration,
}

impl RateLimit {
    /// At least one byte a second.
    pub(crate) fn new(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second: bytes_per_second.max(1),
            granted: Mutex::default(),
        }
    }

    /// Grants `bytes`, and says how long to wait before they are sent. What was not used in the last
    /// [`RATE_BURST`] is lost.
    pub(crate) fn grant(&self, now: Instant, bytes: usize) -> Duration {
        let mut granted = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        let earliest = now.checked_sub(RATE_BURST).unwrap_or(now);
        let start = granted.paid_until.map_or(earliest, |until| until.max(earliest));
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        let cost = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        granted.paid_until = start.checked_add(cost).or(Some(start));
        let pause = start.saturating_duration_since(now);
        granted.waited += pause;
        pause
    }

    /// The pauses so far, of all that were told to wait together.
    pub(crate) fn waited(&self) -> Duration {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner).waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_who_share_a_limit_get_together_what_it_allows() {
        let limit = RateLimit::new(1 << 20);
        let start = Instant::now();
        let waits: Vec<Duration> = (0..40).map(|_| limit.grant(start, 1 << 18)).collect();
        assert_eq!(waits[0], Duration::ZERO);
        // 39 quarters were granted before the last one, less what the burst had room for.
        assert_eq!(limit.waited(), waits.iter().sum::<Duration>());
        let expected = Duration::from_millis(39 * 250) - RATE_BURST;
        assert!(
            waits[39].abs_diff(expected) < Duration::from_millis(1),
            "{waits:?}"
        );
    }

    #[test]
    fn a_pause_saves_no_more_than_the_burst() {
        let limit = RateLimit::new(1_000);
        let start = Instant::now();
        limit.grant(start, 1);
        let later = start + Duration::from_secs(3_600);
        assert_eq!(limit.grant(later, 1_000), Duration::ZERO);
        assert_eq!(limit.grant(later, 1), Duration::from_secs(1) - RATE_BURST);
    }
}
