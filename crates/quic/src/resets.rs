//! How many stateless resets leave (RFC 9000 section 10.3): bounded per prefix, so that one network cannot use up what all
//! clients of a restarted server need, and altogether. Each shard of a process has its part of the bounds.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::admission::prefix;
use crate::limits;

/// What left in the present second.
#[derive(Debug)]
pub(crate) struct ResetBudget {
    since: Option<Instant>,
    sent: u32,
    /// Has no more entries than resets were sent.
    by_prefix: BTreeMap<IpAddr, u32>,
    all_max: u32,
    prefix_max: u32,
}

impl ResetBudget {
    /// Of one of so many shards.
    pub(crate) fn new(shards: u8) -> Self {
        let shards = u32::from(shards);
        Self {
            since: None,
            sent: 0,
            by_prefix: BTreeMap::new(),
            all_max: limits::RESETS_PER_SECOND / shards,
            prefix_max: (limits::RESETS_PER_PREFIX_PER_SECOND / shards).max(1),
        }
    }

    /// Whether one more may leave; it is counted then.
    pub(crate) fn take(&mut self, now: Instant, remote: IpAddr) -> bool {
        let is_over = |since: Instant| now.duration_since(since) >= Duration::from_secs(1);
        if self.since.is_none_or(is_over) {
            self.since = Some(now);
            self.sent = 0;
            self.by_prefix.clear();
        }
        if self.sent >= self.all_max {
            return false;
        }
        let of_prefix = self.by_prefix.entry(prefix(remote)).or_default();
        if *of_prefix >= self.prefix_max {
            return false;
        }
        *of_prefix += 1;
        self.sent += 1;
        true
    }
}

#[cfg(test)]
mod tests {
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
