//! What routers say about packets that are too big for the path (RFC 1191 section 4, RFC 4443 section 3.2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use packet::checksum;
use packet::ip::{IpVersion, IpView};

use crate::segment::PROTOCOL;
use crate::sequence::Sequence;
use crate::tuple::Tuple;

const ICMP_V4: u8 = 1;
const ICMP_V6: u8 = 58;

/// Bytes of an ICMP error before the quoted packet.
const HEADER_BYTES: usize = 8;

/// A router's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooBig {
    /// Addresses of the connection that the packet belonged to, as it claims.
    pub(crate) tuple: Tuple,
    pub(crate) sequence: Sequence,
    pub(crate) mtu: u16,
}

/// Whether the packet is an ICMP message of either version.
pub(crate) fn is_icmp(view: &IpView) -> bool {
    matches!(view.protocol, ICMP_V4 | ICMP_V6)
}

/// Reads the message; `None` where it is another one, or quotes no TCP segment.
pub(crate) fn too_big(view: &IpView, packet: &[u8]) -> Option<TooBig> {
    if view.fragment {
        return None;
    }
    let message = view.transport(packet);
    let (header, quoted) = message.split_first_chunk::<HEADER_BYTES>()?;
    let (pseudo, mtu) = match (view.version, view.protocol, header[0], header[1]) {
        (IpVersion::V4, ICMP_V4, 3, 4) => (0, u32::from(u16::from_be_bytes([header[6], header[7]]))),
        (IpVersion::V6, ICMP_V6, 2, 0) => {
            let pseudo = checksum::pseudo_header(view.source, view.destination, ICMP_V6, message.len());
            (
                pseudo,
                u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
            )
        }
        _ => return None,
    };
    if checksum::add(pseudo, checksum::sum(message)) != 0xffff {
        return None;
    }
    let (source, destination, segment) = quoted_segment(view.version, quoted)?;
    let start = segment.first_chunk::<8>()?;
    let port = |at: usize| u16::from_be_bytes([start[at], start[at + 1]]);
    Some(TooBig {
        tuple: Tuple {
            local: SocketAddr::new(source, port(0)),
            remote: SocketAddr::new(destination, port(2)),
        },
        sequence: Sequence(u32::from_be_bytes([start[4], start[5], start[6], start[7]])),
        mtu: mtu.min(u16::MAX.into()) as u16,
    })
}

/// Addresses and the beginning of the TCP header of a packet of which only the beginning is there.
fn quoted_segment(version: IpVersion, quoted: &[u8]) -> Option<(IpAddr, IpAddr, &[u8])> {
    match version {
        IpVersion::V4 => {
            let header = quoted.first_chunk::<20>()?;
            let header_bytes = usize::from(header[0] & 0x0f) * 4;
            let address =
                |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]).into();
            let is_segment = header[0] >> 4 == 4 && header_bytes >= 20 && header[9] == PROTOCOL;
            let segment = quoted.get(header_bytes..).filter(|_| is_segment)?;
            Some((address(12), address(16), segment))
        }
        IpVersion::V6 => {
            let (header, segment) = quoted.split_first_chunk::<40>()?;
            let address = |at: usize| {
                let octets = <[u8; 16]>::try_from(&header[at..at + 16]).expect("16 bytes");
                Ipv6Addr::from(octets).into()
            };
            (header[0] >> 4 == 6 && header[6] == PROTOCOL).then(|| (address(8), address(24), segment))
        }
    }
}
