//! The header that the kernel puts before each packet of a TUN device with `IFF_VNET_HDR`: `struct virtio_net_hdr` of
//! `linux/virtio_net.h` (virtio 1.2 section 5.1.6), ten bytes, little endian.
//!
//! It says whether the packet is a super-packet (TSO, USO) that its reader takes apart, and whether its checksum is
//! partial. [`VnetHeader::decode`] refuses types that were not asked for; [`validate`] compares the offsets
//! with the packet's length; whether they name a header that is really there is checked by
//! [`crate::segmentation::Segmenter`].

use crate::ip::IpError;

/// Bytes of the header, as set by `TUNSETVNETHDRSZ`.
pub const VNET_HEADER_BYTES: usize = 10;

const FLAG_NEEDS_CHECKSUM: u8 = 1;
const GSO_ECN: u8 = 0x80;

/// What kind of super-packet follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GsoType {
    /// None: one packet.
    #[default]
    None,
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP datagrams of equal size over either (USO, Linux 6.2).
    UdpL4,
}

impl GsoType {
    fn bits(self) -> u8 {
        match self {
            Self::None => 0,
            Self::TcpV4 => 1,
            Self::TcpV6 => 4,
            Self::UdpL4 => 5,
        }
    }
}

/// Why a super-packet or its header is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OffloadError {
    /// The packet is no IP packet.
    #[error(transparent)]
    Ip(#[from] IpError),
    /// A kind of super-packet that was not asked for.
    #[error("unknown kind {0:#04x} of super-packet")]
    GsoType(u8),
    /// The checksum field lies outside the packet.
    #[error("checksum field at {start} + {offset} of a packet of {packet_bytes} bytes")]
    ChecksumOutside {
        /// Where the checksummed part starts.
        start: usize,
        /// Where its checksum is, from there.
        offset: usize,
        /// Bytes of the packet.
        packet_bytes: usize,
    },
    /// The checksum of a super-packet is not where its protocol has it.
    #[error("checksum field at {start} + {offset}, where this protocol has none")]
    ChecksumField {
        /// Where the checksummed part starts.
        start: usize,
        /// Where its checksum is, from there.
        offset: usize,
    },
    /// A super-packet whose segments would be empty, or so small that there would be too many.
    #[error("super-packet of {payload_bytes} bytes in segments of {gso_size}")]
    SegmentSize {
        /// Bytes of payload in each segment.
        gso_size: usize,
        /// Bytes of payload altogether.
        payload_bytes: usize,
    },
    /// The packet is not what the header says: another protocol, a fragment, a transport header cut short.
    #[error("super-packet of kind {expected:?} around IP protocol {protocol}")]
    WrongPacket {
        /// What the header says.
        expected: GsoType,
        /// What the packet is.
        protocol: u8,
    },
    /// The IP or UDP length differs from that of the super-packet.
    #[error("length field of {claimed} bytes in a super-packet of {received}")]
    Length {
        /// What the field says.
        claimed: usize,
        /// What is there.
        received: usize,
    },
    /// A packet, or each segment of a UDP super-packet, is larger than the MTU; nothing but TCP can be cut further. Its
    /// sender is told with [`crate::icmp::packet_too_big`].
    #[error("packet of {bytes} bytes at an MTU of {mtu}")]
    TooBig {
        /// Bytes of the (largest) packet.
        bytes: usize,
        /// The most it may have.
        mtu: usize,
    },
}

/// One `virtio_net_hdr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VnetHeader {
    /// Whether the checksum at `checksum_start + checksum_offset` is partial.
    pub needs_checksum: bool,
    /// The kind of super-packet.
    pub gso: GsoType,
    /// Whether the first segment of a TCP super-packet carries CWR, which the others must not (RFC 3168 section 6.1.2).
    pub ecn: bool,
    /// Bytes of all headers of a super-packet. A hint that is written and never trusted.
    pub header_bytes: u16,
    /// Bytes of payload in each segment but the last; zero without super-packet.
    pub gso_size: u16,
    /// Where the checksummed part starts.
    pub checksum_start: u16,
    /// Where the checksum is, from `checksum_start`.
    pub checksum_offset: u16,
}

impl VnetHeader {
    /// Reads a header. Flags that only say what may be skipped are ignored.
    ///
    /// # Errors
    /// [`OffloadError::GsoType`] for a kind of super-packet that is unknown or, like UFO, never asked for.
    pub fn decode(bytes: &[u8; VNET_HEADER_BYTES]) -> Result<Self, OffloadError> {
        let gso = match bytes[1] & !GSO_ECN {
            0 => GsoType::None,
            1 => GsoType::TcpV4,
            4 => GsoType::TcpV6,
            5 => GsoType::UdpL4,
            _ => return Err(OffloadError::GsoType(bytes[1])),
        };
        let field = |offset: usize| u16::from_le_bytes([bytes[offset], bytes[offset + 1]]);
        Ok(Self {
            needs_checksum: bytes[0] & FLAG_NEEDS_CHECKSUM != 0,
            gso,
            ecn: bytes[1] & GSO_ECN != 0,
            header_bytes: field(2),
            gso_size: field(4),
            checksum_start: field(6),
            checksum_offset: field(8),
        })
    }

    /// The bytes that are written before the packet.
    #[must_use]
    pub fn encode(&self) -> [u8; VNET_HEADER_BYTES] {
        let mut bytes = [0; VNET_HEADER_BYTES];
        bytes[0] = if self.needs_checksum {
            FLAG_NEEDS_CHECKSUM
        } else {
            0
        };
        bytes[1] = self.gso.bits() | if self.ecn { GSO_ECN } else { 0 };
        let fields = [
            self.header_bytes,
            self.gso_size,
            self.checksum_start,
            self.checksum_offset,
        ];
        for (place, field) in bytes[2..].chunks_exact_mut(2).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }
}

/// Checks what can be known without reading the packet: that a checksum field lies inside its `packet_bytes`, and that
/// a super-packet has segments.
///
/// # Errors
/// [`OffloadError::ChecksumOutside`] or [`OffloadError::SegmentSize`].
pub fn validate(header: &VnetHeader, packet_bytes: usize) -> Result<(), OffloadError> {
    let (start, offset) = (
        usize::from(header.checksum_start),
        usize::from(header.checksum_offset),
    );
    if header.needs_checksum && start + offset + 2 > packet_bytes {
        return Err(OffloadError::ChecksumOutside {
            start,
            offset,
            packet_bytes,
        });
    }
    if header.gso != GsoType::None && header.gso_size == 0 {
        return Err(OffloadError::SegmentSize {
            gso_size: 0,
            payload_bytes: packet_bytes,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_layout_is_that_of_the_kernel() {
        let header = VnetHeader {
            needs_checksum: true,
            gso: GsoType::TcpV6,
            ecn: true,
            header_bytes: 0x0102,
            gso_size: 0x0304,
            checksum_start: 0x0506,
            checksum_offset: 0x0708,
        };
        assert_eq!(header.encode(), [1, 0x84, 2, 1, 4, 3, 6, 5, 8, 7]);
        assert_eq!(VnetHeader::default().encode(), [0; 10]);
    }

    #[test]
    fn kinds_that_were_not_asked_for_are_refused() {
        for kind in [2, 3, 6, 0x7f, 0x83, 0x20, 0x41] {
            let bytes = [0, kind, 0, 0, 0, 0, 0, 0, 0, 0];
            assert_eq!(VnetHeader::decode(&bytes), Err(OffloadError::GsoType(kind)));
        }
    }

    #[test]
    fn a_checksum_field_outside_the_packet_is_refused() {
        let header = VnetHeader {
            needs_checksum: true,
            checksum_start: 20,
            checksum_offset: 16,
            ..VnetHeader::default()
        };
        assert_eq!(validate(&header, 38), Ok(()));
        assert!(matches!(
            validate(&header, 37),
            Err(OffloadError::ChecksumOutside { .. })
        ));
        let extreme = VnetHeader {
            checksum_start: u16::MAX,
            checksum_offset: u16::MAX,
            ..header
        };
        assert!(validate(&extreme, 65_535).is_err());
    }

    #[test]
    fn a_super_packet_without_segment_size_is_refused() {
        let header = VnetHeader {
            gso: GsoType::UdpL4,
            ..VnetHeader::default()
        };
        assert!(matches!(
            validate(&header, 2000),
            Err(OffloadError::SegmentSize { .. })
        ));
    }

    proptest! {
        #[test]
        fn what_is_decoded_is_encoded_again(bytes: [u8; 10]) {
            if let Ok(header) = VnetHeader::decode(&bytes) {
                let mut expected = bytes;
                expected[0] &= 1;
                prop_assert_eq!(header.encode(), expected);
            }
        }
    }
}
