//! The machine's own addresses, where other machines may reach it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::interfaces::{is_link_local, is_unicast, networks};

/// Addresses of documentation (RFC 5737, RFC 3849), to which the default routes lead. Nothing is sent.
const ELSEWHERE: [SocketAddr; 2] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9),
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)), 9),
];

/// Where a socket that is bound to `local` is reached from neighbours: that address, or the ones from which packets
/// leave to `server` and elsewhere, and then those of all interfaces, `max` in all.
pub(crate) fn addresses_of(local: SocketAddr, server: SocketAddr, max: usize) -> Vec<SocketAddr> {
    if !local.ip().is_unspecified() {
        return vec![local];
    }
    let outward = [server].into_iter().chain(ELSEWHERE).filter_map(source_towards);
    let others = networks().into_iter().map(|network| network.own);
    chosen(outward.collect(), others, local, max)
}

/// Each address once, in this order. Of the others, those that mean something on their link alone are left out: a
/// rendezvous does not tell which link.
fn chosen(
    outward: Vec<IpAddr>,
    others: impl Iterator<Item = IpAddr>,
    local: SocketAddr,
    max: usize,
) -> Vec<SocketAddr> {
    let others = others.filter(|ip| is_unicast(*ip) && !is_link_local(*ip));
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for ip in outward.into_iter().chain(others) {
        let address = SocketAddr::new(ip, local.port());
        if addresses.len() < max && (local.is_ipv6() || ip.is_ipv4()) && !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

/// The address that the system would send from; `None` without a route.
pub(crate) fn source_towards(destination: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match destination {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(destination).ok()?;
    let ip = socket.local_addr().ok()?.ip().to_canonical();
    (!ip.is_unspecified()).then_some(ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_for_all_addresses_is_told_by_those_that_packets_leave_from() {
        let server = "127.0.0.9:443".parse().unwrap();
        let bound = "127.0.0.1:4000".parse().unwrap();
        assert_eq!(addresses_of(bound, server, 8), [bound]);
        let all = addresses_of("0.0.0.0:4000".parse().unwrap(), server, 8);
        assert_eq!(all[0], bound);
        assert!(
            all.iter()
                .all(|address| address.is_ipv4() && address.port() == 4000)
        );
    }

    /// RDV-7.
    #[test]
    fn all_interfaces_are_told_after_those_of_default_routes_and_within_the_bound() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let outward = vec![ip("192.0.2.1"), ip("2001:db8::1"), ip("192.0.2.1")];
        let others = [
            "10.0.0.1",
            "192.0.2.1",
            "fe80::1",
            "169.254.1.1",
            "127.0.0.1",
            "fd00::1",
        ]
        .map(ip);
        let told = |local: &str, max| -> Vec<String> {
            let local = local.parse().unwrap();
            let told = chosen(outward.clone(), others.into_iter(), local, max);
            told.iter().map(SocketAddr::to_string).collect()
        };
        let expected = ["192.0.2.1:9", "[2001:db8::1]:9", "10.0.0.1:9", "[fd00::1]:9"];
        assert_eq!(told("[::]:9", 8), expected);
        assert_eq!(told("[::]:9", 3), expected[..3]);
        assert_eq!(told("0.0.0.0:9", 8), ["192.0.2.1:9", "10.0.0.1:9"]);
    }
}
