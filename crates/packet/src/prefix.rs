//! Customers' networks, and how much each of them may have in a second.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

/// The network that one customer usually holds, by its first address: /24 of IPv4, also where mapped, /56 of IPv6.
#[must_use]
pub fn customer_prefix(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & !0xff)),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 72 << 72)),
    }
}

/// How often something may happen in a second: for each prefix, so that one network cannot use up what all need, and
/// altogether.
#[derive(Debug)]
pub struct PrefixBudget {
    since: Option<Instant>,
    taken: u32,
    /// Has no more entries than were taken.
    by_prefix: BTreeMap<IpAddr, u32>,
    all_max: u32,
    prefix_max: u32,
}

impl PrefixBudget {
    /// So many in a second altogether, and for each prefix.
    #[must_use]
    pub fn new(all_max: u32, prefix_max: u32) -> Self {
        Self {
            since: None,
            taken: 0,
            by_prefix: BTreeMap::new(),
            all_max,
            prefix_max,
        }
    }

    /// Whether one more is allowed to `remote`; it is counted then.
    pub fn take(&mut self, now: Instant, remote: IpAddr) -> bool {
        let is_over = |since: Instant| now.duration_since(since) >= Duration::from_secs(1);
        if self.since.is_none_or(is_over) {
            self.since = Some(now);
            self.taken = 0;
            self.by_prefix.clear();
        }
        if self.taken >= self.all_max {
            return false;
        }
        let of_prefix = self.by_prefix.entry(customer_prefix(remote)).or_default();
        if *of_prefix >= self.prefix_max {
            return false;
        }
        *of_prefix += 1;
        self.taken += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_so_much_for_each_prefix_and_for_all() {
        let mut budget = PrefixBudget::new(1_024, 64);
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let mut taken = |at, third| {
            let address = |host: u16| IpAddr::from([192, 0, third, host as u8]);
            (0..2_000).filter(|host| budget.take(at, address(*host))).count()
        };
        for third in 0..16 {
            assert_eq!(taken(now, third), 64);
        }
        assert_eq!(taken(now, 16), 0);
        let next = now + Duration::from_secs(1);
        assert_eq!(taken(next, 16), 64);
    }
}
