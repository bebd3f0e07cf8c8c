//! Packets of a raw socket as bytes: what stands before IP when one is received, and before the payload when one is
//! sent.

use packet::ip::claimed_bytes_and_protocol;
use packet::vnet::{GsoType, VnetHeader};

use super::link::{IPV4, IPV6, Link, LinkKind};
use crate::limits::VNET_HEADER_BYTES;
use crate::sys::addr::{LinkName, Name};

/// Most segments of one super-segment: what a peer can hand on as one UDP train.
pub(super) const SEGMENTS_MAX: usize = packet::TRAIN_SEGMENTS_MAX;

/// The hardware has verified the checksum (virtio 1.2, section 5.1.6).
const FLAG_VERIFIED: u8 = 2;

/// A received packet.
#[derive(Clone, Copy, Debug)]
pub struct RawPacket<'a> {
    /// From its IP header on, without padding.
    pub bytes: &'a [u8],
    /// TCP payload of each segment but the last, in bytes, where it is a super-segment.
    pub segment_size: Option<u16>,
    /// Whether nobody has verified its checksum yet.
    pub is_unverified: bool,
    /// The way back.
    pub link: Link,
}

impl<'a> RawPacket<'a> {
    /// Reads what the kernel gave, and how many bytes stand before the IP header. `None` where it is no whole packet.
    pub(crate) fn read(received: &'a [u8], name: &LinkName) -> Option<(Self, usize)> {
        let (header, frame) = received.split_at_checked(VNET_HEADER_BYTES)?;
        let header_bytes: &[u8; VNET_HEADER_BYTES] = header.try_into().ok()?;
        let header = VnetHeader::decode(header_bytes).ok()?;
        let link_bytes = LinkKind::of(name.kind)?.header_bytes();
        let packet = frame.get(link_bytes..)?;
        let (claimed, _) = claimed_bytes_and_protocol(packet)?;
        let read = Self {
            bytes: packet.get(..claimed)?,
            segment_size: (header.gso != GsoType::None && header.gso_size > 0).then_some(header.gso_size),
            is_unverified: !header.needs_checksum && header_bytes[0] & FLAG_VERIFIED == 0,
            link: Link::answering(name, frame)?,
        };
        Some((read, VNET_HEADER_BYTES + link_bytes))
    }
}

/// What stands before the payload of a packet to be sent.
#[derive(Clone, Copy, Debug)]
pub struct RawHead {
    /// Where it goes.
    pub link: Link,
    /// What the kernel is to complete; its places count from the IP header.
    pub vnet: VnetHeader,
    /// IP and TCP headers.
    pub bytes: [u8; Self::BYTES_MAX],
    /// How many of the bytes are theirs.
    pub len: usize,
}

impl RawHead {
    /// Most bytes of both headers.
    pub const BYTES_MAX: usize = 40 + 60;

    /// Writes everything before the payload.
    pub(super) fn write(&self, out: &mut Vec<u8>) -> Destination {
        let headers = &self.bytes[..self.len.min(Self::BYTES_MAX)];
        let ethertype = if headers[0] >> 4 == 4 { IPV4 } else { IPV6 };
        let link_bytes = self.link.header_bytes() as u16;
        let vnet = VnetHeader {
            header_bytes: link_bytes + headers.len() as u16,
            checksum_start: if self.vnet.needs_checksum {
                self.vnet.checksum_start + link_bytes
            } else {
                0
            },
            ..self.vnet
        };
        out.clear();
        out.extend(vnet.encode());
        self.link.write(ethertype, out);
        out.extend(headers);
        Destination {
            index: self.link.index,
            ethertype,
        }
    }
}

/// What the kernel has to be told besides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Destination {
    index: u32,
    ethertype: u16,
}

impl Destination {
    pub(super) fn is_v4(self) -> bool {
        self.ethertype == IPV4
    }

    pub(super) fn encode(self, name: &mut Name) {
        name.encode_link(self.index, self.ethertype);
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng, rngs::StdRng};

    use super::*;

    const NAME: LinkName = LinkName {
        index: 2,
        kind: 1,
        hardware: None,
    };

    /// An IPv4 packet of 21 bytes behind headers, and padding as Ethernet has it.
    fn padded() -> Vec<u8> {
        let mut frame = vec![0; VNET_HEADER_BYTES + 14 + 46];
        frame[24] = 0x45;
        frame[27] = 21;
        frame
    }

    #[test]
    fn padding_is_left_away_and_the_header_is_heeded() {
        let mut frame = padded();
        let (packet, before) = RawPacket::read(&frame, &NAME).unwrap();
        assert_eq!((packet.bytes.len(), before), (21, 24));
        assert_eq!((packet.segment_size, packet.is_unverified), (None, true));
        frame[0] = FLAG_VERIFIED;
        (frame[1], frame[4], frame[5]) = (1, 0xb0, 4);
        let (packet, _) = RawPacket::read(&frame, &NAME).unwrap();
        assert_eq!((packet.segment_size, packet.is_unverified), (Some(1_200), false));
        let unknown = LinkName { kind: 801, ..NAME };
        assert!(RawPacket::read(&frame, &unknown).is_none());
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut random = StdRng::seed_from_u64(1);
        for _ in 0..20_000 {
            let mut frame = padded();
            for _ in 0..random.random_range(0..6) {
                let place = random.random_range(0..frame.len());
                frame[place] = random.random();
            }
            let length = random.random_range(0..=frame.len());
            let kind = [1, 772, 0xfffe][random.random_range(0..3)];
            if let Some((packet, before)) = RawPacket::read(&frame[..length], &LinkName { kind, ..NAME }) {
                assert!(before + packet.bytes.len() <= length);
            }
        }
    }
}
