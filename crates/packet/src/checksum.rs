//! The Internet checksum (RFC 1071), changed in place (RFC 1624), complete or partial.
//!
//! A *partial* checksum is what Linux calls `CHECKSUM_PARTIAL`: the field of a TCP or UDP header holds the folded sum
//! of the pseudo-header, not complemented, and the sender of the packet adds the rest. A sum is 16 bits wide, of
//! big-endian words; its complement is the checksum.

use std::net::IpAddr;

use crate::ip::{IpError, IpView};
use crate::transport::{checksum_offset, protocol, tcp, udp};
use crate::wire::{put_u16, u16_at};

/// What the checksum field of a TCP or UDP packet holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ChecksumState {
    /// The sum of the pseudo-header only.
    Partial,
    /// The checksum that goes on the wire. Packets of other protocols are always in this state.
    #[default]
    Full,
}

/// Why a partial checksum can't be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChecksumError {
    /// The packet can't be read.
    #[error(transparent)]
    Ip(#[from] IpError),
    /// It is neither TCP nor UDP, or a fragment, or its header is cut short.
    #[error("a packet of IP protocol {protocol} has no partial checksum to complete")]
    NoTransportHeader {
        /// The upper-layer protocol.
        protocol: u8,
    },
}

/// Sum of `bytes` as 16-bit big-endian words, an odd last byte being the upper half of its word.
#[must_use]
pub fn sum(bytes: &[u8]) -> u16 {
    // Ones' complement sums do not depend on byte order (RFC 1071 section 2 B): native 32-bit words are added to 64-bit
    // lanes, which the compiler makes vectors of, and the result is turned once. A lane overflows after 128 GiB.
    let (blocks, rest) = bytes.as_chunks::<32>();
    let mut total = 0_u64;
    if !blocks.is_empty() {
        let mut lanes = [0_u64; 8];
        for block in blocks {
            let (words, _) = block.as_chunks::<4>();
            for (lane, word) in lanes.iter_mut().zip(words) {
                *lane += u64::from(u32::from_ne_bytes(*word));
            }
        }
        total = lanes.into_iter().map(|lane| u64::from(fold(lane))).sum();
    }
    let (words, rest) = rest.as_chunks::<4>();
    total += words
        .iter()
        .map(|word| u64::from(u32::from_ne_bytes(*word)))
        .sum::<u64>();
    let last = match *rest {
        [a] => [a, 0, 0, 0],
        [a, b] => [a, b, 0, 0],
        [a, b, c] => [a, b, c, 0],
        _ => [0; 4],
    };
    u16::from_be(fold(total + u64::from(u32::from_ne_bytes(last))))
}

/// Adds two sums.
#[must_use]
pub fn add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u16::from(carry)
}

/// Brings a sum of many words down to 16 bits.
#[must_use]
pub fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    add((sum >> 16) as u16, sum as u16)
}

/// The checksum after one word of what it covers changed from `old` to `new` (RFC 1624 section 3, equation 3).
#[must_use]
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    !add(add(!checksum, !old), new)
}

/// Sum of the pseudo-header of RFC 9293 section 3.1 (IPv4) or RFC 8200 section 8.1 (IPv6); `length` is that of the
/// upper-layer header and its payload, in bytes.
#[must_use]
pub fn pseudo_header(source: IpAddr, destination: IpAddr, protocol: u8, length: usize) -> u16 {
    let address = |address| match address {
        IpAddr::V4(address) => fold(u64::from(address.to_bits())),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            add(fold((bits >> 64) as u64), fold(bits as u64))
        }
    };
    let rest = fold(u64::from(protocol) + length as u64);
    add(add(address(source), address(destination)), rest)
}

/// Turns the partial checksum of a whole TCP or UDP packet into a full one.
///
/// # Errors
/// [`ChecksumError`] where the packet can't have a partial checksum; it is unchanged then.
pub fn complete(packet: &mut [u8]) -> Result<(), ChecksumError> {
    let view = IpView::parse(packet)?;
    let offset = field_offset(&view, packet).ok_or(ChecksumError::NoTransportHeader {
        protocol: view.protocol,
    })?;
    complete_at(&mut packet[view.transport_offset..view.total_bytes], offset);
    Ok(())
}

/// Whether the TCP or UDP checksum of a whole packet is right. A UDP checksum of zero means none, which IPv4 allows
/// (RFC 768) and IPv6 does not (RFC 8200 section 8.1). `false` for everything without such a checksum.
#[must_use]
pub fn verify(packet: &[u8]) -> bool {
    IpView::parse(packet).is_ok_and(|view| verify_view(&view, packet))
}

/// [`verify`] for a packet that was parsed.
pub(crate) fn verify_view(view: &IpView, packet: &[u8]) -> bool {
    let Some(field) = field_offset(view, packet) else {
        return false;
    };
    let mut segment = view.transport(packet);
    if view.protocol == protocol::UDP {
        if u16_at(segment, field) == 0 {
            return view.source.is_ipv4();
        }
        let length = usize::from(u16_at(segment, udp::LENGTH));
        match segment.get(..length) {
            Some(datagram) if length >= udp::HEADER_BYTES => segment = datagram,
            _ => return false,
        }
    }
    let pseudo = pseudo_header(view.source, view.destination, view.protocol, segment.len());
    add(pseudo, sum(segment)) == 0xffff
}

/// Where, behind the IP headers, the checksum of a whole TCP or UDP packet is.
pub(crate) fn field_offset(view: &IpView, packet: &[u8]) -> Option<usize> {
    let header_bytes = match view.protocol {
        protocol::TCP => tcp::HEADER_BYTES,
        _ => udp::HEADER_BYTES,
    };
    if view.fragment || view.transport(packet).len() < header_bytes {
        return None;
    }
    checksum_offset(view.protocol)
}

/// Completes the partial checksum at `offset` of what it covers. A result of zero is written as its other form, all
/// ones, because zero says "no checksum" in UDP (RFC 768).
pub(crate) fn complete_at(segment: &mut [u8], offset: usize) {
    let value = match !sum(segment) {
        0 => 0xffff,
        value => value,
    };
    put_u16(segment, offset, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_packets::{Ip, tcp, udp};
    use proptest::prelude::*;

    fn naive(bytes: &[u8]) -> u16 {
        let mut total = 0_u64;
        for pair in bytes.chunks(2) {
            total += u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
            if total > 0xffff {
                total -= 0xffff;
            }
        }
        total as u16
    }

    /// RFC 1071 section 3.
    #[test]
    fn the_example_of_the_rfc_adds_up() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    }

    /// RFC 1624 section 4: the older method gave 0x0000 here, which is the wrong zero.
    #[test]
    fn an_update_gives_the_right_zero() {
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn sums_of_nothing_and_of_all_ones_are_right() {
        assert_eq!(sum(&[]), 0);
        assert_eq!(sum(&[0xff; 65_535]), naive(&[0xff; 65_535]));
        assert_eq!(fold(u64::MAX), 0xffff);
        assert_eq!(sum(&[0x12]), 0x1200);
    }

    /// CSUM-6.
    #[test]
    fn completing_a_partial_checksum_makes_it_verify() {
        for version in [Ip::V4, Ip::V6] {
            for full in [tcp(version, 1, 1001, 0x10), udp(version, 1, 1001)] {
                assert!(verify(&full));
                let mut packet = full.clone();
                let view = IpView::parse(&packet).unwrap();
                let field = view.transport_offset + checksum_offset(view.protocol).unwrap();
                let length = view.total_bytes - view.transport_offset;
                let pseudo = pseudo_header(view.source, view.destination, view.protocol, length);
                put_u16(&mut packet, field, pseudo);
                assert!(!verify(&packet));
                complete(&mut packet).unwrap();
                assert_eq!(packet, full);
            }
        }
    }

    /// RFC 768, RFC 8200 section 8.1.
    #[test]
    fn udp_without_checksum_is_right_in_ipv4_and_wrong_in_ipv6() {
        for (version, right) in [(Ip::V4, true), (Ip::V6, false)] {
            let mut packet = udp(version, 1, 10);
            let field = packet.len() - 10 - 2;
            put_u16(&mut packet, field, 0);
            assert_eq!(verify(&packet), right);
        }
    }

    /// CSUM-6.
    #[test]
    fn a_udp_checksum_that_computes_to_zero_is_sent_as_all_ones() {
        let mut packet = udp(Ip::V4, 1, 2);
        let end = packet.len();
        packet[end - 2..].fill(0);
        put_u16(&mut packet, 26, 0);
        let view = IpView::parse(&packet).unwrap();
        let pseudo = pseudo_header(view.source, view.destination, 17, 10);
        let rest = add(pseudo, sum(view.transport(&packet)));
        put_u16(&mut packet, end - 2, !rest);
        put_u16(&mut packet, 26, pseudo);
        complete(&mut packet).unwrap();
        assert_eq!(u16_at(&packet, 26), 0xffff);
        assert!(verify(&packet));
    }

    #[test]
    fn what_has_no_transport_checksum_is_refused() {
        let mut fragment = udp(Ip::V4, 1, 16);
        fragment[6] = 0x20;
        let mut other = udp(Ip::V6, 1, 16);
        other[6] = 50;
        for mut packet in [fragment, other, udp(Ip::V4, 1, 0)[..20].to_vec()] {
            if packet.len() == 20 {
                put_u16(&mut packet, 2, 20);
            }
            assert!(matches!(
                complete(&mut packet),
                Err(ChecksumError::NoTransportHeader { .. })
            ));
            assert!(!verify(&packet));
        }
    }

    #[test]
    fn any_changed_byte_breaks_the_checksum() {
        let packet = udp(Ip::V6, 1, 33);
        for index in 8..packet.len() {
            let mut changed = packet.clone();
            changed[index] ^= 0x20;
            assert!(!verify(&changed) || index < 40, "byte {index}");
        }
    }

    proptest! {
        #[test]
        fn a_sum_equals_the_naive_one(bytes in proptest::collection::vec(any::<u8>(), 0..300), offset in 0..8_usize) {
            let bytes = &bytes[offset.min(bytes.len())..];
            prop_assert_eq!(sum(bytes) % 0xffff, naive(bytes) % 0xffff);
        }

        #[test]
        fn an_update_equals_summing_anew(mut bytes in proptest::collection::vec(any::<u8>(), 40), word in 0..20_usize, new: u16) {
            bytes[0] |= 1;
            let before = !sum(&bytes);
            let old = u16_at(&bytes, 2 * word);
            prop_assume!(word != 0);
            put_u16(&mut bytes, 2 * word, new);
            prop_assert_eq!(update(before, old, new), !sum(&bytes));
        }
    }
}
