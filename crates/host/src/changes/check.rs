//! Which values a change may have, whoever asks for it: those that Gramway uses, and none that would lead a machine's
//! own packets astray.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packet_io::InterfaceName;

use crate::kill_switch::Exception;
use crate::limits::{
    ADDRESSES_MAX, INTERFACES_MAX, KILL_SWITCH_EXCEPTIONS_MAX, MTU_MAX, MTU_MIN, NAME_SERVERS_MAX,
    PREFIXES_MAX, QUEUE_PACKETS_MAX, QUEUES_MAX,
};
use crate::prefix::Prefix;
use crate::transparent_proxy::TransparentSettings;

/// What never belongs to a tunnel: loopback and multicast (RFC 6890, RFC 5771, RFC 4291).
const FORBIDDEN: [(IpAddr, u8); 4] = [
    (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
    (IpAddr::V4(Ipv4Addr::new(224, 0, 0, 0)), 4),
    (IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
    (IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)), 8),
];

/// A device's own network is at least this long: wider ones are for routes.
const ON_LINK_LENGTH_MIN: u8 = 8;

pub(super) fn mtu(bytes: u32) -> io::Result<()> {
    require((MTU_MIN..=MTU_MAX).contains(&bytes), || {
        format!("a TUN device has an MTU of {MTU_MIN} to {MTU_MAX} bytes, not {bytes}")
    })
}

pub(super) fn device(name: Option<&str>, queues: usize, packets: u32) -> io::Result<()> {
    name.map_or(Ok(()), |name| name.parse::<InterfaceName>().map(drop))?;
    require((1..=QUEUES_MAX).contains(&queues), || {
        format!("a TUN device has 1 to {QUEUES_MAX} queues, not {queues}")
    })?;
    require((1..=QUEUE_PACKETS_MAX).contains(&packets), || {
        format!("1 to {QUEUE_PACKETS_MAX} packets wait in a TUN device, not {packets}")
    })
}

/// Addresses of the device, with the networks that are on its link.
pub(super) fn addresses(prefixes: &[Prefix]) -> io::Result<()> {
    at_most(prefixes.len(), ADDRESSES_MAX, "addresses")?;
    prefixes.iter().try_for_each(on_link)
}

/// Networks whose packets are translated.
pub(super) fn pools(prefixes: &[Prefix]) -> io::Result<()> {
    at_most(prefixes.len(), ADDRESSES_MAX, "pools")?;
    prefixes.iter().try_for_each(on_link)
}

fn on_link(prefix: &Prefix) -> io::Result<()> {
    destination(prefix)?;
    let is_fine = prefix.length() >= ON_LINK_LENGTH_MIN && !prefix.address().is_unspecified();
    require(is_fine, || format!("{prefix} is no network of a TUN device"))
}

/// Routes into the device, and past it.
pub(super) fn routes(into_tun: &[Prefix], past: &[Prefix]) -> io::Result<()> {
    at_most(into_tun.len() + past.len(), PREFIXES_MAX, "routes")?;
    into_tun.iter().try_for_each(destination)
}

/// Where packets may be led by a route into the device.
fn destination(prefix: &Prefix) -> io::Result<()> {
    let mut forbidden = FORBIDDEN
        .iter()
        .filter_map(|(address, length)| Prefix::new(*address, *length));
    let is_forbidden =
        forbidden.any(|whole| whole.length() <= prefix.length() && whole.contains(prefix.address()));
    require(!is_forbidden, || format!("{prefix} stays out of tunnels"))
}

/// A listener and the interfaces whose packets it gets; never loopback's, which are this machine's own.
pub(super) fn transparent_proxy(settings: &TransparentSettings) -> io::Result<()> {
    require(settings.port != 0, || "a proxy has a port".to_owned())?;
    at_most(settings.interfaces.len(), INTERFACES_MAX, "interfaces")?;
    require(!settings.interfaces.is_empty(), || {
        "no interface is named".to_owned()
    })?;
    for name in &settings.interfaces {
        name.parse::<InterfaceName>()?;
        require(name != "lo", || {
            "packets of this machine itself are not led to a proxy".to_owned()
        })?;
    }
    Ok(())
}

/// A single address outside, and how it is reached.
pub(super) fn exception_route(
    server: IpAddr,
    gateway: Option<IpAddr>,
    source: Option<IpAddr>,
) -> io::Result<()> {
    for address in [Some(server), gateway, source].into_iter().flatten() {
        destination(&Prefix::host(address))?;
        require(!address.is_unspecified(), || format!("{address} is no address"))?;
    }
    require(
        source.is_none_or(|source| source.is_ipv4() == server.is_ipv4()),
        || format!("packets to {server} have no source of another IP version"),
    )
}

pub(super) fn kill_switch(exceptions: &[Exception]) -> io::Result<()> {
    at_most(exceptions.len(), KILL_SWITCH_EXCEPTIONS_MAX, "excepted networks")
}

pub(super) fn name_servers(servers: &[IpAddr]) -> io::Result<()> {
    at_most(servers.len(), NAME_SERVERS_MAX, "name servers")?;
    let strange = |server: &&IpAddr| server.is_unspecified() || server.is_multicast();
    match servers.iter().find(strange) {
        Some(server) => Err(invalid(format!("{server} is no name server"))),
        None => require(!servers.is_empty(), || "no name server is named".to_owned()),
    }
}

fn at_most(count: usize, most: usize, what: &str) -> io::Result<()> {
    require(count <= most, || {
        format!("a TUN device has at most {most} {what}, not {count}")
    })
}

fn require(is_fine: bool, reason: impl FnOnce() -> String) -> io::Result<()> {
    if is_fine { Ok(()) } else { Err(invalid(reason())) }
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_the_machines_own_is_never_led_into_a_tunnel() {
        for text in [
            "0.0.0.0/0",
            "0.0.0.0/1",
            "::/0",
            "10.0.0.0/8",
            "203.0.113.9",
            "fd00::/8",
            "2000::/3",
        ] {
            routes(&[prefix(text)], &[]).unwrap();
        }
        for text in [
            "127.0.0.0/8",
            "127.0.0.53",
            "224.0.0.0/4",
            "239.1.1.1",
            "::1",
            "ff02::1",
            "ff00::/8",
        ] {
            assert!(routes(&[prefix(text)], &[]).is_err(), "{text}");
            // Past the tunnel it is where it was.
            routes(&[], &[prefix(text)]).unwrap();
        }
    }

    #[test]
    fn addresses_of_a_device_are_in_networks_of_its_own() {
        addresses(&[
            prefix("10.86.0.1/24"),
            prefix("fd00::1/64"),
            prefix("203.0.113.9"),
        ])
        .unwrap();
        for text in ["0.0.0.0/32", "10.0.0.1/7", "::/128", "127.0.0.1", "10.0.0.1/0"] {
            assert!(addresses(&[prefix(text)]).is_err(), "{text}");
            assert!(pools(&[prefix(text)]).is_err(), "{text}");
        }
        assert!(addresses(&vec![prefix("10.0.0.1/24"); ADDRESSES_MAX + 1]).is_err());
    }

    #[test]
    fn numbers_have_bounds() {
        for (bytes, is_fine) in [
            (0, false),
            (575, false),
            (576, true),
            (65_535, true),
            (65_536, false),
        ] {
            assert_eq!(mtu(bytes).is_ok(), is_fine, "{bytes}");
        }
        for (queues, packets, is_fine) in [
            (1, 1_024, true),
            (QUEUES_MAX, 1, true),
            (0, 1_024, false),
            (QUEUES_MAX + 1, 1_024, false),
            (1, 0, false),
            (1, u32::MAX, false),
        ] {
            assert_eq!(
                device(None, queues, packets).is_ok(),
                is_fine,
                "{queues} {packets}"
            );
        }
        assert!(device(Some("tun0"), 1, 1).is_ok() && device(Some("tun/0"), 1, 1).is_err());
    }

    #[test]
    fn an_exception_is_for_one_server_outside() {
        let server = address("192.0.2.1");
        exception_route(server, Some(address("fe80::1")), Some(address("10.0.0.2"))).unwrap();
        assert!(exception_route(address("127.0.0.1"), None, None).is_err());
        assert!(exception_route(address("0.0.0.0"), None, None).is_err());
        assert!(exception_route(server, Some(address("224.0.0.1")), None).is_err());
        assert!(exception_route(server, None, Some(address("fd00::1"))).is_err());
    }

    #[test]
    fn a_proxy_gets_packets_of_named_interfaces_and_none_of_this_machine() {
        let settings = |port, interfaces: &[&str]| TransparentSettings {
            port,
            interfaces: interfaces.iter().map(|&name| name.to_owned()).collect(),
            with_private: false,
        };
        transparent_proxy(&settings(12_345, &["lan0", "wlan0"])).unwrap();
        for (port, interfaces) in [
            (0, &["lan0"][..]),
            (1, &[]),
            (1, &["lo"]),
            (1, &["lan0", "a/b"]),
            (1, &["lan0"; INTERFACES_MAX + 1]),
        ] {
            assert!(
                transparent_proxy(&settings(port, interfaces)).is_err(),
                "{interfaces:?}"
            );
        }
    }

    #[test]
    fn name_servers_are_few_and_can_be_asked() {
        name_servers(&[address("127.0.0.53"), address("9.9.9.9")]).unwrap();
        assert!(name_servers(&[]).is_err());
        assert!(
            name_servers(&[address("0.0.0.0")]).is_err() && name_servers(&[address("ff02::fb")]).is_err()
        );
        assert!(name_servers(&[address("9.9.9.9"); NAME_SERVERS_MAX + 1]).is_err());
    }
}
