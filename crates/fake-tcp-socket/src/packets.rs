//! What is read of packets before the stack sees them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

use fake_tcp::segment::Segment;
use packet::checksum;
use packet::ip::claimed_bytes_and_protocol;
use packet_io::{RawPacket, route_mtu};

use crate::limits::{MTU_TIME, MTUS_MAX};

const TCP: u8 = 6;

/// Destination address of a packet.
pub(crate) fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => Some(IpAddr::from(*packet.get(16..20)?.first_chunk::<4>()?)),
        _ => Some(IpAddr::from(*packet.get(24..40)?.first_chunk::<16>()?)),
    }
}

/// Whether a packet's checksum is right; an error has none of TCP's.
pub(crate) fn is_intact(packet: &[u8]) -> bool {
    let is_tcp = claimed_bytes_and_protocol(packet).is_some_and(|(_, protocol)| protocol == TCP);
    !is_tcp || checksum::verify(packet)
}

/// The MTU of interfaces by which peers come, and when it was asked for.
#[derive(Default)]
pub(crate) struct Mtus(HashMap<u32, (u16, Instant)>);

impl Mtus {
    /// That of the interface by which `packet` came, where the packet may open a connection.
    pub(crate) fn of(&mut self, now: Instant, packet: &RawPacket<'_>) -> Option<u16> {
        let segment = Segment::parse(packet.bytes).ok()?;
        if !segment.payload.is_empty() {
            return None;
        }
        let index = packet.link.index();
        let known = self.0.get(&index);
        if let Some((mtu, _)) = known.filter(|(_, asked)| now.saturating_duration_since(*asked) < MTU_TIME) {
            return Some(*mtu);
        }
        if self.0.len() == MTUS_MAX {
            self.0.clear();
        }
        let mtu = route_mtu(segment.source, None).ok()?.min(u16::MAX.into()) as u16;
        self.0.insert(index, (mtu, now));
        Some(mtu)
    }
}
