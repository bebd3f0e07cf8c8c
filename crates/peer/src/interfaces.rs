//! The machine's own addresses, and the networks that they are in.

use std::net::{IpAddr, Ipv6Addr};

use if_addrs::IfAddr;

use crate::limits::INTERFACE_ADDRESSES_MAX;

/// An address of this machine, and how many bits of it name its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    pub(crate) own: IpAddr,
    pub(crate) prefix_length: u8,
}

impl Network {
    /// Whether an address is in it.
    pub(crate) fn contains(self, ip: IpAddr) -> bool {
        let (own, other, bits) = match (self.own, ip) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (u128::from(own.to_bits()), u128::from(other.to_bits()), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits(), other.to_bits(), 128),
            _ => return false,
        };
        let host_bits = bits - u32::from(self.prefix_length).min(bits);
        (own ^ other).checked_shr(host_bits).unwrap_or(0) == 0
    }
}

/// The addresses of interfaces that are up, without those of the machine itself; bounded.
pub(crate) fn networks() -> Vec<Network> {
    let found = if_addrs::get_if_addrs().unwrap_or_default();
    let usable = found
        .into_iter()
        .filter(|interface| interface.is_oper_up() && !interface.is_loopback());
    usable
        .take(INTERFACE_ADDRESSES_MAX)
        .map(|interface| Network {
            own: interface.ip(),
            prefix_length: match interface.addr {
                IfAddr::V4(address) => address.prefixlen,
                IfAddr::V6(address) => address.prefixlen,
            },
        })
        .collect()
}

/// The number by which the kernel knows an interface.
pub(crate) fn index_of(name: &str) -> Option<u32> {
    let found = if_addrs::get_if_addrs().unwrap_or_default();
    let mut named = found.into_iter().filter(|interface| interface.name == name);
    named.find_map(|interface| interface.index)
}

/// Whether an address names a machine on a link only (RFC 4291 section 2.5.6, RFC 3927).
pub(crate) fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// Whether other machines may have an address: no group, no placeholder, not the machine itself.
pub(crate) fn is_unicast(ip: IpAddr) -> bool {
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    let is_mapped = matches!(ip, IpAddr::V6(ip) if Ipv6Addr::to_ipv4_mapped(&ip).is_some());
    !(ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() || is_broadcast || is_mapped)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_has_the_addresses_with_its_prefix() {
        let network = |own, prefix_length| Network {
            own: ip(own),
            prefix_length,
        };
        for (own, length, other, is_in) in [
            ("192.0.2.1", 24, "192.0.2.200", true),
            ("192.0.2.1", 24, "192.0.3.1", false),
            ("192.0.2.1", 0, "203.0.113.1", true),
            ("192.0.2.1", 32, "192.0.2.1", true),
            ("192.0.2.1", 32, "192.0.2.2", false),
            ("192.0.2.1", 99, "192.0.2.2", false),
            ("2001:db8::1", 64, "2001:db8::ffff:1", true),
            ("2001:db8::1", 64, "2001:db8:0:1::1", false),
            ("2001:db8::1", 0, "fe80::1", true),
            ("2001:db8::1", 64, "192.0.2.1", false),
        ] {
            assert_eq!(
                network(own, length).contains(ip(other)),
                is_in,
                "{own}/{length} {other}"
            );
        }
    }

    #[test]
    fn the_machine_itself_and_groups_are_no_places_of_others() {
        for text in [
            "127.0.0.1",
            "::1",
            "0.0.0.0",
            "::",
            "224.0.0.251",
            "ff02::fb",
            "255.255.255.255",
        ] {
            assert!(!is_unicast(ip(text)), "{text}");
        }
        assert!(!is_unicast(ip("::ffff:192.0.2.1")));
        assert!(is_unicast(ip("192.0.2.1")) && is_unicast(ip("fe80::1")));
        assert!(is_link_local(ip("fe80::1")) && is_link_local(ip("169.254.1.1")));
        assert!(!is_link_local(ip("fd00::1")));
        assert!(networks().iter().all(|network| !network.own.is_loopback()));
    }
}
