//! What a client takes of what its server assigns, advertises and sends, so that a server that means harm gets nothing
//! of the machine but what its user leads into the tunnel.
//!
//! An assigned address is a single one, and none of a local network: the machine would answer in a neighbour's place,
//! or forward to it. An advertised route is taken where its addresses are private and none of them is local; the user
//! names others. Packets come from where the device's routes lead. Local is what the machine reaches past the tunnel:
//! networks of its interfaces, its resolvers, what the user excludes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use masque::ip::{Prefix, Routes};

use crate::config::TunRoutes;
use crate::engine::is_confined;
use crate::limits;

/// Networks that anybody may use for himself: RFC 1918 section 3, RFC 6598 section 7, RFC 4193 section 3.1.
const PRIVATE: [(IpAddr, u8); 5] = [
    (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), 8),
    (IpAddr::V4(Ipv4Addr::new(172, 16, 0, 0)), 12),
    (IpAddr::V4(Ipv4Addr::new(192, 168, 0, 0)), 16),
    (IpAddr::V4(Ipv4Addr::new(100, 64, 0, 0)), 10),
    (IpAddr::V6(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0)), 7),
];

/// What the machine reaches past the tunnel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalNetworks {
    /// Networks of its interfaces.
    pub networks: Vec<Prefix>,
    /// What the user excludes from the tunnel. An address of ours may lie there.
    pub excluded: Vec<Prefix>,
    /// Its name servers, which may be farther away: a route that the user names may lead to them.
    pub resolvers: Vec<IpAddr>,
}

/// The user's settings, held against the networks of the machine.
#[derive(Clone, Debug)]
pub struct Acceptance {
    routes: TunRoutes,
    default_route: bool,
    local: LocalNetworks,
    local_addresses: Routes,
    /// What `--route` names inside of local networks: there it wins.
    named_in_local: Routes,
}

impl Acceptance {
    /// No network is local yet. `routes` and `default_route` are the settings.
    #[must_use]
    pub const fn new(routes: TunRoutes, default_route: bool) -> Self {
        Self {
            routes,
            default_route,
            local: LocalNetworks {
                networks: Vec::new(),
                excluded: Vec::new(),
                resolvers: Vec::new(),
            },
            local_addresses: Routes::none(),
            named_in_local: Routes::none(),
        }
    }

    /// What the machine reaches past the tunnel. Whether it was something else before.
    pub fn set_local(&mut self, local: &LocalNetworks) -> bool {
        if self.local == *local {
            return false;
        }
        self.local = local.clone();
        let networks = [&local.networks[..], &local.excluded].concat();
        self.local_addresses = Routes::of(&networks);
        let named = match &self.routes {
            TunRoutes::These(routes) => routes.as_slice(),
            TunRoutes::Advertised | TunRoutes::None => &[],
        };
        let is_in_local = |route: &&Prefix| networks.iter().any(|local| includes(local, route));
        let named: Vec<Prefix> = named.iter().filter(is_in_local).copied().collect();
        self.named_in_local = Routes::of(&named);
        true
    }

    /// Which routes the user wants.
    pub(super) const fn settings(&self) -> &TunRoutes {
        &self.routes
    }

    /// Whether the user wants everything in the tunnel.
    pub(super) const fn has_default_route(&self) -> bool {
        self.default_route
    }

    /// Whether an assigned address is taken.
    #[must_use]
    pub fn takes_address(&self, assigned: &Prefix) -> bool {
        let address = assigned.address();
        let LocalNetworks {
            networks, resolvers, ..
        } = &self.local;
        let is_near = networks.iter().any(|network| network.contains(address));
        assigned.is_host() && !is_confined(address) && !is_near && !resolvers.contains(&address)
    }

    /// Whether an advertised route is taken, where the user wants those.
    pub(super) fn takes_advertised(&self, route: &Prefix) -> bool {
        let is_private = PRIVATE
            .into_iter()
            .filter_map(|(address, length)| Prefix::new(address, length).ok())
            .any(|private| includes(&private, route));
        let LocalNetworks {
            networks,
            excluded,
            resolvers,
        } = &self.local;
        let covers_local = networks
            .iter()
            .chain(excluded)
            .any(|network| overlap(network, route))
            || resolvers.iter().any(|resolver| route.contains(*resolver));
        is_private && !covers_local
    }

    /// The routes that settings and server make together, whatever addresses there are.
    #[must_use]
    pub fn routes(&self, advertised: &[Prefix]) -> Vec<Prefix> {
        let mut routes: Vec<Prefix> = match &self.routes {
            TunRoutes::Advertised => {
                let taken = advertised.iter().filter(|route| self.takes_advertised(route));
                taken.take(limits::IP_ROUTES_MAX).copied().collect()
            }
            TunRoutes::None => Vec::new(),
            TunRoutes::These(routes) => routes.clone(),
        };
        if self.default_route {
            routes.extend([Prefix::ALL_V4, Prefix::ALL_V6]);
        }
        routes.dedup();
        routes
    }

    /// Where packets may come from, but for local networks. Without routes of ours the user makes his own, which may lead
    /// wherever the server does.
    pub(crate) fn sources(&self, advertised: &[Prefix]) -> Routes {
        if self.routes == TunRoutes::None && !self.default_route {
            return Routes::of(advertised);
        }
        Routes::of(&self.routes(advertised))
    }

    /// Whether a packet of the server may come from `source`, where [`Self::sources`] are `sources`.
    pub(crate) fn takes_from(&self, sources: &Routes, source: IpAddr) -> bool {
        let is_local = self.is_local(source) && !self.named_in_local.allows(source, 0);
        !is_confined(source) && !is_local && sources.allows(source, 0)
    }

    /// Whether the machine reaches `address` past the tunnel.
    pub(crate) fn is_local(&self, address: IpAddr) -> bool {
        self.local_addresses.allows(address, 0)
    }
}

/// Whether all of `part` lies in `whole`.
fn includes(whole: &Prefix, part: &Prefix) -> bool {
    whole.length() <= part.length() && whole.contains(part.address())
}

fn overlap(one: &Prefix, other: &Prefix) -> bool {
    includes(one, other) || includes(other, one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixes(texts: &[&str]) -> Vec<Prefix> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn acceptance(routes: TunRoutes, default_route: bool, local: &[&str]) -> Acceptance {
        let mut acceptance = Acceptance::new(routes, default_route);
        let local = LocalNetworks {
            networks: prefixes(local),
            excluded: prefixes(&["198.18.0.0/15", "fd66::/16"]),
            resolvers: vec!["10.0.0.53".parse().unwrap()],
        };
        assert!(acceptance.set_local(&local));
        assert!(!acceptance.set_local(&local));
        acceptance
    }

    fn takes_from(acceptance: &Acceptance, advertised: &[&str], source: &str) -> bool {
        let sources = acceptance.sources(&prefixes(advertised));
        acceptance.takes_from(&sources, source.parse().unwrap())
    }

    #[test]
    fn an_address_is_a_single_one_that_means_nobody_else() {
        let acceptance = acceptance(TunRoutes::Advertised, true, &["192.168.1.0/24", "fd01::/64"]);
        for taken in ["10.9.0.2/32", "203.0.113.7/32", "fd09::2/128", "198.18.0.1/32"] {
            assert!(acceptance.takes_address(&taken.parse().unwrap()), "{taken}");
        }
        for refused in [
            "10.9.0.0/24",
            "0.0.0.0/0",
            "fd09::/64",
            "192.168.1.1/32",
            "10.0.0.53/32",
            "fd01::53/128",
            "127.0.0.1/32",
            "224.0.0.1/32",
            "::1/128",
            "fe80::1/128",
        ] {
            assert!(!acceptance.takes_address(&refused.parse().unwrap()), "{refused}");
        }
    }

    #[test]
    fn of_advertised_routes_private_ones_are_taken_that_cover_nothing_local() {
        let local = ["192.168.1.0/24", "fd01::/64"];
        let acceptance = acceptance(TunRoutes::Advertised, false, &local);
        let advertised = [
            "10.1.0.0/16",
            "172.16.0.0/12",
            "100.64.0.0/10",
            "fd77::/64",
            // A default route in halves, and what only looks private.
            "0.0.0.0/1",
            "128.0.0.0/1",
            "::/1",
            "8.0.0.0/6",
            "203.0.113.0/24",
            "2001:db8::/32",
            // They cover a neighbour, a resolver, a part of a network.
            "192.168.0.0/16",
            "10.0.0.0/24",
            "192.168.1.128/25",
            // Excluded.
            "fd66:1::/64",
            "fd00::/8",
        ];
        assert_eq!(
            acceptance.routes(&prefixes(&advertised)),
            prefixes(&advertised[..4])
        );
    }

    #[test]
    fn packets_come_from_where_the_routes_lead_and_from_no_neighbour() {
        let advertised = ["10.3.0.0/16", "0.0.0.0/0"];
        let local = ["192.168.1.0/24", "10.3.0.0/16"];
        let by_server = acceptance(TunRoutes::Advertised, false, &["192.168.1.0/24"]);
        assert!(takes_from(&by_server, &advertised, "10.3.0.1"));
        assert!(!takes_from(&by_server, &advertised, "203.0.113.1"));
        assert!(!takes_from(&by_server, &["192.168.0.0/16"], "192.168.2.1"));
        let everything = acceptance(TunRoutes::Advertised, true, &local);
        assert!(takes_from(&everything, &[], "203.0.113.1"));
        assert!(takes_from(&everything, &[], "2001:db8::1"));
        for neighbour in ["192.168.1.1", "198.18.0.1", "10.3.0.1", "127.0.0.1", "fe80::1"] {
            assert!(!takes_from(&everything, &advertised, neighbour), "{neighbour}");
        }
        let none = acceptance(TunRoutes::None, false, &local);
        assert!(takes_from(&none, &advertised, "203.0.113.1"));
        assert!(!takes_from(&none, &advertised, "192.168.1.1"));
        assert!(!takes_from(&none, &["10.0.0.0/8"], "203.0.113.1"));
    }

    /// As the kernel routes: the longer prefix wins.
    #[test]
    fn a_route_that_the_user_names_wins_inside_of_a_local_network_only() {
        let named = |routes: &[&str]| acceptance(TunRoutes::These(prefixes(routes)), false, &["10.3.0.0/16"]);
        assert!(takes_from(&named(&["10.3.0.0/16"]), &[], "10.3.7.1"));
        assert!(takes_from(&named(&["10.3.7.0/24"]), &[], "10.3.7.1"));
        assert!(!takes_from(&named(&["10.3.7.0/24"]), &[], "10.3.8.1"));
        assert!(!takes_from(&named(&["10.0.0.0/8"]), &[], "10.3.7.1"));
        assert!(takes_from(&named(&["10.0.0.0/8"]), &[], "10.4.7.1"));
        // A resolver that is no neighbour answers through the tunnel.
        assert!(takes_from(&named(&["10.0.0.0/8"]), &[], "10.0.0.53"));
        assert_eq!(named(&["10.0.0.0/8"]).routes(&[]), prefixes(&["10.0.0.0/8"]));
    }
}
