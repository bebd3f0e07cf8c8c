//! What is announced on the local network, and which answers are used.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use mdns_sd::{ResolvedService, ScopedIp};
use peer_proto::PeerId;

use crate::interfaces::{Network, is_link_local, is_unicast};
use tunnel_proto::limits::INVITATION_NUMBERS;

use crate::limits::{LAN_ADDRESSES_MAX, LAN_NUMBERS_MAX};

/// The service of all peers (LAN-1).
pub(super) const SERVICE: &str = "_gramway._udp.local.";

/// The name of a peer's machine, which its addresses belong to (LAN-1).
pub(super) fn host(id: PeerId) -> String {
    format!("{id}.local.")
}

/// Whom an instance of the service is, by its whole name; names are the same in any case (RFC 6762 section 16).
pub(super) fn peer_of(name: &str) -> Option<PeerId> {
    let name = name.to_ascii_lowercase();
    name.strip_suffix(SERVICE)?.strip_suffix('.')?.parse().ok()
}

/// What names the numbers in a TXT record (LAN-5).
const NUMBERS: &str = "for";

/// The TXT record of an endpoint that waits for somebody who knows one of these numbers (LAN-5).
pub(super) fn properties(numbers: &[u32]) -> Vec<(&'static str, String)> {
    let texts: Vec<String> = numbers.iter().map(u32::to_string).collect();
    let record = (NUMBERS, texts.join(","));
    if numbers.is_empty() {
        Vec::new()
    } else {
        vec![record]
    }
}

/// The numbers of an answer (LAN-5): those that are none are left out.
pub(super) fn numbers_of(answer: &ResolvedService) -> Vec<u32> {
    let text = answer.get_property_val_str(NUMBERS).unwrap_or_default();
    let numbers = text.split(',').filter_map(|number| number.parse().ok());
    numbers
        .filter(|number| INVITATION_NUMBERS.contains(number))
        .take(LAN_NUMBERS_MAX)
        .collect()
}

/// The addresses of an answer that are used (LAN-3): of machines in one of the networks, and such that the socket can
/// send to.
pub(super) fn addresses_of(
    answer: &ResolvedService,
    networks: &[Network],
    has_ipv6: bool,
) -> Vec<SocketAddr> {
    let place = |address: &ScopedIp| match address {
        // The scope tells the interface, where the address alone does not (RFC 4007).
        ScopedIp::V6(address) if is_link_local((*address.addr()).into()) => {
            let scope = address.scope_id().index;
            SocketAddrV6::new(*address.addr(), answer.get_port(), 0, scope).into()
        }
        other => SocketAddr::new(other.to_ip_addr(), answer.get_port()),
    };
    let mut addresses: Vec<SocketAddr> = answer
        .get_addresses()
        .iter()
        .map(place)
        .filter(|address| is_usable(*address, networks, has_ipv6))
        .collect();
    // The answer has no order; link-local ones are the last to be tried.
    addresses.sort_by_key(|address| (is_link_local(address.ip()), *address));
    addresses.truncate(LAN_ADDRESSES_MAX);
    addresses
}

fn is_usable(address: SocketAddr, networks: &[Network], has_ipv6: bool) -> bool {
    let ip = address.ip();
    let is_near = match address {
        SocketAddr::V6(address) if is_link_local(ip) => address.scope_id() != 0,
        _ => networks.iter().any(|network| network.contains(ip)),
    };
    address.port() != 0 && is_unicast(ip) && (has_ipv6 || ip.is_ipv4()) && is_near
}

/// Where an endpoint that is bound to `local` is announced: `None` where nobody on the network reaches it, otherwise
/// the only address, or none for all of the machine's.
pub(super) fn announced(local: SocketAddr) -> Option<Option<IpAddr>> {
    let ip = local.ip();
    if ip.is_unspecified() {
        return Some(None);
    }
    is_unicast(ip).then_some(Some(ip))
}

#[cfg(test)]
mod tests {
    use mdns_sd::ServiceInfo;

    use super::*;

    fn answer(addresses: &str, port: u16) -> ResolvedService {
        let id = PeerId::from([7; 32]);
        let info = ServiceInfo::new(SERVICE, &id.to_string(), &host(id), addresses, port, None);
        info.unwrap().as_resolved_service()
    }

    /// LAN-1.
    #[test]
    fn an_instance_is_named_by_the_peer_and_everything_else_is_none() {
        let id = PeerId::from([7; 32]);
        let name = answer("192.0.2.1", 9).get_fullname().to_owned();
        assert_eq!(name, format!("{id}.{SERVICE}"));
        // Labels of DNS have at most 63 bytes.
        assert!(name.split('.').all(|label| label.len() <= 63));
        assert_eq!(peer_of(&name), Some(id));
        assert_eq!(peer_of(&name.to_uppercase()), Some(id));
        for other in [
            String::new(),
            SERVICE.to_owned(),
            format!("printer.{SERVICE}"),
            format!("{id}{SERVICE}"),
            format!("x{id}.{SERVICE}"),
            format!("{id}.{SERVICE}x"),
            format!("{id} (2).{SERVICE}"),
            format!("{id}._ipp._tcp.local."),
        ] {
            assert_eq!(peer_of(&other), None, "{other}");
        }
    }

    /// LAN-5.
    #[test]
    fn numbers_are_read_back_within_their_bounds_and_anything_else_is_none() {
        let id = PeerId::from([7; 32]);
        let of = |record: &[(&str, String)]| {
            let info = ServiceInfo::new(SERVICE, &id.to_string(), &host(id), "192.0.2.1", 9, record);
            numbers_of(&info.unwrap().as_resolved_service())
        };
        let most: Vec<u32> = (99_999 - LAN_NUMBERS_MAX as u32 + 1..=99_999).collect();
        for numbers in [vec![], vec![4_711], most] {
            assert_eq!(of(&properties(&numbers)), numbers);
        }
        let odd = "999,1000,x,,-1,100000,4294967297,+5000";
        assert_eq!(of(&[(NUMBERS, odd.to_owned())]), [1_000, 5_000]);
        let many = vec!["1234"; LAN_NUMBERS_MAX + 1].join(",");
        assert_eq!(of(&[(NUMBERS, many)]).len(), LAN_NUMBERS_MAX);
    }

    /// LAN-3.
    #[test]
    fn answers_lead_to_machines_of_the_own_networks_alone() {
        let networks = [("192.0.2.9", 24), ("2001:db8::9", 64)].map(|(own, prefix_length)| Network {
            own: own.parse().unwrap(),
            prefix_length,
        });
        let near = answer(
            "192.0.2.1,2001:db8::1,203.0.113.1,2001:db8:1::1,127.0.0.1,224.0.0.1",
            9,
        );
        let expected: Vec<SocketAddr> = ["192.0.2.1:9", "[2001:db8::1]:9"]
            .map(|text| text.parse().unwrap())
            .into();
        assert_eq!(addresses_of(&near, &networks, true), expected);
        assert_eq!(addresses_of(&near, &networks, false), expected[..1]);
        assert_eq!(addresses_of(&near, &[], true), []);
        assert_eq!(addresses_of(&answer("192.0.2.1", 0), &networks, true), []);
        let many: Vec<String> = (1..=200).map(|host| format!("192.0.2.{host}")).collect();
        let taken = addresses_of(&answer(&many.join(","), 9), &networks, true);
        assert_eq!(taken.len(), LAN_ADDRESSES_MAX);
    }

    /// LAN-3.
    #[test]
    fn a_link_local_address_is_used_with_its_interface_alone() {
        let without = answer("fe80::1", 9);
        assert_eq!(addresses_of(&without, &[], true), []);
        let scoped = SocketAddrV6::new("fe80::1".parse().unwrap(), 9, 0, 3);
        assert!(is_usable(scoped.into(), &[], true));
        assert!(!is_usable(scoped.into(), &[], false));
    }

    /// LAN-1.
    #[test]
    fn who_is_bound_to_the_machine_itself_is_not_announced() {
        assert_eq!(announced("[::]:9".parse().unwrap()), Some(None));
        let bound = "192.0.2.1:9".parse::<SocketAddr>().unwrap();
        assert_eq!(announced(bound), Some(Some(bound.ip())));
        assert_eq!(announced("127.0.0.1:9".parse().unwrap()), None);
    }
}
