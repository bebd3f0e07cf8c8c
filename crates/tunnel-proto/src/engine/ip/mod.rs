//! IP packets through the tunnel (RFC 9484): sessions, leases, rules, and every packet's way in both directions.
//!
//! A client has one session per connection, a server one per stripe of each client. Packets are never reordered within
//! a flow and never sent again. Each end holds the source and the destination of every packet, in both directions,
//! against what was leased and advertised.

pub(super) mod bucket;
pub(super) mod control;
mod egress;
mod ingress;
mod packet_target;
pub(super) mod session;

use std::net::IpAddr;

use packet::ip::{IpView, dscp};

pub(super) use packet_target::PacketTarget;
pub use session::Owner;

use bucket::Bucket;

const TCP: u8 = 6;
const UDP: u8 = 17;
const DCCP: u8 = 33;
const SCTP: u8 = 132;

/// What an engine keeps of all IP sessions.
#[derive(Default)]
pub(super) struct IpState {
    /// Bounds ICMP answers.
    pub(super) bucket: Bucket,
    /// Spreads flows.
    pub(super) flow_seed: u64,
    /// A packet that has to be changed on its way to the TUN.
    scratch: Vec<u8>,
}

/// Whether the packet asks for little delay and not for throughput, by its codepoint: EF, VOICE-ADMIT, CS5, CS4, AF41, AF42,
/// AF43 (REPAIR-15).
fn asks_for_little_delay(packet: &[u8]) -> bool {
    matches!(dscp(packet), 46 | 44 | 40 | 32 | 34 | 36 | 38)
}

/// Whether the protocol's senders answer loss by sending less.
pub(super) fn is_congestion_controlled(protocol: u8) -> bool {
    matches!(protocol, TCP | DCCP | SCTP)
}

/// The destination port of TCP, UDP, DCCP and SCTP; `None` for others and where it is not in this packet.
fn port_of(view: &IpView, packet: &[u8]) -> Option<u16> {
    if !matches!(view.protocol, TCP | UDP | DCCP | SCTP) || !view.has_transport_header() {
        return None;
    }
    match view.transport(packet) {
        [_, _, high, low, ..] => Some(u16::from_be_bytes([*high, *low])),
        _ => None,
    }
}

/// Whether a packet with this address is never carried: multicast, broadcast, link-local, loopback and unspecified
/// addresses mean something on one link or one machine only.
pub(crate) fn is_confined(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            v4.is_multicast()
                || v4.is_broadcast()
                || v4.is_link_local()
                || v4.is_loopback()
                || v4.octets()[0] == 0
        }
        IpAddr::V6(v6) => {
            v6.is_multicast() || v6.is_unicast_link_local() || v6.is_loopback() || v6.is_unspecified()
        }
    }
}

/// Whether it opens a TCP connection.
fn is_syn(view: &IpView, packet: &[u8]) -> bool {
    const FLAGS: usize = 13;
    const SYN: u8 = 2;
    view.protocol == TCP
        && view.has_transport_header()
        && view
            .transport(packet)
            .get(FLAGS)
            .is_some_and(|flags| flags & SYN != 0)
}
