//! Which addresses lead to this machine, for the target rules: what the kernel takes for itself, where clients reach it
//! (addresses of a NAT before it, known from the hosts that its link names), and by which prefixes translators of the
//! network reach it (NAT64, discovered by RFC 7050).
//!
//! Where the kernel does not say, the rules close everything that has no explicit permission, and it is asked again.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use host::Network;
use tunnel_proto::{OwnAddresses, Prefix, nat64_prefix};

use super::Server;
use crate::driver::Shard;
use crate::driver::resolver::{Answer, Purpose};
use crate::handle::{Notice, Repeated};
use crate::limits;

/// Its IPv6 addresses are those that translators make of well-known IPv4 ones (RFC 7050 section 8.2).
const NAT64_NAME: &str = "ipv4only.arpa";

/// Questions of this list are numbered from here on, those for public names first; questions of requests have smaller
/// numbers.
pub(super) const OWN_PURPOSES: Purpose = NAT64_PURPOSE - limits::PUBLIC_HOSTS_MAX as Purpose;

const NAT64_PURPOSE: Purpose = Purpose::MAX;

/// What a shard knows of them.
pub(super) struct OwnAddressList {
    present: OwnAddresses,
    /// When the kernel is asked again.
    next_due: Instant,
    nat64: Vec<Prefix>,
    /// When the network is asked for translators again.
    nat64_due: Instant,
    public: Vec<PublicHost>,
    /// When the names among them are asked for again.
    public_due: Instant,
}

/// A host by which clients reach the server.
struct PublicHost {
    /// `None` for an address.
    name: Option<String>,
    addresses: Vec<IpAddr>,
}

impl PublicHost {
    fn new(host: &str) -> Self {
        let address = host.parse().ok();
        Self {
            name: address.is_none().then(|| host.to_owned()),
            addresses: address.into_iter().collect(),
        }
    }
}

impl OwnAddressList {
    /// Of a server that clients reach by these hosts, too.
    pub(super) fn new(now: Instant, public: &[String]) -> Self {
        let public = public.iter().take(limits::PUBLIC_HOSTS_MAX);
        Self {
            present: OwnAddresses::unknown(),
            next_due: now,
            nat64: Vec::new(),
            nat64_due: now,
            public: public.map(|host| PublicHost::new(host)).collect(),
            public_due: now,
        }
    }

    pub(super) fn present(&self) -> &OwnAddresses {
        &self.present
    }

    /// Enters what the kernel says. Returns what there is to tell.
    fn update<E: Display>(&mut self, now: Instant, listed: Result<Vec<host::Prefix>, E>) -> Option<String> {
        let (present, age, failure) = match listed {
            Ok(listed) => {
                let public = self.public.iter().flat_map(|host| &host.addresses);
                let public = public.map(|address| Prefix::host(address.to_canonical()));
                let prefixes: Vec<Prefix> = listed.iter().filter_map(own_prefix).chain(public).collect();
                let present = OwnAddresses::of(&prefixes).with_nat64(&self.nat64);
                (present, limits::OWN_ADDRESSES_AGE, None)
            }
            Err(error) => (OwnAddresses::unknown(), limits::OWN_ADDRESSES_RETRY, Some(error)),
        };
        self.present = present;
        self.next_due = now + age;
        let failure = failure?;
        Some(format!(
            "targets are refused, but those of --allow-target, until it is known which addresses are the server's own: \
             {failure}"
        ))
    }

    /// The names whose turn it is, with the purpose of each question.
    fn due_names(&mut self, now: Instant) -> Vec<(Purpose, String)> {
        let mut due = Vec::new();
        if self.nat64_due <= now {
            self.nat64_due = now + limits::NAT64_DISCOVERY_INTERVAL;
            due.push((NAT64_PURPOSE, NAT64_NAME.to_owned()));
        }
        if self.public_due <= now {
            self.public_due = now + limits::PUBLIC_NAMES_INTERVAL;
            let names = self.public.iter().map(|host| &host.name);
            let asked = (OWN_PURPOSES..).zip(names);
            due.extend(asked.filter_map(|(purpose, name)| Some((purpose, name.clone()?))));
        }
        due
    }

    /// Enters what a name stands for. Without an answer the last addresses stay: they rarely move.
    fn enter(&mut self, now: Instant, answer: Answer) {
        let Ok(found) = answer.found else { return };
        let addresses = found.iter().map(SocketAddr::ip);
        if answer.purpose == NAT64_PURPOSE {
            let answers = addresses.filter_map(|address| match address {
                IpAddr::V6(v6) => nat64_prefix(v6),
                IpAddr::V4(_) => None,
            });
            self.nat64 = answers.collect();
        } else if let Some(host) = self.public.get_mut((answer.purpose - OWN_PURPOSES) as usize) {
            host.addresses = addresses.take(limits::ADDRESSES_PER_NAME).collect();
        }
        self.next_due = now;
    }
}

impl Shard<Server> {
    /// Sees to it that the addresses that the rules go by are not old.
    pub(super) fn refresh_own_addresses(&mut self, now: Instant) {
        let own = &mut self.role.own_addresses;
        if now < own.next_due {
            return;
        }
        let listed = Network::open().and_then(|mut network| network.local_destinations());
        if let Some(text) = own.update(now, listed) {
            let notice = || Notice::Warning { text };
            self.io.notices.send_few(now, Repeated::OwnAddresses, notice);
        }
        if self.role.ip.is_some() {
            self.engine.set_own_addresses(own.present.clone());
        }
    }

    /// Asks for the names whose turn it is.
    pub(super) fn ask_own_names(&mut self, now: Instant) {
        for (purpose, name) in self.role.own_addresses.due_names(now) {
            self.io.resolver.ask(purpose, &name, 0);
        }
    }

    /// The network has said which translators it has, or where the server is.
    pub(super) fn own_name_resolved(&mut self, now: Instant, answer: Answer) {
        self.role.own_addresses.enter(now, answer);
    }
}

fn own_prefix(prefix: &host::Prefix) -> Option<Prefix> {
    Prefix::around(prefix.address(), prefix.length()).ok()
}

#[cfg(test)]
mod tests {
    use tunnel_proto::{Prohibited, TargetRules};

    use super::*;
    use crate::driver::resolver::Unresolved;

    fn check(list: &OwnAddressList, target: &str) -> Result<(), Prohibited> {
        TargetRules::default().check(target.parse().unwrap(), list.present())
    }

    #[test]
    fn a_kernel_that_does_not_answer_closes_all_targets_until_it_is_asked_again() {
        let now = Instant::now();
        let mut list = OwnAddressList::new(now, &[]);
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
        // It is asked all the time; the notices bound how often it is told.
        assert_eq!(list.update(list.next_due, failed()), Some(text));
        assert_eq!(list.update(list.next_due, own()), None);
        assert_eq!(check(&list, "8.8.8.8:53"), Ok(()));
    }

    #[test]
    fn translators_that_the_network_has_are_seen_through() {
        let now = Instant::now();
        let mut list = OwnAddressList::new(now, &[]);
        let own = || Ok::<_, &str>(vec!["203.0.113.9/32".parse().unwrap()]);
        let translated = "[2001:db8:64::203.0.113.9]:22";
        list.update(now, own());
        assert_eq!(check(&list, translated), Ok(()));
        let found = ["[2001:db8:64::192.0.0.170]:0", "192.0.0.170:0"];
        let found: Vec<SocketAddr> = found.iter().map(|one| one.parse().unwrap()).collect();
        list.enter(
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

    #[test]
    fn where_clients_reach_the_server_is_closed_by_address_at_once_and_by_name_as_soon_as_it_resolves() {
        let now = Instant::now();
        let public = ["192.0.2.9", "vpn.example.org", "2001:db8::9"].map(str::to_owned);
        let mut list = OwnAddressList::new(now, &public);
        let own = || Ok::<_, &str>(vec!["10.0.0.9/32".parse().unwrap()]);
        list.update(now, own());
        for own in [
            "192.0.2.9:22",
            "[64:ff9b::192.0.2.9]:22",
            "[2001:db8::9]:22",
            "10.0.0.9:22",
        ] {
            assert_eq!(check(&list, own), Err(Prohibited::OwnAddress), "{own}");
        }
        assert_eq!(check(&list, "192.0.2.10:22"), Ok(()));
        let due = list.due_names(now);
        let names: Vec<_> = due.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, [NAT64_NAME, "vpn.example.org"]);
        assert!(list.due_names(now).is_empty());
        let answer = |list: &mut OwnAddressList, found| {
            list.enter(
                now,
                Answer {
                    purpose: due[1].0,
                    found,
                },
            );
            list.update(list.next_due, own());
        };
        answer(&mut list, Ok(vec!["192.0.2.10:0".parse().unwrap()]));
        assert_eq!(check(&list, "192.0.2.10:22"), Err(Prohibited::OwnAddress));
        // A name that cannot be resolved stays where it was, and one that moves is known after a while.
        answer(&mut list, Err(Unresolved::Late));
        assert_eq!(check(&list, "192.0.2.10:22"), Err(Prohibited::OwnAddress));
        assert_eq!(list.due_names(now + limits::PUBLIC_NAMES_INTERVAL).len(), 1);
        answer(&mut list, Ok(vec!["192.0.2.11:0".parse().unwrap()]));
        assert_eq!(check(&list, "192.0.2.10:22"), Ok(()));
        assert_eq!(check(&list, "192.0.2.11:22"), Err(Prohibited::OwnAddress));
        assert_eq!(check(&list, "192.0.2.9:22"), Err(Prohibited::OwnAddress));
    }

    #[test]
    fn of_more_hosts_than_a_link_names_the_first_are_known() {
        let hosts: Vec<_> = (0..100).map(|number| format!("192.0.2.{number}")).collect();
        let mut list = OwnAddressList::new(Instant::now(), &hosts);
        list.update(Instant::now(), Ok::<_, &str>(Vec::new()));
        assert_eq!(check(&list, "192.0.2.15:22"), Err(Prohibited::OwnAddress));
        assert_eq!(check(&list, "192.0.2.16:22"), Ok(()));
    }
}
