//! A token bucket: how many ICMP answers may be made (RFC 1812 section 4.3.2.8, RFC 4443 section 2.4 f), and how often a
//! server may change what it assigned.

use std::time::{Duration, Instant};

use crate::limits;

/// Tokens come back at an even rate, up to a burst.
#[derive(Debug)]
pub(crate) struct Bucket {
    burst: u32,
    /// In which one token comes back.
    interval: Duration,
    tokens: u32,
    /// Up to when tokens have been given back.
    since: Option<Instant>,
}

/// That of ICMP answers.
impl Default for Bucket {
    fn default() -> Self {
        Self::new(
            limits::ICMP_BURST,
            Duration::from_secs(1) / limits::ICMP_PER_SECOND,
        )
    }
}

impl Bucket {
    /// A full one.
    pub(crate) const fn new(burst: u32, interval: Duration) -> Self {
        Self {
            burst,
            interval,
            tokens: burst,
            since: None,
        }
    }

    /// When there is a token, after [`Self::take`] found none.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.since.map(|since| since + self.interval)
    }

    /// Takes one token. Whether there was one.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let interval = self.interval;
        let come = now.saturating_duration_since(since).as_nanos() / interval.as_nanos();
        if come > 0 {
            let come = u32::try_from(come).unwrap_or(u32::MAX);
            self.tokens = self.tokens.saturating_add(come).min(self.burst);
            self.since = Some(if self.tokens == self.burst {
                now
            } else {
                since + interval * come
            });
        }
        let is_allowed = self.tokens > 0;
        self.tokens -= u32::from(is_allowed);
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_only_the_rate() {
        let mut bucket = Bucket::default();
        // tidy-allow(pure): first instant of virtual time
        let start = Instant::now();
        let passed = |bucket: &mut Bucket, now| (0..10_000).filter(|_| bucket.take(now)).count() as u32;
        assert_eq!(passed(&mut bucket, start), limits::ICMP_BURST);
        assert_eq!(passed(&mut bucket, start), 0);
        let mut total = 0;
        for millisecond in 1..=1_000 {
            total += passed(&mut bucket, start + Duration::from_millis(millisecond));
        }
        assert_eq!(total, limits::ICMP_PER_SECOND);
        let late = start + Duration::from_secs(3_600);
        assert_eq!(passed(&mut bucket, late), limits::ICMP_BURST);
        let next = bucket.next().unwrap();
        assert!(!bucket.take(next - Duration::from_millis(1)) && bucket.take(next));
    }
}
