//! When what the host refused is tried again: after a second, then after twice as long each time, up to a limit.

use std::time::{Duration, Instant};

use crate::limits::{HOST_RETRY, HOST_RETRY_MAX};

/// Tries that follow one that failed.
#[derive(Debug)]
pub(in crate::driver) struct Retry {
    due: Option<Instant>,
    wait: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            due: None,
            wait: HOST_RETRY,
        }
    }
}

impl Retry {
    /// Something was refused.
    pub(in crate::driver) fn failed(&mut self, now: Instant) {
        self.due = Some(now + self.wait);
        self.wait = (2 * self.wait).min(HOST_RETRY_MAX);
    }

    /// Everything is as it should be.
    pub(in crate::driver) fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// True once when the next try is due.
    pub(in crate::driver) fn take_due(&mut self, now: Instant) -> bool {
        self.due.take_if(|due| *due <= now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wait_is_twice_as_long_up_to_the_limit_and_a_success_starts_again() {
        let start = Instant::now();
        let mut retry = Retry::default();
        assert!(!retry.take_due(start + HOST_RETRY_MAX));
        let mut wait = HOST_RETRY;
        for _ in 0..10 {
            retry.failed(start);
            assert!(!retry.take_due(start + wait - Duration::from_millis(1)));
            assert!(retry.take_due(start + wait) && !retry.take_due(start + wait));
            wait = (2 * wait).min(HOST_RETRY_MAX);
        }
        assert_eq!(wait, HOST_RETRY_MAX);
        retry.failed(start);
        retry.succeeded();
        assert!(!retry.take_due(start + HOST_RETRY_MAX));
        retry.failed(start);
        assert!(retry.take_due(start + HOST_RETRY));
    }
}
