//! Which addresses lead to this machine, for the target rules: what the kernel takes for itself, and by which prefixes
//! translators of the network reach it (NAT64, discovered by RFC 7050).
//!
//! Where the kernel does not say, the rules close everything that has no explicit permission, and it is asked again.

use std::fmt::Display;
use std::net::IpAddr;
use std::time::Instant;

use host::Network;
use tunnel_proto::{FewAtATime, OwnAddresses, Prefix, nat64_prefix};

use super::Server;
use crate::driver::Shard;
use crate::driver::resolver::{Answer, Purpose};
use crate::handle::Notice;
use crate::limits;

/// Its IPv6 addresses are those that translators make of well-known IPv4 ones (RFC 7050 section 8.2).
const NAT64_NAME: &str = "ipv4only.arpa";

/// The question for that name; questions of requests have smaller numbers.
pub(super) const NAT64_PURPOSE: Purpose = Purpose::MAX;

/// What a shard knows of them.
pub(super) struct OwnAddressList {
    present: OwnAddresses,
    /// When the kernel is asked again.
    next_due: Instant,
    failures_told: FewAtATime,
    nat64: Vec<Prefix>,
    /// When the network is asked for translators again.
    nat64_due: Instant,
}

impl OwnAddressList {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            present: OwnAddresses::unknown(),
            next_due: now,
            failures_told: FewAtATime::new(1),
            nat64: Vec::new(),
            nat64_due: now,
        }
    }

    pub(super) fn present(&self) -> &OwnAddresses {
        &self.present
    }

    /// Enters what the kernel says. Returns what there is to tell.
    fn update<E: Display>(&mut self, now: Instant, listed: Result<Vec<host::Prefix>, E>) -> Option<String> {
        let (present, age, failure) = match listed {
            Ok(listed) => {
                let prefixes: Vec<Prefix> = listed.iter().filter_map(own_prefix).collect();
                let present = OwnAddresses::of(&prefixes).with_nat64(&self.nat64);
                (present, limits::OWN_ADDRESSES_AGE, None)
            }
            Err(error) => (OwnAddresses::unknown(), limits::OWN_ADDRESSES_RETRY, Some(error)),
        };
        self.present = present;
        self.next_due = now + age;
        let failure = failure.filter(|_| self.failures_told.take(now))?;
        Some(format!(
            "targets are refused, but those of --allow-target, until it is known which addresses are the server's own: \
             {failure}"
        ))
    }

    fn enter_nat64(&mut self, now: Instant, answer: Answer) {
        // Without an answer the last ones stay: translators rarely move.
        let Ok(found) = answer.found else { return };
        let answers = found.iter().filter_map(|address| match address.ip() {
            IpAddr::V6(v6) => nat64_prefix(v6),
            IpAddr::V4(_) => None,
        });
        self.nat64 = answers.collect();
        self.next_due = now;
    }
}

impl Shard<Server> {
    /// Sees to it that the addresses that the rules go by are not old.
    pub(super) fn refresh_own_addresses(&mut self, now: Instant) {
        let own = &mut self.role.own_addresses;
        if own.nat64_due <= now {
            own.nat64_due = now + limits::NAT64_DISCOVERY_INTERVAL;
            self.io.resolver.ask(NAT64_PURPOSE, NAT64_NAME, 0);
        }
        if now < own.next_due {
            return;
        }
        let listed = Network::open().and_then(|mut network| network.local_destinations());
        if let Some(text) = own.update(now, listed) {
            self.io.notify(Notice::Warning { text });
        }
        if self.role.ip.is_some() {
            self.engine.set_own_addresses(own.present.clone());
        }
    }

    /// The network has said which translators it has.
    pub(super) fn nat64_discovered(&mut self, now: Instant, answer: Answer) {
        self.role.own_addresses.enter_nat64(now, answer);
    }
}

fn own_prefix(prefix: &host::Prefix) -> Option<Prefix> {
    Prefix::around(prefix.address(), prefix.length()).ok()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tunnel_proto::{Prohibited, TargetRules};

    use super::*;

    fn check(list: &OwnAddressList, target: &str) -> Result<(), Prohibited> {
        TargetRules::default().check(target.parse().unwrap(), list.present())
    }

    #[test]
    fn a_kernel_that_does_not_answer_closes_all_targets_until_it_is_asked_again() {
        let now = Instant::now();
        let mut list = OwnAddressList::new(now);
        assert_eq!(check(&list, "8.8.8.8:53"), Err(Prohibited::Unknown));
        let own = || Ok::<_, &str>(vec!["198.51.100.0/24".parse().unwrap()]);
        assert_eq!(list.update(now, own()), None);
        assert_eq!(check(&list, "8.8.8.8:53"), Ok(()));
        assert_eq!(check(&list, "198.51.100.7:53"), Err(Prohibited::OwnAddress));
        let failed = || Err("the kernel does not answer");
        let later = list.next_due;
        let text = list.update(later, failed()).unwrap();
        assert!(text.contains("--allow-target"), "{text}");
        assert_eq!(check(&list, "8.8.8.8:53"), Err(Prohibited::Unknown));
        assert_eq!(list.next_due, later + limits::OWN_ADDRESSES_RETRY);
        // It is told once, and asked all the time.
        assert_eq!(list.update(list.next_due, failed()), None);
        assert_eq!(list.update(list.next_due, own()), None);
        assert_eq!(check(&list, "8.8.8.8:53"), Ok(()));
    }

    #[test]
    fn translators_that_the_network_has_are_seen_through() {
        let now = Instant::now();
        let mut list = OwnAddressList::new(now);
        let own = || Ok::<_, &str>(vec!["203.0.113.9/32".parse().unwrap()]);
        let translated = "[2001:db8:64::203.0.113.9]:22";
        list.update(now, own());
        assert_eq!(check(&list, translated), Ok(()));
        let found = ["[2001:db8:64::192.0.0.170]:0", "192.0.0.170:0"];
        let found: Vec<SocketAddr> = found.iter().map(|one| one.parse().unwrap()).collect();
        list.enter_nat64(
            now,
            Answer {
                purpose: NAT64_PURPOSE,
                found: Ok(found),
            },
        );
        list.update(list.next_due, own());
        assert_eq!(check(&list, translated), Err(Prohibited::OwnAddress));
        assert_eq!(check(&list, "[2001:db8:64::8.8.8.8]:22"), Ok(()));
    }
}
