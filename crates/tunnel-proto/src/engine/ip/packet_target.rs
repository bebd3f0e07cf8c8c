//! What a packet wants to reach: the address, and what at it.

use std::net::IpAddr;

use packet::ip::IpView;

use super::port_of;

/// Addresses of a packet that an ICMP error is about: where they are in it, and their bytes.
const V4_ADDRESSES: (usize, usize) = (12, 4);
const V6_ADDRESSES: (usize, usize) = (8, 16);

/// Bytes of ICMP before what an error is about (RFC 792, RFC 4443 section 2.1).
const ICMP_HEADER_BYTES: usize = 8;

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
    let message = view.transport(packet);
    match (is_ipv4, message.first()) {
        (true, Some(0 | 8)) | (false, Some(128 | 129)) => true,
        (true, Some(3 | 11 | 12)) | (false, Some(1..=4)) => is_about_a_packet_between(view, message),
        _ => false,
    }
}

/// Whether an error is about a packet that its receiver sent its sender. The kernel does not ask, and an error about
/// packets of others would end their sessions or shrink their paths.
fn is_about_a_packet_between(view: &IpView, message: &[u8]) -> bool {
    let about = message.get(ICMP_HEADER_BYTES..).unwrap_or_default();
    let (start, bytes) = if view.destination.is_ipv4() {
        V4_ADDRESSES
    } else {
        V6_ADDRESSES
    };
    let is_at = |address: IpAddr, start: usize| {
        let found = about.get(start..start + bytes);
        match address {
            IpAddr::V4(v4) => found == Some(&v4.octets()),
            IpAddr::V6(v6) => found == Some(&v6.octets()),
        }
    };
    is_at(view.destination, start) && is_at(view.source, start + bytes)
}
