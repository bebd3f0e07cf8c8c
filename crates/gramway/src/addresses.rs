//! Which hosts the link names: `--public`, else the address listened on, else the default route's addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use tunnel_proto::link::Endpoint;

use crate::config::DEFAULT_LISTEN;

/// Documentation addresses (RFC 5737, RFC 3849): nothing is sent, connecting a UDP socket only looks up the route.
const ROUTE_PROBE_V4: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)), 9);
const ROUTE_PROBE_V6: SocketAddr =
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1)), 9);

/// The default listening address: every address of the system.
pub(crate) fn default_listen() -> SocketAddr {
    SocketAddr::new(every_address(), DEFAULT_LISTEN.port())
}

/// All of IPv6 and IPv4, or of IPv4 where the system has no IPv6.
pub(crate) fn every_address() -> IpAddr {
    match UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)) {
        Ok(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        Err(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    }
}

/// The address of a listener as people write it: `ADDRESS`, `[V6]`, `localhost`, or nothing for every address.
pub(crate) fn of_listener(text: &str) -> Option<IpAddr> {
    match text {
        "" => Some(every_address()),
        "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        _ => match text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
            Some(address) => address.parse().ok().map(IpAddr::V6),
            None => text.parse().ok().map(IpAddr::V4),
        },
    }
}

/// The endpoints that the link names for a server that listens on `local`.
pub(crate) fn announced(local: SocketAddr, public: &[(String, Option<u16>)]) -> Vec<Endpoint> {
    if !public.is_empty() {
        let endpoint = |(host, port): &(String, Option<u16>)| Endpoint {
            host: host.clone(),
            port: port.unwrap_or(local.port()),
        };
        return public.iter().map(endpoint).collect();
    }
    let addresses = if local.ip().is_unspecified() {
        routed(local.ip().is_ipv6())
    } else {
        vec![local.ip()]
    };
    addresses
        .into_iter()
        .map(|address| Endpoint::from(SocketAddr::new(address, local.port())))
        .collect()
}

/// The warning for a link that only this network or this machine can use.
pub(crate) fn reach_warning(endpoints: &[Endpoint]) -> Option<String> {
    let address = |endpoint: &Endpoint| endpoint.host.parse::<IpAddr>().ok();
    if endpoints
        .iter()
        .any(|endpoint| address(endpoint).is_none_or(is_public))
    {
        return None;
    }
    let hosts: Vec<_> = endpoints.iter().map(|endpoint| endpoint.host.as_str()).collect();
    Some(format!(
        "the link names {}, which other networks cannot reach; name what they can with --public HOST",
        hosts.join(" and ")
    ))
}

/// The source addresses of the default routes; loopback where there is none.
fn routed(with_v6: bool) -> Vec<IpAddr> {
    let probe = |unspecified: IpAddr, target: SocketAddr| {
        let socket = UdpSocket::bind((unspecified, 0)).ok()?;
        socket.connect(target).ok()?;
        let address = socket.local_addr().ok()?.ip();
        (!address.is_unspecified() && !address.is_loopback()).then_some(address)
    };
    let v4 = probe(Ipv4Addr::UNSPECIFIED.into(), ROUTE_PROBE_V4);
    let v6 = if with_v6 {
        probe(Ipv6Addr::UNSPECIFIED.into(), ROUTE_PROBE_V6)
    } else {
        None
    };
    let found: Vec<_> = v4.into_iter().chain(v6).collect();
    if found.is_empty() {
        vec![Ipv4Addr::LOCALHOST.into()]
    } else {
        found
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            // 100.64.0.0/10 is shared behind carriers' translators (RFC 6598).
            let shared = v4.octets()[0] == 100 && v4.octets()[1] & 0xc0 == 64;
            !(v4.is_private() || v4.is_loopback() || v4.is_link_local() || shared)
        }
        IpAddr::V6(v6) => !(v6.is_unique_local() || v6.is_loopback() || v6.is_unicast_link_local()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_have_an_address_a_local_name_or_all() {
        let read = |text| of_listener(text).map(|address| address.to_string());
        assert_eq!(read("localhost").as_deref(), Some("127.0.0.1"));
        assert_eq!(read("[::1]").as_deref(), Some("::1"));
        assert_eq!(read("192.0.2.7").as_deref(), Some("192.0.2.7"));
        assert!(of_listener("").unwrap().is_unspecified());
        for text in ["::1", "[192.0.2.7]", "[::1", "example.org", "192.0.2"] {
            assert_eq!(of_listener(text), None, "{text}");
        }
    }

    #[test]
    fn a_specific_address_is_announced_as_it_is() {
        let endpoints = announced("[2001:db8::7]:4433".parse().unwrap(), &[]);
        assert_eq!(endpoints, [Endpoint::parse("[2001:db8::7]:4433").unwrap()]);
        assert_eq!(
            announced("127.0.0.1:1".parse().unwrap(), &[]),
            [Endpoint::parse("127.0.0.1:1").unwrap()]
        );
    }

    #[test]
    fn public_names_override_and_take_the_listening_port_where_they_have_none() {
        let public = [
            ("a.example".to_owned(), None),
            ("b.example".to_owned(), Some(8_443)),
        ];
        let endpoints = announced("[::]:443".parse().unwrap(), &public);
        assert_eq!(endpoints[0].to_string(), "a.example:443");
        assert_eq!(endpoints[1].to_string(), "b.example:8443");
    }

    #[test]
    fn a_wildcard_is_never_announced_and_an_ipv4_one_announces_ipv4_only() {
        for endpoint in announced("[::]:443".parse().unwrap(), &[]) {
            assert!(!endpoint.host.parse::<IpAddr>().unwrap().is_unspecified());
        }
        for endpoint in announced("0.0.0.0:443".parse().unwrap(), &[]) {
            assert!(endpoint.host.parse::<IpAddr>().unwrap().is_ipv4());
        }
    }

    #[test]
    fn a_link_with_private_addresses_only_comes_with_a_warning() {
        let warning = |texts: &[&str]| {
            let endpoints: Vec<_> = texts.iter().map(|text| Endpoint::parse(text).unwrap()).collect();
            reach_warning(&endpoints)
        };
        assert!(
            warning(&["10.0.0.1:443", "[fd00::1]:443"])
                .unwrap()
                .contains("--public")
        );
        assert!(warning(&["100.64.0.1:443"]).is_some());
        assert_eq!(warning(&["10.0.0.1:443", "[2001:db8::1]:443"]), None);
        assert_eq!(warning(&["example.org:443"]), None);
    }
}
