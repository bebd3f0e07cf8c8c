//! Waiting for a condition, with a deadline.

use std::time::{Duration, Instant};

use crate::limits::POLL_INTERVAL;

/// Polls until the condition gives a value; `None` when `limit` passes first.
pub fn poll<T>(limit: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        let value = condition();
        if value.is_some() || Instant::now() > deadline {
            return value;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Polls until the condition holds; `false` when `limit` passes first.
pub fn holds_within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    poll(limit, || condition().then_some(())).is_some()
}

/// Polls until the condition gives a value.
///
/// # Panics
/// When `limit` passes first; the message says what was waited for.
pub fn wait_for<T>(what: &str, limit: Duration, condition: impl FnMut() -> Option<T>) -> T {
    poll(limit, condition).unwrap_or_else(|| panic!("waited {limit:?} for {what}, in vain"))
}

/// Polls until the condition holds.
///
/// # Panics
/// When `limit` passes first; the message says what was waited for.
pub fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    wait_for(what, limit, || condition().then_some(()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_asked_until_it_holds_and_once_where_there_is_no_time() {
        let mut asked = 0;
        let third = poll(Duration::from_secs(10), || {
            asked += 1;
            (asked == 3).then_some(asked)
        });
        assert_eq!(third, Some(3));
        assert!(holds_within(Duration::ZERO, || true));
        assert!(!holds_within(Duration::ZERO, || false));
    }
}
