//! TCP maximum segment size in SYNs, lowered to what the tunnel carries, so that inner connections need no path MTU
//! discovery (RFC 9293 section 3.7.1, RFC 6691).

use crate::checksum::{self, ChecksumState};
use crate::ip::{IpVersion, IpView, V4_HEADER_BYTES, V4_PROTOCOL, V6_HEADER_BYTES, V6_NEXT_HEADER};
use crate::transport::{protocol, tcp};
use crate::wire::{put_u16, u16_at};

const OPTION_END: u8 = 0;
const OPTION_NO_OPERATION: u8 = 1;
const OPTION_MSS: u8 = 2;
const OPTION_MSS_BYTES: u8 = 4;

/// Lowers the MSS option of a SYN to what packets of `mtu` bytes carry, less the IP and TCP headers without options
/// (RFC 6691 section 2). `true` where it was changed. Other packets, and SYNs without the option, which mean 536 or
/// 1,220 bytes, are left alone, and so is a smaller value.
#[must_use]
pub fn clamp_mss(packet: &mut [u8], mtu: usize, checksum: ChecksumState) -> bool {
    clamp(packet, mtu, checksum).is_some()
}

fn clamp(packet: &mut [u8], mtu: usize, checksum: ChecksumState) -> Option<()> {
    if !may_be_syn(packet) {
        return None;
    }
    let view = IpView::parse(packet).ok()?;
    if view.protocol != protocol::TCP || !view.has_transport_header() {
        return None;
    }
    let header_bytes = match view.version {
        IpVersion::V4 => V4_HEADER_BYTES,
        IpVersion::V6 => V6_HEADER_BYTES,
    };
    let start = view.transport_offset;
    let segment = view.transport(packet);
    if segment.get(tcp::FLAGS)? & tcp::SYN == 0 {
        return None;
    }
    let at = mss_offset(segment.get(tcp::OPTIONS..tcp::header_bytes(segment)?)?)? + tcp::OPTIONS;
    let most = u16::try_from(mtu.checked_sub(header_bytes + tcp::HEADER_BYTES)?).unwrap_or(u16::MAX);
    let old = u16_at(segment, at);
    if old <= most {
        return None;
    }
    put_u16(packet, start + at, most);
    if checksum == ChecksumState::Full {
        // At an odd place the value lies across two words; a sum does not care which half is which if both are turned
        // (RFC 1071 section 2 B).
        let turned = |value: u16| if at % 2 == 1 { value.swap_bytes() } else { value };
        let field = start + tcp::CHECKSUM;
        let sum = checksum::update(u16_at(packet, field), turned(old), turned(most));
        put_u16(packet, field, sum);
    }
    Some(())
}

/// A cheap first look, since it is taken at every packet of the tunnel: `false` where the flags are in their usual
/// place without SYN, or the packet is not TCP.
fn may_be_syn(packet: &[u8]) -> bool {
    let (next_header, transport) = match packet {
        [first, ..] if first >> 4 == 4 => (packet.get(V4_PROTOCOL), usize::from(first & 0x0f) * 4),
        _ => (packet.get(V6_NEXT_HEADER), V6_HEADER_BYTES),
    };
    match next_header {
        Some(&protocol::TCP) => packet
            .get(transport + tcp::FLAGS)
            .is_some_and(|flags| flags & tcp::SYN != 0),
        Some(&protocol::UDP) | None => false,
        Some(_) => packet[0] >> 4 == 6,
    }
}

/// Where among the options the value of a well-formed MSS option starts.
fn mss_offset(options: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match options.get(at..)? {
            [] | [OPTION_END, ..] => return None,
            [OPTION_NO_OPERATION, ..] => at += 1,
            [OPTION_MSS, OPTION_MSS_BYTES, _, _, ..] => return Some(at + 2),
            [_, length, ..] if *length >= 2 => at += usize::from(*length),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_packets::{Ip, ip};
    use proptest::prelude::*;

    fn syn(version: Ip, options: &[u8], flags: u8) -> Vec<u8> {
        let mut segment = vec![0; 20];
        segment[12] = ((20 + options.len()) * 4) as u8;
        segment[13] = flags;
        segment.extend_from_slice(options);
        ip(version, protocol::TCP, &segment)
    }

    const MSS_1460: [u8; 4] = [2, 4, 0x05, 0xb4];

    /// RFC 6691 section 2.
    #[test]
    fn a_larger_mss_is_lowered_to_the_mtu_less_fixed_headers() {
        for (version, expected) in [(Ip::V4, 1360), (Ip::V6, 1340)] {
            for flags in [tcp::SYN, tcp::SYN | tcp::ACK] {
                let mut packet = syn(version, &MSS_1460, flags);
                assert!(clamp_mss(&mut packet, 1400, ChecksumState::Full));
                let end = packet.len();
                assert_eq!(u16_at(&packet, end - 2), expected);
                assert!(checksum::verify(&packet));
                assert!(!clamp_mss(&mut packet, 1400, ChecksumState::Full));
            }
        }
    }

    #[test]
    fn an_mss_at_an_odd_place_keeps_the_checksum_right() {
        let mut packet = syn(Ip::V4, &[1, 2, 4, 0x05, 0xb4, 1, 1, 0], tcp::SYN);
        assert!(clamp_mss(&mut packet, 1280, ChecksumState::Full));
        assert!(checksum::verify(&packet));
    }

    /// CSUM-7.
    #[test]
    fn a_partial_checksum_is_left_alone() {
        let mut packet = syn(Ip::V4, &MSS_1460, tcp::SYN);
        put_u16(&mut packet, 36, 0x1234);
        assert!(clamp_mss(&mut packet, 1280, ChecksumState::Partial));
        assert_eq!(u16_at(&packet, 36), 0x1234);
    }

    #[test]
    fn smaller_values_other_segments_and_bad_options_are_left_alone() {
        let mut fragment = syn(Ip::V4, &MSS_1460, tcp::SYN);
        fragment[7] = 1;
        for mut packet in [
            syn(Ip::V4, &[2, 4, 2, 0], tcp::SYN),
            syn(Ip::V4, &MSS_1460, tcp::ACK),
            syn(Ip::V4, &[], tcp::SYN),
            syn(Ip::V6, &[3, 0, 5, 0xb4], tcp::SYN),
            syn(Ip::V6, &[1, 1, 2, 4], tcp::SYN),
            syn(Ip::V6, &[9, 200, 2, 4], tcp::SYN),
            syn(Ip::V6, &[0, 2, 4, 0xff], tcp::SYN),
            fragment,
        ] {
            let before = packet.clone();
            assert!(!clamp_mss(&mut packet, 1280, ChecksumState::Full));
            assert_eq!(packet, before);
        }
        let mut packet = syn(Ip::V6, &MSS_1460, tcp::SYN);
        assert!(!clamp_mss(&mut packet, 59, ChecksumState::Full));
    }

    proptest! {
        #[test]
        fn no_packet_makes_clamping_panic_or_break_a_checksum(options in proptest::collection::vec(0..6_u8, 40), four: bool, mtu in 0..70_000_usize) {
            let mut packet = syn(if four { Ip::V4 } else { Ip::V6 }, &options, tcp::SYN);
            let _ = clamp_mss(&mut packet, mtu, ChecksumState::Full);
            prop_assert!(checksum::verify(&packet));
        }
    }
}
