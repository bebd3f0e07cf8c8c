//! Segments super-packets from a TUN device into IP packets of at most the MTU.
//!
//! It does what the kernel would do before sending a super-packet: copies headers and patches lengths, IP ID, TCP
//! sequence number, flags and checksums. TCP is cut to `gso_size`, or smaller if the MTU requires it; UDP datagrams
//! keep their size. All packets of one super-packet but the last have the same size. With partial checksums wanted, no
//! payload byte is summed up.
//!
//! A [`VnetHeader`] is checked against the packet: offsets must name the checksum field of the packet's own TCP or UDP
//! header; the length of the headers is computed from the packet; lengths must agree. The exception is a single
//! packet with a partial checksum somewhere else (say, of an encapsulated packet): that is completed where the header
//! says, inside the packet's bytes.

use bytes::BytesMut;

use crate::checksum::{self, ChecksumState};
use crate::ip::{self, IpVersion, IpView, V4_ID};
use crate::limits;
use crate::transport::{protocol, tcp, udp};
use crate::vnet::{self, GsoType, OffloadError, VnetHeader};
use crate::wire::{put_u16, put_u32, u16_at, u32_at};

/// What is done to the checksum of each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checksum {
    /// It is full already, or the packet has none.
    Kept,
    /// That of the TCP or UDP header, made from the sum of the addresses and the protocol.
    Transport { addresses: u16, field: usize },
    /// A partial one elsewhere in a single packet.
    Elsewhere { start: usize, offset: usize },
}

/// The packets of one super-packet, in order.
///
/// ```
/// use bytes::BytesMut;
/// use packet::checksum::ChecksumState;
/// use packet::segmentation::Segmenter;
/// use packet::vnet::{OffloadError, VnetHeader};
///
/// // As read from a TUN device.
/// let (header, packet) = ([0; 10], [
///     0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0x66, 0xcd, 10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0, 9, 0, 8, 0, 0,
/// ]);
/// let mut segmenter = Segmenter::new(&VnetHeader::decode(&header)?, &packet, 1280)?;
/// let mut out = BytesMut::with_capacity(segmenter.count() * segmenter.segment_bytes());
/// while let Some(bytes) = segmenter.next_into(&mut out, ChecksumState::Full) {
///     println!("a packet of {bytes} bytes");
/// }
/// assert_eq!(out, &packet[..]);
/// # Ok::<(), OffloadError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Segmenter<'a> {
    packet: &'a [u8],
    version: IpVersion,
    gso: GsoType,
    ip_header_bytes: usize,
    transport_offset: usize,
    headers_bytes: usize,
    payload_bytes_max: usize,
    count: usize,
    next: usize,
    checksum: Checksum,
}

impl<'a> Segmenter<'a> {
    /// Checks a packet read from a TUN device, and how it is to be cut into packets of at most `mtu` bytes.
    ///
    /// # Errors
    /// [`OffloadError`] where header and packet do not agree; [`OffloadError::TooBig`] where they do but the packets
    /// can't be made to fit.
    pub fn new(header: &VnetHeader, packet: &'a [u8], mtu: usize) -> Result<Self, OffloadError> {
        Self::with_view(header, &IpView::parse(packet)?, packet, mtu)
    }

    /// [`Segmenter::new`] for a packet that was parsed before: `view` is that of `packet`.
    ///
    /// # Errors
    /// As [`Segmenter::new`].
    pub fn with_view(
        header: &VnetHeader,
        view: &IpView,
        packet: &'a [u8],
        mtu: usize,
    ) -> Result<Self, OffloadError> {
        vnet::validate(header, view.total_bytes)?;
        match header.gso {
            GsoType::None => Self::single(header, view, &packet[..view.total_bytes], mtu),
            _ => Self::several(header, view, packet, mtu),
        }
    }

    fn single(
        header: &VnetHeader,
        view: &IpView,
        packet: &'a [u8],
        mtu: usize,
    ) -> Result<Self, OffloadError> {
        let (start, offset) = (
            usize::from(header.checksum_start),
            usize::from(header.checksum_offset),
        );
        if packet.len() > mtu {
            return Err(OffloadError::TooBig {
                bytes: packet.len(),
                mtu,
            });
        }
        let own_field =
            start == view.transport_offset && checksum::field_offset(view, packet) == Some(offset);
        let checksum = match header.needs_checksum {
            false => Checksum::Kept,
            true if own_field => Checksum::Transport {
                addresses: addresses_sum(view),
                field: offset,
            },
            true if start >= view.transport_offset => Checksum::Elsewhere { start, offset },
            true => return Err(OffloadError::ChecksumField { start, offset }),
        };
        Ok(Self {
            packet,
            version: view.version,
            gso: GsoType::None,
            ip_header_bytes: view.header_bytes,
            transport_offset: view.transport_offset,
            headers_bytes: packet.len(),
            payload_bytes_max: 0,
            count: 1,
            next: 0,
            checksum,
        })
    }

    fn several(
        header: &VnetHeader,
        view: &IpView,
        packet: &'a [u8],
        mtu: usize,
    ) -> Result<Self, OffloadError> {
        if view.total_bytes != packet.len() {
            return Err(OffloadError::Length {
                claimed: view.total_bytes,
                received: packet.len(),
            });
        }
        let segment = view.transport(packet);
        let transport_header_bytes =
            transport_header_bytes(header.gso, view, segment).ok_or(OffloadError::WrongPacket {
                expected: header.gso,
                protocol: view.protocol,
            })?;
        let (start, offset) = (
            usize::from(header.checksum_start),
            usize::from(header.checksum_offset),
        );
        let field = match header.gso {
            GsoType::UdpL4 => udp::CHECKSUM,
            _ => tcp::CHECKSUM,
        };
        if header.needs_checksum && (start, offset) != (view.transport_offset, field) {
            return Err(OffloadError::ChecksumField { start, offset });
        }
        let headers_bytes = view.transport_offset + transport_header_bytes;
        let payload_bytes = packet.len() - headers_bytes;
        let gso_size = usize::from(header.gso_size);
        let payload_bytes_max = match header.gso {
            GsoType::UdpL4 => gso_size,
            _ => gso_size.min(mtu.saturating_sub(headers_bytes)),
        };
        let first_bytes = headers_bytes + payload_bytes_max.min(payload_bytes);
        if first_bytes > mtu {
            return Err(OffloadError::TooBig {
                bytes: first_bytes,
                mtu,
            });
        }
        let refused = Err(OffloadError::SegmentSize {
            gso_size: payload_bytes_max,
            payload_bytes,
        });
        let mut checksum = Checksum::Transport {
            addresses: addresses_sum(view),
            field,
        };
        if header.gso == GsoType::UdpL4 {
            let claimed = usize::from(u16_at(segment, udp::LENGTH));
            if claimed != segment.len() {
                let received = segment.len();
                return Err(OffloadError::Length { claimed, received });
            }
            if payload_bytes.div_ceil(payload_bytes_max) > limits::UDP_SEGMENTS_MAX {
                return refused;
            }
            if !header.needs_checksum && u16_at(segment, udp::CHECKSUM) == 0 {
                // Without a checksum (RFC 768), and so are its datagrams.
                checksum = Checksum::Kept;
            }
        } else if payload_bytes_max < limits::TCP_SEGMENT_BYTES_MIN {
            return refused;
        }
        Ok(Self {
            packet,
            version: view.version,
            gso: header.gso,
            ip_header_bytes: view.header_bytes,
            transport_offset: view.transport_offset,
            headers_bytes,
            payload_bytes_max,
            count: payload_bytes.div_ceil(payload_bytes_max).max(1),
            next: 0,
            checksum,
        })
    }

    /// How many packets the super-packet makes, those already taken included.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of every packet but the last, which may have fewer.
    #[must_use]
    pub fn segment_bytes(&self) -> usize {
        self.packet.len().min(self.headers_bytes + self.payload_bytes_max)
    }

    /// What the checksum field of every packet holds where `wanted` is asked for: packets that come without partial
    /// checksum, and those whose checksum is not that of their own TCP or UDP header, are always full.
    #[must_use]
    pub fn checksum_state(&self, wanted: ChecksumState) -> ChecksumState {
        match self.checksum {
            Checksum::Transport { .. } => wanted,
            _ => ChecksumState::Full,
        }
    }

    /// Appends the next packet to `out`, with its checksum as [`Segmenter::checksum_state`] says: its bytes, or `None`
    /// after the last. Nothing is allocated where `out` has room.
    pub fn next_into(&mut self, out: &mut BytesMut, wanted: ChecksumState) -> Option<usize> {
        if self.next == self.count {
            return None;
        }
        let index = self.next;
        self.next += 1;
        let payload = &self.packet[self.headers_bytes..];
        let from = index * self.payload_bytes_max;
        let payload = &payload[from..payload.len().min(from + self.payload_bytes_max)];
        let total = self.headers_bytes + payload.len();
        let out_start = out.len();
        out.reserve(total);
        out.extend_from_slice(&self.packet[..self.headers_bytes]);
        out.extend_from_slice(payload);
        let packet = &mut out[out_start..];
        if self.gso != GsoType::None {
            self.patch_headers(packet, index, from);
        }
        match self.checksum {
            Checksum::Kept => {}
            Checksum::Transport { addresses, field } => {
                let segment = &mut packet[self.transport_offset..];
                let length = checksum::fold(segment.len() as u64);
                put_u16(segment, field, checksum::add(addresses, length));
                if wanted == ChecksumState::Full {
                    checksum::complete_at(segment, field);
                }
            }
            Checksum::Elsewhere { start, offset } => {
                checksum::complete_at(&mut packet[start..], offset);
            }
        }
        Some(total)
    }

    /// Lengths, IP ID, sequence number and flags of packet `index`, whose payload starts `from` bytes into that of the
    /// super-packet.
    fn patch_headers(&self, packet: &mut [u8], index: usize, from: usize) {
        let total = packet.len();
        if self.version == IpVersion::V4 {
            put_u16(packet, V4_ID, u16_at(packet, V4_ID).wrapping_add(index as u16));
        }
        ip::set_total_bytes(packet, self.version, self.ip_header_bytes, total);
        let segment = &mut packet[self.transport_offset..];
        if self.gso == GsoType::UdpL4 {
            let length = segment.len() as u16;
            put_u16(segment, udp::LENGTH, length);
            return;
        }
        let sequence = u32_at(segment, tcp::SEQUENCE).wrapping_add(from as u32);
        put_u32(segment, tcp::SEQUENCE, sequence);
        if index > 0 {
            segment[tcp::FLAGS] &= !tcp::CWR;
        }
        if index + 1 < self.count {
            segment[tcp::FLAGS] &= !(tcp::FIN | tcp::PSH);
        }
    }
}

/// Sum of the pseudo-header without its length, which differs between the packets of a super-packet.
fn addresses_sum(view: &IpView) -> u16 {
    checksum::pseudo_header(view.source, view.destination, view.protocol, 0)
}

/// Bytes of the transport header, where `segment` has the one that `gso` says.
fn transport_header_bytes(gso: GsoType, view: &IpView, segment: &[u8]) -> Option<usize> {
    match (gso, view.version, view.protocol) {
        _ if view.fragment => None,
        (GsoType::TcpV4, IpVersion::V4, protocol::TCP) | (GsoType::TcpV6, IpVersion::V6, protocol::TCP) => {
            tcp::header_bytes(segment)
        }
        (GsoType::UdpL4, _, protocol::UDP) => {
            (segment.len() >= udp::HEADER_BYTES).then_some(udp::HEADER_BYTES)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
