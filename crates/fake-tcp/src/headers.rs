//! Writes the IP and TCP headers of a packet, or of a super-segment that the kernel or the network card cuts.

use std::net::SocketAddr;

use packet::vnet::{GsoType, VnetHeader};
use packet::{Ecn, checksum};

use crate::limits::HEADER_BYTES_MAX;
use crate::segment::{Flags, HEADER_BYTES, PROTOCOL};
use crate::sequence::Sequence;
use crate::tuple::Tuple;

/// Offset of the checksum within the TCP header.
const CHECKSUM_OFFSET: usize = 16;

/// Hop limit of all packets: that of Linux.
const HOP_LIMIT: u8 = 64;

/// The headers of one packet or super-segment. Its payload goes behind them, unchanged.
#[derive(Clone, Copy, Debug)]
pub struct Headers {
    bytes: [u8; HEADER_BYTES_MAX],
    len: u8,
    ip_bytes: u8,
    gso: GsoType,
    segment_size: u16,
}

/// What stands in the headers.
pub(crate) struct Fields<'a> {
    pub(crate) tuple: Tuple,
    pub(crate) sequence: Sequence,
    /// Zero in segments without ACK.
    pub(crate) acknowledgement: Sequence,
    pub(crate) flags: Flags,
    pub(crate) window: u16,
    /// IPv4 ID of the first segment.
    pub(crate) ip_id: u16,
    /// IPv6 flow label, in the low 20 bits.
    pub(crate) flow_label: u32,
    pub(crate) ecn: Ecn,
    pub(crate) options: &'a [u8],
}

impl Headers {
    /// Headers of `payload_len` bytes in segments of `segment_size`. The caller keeps the packet within 65,535 bytes.
    pub(crate) fn write(fields: &Fields<'_>, payload_len: usize, segment_size: usize) -> Self {
        debug_assert!(fields.options.len().is_multiple_of(4));
        let tcp_bytes = HEADER_BYTES + fields.options.len();
        let is_super = payload_len > segment_size;
        let (ip_bytes, gso) = match fields.tuple.local {
            SocketAddr::V4(_) => (20, GsoType::TcpV4),
            SocketAddr::V6(_) => (40, GsoType::TcpV6),
        };
        let mut headers = Self {
            bytes: [0; HEADER_BYTES_MAX],
            len: (ip_bytes + tcp_bytes) as u8,
            ip_bytes: ip_bytes as u8,
            gso: if is_super { gso } else { GsoType::None },
            segment_size: if is_super { segment_size as u16 } else { 0 },
        };
        let (ip, tcp) = headers.bytes.split_at_mut(ip_bytes);
        write_ip(ip, fields, tcp_bytes + payload_len);
        write_tcp(tcp, fields, tcp_bytes, tcp_bytes + payload_len);
        headers
    }

    /// The bytes from the IP header on. The TCP checksum is the sum of the pseudo-header, not complemented: the kernel
    /// adds the rest (`CHECKSUM_PARTIAL`), or [`Headers::complete_checksum`].
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }

    /// The virtio header for it; its offsets count from the IP header.
    #[must_use]
    pub fn vnet(&self) -> VnetHeader {
        VnetHeader {
            needs_checksum: true,
            gso: self.gso,
            ecn: false,
            header_bytes: self.len.into(),
            gso_size: self.segment_size,
            checksum_start: self.ip_bytes.into(),
            checksum_offset: CHECKSUM_OFFSET as u16,
        }
    }

    /// Makes the checksum the one for the wire, where nothing below does. Not for super-segments.
    pub fn complete_checksum(&mut self, payload: &[u8]) {
        debug_assert!(
            self.gso == GsoType::None,
            "a super-segment is cut by who completes its checksums"
        );
        let start = usize::from(self.ip_bytes);
        // The header has an even number of bytes.
        let sum = checksum::add(
            checksum::sum(&self.bytes[start..self.len.into()]),
            checksum::sum(payload),
        );
        let at = start + CHECKSUM_OFFSET;
        self.bytes[at..at + 2].copy_from_slice(&(!sum).to_be_bytes());
    }
}

fn write_ip(ip: &mut [u8], fields: &Fields<'_>, transport_len: usize) {
    match (fields.tuple.local, fields.tuple.remote) {
        (SocketAddr::V4(local), SocketAddr::V4(remote)) => {
            ip[0] = 0x45;
            ip[1] = fields.ecn.bits();
            let total = ip.len() + transport_len;
            ip[2..4].copy_from_slice(&(total as u16).to_be_bytes());
            ip[4..6].copy_from_slice(&fields.ip_id.to_be_bytes());
            // Don't fragment.
            ip[6] = 0x40;
            ip[8] = HOP_LIMIT;
            ip[9] = PROTOCOL;
            ip[12..16].copy_from_slice(&local.ip().octets());
            ip[16..20].copy_from_slice(&remote.ip().octets());
            let sum = !checksum::sum(ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        (SocketAddr::V6(local), SocketAddr::V6(remote)) => {
            let first = 6 << 28 | u32::from(fields.ecn.bits()) << 20 | fields.flow_label & 0xf_ffff;
            ip[..4].copy_from_slice(&first.to_be_bytes());
            ip[4..6].copy_from_slice(&(transport_len as u16).to_be_bytes());
            ip[6] = PROTOCOL;
            ip[7] = HOP_LIMIT;
            ip[8..24].copy_from_slice(&local.ip().octets());
            ip[24..40].copy_from_slice(&remote.ip().octets());
        }
        _ => unreachable!("a tuple has one family: `Stack::connect` refuses others, packets have no other"),
    }
}

fn write_tcp(tcp: &mut [u8], fields: &Fields<'_>, tcp_bytes: usize, transport_len: usize) {
    let Tuple { local, remote } = fields.tuple;
    tcp[..2].copy_from_slice(&local.port().to_be_bytes());
    tcp[2..4].copy_from_slice(&remote.port().to_be_bytes());
    tcp[4..8].copy_from_slice(&fields.sequence.0.to_be_bytes());
    tcp[8..12].copy_from_slice(&fields.acknowledgement.0.to_be_bytes());
    tcp[12] = (tcp_bytes << 2) as u8;
    tcp[13] = fields.flags.0;
    tcp[14..16].copy_from_slice(&fields.window.to_be_bytes());
    let pseudo = checksum::pseudo_header(local.ip(), remote.ip(), PROTOCOL, transport_len);
    tcp[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&pseudo.to_be_bytes());
    tcp[HEADER_BYTES..tcp_bytes].copy_from_slice(fields.options);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Segment;

    fn fields(local: &str, remote: &str) -> Fields<'static> {
        Fields {
            tuple: Tuple {
                local: local.parse().unwrap(),
                remote: remote.parse().unwrap(),
            },
            sequence: Sequence(7),
            acknowledgement: Sequence(9),
            flags: Flags::ACK,
            window: 500,
            ip_id: 11,
            flow_label: 0xf_1234,
            ecn: Ecn::Ect0,
            options: &[1, 1, 4, 2],
        }
    }

    /// FTCP-1.
    #[test]
    fn what_is_written_is_read_again_and_its_checksum_is_right() {
        let pairs = [
            ("192.0.2.1:40000", "198.51.100.2:443"),
            ("[2001:db8::1]:40000", "[2001:db8::2]:443"),
        ];
        for (local, remote) in pairs {
            for payload in [&b""[..], b"odd", b"even"] {
                let fields = fields(local, remote);
                let mut headers = Headers::write(&fields, payload.len(), payload.len());
                assert_eq!(headers.vnet().gso, GsoType::None);
                headers.complete_checksum(payload);
                let packet = [headers.bytes(), payload].concat();
                assert!(checksum::verify(&packet));
                let segment = Segment::parse(&packet).unwrap();
                assert_eq!(
                    (segment.source, segment.destination),
                    (fields.tuple.local, fields.tuple.remote)
                );
                assert_eq!(
                    (segment.sequence, segment.acknowledgement),
                    (Sequence(7), Sequence(9))
                );
                assert_eq!(
                    (segment.flags, segment.window, segment.ecn),
                    (Flags::ACK, 500, Ecn::Ect0)
                );
                assert_eq!(&packet[segment.payload], payload);
            }
        }
    }
}
