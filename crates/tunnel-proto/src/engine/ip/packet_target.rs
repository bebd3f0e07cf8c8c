//! What a packet wants to reach: the address, and what at it.

use std::net::IpAddr;

use packet::icmp;
use packet::ip::IpView;

use super::port_of;

/// The target of a packet of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketTarget {
    pub(crate) address: IpAddr,
    /// 0 where there is none.
    pub(crate) port: u16,
    pub(crate) protocol: u8,
    /// It asks for an echo or answers such a question, or is an error about a packet between these two addresses; all
    /// fragments of ICMP but the first are, which are nothing without it.
    pub(crate) is_echo: bool,
}

impl PacketTarget {
    pub(crate) fn of(view: &IpView, packet: &[u8]) -> Self {
        Self {
            address: view.destination,
            port: port_of(view, packet).unwrap_or(0),
            protocol: view.protocol,
            is_echo: is_echo(view, packet),
        }
    }
}

fn is_echo(view: &IpView, packet: &[u8]) -> bool {
    const ICMP: u8 = 1;
    const ICMPV6: u8 = 58;
    let is_ipv4 = view.destination.is_ipv4();
    if view.protocol != if is_ipv4 { ICMP } else { ICMPV6 } {
        return false;
    }
    if !view.has_transport_header() {
        return true;
    }
    match (is_ipv4, view.transport(packet).first()) {
        (true, Some(0 | 8)) | (false, Some(128 | 129)) => true,
        // An error about a packet that its receiver sent its sender. The kernel does not ask, and an error about packets
        // of others would end their sessions or shrink their paths.
        _ => icmp::quoted_addresses(view, packet) == Some((view.destination, view.source)),
    }
}
