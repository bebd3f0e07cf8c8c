//! When a router is asked again.

use std::time::Duration;

use crate::limits::{MAPPING_RENEWAL_MAX, MAPPING_RENEWAL_MIN, MAPPING_RETRY_FIRST, MAPPING_RETRY_MAX};

/// After a mapping was granted for so long: half of it (RFC 6886 section 3.3, RFC 6887 section 11.2.1), so that a
/// renewal that fails leaves time for others.
pub(super) fn renewal_after(lifetime: Duration) -> Duration {
    (lifetime / 2).clamp(MAPPING_RENEWAL_MIN, MAPPING_RENEWAL_MAX)
}

/// After so many failures in a row: each pause is twice the one before, up to a bound.
pub(super) fn retry_after(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    MAPPING_RETRY_FIRST
        .saturating_mul(1 << doublings)
        .min(MAPPING_RETRY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_renewed_before_it_ends_and_never_in_a_hurry() {
        let seconds = Duration::from_secs;
        assert_eq!(renewal_after(seconds(600)), seconds(300));
        assert_eq!(renewal_after(Duration::ZERO), MAPPING_RENEWAL_MIN);
        assert_eq!(renewal_after(Duration::MAX), MAPPING_RENEWAL_MAX);
    }

    #[test]
    fn a_router_that_refuses_is_asked_more_and_more_seldom() {
        assert_eq!(retry_after(1), MAPPING_RETRY_FIRST);
        assert_eq!(retry_after(3), MAPPING_RETRY_FIRST * 4);
        assert!((1..100).all(|failures| retry_after(failures) <= retry_after(failures + 1)));
        assert_eq!(retry_after(u32::MAX), MAPPING_RETRY_MAX);
    }
}
