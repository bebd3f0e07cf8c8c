//! What a server lets its clients reach.

use std::net::{IpAddr, SocketAddr};

use masque::ip::{Prefix, Routes};

use super::lease::own_address;
use crate::drops::DropReason;
use crate::target_rules::TargetRules;

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
    /// Every address of this machine, as the driver last saw it.
    host_addresses: Vec<IpAddr>,
}

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
            host_addresses: Vec::new(),
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

    pub(crate) fn set_host_addresses(&mut self, addresses: Vec<IpAddr>) -> bool {
        let is_new = self.host_addresses != addresses;
        self.host_addresses = addresses;
        is_new
    }

    /// Whether a client may send a packet of `protocol` to this destination; the port is 0 where there is none.
    pub(crate) fn admits(&self, destination: IpAddr, port: u16, protocol: u8) -> Result<(), DropReason> {
        if self.own.contains(&destination) {
            return Ok(());
        }
        if self.pools.iter().any(|pool| pool.contains(destination)) {
            return if self.client_to_client {
                Ok(())
            } else {
                Err(DropReason::PolicyDenied)
            };
        }
        self.rules
            .check(SocketAddr::new(destination, port), &self.host_addresses)
            .map_err(|_| DropReason::PolicyDenied)?;
        if self.routes.allows(destination, protocol) {
            Ok(())
        } else {
            Err(DropReason::NoRoute)
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
        service.set_host_addresses(vec!["192.0.2.1".parse().unwrap(), "10.9.0.1".parse().unwrap()]);
        service
    }

    #[test]
    fn clients_reach_the_world_and_the_servers_own_address_in_the_pool_and_not_each_other() {
        let service = service(false, &[]);
        for (destination, expected) in [
            ("198.51.100.1", Ok(())),
            ("10.9.0.1", Ok(())),
            ("fd09::1", Ok(())),
            ("10.9.0.2", Err(DropReason::PolicyDenied)),
            ("fd09::2", Err(DropReason::PolicyDenied)),
            ("192.0.2.1", Err(DropReason::PolicyDenied)),
            ("127.0.0.1", Err(DropReason::PolicyDenied)),
            ("169.254.169.254", Err(DropReason::PolicyDenied)),
            ("2001:db8::1", Err(DropReason::NoRoute)),
        ] {
            assert_eq!(
                service.admits(destination.parse().unwrap(), 80, 6),
                expected,
                "{destination}"
            );
        }
        assert!(service.may_answer("198.51.100.1".parse().unwrap(), 6));
        assert!(!service.may_answer("10.9.0.3".parse().unwrap(), 6));
    }

    #[test]
    fn permissions_open_what_is_closed() {
        let open = service(true, &["192.0.2.1:80"]);
        assert_eq!(open.admits("10.9.0.2".parse().unwrap(), 0, 1), Ok(()));
        assert_eq!(open.admits("192.0.2.1".parse().unwrap(), 80, 6), Ok(()));
        assert_eq!(
            open.admits("192.0.2.1".parse().unwrap(), 81, 6),
            Err(DropReason::PolicyDenied)
        );
    }
}
