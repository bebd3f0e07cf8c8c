//! How many stateless resets leave (RFC 9000 section 10.3): bounded per prefix, so that one network cannot use up what all
//! clients of a restarted server need, and altogether. Each shard of a process has its part of the bounds.

use std::net::IpAddr;
use std::time::Instant;

use packet::PrefixBudget;

use crate::limits;

/// What left in the present second.
#[derive(Debug)]
pub(crate) struct ResetBudget(PrefixBudget);

impl ResetBudget {
    /// Of one of so many shards.
    pub(crate) fn new(shards: u8) -> Self {
        let shards = u32::from(shards);
        let prefix_max = (limits::RESETS_PER_PREFIX_PER_SECOND / shards).max(1);
        Self(PrefixBudget::new(limits::RESETS_PER_SECOND / shards, prefix_max))
    }

    /// Whether one more may leave; it is counted then.
    pub(crate) fn take(&mut self, now: Instant, remote: IpAddr) -> bool {
        self.0.take(now, remote)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_second_has_so_many_resets_for_each_prefix_and_for_all() {
        let mut budget = ResetBudget::new(1);
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let mut left = |at, third| {
            let ask = || budget.take(at, IpAddr::from([192, 0, third, 1]));
            std::iter::repeat_with(ask)
                .take(2_000)
                .filter(|taken| *taken)
                .count() as u32
        };
        for third in 0..16 {
            assert_eq!(left(now, third), limits::RESETS_PER_PREFIX_PER_SECOND);
        }
        assert_eq!(
            16 * limits::RESETS_PER_PREFIX_PER_SECOND,
            limits::RESETS_PER_SECOND
        );
        assert_eq!(left(now, 16), 0);
        let next = now + Duration::from_secs(1);
        assert_eq!(left(next, 16), limits::RESETS_PER_PREFIX_PER_SECOND);
    }
}
