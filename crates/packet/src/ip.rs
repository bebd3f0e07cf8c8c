//! IP headers: what a packet says about itself, its flow, its hop limit and its ECN bits.
//!
//! [`IpView::parse`] compares every length with the received bytes before it uses it, and walks IPv6 extension headers
//! up to the upper-layer protocol, at most [`limits::EXTENSION_HEADERS_MAX`] of them. The IPv4 header checksum is left
//! to the kernel, which checks it on every packet that it takes from a TUN device; the coalescer, which rewrites
//! headers, checks it itself.

mod fields;
mod flow;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::wire::{u16_at, u32_at};
use crate::{Ecn, limits};

pub(crate) use fields::{
    V4_CHECKSUM, V4_DESTINATION, V4_DONT_FRAGMENT, V4_FLAGS, V4_HEADER_BYTES, V4_ID, V4_PROTOCOL, V4_SOURCE,
    V4_TOTAL_LENGTH, V4_TTL, V6_DESTINATION, V6_HEADER_BYTES, V6_HOP_LIMIT, V6_NEXT_HEADER,
    V6_PAYLOAD_LENGTH, V6_SOURCE, set_total_bytes,
};
pub use fields::{claimed_bytes_and_protocol, decrement_hop_limit, dscp, set_ecn};
pub use flow::{FlowKey, flow_key};

/// Version of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IpVersion {
    /// RFC 791.
    V4,
    /// RFC 8200.
    V6,
}

/// Why bytes are not an IP packet that we handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IpError {
    /// There is no first byte.
    #[error("an IP packet of no bytes")]
    Empty,
    /// The version field is neither 4 nor 6.
    #[error("IP version {0}, expected 4 or 6")]
    Version(u8),
    /// The packet or one of its headers ends after the bytes that were received.
    #[error("an IP packet claims {claimed} bytes, of which {received} were received")]
    Truncated {
        /// Bytes that the headers need.
        claimed: usize,
        /// Bytes that are there.
        received: usize,
    },
    /// The IPv4 header length is under 20 bytes, or the total length does not hold the header.
    #[error("an IPv4 header of {header} bytes in a packet of {total}")]
    HeaderLength {
        /// Bytes of the header, as it says.
        header: usize,
        /// Bytes of the packet, as it says.
        total: usize,
    },
    /// More extension headers than [`limits::EXTENSION_HEADERS_MAX`].
    #[error("more than {} IPv6 extension headers", limits::EXTENSION_HEADERS_MAX)]
    ExtensionHeaders,
    /// An IPv6 payload length of zero before extension headers: a jumbogram (RFC 2675).
    #[error("an IPv6 jumbogram, which no tunnel carries")]
    Jumbogram,
}

/// What the headers of one IP packet say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpView {
    /// 4 or 6.
    pub version: IpVersion,
    /// Bytes of the IPv4 header with options, or 40 for IPv6; extension headers are beyond it.
    pub header_bytes: usize,
    /// Bytes of the whole packet, at most those that were received; what follows them is padding.
    pub total_bytes: usize,
    /// Source address.
    pub source: IpAddr,
    /// Destination address of the IP header.
    pub destination: IpAddr,
    /// Upper-layer protocol, behind extension headers. 59 where there is none, 50 before encrypted payload.
    pub protocol: u8,
    /// Where the upper-layer header (or, in a fragment that is not the first, the rest of the payload) starts.
    pub transport_offset: usize,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// The ECN codepoint.
    pub ecn: Ecn,
    /// Whether this is a fragment of a packet, the first included. An atomic fragment (RFC 6946) is none.
    pub fragment: bool,
    /// Where the payload of this fragment belongs, in bytes; zero in the first one and in whole packets.
    pub fragment_offset: usize,
    /// Whether the packet asks to travel by other addresses than its destination: a source route (RFC 791) or a
    /// routing header with segments left (RFC 8200 section 4.4).
    pub source_routed: bool,
}

impl IpView {
    /// Reads the headers of the packet that starts `bytes`.
    ///
    /// # Errors
    /// [`IpError`] where the bytes are no complete IPv4 or IPv6 packet.
    pub fn parse(bytes: &[u8]) -> Result<Self, IpError> {
        match bytes.first().ok_or(IpError::Empty)? >> 4 {
            4 => Self::parse_v4(bytes),
            6 => Self::parse_v6(bytes),
            version => Err(IpError::Version(version)),
        }
    }

    /// The bytes behind the IP headers, without padding. `bytes` is what was parsed.
    #[must_use]
    pub fn transport<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.transport_offset..self.total_bytes]
    }

    /// Whether the upper-layer header is in this packet: it is whole, or the first fragment.
    #[must_use]
    pub fn has_transport_header(&self) -> bool {
        self.fragment_offset == 0
    }

    fn parse_v4(bytes: &[u8]) -> Result<Self, IpError> {
        need(bytes.len(), V4_HEADER_BYTES)?;
        let header = usize::from(bytes[0] & 0x0f) * 4;
        let total = usize::from(u16_at(bytes, V4_TOTAL_LENGTH));
        if header < V4_HEADER_BYTES || total < header {
            return Err(IpError::HeaderLength { header, total });
        }
        need(bytes.len(), total)?;
        let fragment_field = u16_at(bytes, V4_FLAGS);
        let fragment_offset = usize::from(fragment_field & 0x1fff) * 8;
        Ok(Self {
            version: IpVersion::V4,
            header_bytes: header,
            total_bytes: total,
            source: v4_address(bytes, V4_SOURCE),
            destination: v4_address(bytes, V4_DESTINATION),
            protocol: bytes[V4_PROTOCOL],
            transport_offset: header,
            hop_limit: bytes[V4_TTL],
            ecn: Ecn::from_bits(bytes[1]),
            fragment: fragment_offset != 0 || fragment_field & 0x2000 != 0,
            fragment_offset,
            source_routed: header > V4_HEADER_BYTES && has_source_route(&bytes[V4_HEADER_BYTES..header]),
        })
    }

    fn parse_v6(bytes: &[u8]) -> Result<Self, IpError> {
        need(bytes.len(), V6_HEADER_BYTES)?;
        let payload = usize::from(u16_at(bytes, V6_PAYLOAD_LENGTH));
        let total = V6_HEADER_BYTES + payload;
        need(bytes.len(), total)?;
        let mut view = Self {
            version: IpVersion::V6,
            header_bytes: V6_HEADER_BYTES,
            total_bytes: total,
            source: v6_address(bytes, V6_SOURCE),
            destination: v6_address(bytes, V6_DESTINATION),
            protocol: bytes[V6_NEXT_HEADER],
            transport_offset: V6_HEADER_BYTES,
            hop_limit: bytes[V6_HOP_LIMIT],
            ecn: Ecn::from_bits((u16_at(bytes, 0) >> 4) as u8),
            fragment: false,
            fragment_offset: 0,
            source_routed: false,
        };
        if payload == 0 && view.protocol == extension::HOP_BY_HOP {
            return Err(IpError::Jumbogram);
        }
        for _ in 0..limits::EXTENSION_HEADERS_MAX {
            if !view.step_over_extension(&bytes[..total])? {
                return Ok(view);
            }
        }
        if extension::is_one(view.protocol) && view.has_transport_header() {
            return Err(IpError::ExtensionHeaders);
        }
        Ok(view)
    }

    /// Moves over one extension header; `false` where the upper-layer protocol is reached.
    fn step_over_extension(&mut self, packet: &[u8]) -> Result<bool, IpError> {
        if !extension::is_one(self.protocol) || !self.has_transport_header() {
            return Ok(false);
        }
        let at = self.transport_offset;
        need(packet.len(), at + 8)?;
        let length = usize::from(packet[at + 1]);
        let bytes = match self.protocol {
            extension::FRAGMENT => {
                let field = u16_at(packet, at + 2);
                self.fragment_offset = usize::from(field & 0xfff8);
                self.fragment = self.fragment_offset != 0 || field & 1 != 0;
                8
            }
            extension::AUTHENTICATION => (length + 2) * 4,
            _ => (length + 1) * 8,
        };
        if self.protocol == extension::ROUTING && packet[at + 3] != 0 {
            self.source_routed = true;
        }
        need(packet.len(), at + bytes)?;
        self.protocol = packet[at];
        self.transport_offset = at + bytes;
        Ok(true)
    }
}

/// IPv6 extension headers (RFC 8200 section 4, RFC 4302, RFC 6275, RFC 7401, RFC 5533) by their protocol numbers.
mod extension {
    pub(super) const HOP_BY_HOP: u8 = 0;
    pub(super) const ROUTING: u8 = 43;
    pub(super) const FRAGMENT: u8 = 44;
    pub(super) const AUTHENTICATION: u8 = 51;
    const DESTINATION_OPTIONS: u8 = 60;
    const MOBILITY: u8 = 135;
    const HOST_IDENTITY: u8 = 139;
    const SHIM6: u8 = 140;

    /// Whether the header behind this number is stepped over. Encrypted payload (50) and "no next header" (59) are not.
    pub(super) fn is_one(protocol: u8) -> bool {
        matches!(
            protocol,
            HOP_BY_HOP
                | ROUTING
                | FRAGMENT
                | AUTHENTICATION
                | DESTINATION_OPTIONS
                | MOBILITY
                | HOST_IDENTITY
                | SHIM6
        )
    }
}

fn need(received: usize, claimed: usize) -> Result<(), IpError> {
    if received < claimed {
        return Err(IpError::Truncated { claimed, received });
    }
    Ok(())
}

fn v4_address(bytes: &[u8], offset: usize) -> IpAddr {
    Ipv4Addr::from_bits(u32_at(bytes, offset)).into()
}

fn v6_address(bytes: &[u8], offset: usize) -> IpAddr {
    let octets: [u8; 16] = bytes[offset..offset + 16]
        .try_into()
        .expect("the range above has 16 bytes");
    Ipv6Addr::from(octets).into()
}

/// Whether IPv4 options hold a loose or strict source route. Options that cannot be read count as one: nobody honest
/// sends them.
fn has_source_route(mut options: &[u8]) -> bool {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    const LOOSE_SOURCE_ROUTE: u8 = 131;
    const STRICT_SOURCE_ROUTE: u8 = 137;
    loop {
        match *options {
            [] | [END, ..] => return false,
            [NO_OPERATION, ref rest @ ..] => options = rest,
            [LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE, ..] => return true,
            [_, length, ..] if length >= 2 && usize::from(length) <= options.len() => {
                options = &options[usize::from(length)..];
            }
            _ => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum;
    use crate::test_packets::{Ip, tcp, udp};
    use proptest::prelude::*;

    fn verified(packet: &[u8]) -> bool {
        checksum::sum(&packet[..IpView::parse(packet).unwrap().header_bytes]) == 0xffff
    }

    #[test]
    fn the_headers_of_both_versions_are_read() {
        let packet = tcp(Ip::V4, 1, 100, 0x10);
        let view = IpView::parse(&packet).unwrap();
        assert_eq!(
            (view.version, view.header_bytes, view.total_bytes),
            (IpVersion::V4, 20, 140)
        );
        assert_eq!(
            (view.protocol, view.transport_offset, view.hop_limit),
            (6, 20, 64)
        );
        assert_eq!(view.source, "10.1.0.1".parse::<IpAddr>().unwrap());
        assert!(!view.fragment && !view.source_routed);
        let packet = udp(Ip::V6, 7, 10);
        let view = IpView::parse(&packet).unwrap();
        assert_eq!(
            (view.version, view.header_bytes, view.total_bytes),
            (IpVersion::V6, 40, 58)
        );
        assert_eq!(
            (view.protocol, view.transport_offset, view.hop_limit),
            (17, 40, 64)
        );
        assert_eq!(view.destination, "fd00::2".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn no_length_field_reaches_beyond_the_received_bytes() {
        for packet in [tcp(Ip::V4, 1, 10, 0x10), tcp(Ip::V6, 1, 10, 0x10)] {
            for cut in 0..packet.len() {
                assert!(IpView::parse(&packet[..cut]).is_err(), "{cut} bytes");
            }
        }
        let mut packet = tcp(Ip::V4, 1, 10, 0x10);
        packet[0] = 0x44;
        assert_eq!(
            IpView::parse(&packet),
            Err(IpError::HeaderLength {
                header: 16,
                total: 50
            })
        );
        packet[0] = 0x4f;
        assert_eq!(
            IpView::parse(&packet),
            Err(IpError::HeaderLength {
                header: 60,
                total: 50
            })
        );
        packet[0] = 0x55;
        assert_eq!(IpView::parse(&packet), Err(IpError::Version(5)));
    }

    #[test]
    fn padding_behind_the_packet_is_no_part_of_it() {
        let mut packet = udp(Ip::V4, 1, 4);
        packet.extend([0; 14]);
        let view = IpView::parse(&packet).unwrap();
        assert_eq!((view.total_bytes, view.transport(&packet).len()), (32, 12));
    }

    fn with_extensions(chain: &[(u8, Vec<u8>)], last: u8) -> Vec<u8> {
        let mut packet = udp(Ip::V6, 1, 8);
        let transport = packet.split_off(40);
        packet[6] = chain.first().map_or(last, |(number, _)| *number);
        for (index, (_, body)) in chain.iter().enumerate() {
            let mut body = body.clone();
            body[0] = chain.get(index + 1).map_or(last, |(number, _)| *number);
            packet.extend(body);
        }
        packet.extend(transport);
        let payload = (packet.len() - 40) as u16;
        packet[4..6].copy_from_slice(&payload.to_be_bytes());
        packet
    }

    /// RFC 8200 section 4.
    #[test]
    fn extension_headers_are_walked_to_the_upper_layer() {
        let hop_by_hop = (0, vec![0; 8]);
        let options = (60, [vec![0, 1], vec![0; 14]].concat());
        let authentication = (51, [vec![0, 1], vec![0; 10]].concat());
        let packet = with_extensions(&[hop_by_hop, options, authentication], 17);
        let view = IpView::parse(&packet).unwrap();
        assert_eq!((view.protocol, view.transport_offset), (17, 40 + 8 + 16 + 12));
        assert!(!view.source_routed);
    }

    #[test]
    fn a_chain_that_never_ends_is_refused() {
        let chain: Vec<_> = (0..9).map(|_| (60, vec![0; 8])).collect();
        assert_eq!(
            IpView::parse(&with_extensions(&chain, 17)),
            Err(IpError::ExtensionHeaders)
        );
        assert!(IpView::parse(&with_extensions(&chain[..8], 17)).is_ok());
        let long = [(60, vec![0, 255, 0, 0, 0, 0, 0, 0])];
        assert!(matches!(
            IpView::parse(&with_extensions(&long, 17)),
            Err(IpError::Truncated { .. })
        ));
    }

    /// RFC 2675.
    #[test]
    fn a_jumbogram_is_refused() {
        let mut packet = with_extensions(&[(0, vec![0; 8])], 17);
        packet[4..6].copy_from_slice(&[0, 0]);
        assert_eq!(IpView::parse(&packet), Err(IpError::Jumbogram));
    }

    #[test]
    fn fragments_of_both_versions_are_told_from_whole_packets() {
        let mut packet = udp(Ip::V4, 1, 16);
        packet[6..8].copy_from_slice(&0x2000_u16.to_be_bytes());
        let view = IpView::parse(&packet).unwrap();
        assert!(view.fragment && view.has_transport_header());
        packet[6..8].copy_from_slice(&0x0003_u16.to_be_bytes());
        let view = IpView::parse(&packet).unwrap();
        assert!(view.fragment && !view.has_transport_header());
        assert_eq!(view.fragment_offset, 24);

        let fragment = |field: u16| (44, [&[0, 0][..], &field.to_be_bytes(), &[0; 4]].concat());
        let first = IpView::parse(&with_extensions(&[fragment(1)], 17)).unwrap();
        assert!(first.fragment && first.has_transport_header());
        let later = IpView::parse(&with_extensions(&[fragment(0x100)], 60)).unwrap();
        assert!(later.fragment && !later.has_transport_header());
        assert_eq!((later.fragment_offset, later.protocol), (256, 60));
    }

    /// RFC 6946.
    #[test]
    fn an_atomic_fragment_is_a_whole_packet() {
        let view = IpView::parse(&with_extensions(&[(44, vec![0; 8])], 17)).unwrap();
        assert!(!view.fragment);
        assert_eq!(view.protocol, 17);
    }

    #[test]
    fn source_routes_of_both_versions_are_seen() {
        for (options, routed) in [
            ([1, 1, 1, 0], false),
            ([131, 3, 4, 0], true),
            ([1, 137, 3, 4], true),
            ([7, 4, 4, 0], false),
            ([7, 200, 0, 0], true),
        ] {
            let mut packet = udp(Ip::V4, 1, 4);
            packet[0] = 0x46;
            packet[2..4].copy_from_slice(&36_u16.to_be_bytes());
            packet.splice(20..20, options);
            assert_eq!(
                IpView::parse(&packet).unwrap().source_routed,
                routed,
                "{options:?}"
            );
        }
        let routing = |left| (43, vec![0, 0, 4, left, 0, 0, 0, 0]);
        assert!(
            IpView::parse(&with_extensions(&[routing(1)], 17))
                .unwrap()
                .source_routed
        );
        assert!(
            !IpView::parse(&with_extensions(&[routing(0)], 17))
                .unwrap()
                .source_routed
        );
    }

    #[test]
    fn all_fragments_of_a_packet_have_one_flow() {
        let mut first = udp(Ip::V4, 1, 16);
        first[6] = 0x20;
        let mut later = udp(Ip::V4, 2, 16);
        later[7] = 2;
        let key = |packet: &[u8]| flow_key(&IpView::parse(packet).unwrap(), packet);
        assert_eq!(key(&first), key(&later));
        assert_eq!(key(&first).ports, None);
        assert_eq!(key(&udp(Ip::V4, 2, 16)).ports, Some((1002, 443)));
    }

    #[test]
    fn flow_hashes_spread_neighbouring_ports_evenly() {
        for version in [Ip::V4, Ip::V6] {
            let mut shards = [0; 4];
            for port in 0..4000 {
                let packet = udp(version, port, 0);
                let hash = flow_key(&IpView::parse(&packet).unwrap(), &packet).hash(7);
                shards[(hash % 4) as usize] += 1;
            }
            assert!(
                shards.iter().all(|count| (850..1150).contains(count)),
                "{shards:?}"
            );
        }
    }

    #[test]
    fn a_flow_hash_depends_on_its_seed_and_on_every_field() {
        let packet = udp(Ip::V6, 1, 0);
        let key = flow_key(&IpView::parse(&packet).unwrap(), &packet);
        let mut hashes = vec![key.hash(1), key.hash(2)];
        for changed in [
            FlowKey {
                source: key.destination,
                ..key
            },
            FlowKey {
                destination: key.source,
                ..key
            },
            FlowKey { protocol: 6, ..key },
            FlowKey { ports: None, ..key },
            FlowKey {
                ports: Some((443, 1001)),
                ..key
            },
        ] {
            hashes.push(changed.hash(1));
        }
        let count = hashes.len();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), count);
    }

    /// RFC 1812 section 5.3.1, RFC 8200 section 3.
    #[test]
    fn a_hop_limit_never_becomes_zero_and_the_header_checksum_stays_right() {
        for version in [Ip::V4, Ip::V6] {
            let mut packet = udp(version, 1, 10);
            for expected in (1..64).rev() {
                assert!(decrement_hop_limit(&mut packet));
                assert_eq!(IpView::parse(&packet).unwrap().hop_limit, expected);
                assert!(version == Ip::V6 || verified(&packet));
            }
            let before = packet.clone();
            assert!(!decrement_hop_limit(&mut packet));
            assert_eq!(packet, before);
        }
    }

    #[test]
    fn setting_ecn_keeps_dscp_and_header_checksum() {
        for version in [Ip::V4, Ip::V6] {
            for ecn in [Ecn::Ce, Ecn::Ect0, Ecn::Ect1, Ecn::NotEct] {
                let mut packet = udp(version, 1, 10);
                set_ecn(&mut packet, ecn);
                assert_eq!(IpView::parse(&packet).unwrap().ecn, ecn);
                assert!(version == Ip::V6 || verified(&packet));
                set_ecn(&mut packet, Ecn::NotEct);
                assert_eq!(packet, udp(version, 1, 10));
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic_or_point_outside(bytes in proptest::collection::vec(any::<u8>(), 0..200), version in 0..2) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = if version == 0 { 0x45 } else { 0x60 };
            }
            if let Ok(view) = IpView::parse(&bytes) {
                prop_assert!(view.transport_offset <= view.total_bytes && view.total_bytes <= bytes.len());
                let _ = flow_key(&view, &bytes).hash(0);
            }
            let _ = decrement_hop_limit(&mut bytes);
            set_ecn(&mut bytes, Ecn::Ce);
        }
    }
}
