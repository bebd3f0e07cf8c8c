//! What a server lets its clients reach.
//!
//! Of the server itself that is an echo at its own address of each pool, port 53 there where clients are offered it as
//! their name server, and what has an explicit permission.

use std::net::{IpAddr, SocketAddr};

use masque::ip::{Prefix, Routes};

use super::lease::own_address;
use crate::access::Reach;
use crate::drops::DropReason;
use crate::engine::ip::PacketTarget;
use crate::own_addresses::OwnAddresses;
use crate::target_rules::{AllowedTarget, TargetRules};

/// A server's IP service.
#[derive(Clone, Debug)]
pub struct IpService {
    pools: Vec<Prefix>,
    own: Vec<IpAddr>,
    routes: Routes,
    client_to_client: bool,
    rules: TargetRules,
    /// What clients are offered.
    name_servers: Vec<IpAddr>,
    /// What leads to this machine.
    own_addresses: OwnAddresses,
}

/// Where name servers listen.
const NAME_SERVER_PORT: u16 = 53;

impl IpService {
    /// Leases come from `pools`; clients may reach what `routes` hold, and with `client_to_client` each other.
    #[must_use]
    pub fn new(pools: Vec<Prefix>, routes: &[Prefix], client_to_client: bool, rules: TargetRules) -> Self {
        let own = pools.iter().filter_map(own_address).collect();
        // What a client reaches of the pools themselves is decided below.
        let all: Vec<Prefix> = routes.iter().chain(&pools).copied().collect();
        Self {
            own,
            routes: Routes::of(&all),
            pools,
            client_to_client,
            rules,
            name_servers: Vec::new(),
            own_addresses: OwnAddresses::unknown(),
        }
    }

    /// Clients are offered these name servers (SESSION-16).
    #[must_use]
    pub fn with_name_servers(mut self, name_servers: Vec<IpAddr>) -> Self {
        self.name_servers = name_servers;
        self
    }

    pub(crate) fn name_servers(&self) -> &[IpAddr] {
        &self.name_servers
    }

    /// Where leases come from.
    pub(crate) fn pools(&self) -> &[Prefix] {
        &self.pools
    }

    /// What clients are told to be reachable.
    pub(crate) fn routes(&self) -> &Routes {
        &self.routes
    }

    /// The server's address in the first pool of this version.
    pub(crate) fn own_address(&self, is_ipv4: bool) -> Option<IpAddr> {
        self.own.iter().copied().find(|own| own.is_ipv4() == is_ipv4)
    }

    pub(crate) fn allow(&mut self, allowed: Vec<AllowedTarget>) {
        self.rules.allow(allowed);
    }

    pub(crate) fn set_own_addresses(&mut self, addresses: OwnAddresses) -> bool {
        let is_new = self.own_addresses != addresses;
        self.own_addresses = addresses;
        is_new
    }

    /// Whether a client may send a packet to this target, whose user may reach so much.
    pub(crate) fn admits(&self, target: &PacketTarget, reach: &Reach) -> Result<(), DropReason> {
        let PacketTarget { address, port, .. } = *target;
        if self.own.contains(&address) {
            return self.admits_here(target, reach);
        }
        if !self.client_to_client && self.pools.iter().any(|pool| pool.contains(address)) {
            return Err(DropReason::PolicyDenied);
        }
        if !reach.covers(SocketAddr::new(address, port)) {
            return Err(DropReason::PolicyDenied);
        }
        self.rules
            .check(SocketAddr::new(address, port), &self.own_addresses)
            .map_err(|_| DropReason::PolicyDenied)?;
        if self.routes.allows(address, target.protocol) {
            Ok(())
        } else {
            Err(DropReason::NoRoute)
        }
    }

    /// The same for one of the server's own addresses in the pools, whose echo and name server are everybody's.
    fn admits_here(&self, target: &PacketTarget, reach: &Reach) -> Result<(), DropReason> {
        let PacketTarget { address, port, .. } = *target;
        let is_name_server = || port == NAME_SERVER_PORT && self.name_servers.contains(&address);
        let here = SocketAddr::new(address, port);
        let is_permitted = || self.rules.permits(here) && reach.covers(here);
        if target.is_echo || is_name_server() || is_permitted() {
            Ok(())
        } else {
            Err(DropReason::PolicyDenied)
        }
    }

    /// Whether a packet from here to a client may come from this source: from what clients may reach.
    pub(crate) fn may_answer(&self, source: IpAddr, protocol: u8) -> bool {
        if self.own.contains(&source) {
            return true;
        }
        if self.pools.iter().any(|pool| pool.contains(source)) {
            return self.client_to_client;
        }
        self.routes.allows(source, protocol)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(client_to_client: bool, allowed: &[&str]) -> IpService {
        let pools = vec!["10.9.0.0/24".parse().unwrap(), "fd09::/64".parse().unwrap()];
        let rules = TargetRules::new(allowed.iter().map(|one| one.parse().unwrap()).collect());
        let mut service = IpService::new(pools, &[Prefix::ALL_V4], client_to_client, rules);
        let own = ["192.0.2.1/32", "10.9.0.1/32"].map(|one| one.parse().unwrap());
        service.set_own_addresses(OwnAddresses::of(&own));
        service
    }

    fn tcp(address: &str, port: u16) -> PacketTarget {
        PacketTarget {
            address: address.parse().unwrap(),
            port,
            protocol: 6,
            is_echo: false,
        }
    }

    fn echo(address: &str) -> PacketTarget {
        PacketTarget {
            protocol: if address.contains(':') { 58 } else { 1 },
            is_echo: true,
            ..tcp(address, 0)
        }
    }

    #[test]
    fn clients_reach_the_world_and_neither_the_server_nor_each_other() {
        let service = service(false, &[]);
        for (destination, expected) in [
            ("198.51.100.1", Ok(())),
            ("10.9.0.1", Err(DropReason::PolicyDenied)),
            ("fd09::1", Err(DropReason::PolicyDenied)),
            ("10.9.0.2", Err(DropReason::PolicyDenied)),
            ("fd09::2", Err(DropReason::PolicyDenied)),
            ("192.0.2.1", Err(DropReason::PolicyDenied)),
            ("127.0.0.1", Err(DropReason::PolicyDenied)),
            ("169.254.169.254", Err(DropReason::PolicyDenied)),
            ("2001:db8::1", Err(DropReason::NoRoute)),
        ] {
            assert_eq!(
                service.admits(&tcp(destination, 80), &Reach::default()),
                expected,
                "{destination}"
            );
        }
        assert!(service.may_answer("198.51.100.1".parse().unwrap(), 6));
        assert!(!service.may_answer("10.9.0.3".parse().unwrap(), 6));
    }

    #[test]
    fn the_servers_own_address_answers_pings_and_names_and_what_is_permitted() {
        let own = ["10.9.0.1", "fd09::1"];
        let plain = service(false, &[]);
        let names = service(false, &[]).with_name_servers(vec!["10.9.0.1".parse().unwrap()]);
        let open = service(false, &["10.9.0.1:80", "fd09::1"]);
        for address in own {
            assert_eq!(
                plain.admits(&echo(address), &Reach::default()),
                Ok(()),
                "{address}"
            );
            assert!(
                plain.admits(&tcp(address, 53), &Reach::default()).is_err(),
                "{address}"
            );
        }
        assert_eq!(names.admits(&tcp("10.9.0.1", 53), &Reach::default()), Ok(()));
        assert!(names.admits(&tcp("10.9.0.1", 54), &Reach::default()).is_err());
        assert!(names.admits(&tcp("fd09::1", 53), &Reach::default()).is_err());
        assert_eq!(open.admits(&tcp("10.9.0.1", 80), &Reach::default()), Ok(()));
        assert!(open.admits(&tcp("10.9.0.1", 81), &Reach::default()).is_err());
        assert_eq!(open.admits(&tcp("fd09::1", 81), &Reach::default()), Ok(()));
    }

    #[test]
    fn no_packet_goes_anywhere_while_the_own_addresses_are_unknown() {
        let mut service = service(false, &["198.51.100.1:80"]);
        service.set_own_addresses(OwnAddresses::unknown());
        assert!(
            service
                .admits(&tcp("198.51.100.2", 80), &Reach::default())
                .is_err()
        );
        assert_eq!(
            service.admits(&tcp("198.51.100.1", 80), &Reach::default()),
            Ok(())
        );
        assert_eq!(service.admits(&echo("10.9.0.1"), &Reach::default()), Ok(()));
    }

    #[test]
    fn permissions_open_what_is_closed() {
        let open = service(true, &["192.0.2.1:80"]);
        assert_eq!(open.admits(&tcp("10.9.0.2", 0), &Reach::default()), Ok(()));
        assert_eq!(open.admits(&tcp("192.0.2.1", 80), &Reach::default()), Ok(()));
        assert!(open.admits(&tcp("192.0.2.1", 81), &Reach::default()).is_err());
    }

    #[test]
    fn what_a_user_may_reach_narrows_and_opens_nothing() {
        let service = service(true, &["10.9.0.1:80"]).with_name_servers(vec!["10.9.0.1".parse().unwrap()]);
        let networks = ["198.51.100.0/24:80", "10.9.0.2", "192.0.2.1"].map(|text| text.parse().unwrap());
        let reach = Reach::only(networks.to_vec());
        for (target, expected) in [
            (tcp("198.51.100.1", 80), true),
            (tcp("198.51.100.1", 81), false),
            (tcp("203.0.113.1", 80), false),
            (echo("203.0.113.1"), false),
            (tcp("10.9.0.2", 22), true),
            (tcp("10.9.0.3", 22), false),
            // Closed by the server's rules.
            (tcp("192.0.2.1", 80), false),
            // The server's own address: permitted, but not this user's.
            (tcp("10.9.0.1", 80), false),
            (tcp("10.9.0.1", 53), true),
            (echo("10.9.0.1"), true),
        ] {
            assert_eq!(service.admits(&target, &reach).is_ok(), expected, "{target:?}");
        }
    }
}
