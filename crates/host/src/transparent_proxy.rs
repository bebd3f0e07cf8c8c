//! Leads what comes in by interfaces of a router to a local listener, whatever it is for (TPROXY).
//!
//! A table of nftables that belongs to this process hands TCP and UDP to the listener's port on the loopback
//! addresses, and marks it; a rule sends packets with the mark to a table of our own, in which everything is local. The
//! router's own addresses, multicast, and what never leaves a link stay out of it, private networks too unless they are
//! wanted. Packets of this machine itself do not come in by an interface, so that nothing is led in a circle.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_netfilter::nftables::InetHookNumber;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteScope, RouteType};
use packet_io::InterfaceName;
use serde::{Deserialize, Serialize};

use crate::default_route::Rule;
use crate::error::{Explain, HostError};
use crate::link::family;
use crate::mark::PROXY_MARK;
use crate::network::Network;
use crate::nftables::expression::{
    AddressType, Side, accept, address_in, drop_packet, enters_by_name, is_destination_of, is_transport,
    is_transport_of_either, jump, lead_to, set_mark,
};
use crate::nftables::{BaseChain, OwnedTable};
use crate::prefix::Prefix;
use crate::route::MADE_BY_US;

/// The table in which everything is local: beside those of [`crate::DefaultRoute`].
pub(crate) const TABLE: u32 = 0x6773_0000;

/// The loopback interface in every network.
const LOOPBACK: u32 = 1;

/// `mangle`, where packets are marked before they are routed.
const PREROUTING: BaseChain = BaseChain {
    name: "prerouting",
    kind: "filter",
    hook: InetHookNumber::PreRouting,
    priority: (-150_i32).cast_unsigned(),
    policy: None,
};

/// The chain for packets of the interfaces.
const PROXIED: &str = "proxied";

/// What leaves no link, or is nobody's (RFC 6890).
const NEVER: [(IpAddr, u8); 8] = [
    (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8),
    (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
    (IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), 16),
    // Multicast, reserved and broadcast addresses.
    (IpAddr::V4(Ipv4Addr::new(224, 0, 0, 0)), 3),
    (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 128),
    (IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
    (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10),
    (IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)), 8),
];

/// Private networks (RFC 1918, RFC 6598, RFC 4193).
const PRIVATE: [(IpAddr, u8); 5] = [
    (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), 8),
    (IpAddr::V4(Ipv4Addr::new(172, 16, 0, 0)), 12),
    (IpAddr::V4(Ipv4Addr::new(192, 168, 0, 0)), 16),
    (IpAddr::V4(Ipv4Addr::new(100, 64, 0, 0)), 10),
    (IpAddr::V6(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0)), 7),
];

/// What is led where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransparentSettings {
    /// The listener's port, on the loopback addresses.
    pub port: u16,
    /// Interfaces by which packets come in.
    pub interfaces: Vec<String>,
    /// Private networks are led there as well.
    pub with_private: bool,
}

/// Leads packets to the listener while it lives. Made by [`crate::Undo::start_transparent_proxy`].
#[derive(Debug)]
pub struct TransparentProxy {
    _table: OwnedTable,
}

impl TransparentProxy {
    /// # Errors
    /// A missing privilege, or a kernel without nftables, its `tproxy` and `fib` expressions, or owned tables (before
    /// Linux 5.12).
    pub(crate) fn start(settings: &TransparentSettings) -> Result<Self, HostError> {
        let name = format!("gramway_tproxy_{}", std::process::id());
        let made = OwnedTable::make_with(&name, |transaction| {
            transaction.chain(PROXIED);
            for prefix in excluded(settings.with_private) {
                let mut rule = address_in(Side::Destination, &prefix);
                rule.push(accept());
                transaction.rule(PROXIED, rule, None);
            }
            for kind in [AddressType::Local, AddressType::Broadcast] {
                let mut rule = is_destination_of(kind);
                rule.push(accept());
                transaction.rule(PROXIED, rule, None);
            }
            for listener in [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()] {
                for protocol in [TCP, UDP] {
                    let mut rule = is_transport(listener, protocol);
                    rule.extend(lead_to(listener, settings.port));
                    rule.extend(set_mark(PROXY_MARK));
                    rule.push(accept());
                    transaction.rule(PROXIED, rule, None);
                }
            }
            // Without a listener nothing passes it in clear.
            for protocol in [TCP, UDP] {
                let mut rule = is_transport_of_either(protocol);
                rule.push(drop_packet());
                transaction.rule(PROXIED, rule, None);
            }
            transaction.base_chain(&PREROUTING);
            for interface in interfaces(settings) {
                let mut rule = enters_by_name(&interface);
                rule.push(jump(PROXIED));
                transaction.rule(PREROUTING.name, rule, None);
            }
        });
        made.map(|table| Self { _table: table })
            .explain(|| "lead packets to the proxy (nftables with tproxy, Linux 5.12 or later)".to_owned())
    }
}

const TCP: u8 = 6;
const UDP: u8 = 17;

/// They were checked by now.
fn interfaces(settings: &TransparentSettings) -> impl Iterator<Item = InterfaceName> {
    settings.interfaces.iter().filter_map(|name| name.parse().ok())
}

fn excluded(with_private: bool) -> impl Iterator<Item = Prefix> {
    let private = PRIVATE.into_iter().filter(move |_| !with_private);
    NEVER
        .into_iter()
        .chain(private)
        .filter_map(|(address, length)| Prefix::new(address, length))
}

/// The rules that lead marked packets to the table.
pub(crate) fn rules() -> [Rule; 2] {
    [true, false].map(|is_ipv4| Rule::marked(is_ipv4, PROXY_MARK, TABLE))
}

/// Makes everything local in the table. Where the kernel has no IPv6, there is none to lead.
pub(crate) fn fill(network: &mut Network) -> Result<(), HostError> {
    for address in [
        IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    ] {
        let request = RouteNetlinkMessage::NewRoute(everything_local(address));
        let added = network.socket.change(NLM_F_CREATE | NLM_F_REPLACE, request);
        if address.is_ipv4() {
            added.explain(|| "add a local route for the proxy".to_owned())?;
        }
    }
    Ok(())
}

fn everything_local(address: IpAddr) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: family(address),
        destination_prefix_length: 0,
        table: RouteHeader::RT_TABLE_UNSPEC,
        protocol: MADE_BY_US,
        scope: RouteScope::Host,
        kind: RouteType::Local,
        ..RouteHeader::default()
    };
    message.attributes = vec![
        RouteAttribute::Destination(address.into()),
        RouteAttribute::Table(TABLE),
        RouteAttribute::Oif(LOOPBACK),
    ];
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_networks_are_led_only_where_they_are_wanted_and_links_and_groups_never() {
        let covers = |with_private, address: &str| {
            let address: IpAddr = address.parse().unwrap();
            excluded(with_private).any(|prefix| prefix.contains(address))
        };
        for (address, without, with) in [
            ("10.1.2.3", true, false),
            ("172.31.255.255", true, false),
            ("100.64.0.1", true, false),
            ("fd00::1", true, false),
            ("127.0.0.1", true, true),
            ("169.254.169.254", true, true),
            ("239.1.1.1", true, true),
            ("255.255.255.255", true, true),
            ("fe80::1", true, true),
            ("ff02::1", true, true),
            ("192.0.2.1", false, false),
            ("2001:db8::1", false, false),
        ] {
            assert_eq!(
                (covers(false, address), covers(true, address)),
                (without, with),
                "{address}"
            );
        }
    }
}
