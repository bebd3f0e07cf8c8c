//! Waiting for a condition, with a deadline.

use std::time::{Duration, Instant};

use crate::limits::POLL_INTERVAL;

/// Polls until the condition gives a value.
///
/// # Panics
/// When `limit` passes first; the message says what was waited for.
pub fn wait_for<T>(what: &str, limit: Duration, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited {limit:?} for {what}, in vain");
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Polls until the condition holds.
///
/// # Panics
/// When `limit` passes first; the message says what was waited for.
pub fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    wait_for(what, limit, || condition().then_some(()));
}
