//! How often each network has shown a wrong token lately. Each shard of a process counts for itself, and has its part of
//! the bounds.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

use crate::limits;

/// Counts per prefix, bounded in number and time.
#[derive(Debug)]
pub(crate) struct WrongTokens {
    prefixes: BTreeMap<IpAddr, (Instant, u32)>,
    per_prefix: u32,
    prefixes_max: usize,
}

impl WrongTokens {
    /// For one of so many shards.
    pub(crate) fn new(shards: u8) -> Self {
        Self {
            prefixes: BTreeMap::new(),
            per_prefix: limits::WRONG_TOKENS_PER_PREFIX / u32::from(shards),
            prefixes_max: limits::WRONG_TOKEN_PREFIXES / usize::from(shards),
        }
    }

    /// Whether a prefix has used up its tries.
    pub(crate) fn is_used_up(&self, now: Instant, remote: IpAddr) -> bool {
        let counted = self.prefixes.get(&quic::customer_prefix(remote));
        counted.is_some_and(|(since, count)| {
            *count > self.per_prefix && now.duration_since(*since) < limits::WRONG_TOKENS_WINDOW
        })
    }

    /// Counts one; whether the prefix has used up its tries.
    pub(crate) fn count(&mut self, now: Instant, remote: IpAddr) -> bool {
        let prefix = quic::customer_prefix(remote);
        if self.prefixes.len() >= self.prefixes_max && !self.prefixes.contains_key(&prefix) {
            let oldest = self
                .prefixes
                .iter()
                .min_by_key(|(_, (since, _))| *since)
                .map(|(prefix, _)| *prefix);
            oldest.map(|oldest| self.prefixes.remove(&oldest));
        }
        let (since, count) = self.prefixes.entry(prefix).or_insert((now, 0));
        if now.duration_since(*since) >= limits::WRONG_TOKENS_WINDOW {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        *count > self.per_prefix
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_prefix_uses_up_its_tries_and_gets_them_back_after_the_window() {
        let mut wrong = WrongTokens::new(1);
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        for host in 0..limits::WRONG_TOKENS_PER_PREFIX {
            assert!(!wrong.count(now, IpAddr::from([192, 0, 2, host as u8])));
        }
        assert!(wrong.count(now, IpAddr::from([192, 0, 2, 99])));
        assert!(!wrong.count(now, IpAddr::from([192, 0, 3, 99])));
        assert!(!wrong.count(now + limits::WRONG_TOKENS_WINDOW, IpAddr::from([192, 0, 2, 99])));
    }

    #[test]
    fn the_table_is_bounded() {
        let mut wrong = WrongTokens::new(1);
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        for index in 0..limits::WRONG_TOKEN_PREFIXES as u32 + 10 {
            wrong.count(now, IpAddr::from(Ipv4Addr::from_bits(index << 8)));
        }
        assert_eq!(wrong.prefixes.len(), limits::WRONG_TOKEN_PREFIXES);
    }
}
