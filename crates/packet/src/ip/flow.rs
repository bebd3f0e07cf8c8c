//! Which packets belong together: the key of a flow and its hash.

use std::net::IpAddr;

use super::IpView;
use crate::transport::protocol;

/// What keeps packets in order among each other: the 5-tuple, or the 3-tuple of addresses and protocol where there are
/// no ports or, in fragments, not in all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Upper-layer protocol.
    pub protocol: u8,
    /// Source and destination port of TCP, UDP, UDP-Lite, SCTP and DCCP.
    pub ports: Option<(u16, u16)>,
}

impl FlowKey {
    /// A 64-bit hash, equal for equal keys and seeds on every machine. Not for secrets: the seed keeps strangers from
    /// choosing collisions offline, no more.
    #[must_use]
    pub fn hash(&self, seed: u64) -> u64 {
        let (source_port, destination_port) = self.ports.unwrap_or_default();
        let rest = u64::from(source_port) << 32
            | u64::from(destination_port) << 16
            | u64::from(self.protocol) << 8
            | u64::from(self.ports.is_some());
        let state = mix(seed ^ 0x9e37_79b9_7f4a_7c15, rest);
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => mix(
                state,
                u64::from(source.to_bits()) << 32 | u64::from(destination.to_bits()),
            ),
            (source, destination) => {
                let [source, destination] = [source, destination].map(|address| match address {
                    IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
                    IpAddr::V6(address) => address.to_bits(),
                });
                [source >> 64, source, destination >> 64, destination]
                    .into_iter()
                    .fold(state, |state, word| mix(state, word as u64))
            }
        }
    }
}

/// One step of the flow hash: a 128-bit product folded to 64 bits. The addend keeps a state or word of zero from
/// swallowing the other.
fn mix(state: u64, word: u64) -> u64 {
    let product =
        u128::from(state ^ 0xa076_1d64_78bd_642f).wrapping_mul(u128::from(word ^ 0xe703_7ed1_a0b4_28db));
    ((product >> 64) as u64 ^ product as u64).wrapping_add(word.rotate_left(32))
}

/// The flow that `packet`, which `view` was parsed from, belongs to.
#[must_use]
pub fn flow_key(view: &IpView, packet: &[u8]) -> FlowKey {
    let ports = match (view.protocol, view.transport(packet)) {
        (
            protocol::TCP | protocol::UDP | protocol::UDP_LITE | protocol::SCTP | protocol::DCCP,
            [a, b, c, d, ..],
        ) if !view.fragment => Some((u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]))),
        _ => None,
    };
    FlowKey {
        source: view.source,
        destination: view.destination,
        protocol: view.protocol,
        ports,
    }
}
