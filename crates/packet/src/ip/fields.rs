//! Fields of IP headers: where they are, and changing them with the header checksum kept right.

use super::IpVersion;
use crate::wire::{put_u16, u16_at};
use crate::{Ecn, checksum};

pub(crate) const V4_HEADER_BYTES: usize = 20;
pub(crate) const V4_TOTAL_LENGTH: usize = 2;
pub(crate) const V4_ID: usize = 4;
pub(crate) const V4_FLAGS: usize = 6;
pub(crate) const V4_TTL: usize = 8;
pub(crate) const V4_PROTOCOL: usize = 9;
pub(crate) const V4_CHECKSUM: usize = 10;
pub(crate) const V4_SOURCE: usize = 12;
pub(crate) const V4_DESTINATION: usize = 16;
pub(crate) const V4_DONT_FRAGMENT: u16 = 0x4000;

pub(crate) const V6_HEADER_BYTES: usize = 40;
pub(crate) const V6_PAYLOAD_LENGTH: usize = 4;
pub(crate) const V6_NEXT_HEADER: usize = 6;
pub(crate) const V6_HOP_LIMIT: usize = 7;
pub(crate) const V6_SOURCE: usize = 8;
pub(crate) const V6_DESTINATION: usize = 24;

/// Takes one from the TTL or hop limit, as who forwards a packet does. `false`, with the packet unchanged, where it
/// would become zero: the packet is to be answered with [`crate::icmp::time_exceeded`]. `packet` is one that
/// [`crate::ip::IpView::parse`] accepted; anything else is left alone and gives `false`.
#[must_use]
pub fn decrement_hop_limit(packet: &mut [u8]) -> bool {
    let Some(version) = header_version(packet) else {
        return false;
    };
    let offset = match version {
        IpVersion::V4 => V4_TTL,
        IpVersion::V6 => V6_HOP_LIMIT,
    };
    if packet[offset] <= 1 {
        return false;
    }
    match version {
        IpVersion::V4 => patch_v4_word(packet, V4_TTL, |word| word - 0x0100),
        IpVersion::V6 => packet[offset] -= 1,
    }
    true
}

/// The differentiated services codepoint (RFC 2474), 0 to 63. `packet` is one that [`crate::ip::IpView::parse`]
/// accepted; anything else gives 0, the default.
#[must_use]
pub fn dscp(packet: &[u8]) -> u8 {
    match header_version(packet) {
        Some(IpVersion::V4) => packet[1] >> 2,
        Some(IpVersion::V6) => (packet[0] & 0x0f) << 2 | packet[1] >> 6,
        None => 0,
    }
}

/// Bytes of the whole packet and its protocol (IPv6: the next header), as the fixed part of its header says; nothing
/// behind that is looked at. `None` where it is not there.
#[must_use]
pub fn claimed_bytes_and_protocol(start: &[u8]) -> Option<(usize, u8)> {
    let claimed = match header_version(start)? {
        IpVersion::V4 => (u16_at(start, V4_TOTAL_LENGTH).into(), start[V4_PROTOCOL]),
        IpVersion::V6 => {
            let payload = usize::from(u16_at(start, V6_PAYLOAD_LENGTH));
            (V6_HEADER_BYTES + payload, start[V6_NEXT_HEADER])
        }
    };
    Some(claimed)
}

/// Writes the ECN codepoint. `packet` is one that [`crate::ip::IpView::parse`] accepted; anything else is left alone.
pub fn set_ecn(packet: &mut [u8], ecn: Ecn) {
    match header_version(packet) {
        Some(IpVersion::V4) => patch_v4_word(packet, 0, |word| word & !0b11 | u16::from(ecn.bits())),
        Some(IpVersion::V6) => packet[1] = packet[1] & !0x30 | ecn.bits() << 4,
        None => {}
    }
}

/// Version of a packet that has at least the fixed part of its header.
fn header_version(packet: &[u8]) -> Option<IpVersion> {
    match packet.first()? >> 4 {
        4 if packet.len() >= V4_HEADER_BYTES => Some(IpVersion::V4),
        6 if packet.len() >= V6_HEADER_BYTES => Some(IpVersion::V6),
        _ => None,
    }
}

/// Changes one 16-bit word of an IPv4 header and its checksum with it (RFC 1624).
fn patch_v4_word(packet: &mut [u8], offset: usize, change: impl FnOnce(u16) -> u16) {
    let old = u16_at(packet, offset);
    let new = change(old);
    put_u16(packet, offset, new);
    let sum = checksum::update(u16_at(packet, V4_CHECKSUM), old, new);
    put_u16(packet, V4_CHECKSUM, sum);
}

/// Rewrites the length fields of a packet of `total` bytes and, for IPv4, the header checksum.
pub(crate) fn set_total_bytes(packet: &mut [u8], version: IpVersion, header_bytes: usize, total: usize) {
    match version {
        IpVersion::V4 => {
            put_u16(packet, V4_TOTAL_LENGTH, total as u16);
            put_u16(packet, V4_CHECKSUM, 0);
            let sum = !checksum::sum(&packet[..header_bytes]);
            put_u16(packet, V4_CHECKSUM, sum);
        }
        IpVersion::V6 => put_u16(packet, V6_PAYLOAD_LENGTH, (total - V6_HEADER_BYTES) as u16),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::IpView;

    #[test]
    fn the_codepoint_is_what_precedes_the_ecn_bits() {
        let mut v4 = [0; V4_HEADER_BYTES];
        (v4[0], v4[1], v4[3]) = (0x45, 46 << 2 | 0b11, V4_HEADER_BYTES as u8);
        let mut v6 = [0; V6_HEADER_BYTES];
        // No next header (RFC 8200 section 4.7).
        (v6[0], v6[1], v6[V6_NEXT_HEADER]) = (0x60 | 46 >> 2, (46 & 0b11) << 6 | 0x3f, 59);
        for packet in [&v4[..], &v6] {
            IpView::parse(packet).unwrap();
            assert_eq!(dscp(packet), 46);
        }
        assert_eq!(dscp(&[0x45]), 0);
    }

    #[test]
    fn a_header_alone_tells_the_length_and_protocol_of_its_packet() {
        let mut v4 = [0; V4_HEADER_BYTES];
        (v4[0], v4[2], v4[3], v4[V4_PROTOCOL]) = (0x45, 5, 0, 17);
        let mut v6 = [0; V6_HEADER_BYTES];
        (v6[0], v6[4], v6[5], v6[V6_NEXT_HEADER]) = (0x60, 5, 0, 6);
        assert_eq!(claimed_bytes_and_protocol(&v4), Some((1_280, 17)));
        assert_eq!(claimed_bytes_and_protocol(&v6), Some((40 + 1_280, 6)));
        for short in [&v4[..19], &v6[..39], &[], &[0; 40]] {
            assert_eq!(claimed_bytes_and_protocol(short), None);
        }
    }
}
