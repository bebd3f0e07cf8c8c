//! Which router translates IPv4 for this machine, and which of the addresses that routers name others reach.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::problem::MappingProblem;
use crate::rendezvous::source_towards;

/// The routes of IPv4, as the namespace of the asking thread has them.
const ROUTES: &str = "/proc/thread-self/net/route";

/// Marks routes by a gateway (RTF_GATEWAY).
const BY_GATEWAY: u32 = 0x2;

/// A router, and the address of this machine that it sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Router {
    pub(super) gateway: Ipv4Addr,
    pub(super) own: Ipv4Addr,
}

impl Router {
    /// The one that a socket bound to `local` is behind, or why there is none.
    pub(super) fn find(local: SocketAddr) -> Result<Self, MappingProblem> {
        let none = |why: String| Err(MappingProblem::NoRouter(why));
        let routes = std::fs::read_to_string(ROUTES).unwrap_or_default();
        let Some(gateway) = default_gateway(&routes) else {
            return none("there is no default route of IPv4".to_owned());
        };
        let own = match local.ip() {
            IpAddr::V4(ip) if !ip.is_unspecified() => ip,
            ip if ip.is_unspecified() => match source_towards(SocketAddr::new(gateway.into(), 9)) {
                Some(IpAddr::V4(own)) => own,
                _ => return none(format!("no packets leave to {gateway}")),
            },
            ip => {
                return none(format!(
                    "{ip}, where the endpoint is bound, is no address of IPv4"
                ));
            }
        };
        if own.is_loopback() {
            return none(format!("{own} is an address that no router leads to"));
        }
        if is_reachable(own.into()) {
            return Err(MappingProblem::NotNeeded(own.into()));
        }
        Ok(Self { gateway, own })
    }
}

/// The gateway of the default route that the kernel prefers.
fn default_gateway(routes: &str) -> Option<Ipv4Addr> {
    let default = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, destination, gateway, flags, _, _, metric, mask, ..] = fields[..] else {
            return None;
        };
        let hexadecimal = |text| u32::from_str_radix(text, 16).ok();
        let is_default = hexadecimal(destination)? == 0 && hexadecimal(mask)? == 0;
        // The kernel writes the bytes in the order of the network as a number of this machine.
        let gateway = Ipv4Addr::from(hexadecimal(gateway)?.to_ne_bytes());
        let is_usable = is_default && hexadecimal(flags)? & BY_GATEWAY != 0 && !gateway.is_unspecified();
        is_usable.then_some((metric.parse::<u32>().ok()?, gateway))
    };
    let found = routes.lines().filter_map(default);
    found
        .min_by_key(|(metric, _)| *metric)
        .map(|(_, gateway)| gateway)
}

/// Whether the world leads to an address: it is not private (RFC 1918), shared by a provider's customers (RFC 6598),
/// for one link (RFC 3927), nor for another purpose (RFC 6890 section 2.2.2); of IPv6, it is global (RFC 4291
/// section 2.5.4), not for documentation (RFC 3849, RFC 9637), and not of 2001::/23 (RFC 6890 section 2.2.3), which
/// has Teredo, benchmarks, identifiers that are no places (ORCHID), and services, but no machine's own address.
pub(super) fn is_reachable(ip: IpAddr) -> bool {
    let ip = match ip {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(ip) => {
            let [first, second, ..] = ip.segments();
            let is_documentation = (first, second) == (0x2001, 0xdb8) || first == 0x3fff && second < 0x1000;
            let is_of_protocols = first == 0x2001 && second < 0x200;
            return first & 0xe000 == 0x2000 && !is_documentation && !is_of_protocols;
        }
    };
    let [first, second, third, _] = ip.octets();
    let is_shared = first == 100 && second & 0xc0 == 64;
    let is_of_protocols = [first, second, third] == [192, 0, 0];
    let is_of_benchmarks = first == 198 && second & 0xfe == 18;
    let is_special = first == 0 || first >= 224 || is_of_protocols || is_of_benchmarks;
    !(is_shared
        || is_special
        || ip.is_private()
        || ip.is_loopback()
        || ip.is_link_local()
        || ip.is_documentation())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_route_with_the_lowest_metric_is_taken() {
        let one = |ip: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(ip));
        let (near, far) = (one([192, 0, 2, 1]), one([192, 0, 2, 2]));
        let routes = format!(
            "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
             wlan0\t00000000\t{far}\t0003\t0\t0\t600\t00000000\t0\t0\t0\n\
             eth0\t00000000\t{near}\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
             tun0\t00000000\t00000000\t0001\t0\t0\t0\t00000000\t0\t0\t0\n\
             eth0\t000200C0\t{far}\t0003\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
        );
        assert_eq!(default_gateway(&routes), Some(Ipv4Addr::new(192, 0, 2, 1)));
        for text in ["", "Iface\n", "eth0 x x x x x x x\n", "eth0 00000000"] {
            assert_eq!(default_gateway(text), None, "{text}");
        }
    }

    #[test]
    fn addresses_behind_another_router_are_not_reachable() {
        for text in [
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "100.127.255.255",
            "169.254.0.1",
            "0.0.0.0",
        ] {
            assert!(!is_reachable(text.parse().unwrap()), "{text}");
        }
        for text in [
            "127.0.0.1",
            "192.0.0.2",
            "192.0.2.1",
            "198.18.0.1",
            "198.19.255.255",
            "224.0.0.1",
            "255.255.255.255",
            "2001::1",
            "2001:2::1",
            "2001:10::1",
            "2001:2f:ffff::1",
            "2001:1ff::1",
            "2001:db8::1",
            "3fff:fff::1",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "::1",
        ] {
            assert!(!is_reachable(text.parse().unwrap()), "{text}");
        }
        for text in [
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "8.8.8.8",
            "192.0.1.1",
            "198.17.255.255",
            "198.20.0.1",
            "2001:200::1",
            "2a02::1",
            "3fff:1000::1",
        ] {
            assert!(is_reachable(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn an_endpoint_of_the_machine_itself_has_no_router() {
        assert!(Router::find("127.0.0.1:9".parse().unwrap()).is_err());
        assert!(Router::find("[::1]:9".parse().unwrap()).is_err());
    }
}
