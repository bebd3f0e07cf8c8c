//! The user's limit of bytes a second: a token bucket that all carriers share, of all transfers that were given a
//! clone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::limits::RATE_BURST;

/// Holds senders to a rate, together: a clone is the same limit.
#[derive(Clone, Debug)]
pub struct RateLimit(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bytes_per_second: u64,
    granted: Mutex<Granted>,
}

#[derive(Debug, Default)]
struct Granted {
    /// When what was granted so far has passed at that rate.
    paid_until: Option<Instant>,
    /// Transfers that share it.
    transfers: u64,
}

impl RateLimit {
    /// So many bytes a second, at least one.
    #[must_use]
    pub fn new(bytes_per_second: u64) -> Self {
        Self(Arc::new(Shared {
            bytes_per_second: bytes_per_second.max(1),
            granted: Mutex::default(),
        }))
    }

    fn granted(&self) -> MutexGuard<'_, Granted> {
        self.0.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it takes to send so many bytes.
    fn cost(&self, bytes: usize) -> Duration {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(self.0.bytes_per_second);
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// The part of one transfer.
    pub(crate) fn share(&self) -> RateShare {
        self.granted().transfers += 1;
        RateShare {
            limit: self.clone(),
            waited: Mutex::default(),
        }
    }
}

/// What a transfer has of a limit, until this is dropped.
#[derive(Debug)]
pub(crate) struct RateShare {
    limit: RateLimit,
    /// Pauses of the transfer, together.
    waited: Mutex<Duration>,
}

impl Drop for RateShare {
    fn drop(&mut self) {
        let mut granted = self.limit.granted();
        granted.transfers = granted.transfers.saturating_sub(1);
    }
}

impl RateShare {
    /// What each transfer gets where all have something to send.
    pub(crate) fn bytes_per_second(&self) -> u64 {
        let transfers = self.limit.granted().transfers;
        self.limit.0.bytes_per_second / transfers.max(1)
    }

    /// Grants `bytes`, and says how long to wait before they are sent. What was not used in the last
    /// [`RATE_BURST`] is lost.
    pub(crate) fn grant(&self, now: Instant, bytes: usize) -> Duration {
        let mut granted = self.limit.granted();
        let earliest = now.checked_sub(RATE_BURST).unwrap_or(now);
        let start = granted.paid_until.map_or(earliest, |until| until.max(earliest));
        granted.paid_until = start.checked_add(self.limit.cost(bytes)).or(Some(start));
        drop(granted);
        let pause = start.saturating_duration_since(now);
        *self.waited.lock().unwrap_or_else(PoisonError::into_inner) += pause;
        pause
    }

    /// Bytes that were granted are not sent: others need not wait for them.
    pub(crate) fn give_back(&self, bytes: usize) {
        let mut granted = self.limit.granted();
        let until = granted.paid_until;
        granted.paid_until = until.and_then(|until| until.checked_sub(self.limit.cost(bytes)));
    }

    /// The transfer's pauses so far, of all that were told to wait together.
    pub(crate) fn waited(&self) -> Duration {
        *self.waited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_who_share_a_limit_get_together_what_it_allows() {
        let limit = RateLimit::new(1 << 20);
        let mut shares: Vec<RateShare> = (0..4).map(|_| limit.clone().share()).collect();
        assert_eq!(shares[0].bytes_per_second(), 1 << 18);
        let start = Instant::now();
        let waits: Vec<Duration> = (0..40)
            .map(|turn| shares[turn % 4].grant(start, 1 << 18))
            .collect();
        assert_eq!(waits[0], Duration::ZERO);
        // 39 quarters were granted before the last one, less what the burst had room for.
        let waited: Duration = shares.iter().map(RateShare::waited).sum();
        assert_eq!(waited, waits.iter().sum::<Duration>());
        let expected = Duration::from_millis(39 * 250) - RATE_BURST;
        assert!(
            waits[39].abs_diff(expected) < Duration::from_millis(1),
            "{waits:?}"
        );
        shares.truncate(1);
        assert_eq!(shares[0].bytes_per_second(), 1 << 20, "the others have ended");
    }

    #[test]
    fn what_a_transfer_that_ends_does_not_send_keeps_nobody_waiting() {
        let limit = RateLimit::new(1_000);
        let [ends, other] = [(); 2].map(|()| limit.share());
        let start = Instant::now();
        other.grant(start, 1_000);
        let before = other.grant(start, 0);
        assert!(ends.grant(start, 1 << 20) > Duration::ZERO);
        ends.give_back(1 << 20);
        assert_eq!(other.grant(start, 0), before);
    }

    #[test]
    fn a_pause_saves_no_more_than_the_burst() {
        let limit = RateLimit::new(1_000).share();
        let start = Instant::now();
        limit.grant(start, 1);
        let later = start + Duration::from_secs(3_600);
        assert_eq!(limit.grant(later, 1_000), Duration::ZERO);
        assert_eq!(limit.grant(later, 1), Duration::from_secs(1) - RATE_BURST);
    }
}
