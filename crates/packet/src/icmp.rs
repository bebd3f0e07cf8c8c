//! ICMP errors to the sender of a packet that can't be forwarded (RFC 792, RFC 1191, RFC 1812 section 4.3; RFC 4443).
//!
//! Each function gives the whole IP packet, or `None` where the RFCs forbid an answer: to ICMP errors, to fragments
//! other than the first, to multicast and broadcast, to senders that are not one host. The caller limits how
//! often one is sent (RFC 1812 section 4.3.2.8, RFC 4443 section 2.4 f). The original is quoted as it was received, a
//! partial checksum included: hosts look only at its addresses and ports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::checksum;
use crate::ip::{
    self, IpVersion, IpView, V4_DONT_FRAGMENT, V4_FLAGS, V4_HEADER_BYTES, V4_PROTOCOL, V4_TTL,
    V6_HEADER_BYTES, V6_HOP_LIMIT, V6_NEXT_HEADER,
};
use crate::limits;
use crate::transport::protocol;
use crate::wire::{put_u16, put_u32};

/// Bytes of an ICMP error before the quoted packet.
const HEADER_BYTES: usize = 8;

/// Type of service of router-originated errors: precedence "internetwork control" (RFC 1812 section 4.3.2.5).
const INTERNETWORK_CONTROL: u8 = 0xc0;

/// Why a destination can't be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// No route leads there.
    NoRoute,
    /// Forbidden by policy.
    Prohibited,
    /// The source address is not the sender's.
    SourcePolicy,
    /// The host does not answer, or does not exist.
    Address,
    /// Nobody listens at the port.
    Port,
}

/// Type, code and the 32 bits behind the checksum.
type Message = (u8, u8, u32);

/// Tells the sender of `original` that only packets of up to `mtu` bytes get through: "fragmentation needed" (RFC 1191
/// section 4) or Packet Too Big (RFC 4443 section 3.2). An MTU below what every link must carry is raised to it. For
/// IPv4 it is sent whether or not the packet may be fragmented, since we never fragment; hosts heed it either way.
#[must_use]
pub fn packet_too_big(original: &[u8], mtu: usize, from: IpAddr) -> Option<Vec<u8>> {
    let view = answerable(original, Exception::Multicast)?;
    let message = match view.version {
        IpVersion::V4 => (
            3,
            4,
            mtu.clamp(limits::IPV4_MTU_MIN, limits::IP_PACKET_BYTES_MAX) as u32,
        ),
        IpVersion::V6 => (
            2,
            0,
            mtu.clamp(limits::IPV6_MTU_MIN, limits::IP_PACKET_BYTES_MAX) as u32,
        ),
    };
    build(&view, original, message, from)
}

/// Tells the sender of `original` that its hop limit ran out in transit (RFC 792; RFC 4443 section 3.3).
#[must_use]
pub fn time_exceeded(original: &[u8], from: IpAddr) -> Option<Vec<u8>> {
    let view = answerable(original, Exception::None)?;
    let message = match view.version {
        IpVersion::V4 => (11, 0, 0),
        IpVersion::V6 => (3, 0, 0),
    };
    build(&view, original, message, from)
}

/// Tells the sender of `original` that its destination can't be reached (RFC 1812 section 5.2.7.1; RFC 4443 section
/// 3.1).
#[must_use]
pub fn unreachable(original: &[u8], why: Unreachable, from: IpAddr) -> Option<Vec<u8>> {
    let view = answerable(original, Exception::None)?;
    let message = match (view.version, why) {
        (IpVersion::V4, Unreachable::NoRoute) => (3, 0, 0),
        (IpVersion::V4, Unreachable::Prohibited | Unreachable::SourcePolicy) => (3, 13, 0),
        (IpVersion::V4, Unreachable::Address) => (3, 1, 0),
        (IpVersion::V4, Unreachable::Port) => (3, 3, 0),
        (IpVersion::V6, Unreachable::NoRoute) => (1, 0, 0),
        (IpVersion::V6, Unreachable::Prohibited) => (1, 1, 0),
        (IpVersion::V6, Unreachable::SourcePolicy) => (1, 5, 0),
        (IpVersion::V6, Unreachable::Address) => (1, 3, 0),
        (IpVersion::V6, Unreachable::Port) => (1, 4, 0),
    };
    build(&view, original, message, from)
}

/// Source and destination of the packet that an ICMP error quotes; `None` where it is no error, or quotes too little.
#[must_use]
pub fn quoted_addresses(view: &IpView, packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    if !view.has_transport_header() {
        return None;
    }
    let transport = view.transport(packet);
    let (kind, quoted) = (transport.first()?, transport.get(HEADER_BYTES..)?);
    let version = quoted.first()? >> 4;
    match (view.protocol, *kind, version) {
        // Destination unreachable, time exceeded, parameter problem.
        (protocol::ICMP_V4, 3 | 11 | 12, 4) => {
            let (source, rest) = quoted.get(ip::V4_SOURCE..)?.split_first_chunk::<4>()?;
            let destination = rest.first_chunk::<4>()?;
            Some((
                Ipv4Addr::from(*source).into(),
                Ipv4Addr::from(*destination).into(),
            ))
        }
        // These and Packet Too Big.
        (protocol::ICMP_V6, 1..=4, 6) => {
            let (source, rest) = quoted.get(ip::V6_SOURCE..)?.split_first_chunk::<16>()?;
            let destination = rest.first_chunk::<16>()?;
            Some((
                Ipv6Addr::from(*source).into(),
                Ipv6Addr::from(*destination).into(),
            ))
        }
        _ => None,
    }
}

/// What else than a packet to one host may be answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Exception {
    None,
    /// Packet Too Big answers IPv6 multicast as well, for the sake of path MTU discovery (RFC 4443 section 2.4 e.3).
    Multicast,
}

/// The packet, where an error about it may be sent (RFC 1812 section 4.3.2.7, RFC 4443 section 2.4 e).
fn answerable(original: &[u8], exception: Exception) -> Option<IpView> {
    let view = IpView::parse(original).ok()?;
    let one_host = match (view.source, view.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            is_one_v4_host(source) && !destination.is_multicast() && !destination.is_broadcast()
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            is_one_v6_host(source) && (!destination.is_multicast() || exception == Exception::Multicast)
        }
        _ => false,
    };
    (one_host && view.has_transport_header() && !is_icmp_error(&view, original)).then_some(view)
}

fn is_one_v4_host(address: Ipv4Addr) -> bool {
    // Above 224.0.0.0 are multicast, reserved addresses and broadcast; 0.0.0.0/8 is no host but oneself.
    !matches!(address.octets()[0], 0 | 127 | 224..)
}

fn is_one_v6_host(address: Ipv6Addr) -> bool {
    !address.is_unspecified() && !address.is_loopback() && !address.is_multicast()
}

/// Whether `packet` is an ICMP error or redirect, or ICMP that ends before it says what it is.
fn is_icmp_error(view: &IpView, packet: &[u8]) -> bool {
    let kind = view.transport(packet).first().copied();
    match view.protocol {
        // Destination unreachable, source quench, redirect, time exceeded, parameter problem.
        protocol::ICMP_V4 => matches!(kind, None | Some(3 | 4 | 5 | 11 | 12)),
        // Errors have types under 128 (RFC 4443 section 2.1); 137 is a redirect.
        protocol::ICMP_V6 => matches!(kind, None | Some(0..128 | 137)),
        _ => false,
    }
}

fn build(view: &IpView, original: &[u8], (kind, code, rest): Message, from: IpAddr) -> Option<Vec<u8>> {
    let (header_bytes, bytes_max) = match view.version {
        IpVersion::V4 => (V4_HEADER_BYTES, limits::ICMP_V4_BYTES_MAX),
        IpVersion::V6 => (V6_HEADER_BYTES, limits::ICMP_V6_BYTES_MAX),
    };
    let transport = header_bytes + HEADER_BYTES;
    let quoted = &original[..view.total_bytes.min(bytes_max - transport)];
    let mut packet = vec![0; transport];
    match (from, view.source) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            packet[0] = 0x45;
            packet[1] = INTERNETWORK_CONTROL;
            put_u16(&mut packet, V4_FLAGS, V4_DONT_FRAGMENT);
            packet[V4_TTL] = limits::ICMP_HOP_LIMIT;
            packet[V4_PROTOCOL] = protocol::ICMP_V4;
            packet[ip::V4_SOURCE..ip::V4_DESTINATION].copy_from_slice(&from.octets());
            packet[ip::V4_DESTINATION..V4_HEADER_BYTES].copy_from_slice(&to.octets());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            packet[0] = 0x60;
            packet[V6_NEXT_HEADER] = protocol::ICMP_V6;
            packet[V6_HOP_LIMIT] = limits::ICMP_HOP_LIMIT;
            packet[ip::V6_SOURCE..ip::V6_DESTINATION].copy_from_slice(&from.octets());
            packet[ip::V6_DESTINATION..V6_HEADER_BYTES].copy_from_slice(&to.octets());
        }
        _ => return None,
    }
    (packet[header_bytes], packet[header_bytes + 1]) = (kind, code);
    put_u32(&mut packet, header_bytes + 4, rest);
    packet.extend_from_slice(quoted);
    let total = packet.len();
    ip::set_total_bytes(&mut packet, view.version, header_bytes, total);
    let mut sum = checksum::sum(&packet[header_bytes..]);
    if view.version == IpVersion::V6 {
        let pseudo = checksum::pseudo_header(from, view.source, protocol::ICMP_V6, total - header_bytes);
        sum = checksum::add(sum, pseudo);
    }
    put_u16(&mut packet, header_bytes + 2, !sum);
    Some(packet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_packets::{Ip, ip as packet_of, udp};
    use crate::wire::{u16_at, u32_at};
    use proptest::prelude::*;

    const ROUTER_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
    const ROUTER_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x77));

    fn router(version: Ip) -> IpAddr {
        match version {
            Ip::V4 => ROUTER_V4,
            Ip::V6 => ROUTER_V6,
        }
    }

    fn checked(packet: &[u8]) -> IpView {
        let view = IpView::parse(packet).unwrap();
        assert_eq!(view.total_bytes, packet.len());
        let mut sum = checksum::sum(view.transport(packet));
        if view.version == IpVersion::V6 {
            let length = packet.len() - 40;
            sum = checksum::add(
                sum,
                checksum::pseudo_header(view.source, view.destination, 58, length),
            );
        } else {
            assert_eq!(checksum::sum(&packet[..20]), 0xffff);
        }
        assert_eq!(sum, 0xffff);
        view
    }

    fn every_error(original: &[u8], from: IpAddr) -> [Option<Vec<u8>>; 3] {
        [
            packet_too_big(original, 1400, from),
            time_exceeded(original, from),
            unreachable(original, Unreachable::NoRoute, from),
        ]
    }

    /// RFC 1191 section 4; RFC 4443 section 3.2.
    #[test]
    fn a_packet_too_big_names_the_mtu_where_its_version_has_it() {
        let answer = packet_too_big(&udp(Ip::V4, 1, 1400), 1380, ROUTER_V4).unwrap();
        let view = checked(&answer);
        assert_eq!((answer[20], answer[21], u16_at(&answer, 26)), (3, 4, 1380));
        assert_eq!((view.source, view.protocol), (ROUTER_V4, 1));
        let answer = packet_too_big(&udp(Ip::V6, 1, 1400), 1380, ROUTER_V6).unwrap();
        let view = checked(&answer);
        assert_eq!((answer[40], answer[41], u32_at(&answer, 44)), (2, 0, 1380));
        assert_eq!(
            (view.destination, view.protocol),
            ("fd00::1".parse().unwrap(), 58)
        );
    }

    /// RFC 791, RFC 8200 section 5.
    #[test]
    fn no_mtu_below_the_least_of_its_version_is_reported() {
        let answer = packet_too_big(&udp(Ip::V4, 1, 1400), 0, ROUTER_V4).unwrap();
        assert_eq!(u16_at(&answer, 26), 68);
        let answer = packet_too_big(&udp(Ip::V6, 1, 1400), 600, ROUTER_V6).unwrap();
        assert_eq!(u32_at(&answer, 44), 1280);
    }

    /// RFC 1812 section 4.3.2.3; RFC 4443 section 2.4 c.
    #[test]
    fn as_much_of_the_original_is_quoted_as_fits() {
        for (version, most, headers) in [(Ip::V4, 576, 28), (Ip::V6, 1280, 48)] {
            for payload in [10, 1500] {
                let original = udp(version, 1, payload);
                for answer in every_error(&original, router(version)).map(Option::unwrap) {
                    checked(&answer);
                    assert_eq!(answer.len(), most.min(headers + original.len()));
                    assert_eq!(answer[headers..], original[..answer.len() - headers]);
                }
            }
        }
    }

    #[test]
    fn every_kind_has_its_code() {
        let codes = |version, at: usize| {
            [
                Unreachable::NoRoute,
                Unreachable::Prohibited,
                Unreachable::SourcePolicy,
                Unreachable::Address,
                Unreachable::Port,
            ]
            .map(|why| {
                let answer = unreachable(&udp(version, 1, 1), why, router(version)).unwrap();
                checked(&answer);
                (answer[at], answer[at + 1])
            })
        };
        assert_eq!(codes(Ip::V4, 20), [(3, 0), (3, 13), (3, 13), (3, 1), (3, 3)]);
        assert_eq!(codes(Ip::V6, 40), [(1, 0), (1, 1), (1, 5), (1, 3), (1, 4)]);
        assert_eq!(time_exceeded(&udp(Ip::V4, 1, 1), ROUTER_V4).unwrap()[20], 11);
        assert_eq!(time_exceeded(&udp(Ip::V6, 1, 1), ROUTER_V6).unwrap()[40], 3);
    }

    #[test]
    fn an_error_tells_whose_packet_it_quotes_and_nothing_else_does() {
        let quoted = |packet: &[u8]| quoted_addresses(&IpView::parse(packet).unwrap(), packet);
        for version in [Ip::V4, Ip::V6] {
            let original = udp(version, 1, 1);
            let view = IpView::parse(&original).unwrap();
            for answer in every_error(&original, router(version)).map(Option::unwrap) {
                assert_eq!(quoted(&answer), Some((view.source, view.destination)));
            }
            assert_eq!(quoted(&original), None);
        }
        let v4 = udp(Ip::V4, 1, 1);
        let message = |kind: u8, quoted: &[u8]| [&[kind, 0, 0, 0, 0, 0, 0, 0], quoted].concat();
        for (kind, quotes) in [(8, &v4[..]), (5, &v4), (3, &v4[..19]), (3, &[]), (3, &[0x65; 40])] {
            assert_eq!(quoted(&packet_of(Ip::V4, 1, &message(kind, quotes))), None);
        }
        assert_eq!(quoted(&packet_of(Ip::V6, 58, &message(1, &v4))), None);
        assert_eq!(quoted(&packet_of(Ip::V6, 58, &message(129, &[0x65; 40]))), None);
    }

    /// RFC 1122 section 3.2.2, RFC 1812 section 4.3.2.7; RFC 4443 section 2.4 e.1 and e.2.
    #[test]
    fn no_error_answers_an_icmp_error_and_errors_answer_an_echo() {
        for kind in [3, 4, 5, 11, 12] {
            let original = packet_of(Ip::V4, 1, &[kind, 0, 0, 0, 0, 0, 0, 0]);
            assert_eq!(every_error(&original, ROUTER_V4), [None, None, None]);
        }
        for kind in [1, 2, 3, 4, 100, 127, 137] {
            let original = packet_of(Ip::V6, 58, &[kind, 0, 0, 0, 0, 0, 0, 0]);
            assert_eq!(every_error(&original, ROUTER_V6), [None, None, None]);
        }
        for original in [packet_of(Ip::V4, 1, &[]), packet_of(Ip::V6, 58, &[])] {
            assert!(time_exceeded(&original, ROUTER_V4).is_none());
            assert!(time_exceeded(&original, ROUTER_V6).is_none());
        }
        let echo = packet_of(Ip::V4, 1, &[8, 0, 0, 0, 0, 0, 0, 0]);
        assert!(every_error(&echo, ROUTER_V4).iter().all(Option::is_some));
        let echo = packet_of(Ip::V6, 58, &[128, 0, 0, 0, 0, 0, 0, 0]);
        assert!(every_error(&echo, ROUTER_V6).iter().all(Option::is_some));
    }

    /// RFC 1122 section 3.2.2.
    #[test]
    fn only_the_first_fragment_is_answered() {
        let mut original = udp(Ip::V4, 1, 100);
        original[6] = 0x20;
        assert!(time_exceeded(&original, ROUTER_V4).is_some());
        original[7] = 1;
        assert_eq!(every_error(&original, ROUTER_V4), [None, None, None]);
    }

    /// RFC 1812 section 4.3.2.7.
    #[test]
    fn nothing_answers_ipv4_multicast_broadcast_or_a_source_that_is_no_host() {
        for destination in [[224, 0, 0, 5], [255, 255, 255, 255]] {
            let mut original = udp(Ip::V4, 1, 1);
            original[16..20].copy_from_slice(&destination);
            assert_eq!(every_error(&original, ROUTER_V4), [None, None, None]);
        }
        for source in [
            [0, 0, 0, 0],
            [127, 0, 0, 1],
            [239, 1, 1, 1],
            [240, 0, 0, 1],
            [255; 4],
        ] {
            let mut original = udp(Ip::V4, 1, 1);
            original[12..16].copy_from_slice(&source);
            assert_eq!(every_error(&original, ROUTER_V4), [None, None, None]);
        }
    }

    /// RFC 4443 section 2.4 e.3 to e.6.
    #[test]
    fn ipv6_multicast_is_answered_by_packet_too_big_only() {
        let mut original = udp(Ip::V6, 1, 1);
        original[24] = 0xff;
        let [too_big, exceeded, unreachable] = every_error(&original, ROUTER_V6);
        assert!(too_big.is_some() && exceeded.is_none() && unreachable.is_none());
        for source in [[0; 16], [0xff; 16]] {
            let mut original = udp(Ip::V6, 1, 1);
            original[8..24].copy_from_slice(&source);
            assert_eq!(every_error(&original, ROUTER_V6), [None, None, None]);
        }
    }

    #[test]
    fn an_answer_needs_an_address_of_the_same_version() {
        assert!(time_exceeded(&udp(Ip::V4, 1, 1), ROUTER_V6).is_none());
        assert!(time_exceeded(&udp(Ip::V6, 1, 1), ROUTER_V4).is_none());
    }

    proptest! {
        #[test]
        fn no_original_makes_an_answer_that_is_wrong(mut bytes in proptest::collection::vec(any::<u8>(), 1..1500), four: bool) {
            bytes[0] = if four { 0x45 } else { 0x60 };
            for from in [ROUTER_V4, ROUTER_V6] {
                for answer in every_error(&bytes, from).into_iter().flatten() {
                    checked(&answer);
                }
            }
        }
    }
}
