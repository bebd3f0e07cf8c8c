//! Which router of IPv6 is between this machine and the world, and which address of ours its firewall is to be opened
//! for.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use host::Network;

use crate::interfaces::index_of;
use crate::mapping::problem::MappingProblem;
use crate::mapping::router::is_reachable;
use crate::rendezvous::source_towards;

/// The routes of IPv6, as the namespace of the asking thread has them.
const ROUTES: &str = "/proc/thread-self/net/ipv6_route";

/// Marks routes that are in use (RTF_UP) and lead by a gateway (RTF_GATEWAY).
const BY_GATEWAY: u32 = 0x1 | 0x2;

/// Marks routes that lead nowhere (RTF_REJECT).
const REJECTED: u32 = 0x200;

/// An address of documentation (RFC 3849), to which the default route leads. Nothing is sent.
const ELSEWHERE: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)), 9);

/// A router, and the address of this machine that it lets others reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mapping) struct Gateway {
    pub(super) address: Ipv6Addr,
    /// The interface that it is behind: most routers have an address of their link alone.
    pub(super) interface: u32,
    pub(super) own: Ipv6Addr,
}

impl Gateway {
    /// The one that a socket bound to `local` is behind, or why there is none.
    pub(super) fn find(local: SocketAddr) -> Result<Self, MappingProblem> {
        let none = |why: String| Err(MappingProblem::NoRouter(why));
        let routes = std::fs::read_to_string(ROUTES).unwrap_or_default();
        let Some((address, interface)) = default_gateway(&routes) else {
            return none("there is no default route of IPv6".to_owned());
        };
        let own = match local.ip() {
            IpAddr::V6(ip) if !ip.is_unspecified() => ip,
            _ => match source_towards(ELSEWHERE) {
                Some(IpAddr::V6(own)) => own,
                _ => return none("no packets of IPv6 leave this machine".to_owned()),
            },
        };
        if !is_reachable(own.into()) {
            return none(format!("{own} is no address that the world leads to"));
        }
        let Some(interface) = index_of(&interface) else {
            return none(format!("{interface}, by which packets leave, is gone"));
        };
        Ok(Self {
            address,
            interface,
            own,
        })
    }

    /// Whether the router has this address, be it the one that packets leave to or another one on the same link: both
    /// then lead to one hardware address.
    pub(super) fn has(&self, address: SocketAddr) -> bool {
        if address == SocketAddr::V6(self.at(address.port())) {
            return true;
        }
        let Ok(mut network) = Network::open() else {
            return false;
        };
        let mut device = |ip| network.neighbour(self.interface, ip).ok().flatten();
        let answering = device(address.ip());
        answering.is_some() && answering == device(self.address.into())
    }

    /// Where it is asked.
    pub(super) fn at(&self, port: u16) -> SocketAddrV6 {
        SocketAddrV6::new(self.address, port, 0, self.interface)
    }
}

/// The gateway of the default route that the kernel prefers, and its interface.
fn default_gateway(routes: &str) -> Option<(Ipv6Addr, String)> {
    let found = routes.lines().filter_map(default_route);
    found
        .min_by_key(|(metric, _, _)| *metric)
        .map(|(_, gateway, interface)| (gateway, interface.to_owned()))
}

/// The metric, gateway and interface of a default route.
fn default_route(line: &str) -> Option<(u32, Ipv6Addr, &str)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [destination, length, _, _, gateway, metric, _, _, flags, interface] = fields[..] else {
        return None;
    };
    let number = |text| u32::from_str_radix(text, 16).ok();
    let address = |text| u128::from_str_radix(text, 16).ok();
    let is_default = address(destination)? == 0 && number(length)? == 0;
    let gateway = Ipv6Addr::from(address(gateway)?);
    let is_by_gateway = number(flags)? & (BY_GATEWAY | REJECTED) == BY_GATEWAY;
    let is_usable = is_default && is_by_gateway && !gateway.is_unspecified();
    Some((number(metric)?, gateway, interface)).filter(|_| is_usable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_route_by_a_gateway_with_the_lowest_metric_is_taken() {
        let zero = "0".repeat(32);
        let route = |destination: &str,
                     length: &str,
                     gateway: &str,
                     metric: &str,
                     flags: &str,
                     interface: &str| {
            format!(
                "{destination} {length} {zero} 00 {gateway} {metric} 00000001 00000000 {flags} {interface}\n"
            )
        };
        let [near, far, net] = ["fe80::1", "fe80::2", "2a00:5::"].map(|text| {
            let address: Ipv6Addr = text.parse().unwrap();
            format!("{:032x}", address.to_bits())
        });
        let routes = [
            route(&net, "40", &zero, "00000100", "00000001", "eth0"),
            route(&zero, "00", &far, "00000400", "00000003", "wlan0"),
            route(&zero, "00", &near, "00000064", "00450003", "eth0"),
            route(&zero, "00", &far, "00000001", "00000002", "down"),
            route(&zero, "00", &zero, "00000001", "00000001", "tun0"),
            route(&net, "40", &far, "00000001", "00000003", "eth1"),
            route(&zero, "00", &zero, "ffffffff", "00200200", "lo"),
        ]
        .concat();
        assert_eq!(
            default_gateway(&routes),
            Some(("fe80::1".parse().unwrap(), "eth0".to_owned()))
        );
        for text in ["", "\n", "x x x x x x x x x x\n", &zero] {
            assert_eq!(default_gateway(text), None, "{text}");
        }
    }

    #[test]
    fn an_endpoint_of_the_machine_itself_is_behind_no_router() {
        assert!(Gateway::find("[::1]:9".parse().unwrap()).is_err());
    }
}
