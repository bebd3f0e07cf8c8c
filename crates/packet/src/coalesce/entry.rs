//! One super-packet in the making: which packets may join it, and its headers at the end.

use super::{MergeRules, SuperPacket};
use crate::checksum::{self, ChecksumState};
use crate::ip::{
    self, IpVersion, IpView, V4_DONT_FRAGMENT, V4_FLAGS, V4_HEADER_BYTES, V4_ID, V4_TOTAL_LENGTH,
    V6_HEADER_BYTES,
};
use crate::limits;
use crate::transport::{protocol, tcp, udp};
use crate::vnet::{GsoType, VnetHeader};
use crate::wire::{put_u16, u16_at, u32_at};

/// A super-packet in the making.
#[derive(Debug, Default)]
pub(super) struct Entry {
    buffer: Vec<u8>,
    packets: usize,
    /// Upper-layer payload of each packet but the last.
    payload_bytes: usize,
    shape: Option<Shape>,
    /// Whether another packet may join.
    open: bool,
    /// Whether the checksum of the first packet is known to be right.
    verified: bool,
    checksum: ChecksumState,
    /// Where the checksum starts and is, for a packet that stays alone.
    checksum_field: (usize, usize),
}

/// A whole TCP segment or UDP datagram without IP options and extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) version: IpVersion,
    pub(super) protocol: u8,
    pub(super) transport: usize,
    pub(super) headers_bytes: usize,
}

impl MergeRules {
    pub(super) fn allow(&self, shape: &Shape) -> bool {
        match shape.protocol {
            protocol::TCP => self.tcp,
            _ => self.udp_datagrams_max > 1,
        }
    }
}

impl Shape {
    pub(super) fn of(view: &IpView, packet: &[u8]) -> Option<Self> {
        let fixed = match view.version {
            IpVersion::V4 => V4_HEADER_BYTES,
            IpVersion::V6 => V6_HEADER_BYTES,
        };
        if view.fragment || view.transport_offset != fixed {
            return None;
        }
        let segment = view.transport(packet);
        let transport_bytes = match view.protocol {
            protocol::TCP => tcp::header_bytes(segment)?,
            protocol::UDP if segment.len() >= udp::HEADER_BYTES => udp::HEADER_BYTES,
            _ => return None,
        };
        Some(Self {
            version: view.version,
            protocol: view.protocol,
            transport: fixed,
            headers_bytes: fixed + transport_bytes,
        })
    }

    fn is_tcp(&self) -> bool {
        self.protocol == protocol::TCP
    }

    /// Whether other packets may follow this one in a super-packet.
    pub(super) fn may_be_first(&self, packet: &[u8]) -> bool {
        let segment = &packet[self.transport..];
        if packet.len() == self.headers_bytes {
            return false;
        }
        if self.is_tcp() {
            // ACK and, on a first segment, CWR (RFC 3168 section 6.1.2); everything else is a matter of its own, and
            // PSH and FIN end a super-packet.
            segment[tcp::FLAGS] & !tcp::CWR == tcp::ACK
                && packet.len() - self.headers_bytes >= limits::TCP_SEGMENT_BYTES_MIN
        } else {
            // Zero is "no checksum": a super-packet has one.
            usize::from(u16_at(segment, udp::LENGTH)) == segment.len() && u16_at(segment, udp::CHECKSUM) != 0
        }
    }

    /// Whether `packet` has the same headers as `first`, but for what differs between the packets of a super-packet.
    fn headers_agree(&self, first: &[u8], packet: &[u8], index: usize) -> bool {
        let ip_agrees = match self.version {
            IpVersion::V4 => {
                let flags = u16_at(packet, V4_FLAGS);
                let id = u16_at(first, V4_ID).wrapping_add(index as u16);
                // The ID of a packet that is never fragmented has no meaning (RFC 6864 section 4.1).
                first[..V4_TOTAL_LENGTH] == packet[..V4_TOTAL_LENGTH]
                    && first[V4_FLAGS..ip::V4_CHECKSUM] == packet[V4_FLAGS..ip::V4_CHECKSUM]
                    && first[ip::V4_SOURCE..V4_HEADER_BYTES] == packet[ip::V4_SOURCE..V4_HEADER_BYTES]
                    && (u16_at(packet, V4_ID) == id || flags & V4_DONT_FRAGMENT != 0)
                    && checksum::sum(&packet[..V4_HEADER_BYTES]) == 0xffff
            }
            IpVersion::V6 => {
                first[..ip::V6_PAYLOAD_LENGTH] == packet[..ip::V6_PAYLOAD_LENGTH]
                    && first[ip::V6_NEXT_HEADER..V6_HEADER_BYTES]
                        == packet[ip::V6_NEXT_HEADER..V6_HEADER_BYTES]
            }
        };
        let (first, packet) = (
            &first[self.transport..self.headers_bytes],
            &packet[self.transport..self.headers_bytes],
        );
        ip_agrees
            && first[..tcp::SEQUENCE] == packet[..tcp::SEQUENCE]
            && (!self.is_tcp() || tcp_headers_agree(first, packet))
    }
}

/// Acknowledgement, header length, window, urgent pointer and options.
fn tcp_headers_agree(first: &[u8], packet: &[u8]) -> bool {
    first[tcp::ACKNOWLEDGEMENT..tcp::FLAGS] == packet[tcp::ACKNOWLEDGEMENT..tcp::FLAGS]
        && first[tcp::WINDOW..tcp::CHECKSUM] == packet[tcp::WINDOW..tcp::CHECKSUM]
        && first[tcp::URGENT_POINTER..] == packet[tcp::URGENT_POINTER..]
}

impl Entry {
    pub(super) fn start(
        &mut self,
        packet: &[u8],
        shape: Option<Shape>,
        checksum: ChecksumState,
        open: bool,
        checksum_field: (usize, usize),
    ) {
        self.buffer.clear();
        self.buffer.extend_from_slice(packet);
        self.packets = 1;
        self.payload_bytes = shape.map_or(0, |shape| packet.len() - shape.headers_bytes);
        self.shape = shape;
        self.open = open;
        self.verified = false;
        self.checksum = checksum;
        self.checksum_field = checksum_field;
    }

    /// Appends `packet` where it continues this super-packet.
    pub(super) fn join(
        &mut self,
        packet: &[u8],
        view: &IpView,
        shape: Shape,
        state: ChecksumState,
        rules: MergeRules,
    ) -> bool {
        if !self.open || self.shape != Some(shape) || !rules.allow(&shape) {
            return false;
        }
        let payload = &packet[shape.headers_bytes..];
        let fits = !payload.is_empty()
            && payload.len() <= self.payload_bytes
            && self.buffer.len() + payload.len() <= limits::IP_PACKET_BYTES_MAX;
        let segment = &packet[shape.transport..];
        let ends = if shape.is_tcp() {
            let flags = segment[tcp::FLAGS];
            let expected = u32_at(&self.buffer[shape.transport..], tcp::SEQUENCE)
                .wrapping_add((self.buffer.len() - shape.headers_bytes) as u32);
            if flags & !(tcp::PSH | tcp::FIN) != tcp::ACK || u32_at(segment, tcp::SEQUENCE) != expected {
                self.open = false;
                return false;
            }
            flags != tcp::ACK
        } else {
            if !shape.may_be_first(packet) {
                self.open = false;
                return false;
            }
            self.packets + 1 >= rules.udp_datagrams_max.min(limits::UDP_COALESCE_MAX)
        };
        if !fits
            || !shape.headers_agree(&self.buffer, packet, self.packets)
            || !is_right(view, packet, state)
            || !self.verify_first(shape)
        {
            self.open = false;
            return false;
        }
        // One allocation in the life of the buffer, not one for each doubling.
        let room = limits::IP_PACKET_BYTES_MAX.saturating_sub(self.buffer.len());
        self.buffer.reserve_exact(room);
        self.buffer.extend_from_slice(payload);
        self.packets += 1;
        if shape.is_tcp() {
            self.buffer[shape.transport + tcp::FLAGS] |= segment[tcp::FLAGS];
        }
        self.open = !ends && payload.len() == self.payload_bytes;
        true
    }

    /// Whether the packet that started this entry has right checksums.
    fn verify_first(&mut self, shape: Shape) -> bool {
        if !self.verified {
            self.verified = (shape.version == IpVersion::V6
                || checksum::sum(&self.buffer[..V4_HEADER_BYTES]) == 0xffff)
                && IpView::parse(&self.buffer).is_ok_and(|view| is_right(&view, &self.buffer, self.checksum));
        }
        self.verified
    }

    /// The packet or super-packet with its header.
    pub(super) fn finish(&mut self) -> SuperPacket<'_> {
        let header = match self.shape {
            Some(shape) if self.packets > 1 => self.finish_super(shape),
            _ if self.checksum == ChecksumState::Partial => VnetHeader {
                needs_checksum: true,
                checksum_start: self.checksum_field.0 as u16,
                checksum_offset: self.checksum_field.1 as u16,
                ..VnetHeader::default()
            },
            _ => VnetHeader::default(),
        };
        SuperPacket {
            header,
            bytes: &self.buffer,
            packets: self.packets,
        }
    }

    /// Writes the lengths and the partial checksum of a super-packet.
    fn finish_super(&mut self, shape: Shape) -> VnetHeader {
        let total = self.buffer.len();
        ip::set_total_bytes(&mut self.buffer, shape.version, shape.transport, total);
        let length = total - shape.transport;
        let (gso, field) = match (shape.is_tcp(), shape.version) {
            (true, IpVersion::V4) => (GsoType::TcpV4, tcp::CHECKSUM),
            (true, IpVersion::V6) => (GsoType::TcpV6, tcp::CHECKSUM),
            (false, _) => (GsoType::UdpL4, udp::CHECKSUM),
        };
        let segment = &mut self.buffer[shape.transport..];
        if gso == GsoType::UdpL4 {
            put_u16(segment, udp::LENGTH, length as u16);
        }
        let ecn = shape.is_tcp() && segment[tcp::FLAGS] & tcp::CWR != 0;
        let view = IpView::parse(&self.buffer)
            .expect("its headers were parsed, and its length is the one just written");
        let pseudo = checksum::pseudo_header(view.source, view.destination, shape.protocol, length);
        put_u16(&mut self.buffer, shape.transport + field, pseudo);
        VnetHeader {
            needs_checksum: true,
            gso,
            ecn,
            header_bytes: shape.headers_bytes as u16,
            gso_size: self.payload_bytes as u16,
            checksum_start: shape.transport as u16,
            checksum_offset: field as u16,
        }
    }
}

/// Whether the checksum of a packet with a checksum field is right, or, being partial, that of its pseudo-header.
fn is_right(view: &IpView, packet: &[u8], state: ChecksumState) -> bool {
    match state {
        ChecksumState::Full => checksum::verify_view(view, packet),
        ChecksumState::Partial => {
            let segment = view.transport(packet);
            let pseudo = checksum::pseudo_header(view.source, view.destination, view.protocol, segment.len());
            checksum::field_offset(view, packet).is_some_and(|field| u16_at(segment, field) == pseudo)
        }
    }
}
