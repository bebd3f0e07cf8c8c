//! Taking super-packets apart: whatever header and packet say, each packet that comes out is readable, within the MTU,
//! with right checksums, and together they carry the payload of the super-packet.

use bytes::BytesMut;
use packet::checksum::{self, ChecksumState};
use packet::ip::IpView;
use packet::segmentation::Segmenter;
use packet::vnet::{GsoType, VnetHeader};

use crate::input::Input;
use crate::packets::{self, Transport};

/// How much of the input is made to agree, so that the deeper checks are reached.
const FIX_IP_LENGTH: u8 = 1;
const FIX_UDP_LENGTH: u8 = 2;
const FIX_CHECKSUM_FIELD: u8 = 4;
const FIX_KIND: u8 = 8;

/// One byte of what to fix, the MTU, the header, the packet.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let fix = input.byte();
    let mtu = usize::from(input.u16());
    let Ok(bytes) = <[u8; 10]>::try_from(input.take(10)) else {
        return;
    };
    let mut packet = input.0.to_vec();
    let Ok(mut header) = VnetHeader::decode(&bytes) else {
        return;
    };
    fix_up(fix, &mut header, &mut packet);
    let Ok(segmenter) = Segmenter::new(&header, &packet, mtu) else {
        return;
    };
    let view = IpView::parse(&packet).expect("the segmenter took it");
    let (full, partial) = (
        all(&segmenter, ChecksumState::Full),
        all(&segmenter, ChecksumState::Partial),
    );
    assert_eq!(full.len(), segmenter.count());
    let is_partial = segmenter.checksum_state(ChecksumState::Partial) == ChecksumState::Partial;
    let mut joined = Vec::new();
    for (index, (full, mut partial)) in full.into_iter().zip(partial).enumerate() {
        let one = IpView::parse(&full).expect("a segment is a packet");
        assert!(full.len() <= mtu && one.total_bytes == full.len());
        assert_eq!(
            (
                one.source,
                one.destination,
                one.protocol,
                one.hop_limit,
                one.ecn,
                one.transport_offset
            ),
            (
                view.source,
                view.destination,
                view.protocol,
                view.hop_limit,
                view.ecn,
                view.transport_offset
            )
        );
        assert!(index + 1 == segmenter.count() || full.len() == segmenter.segment_bytes());
        if is_partial {
            checksum::complete(&mut partial).expect("it is partial");
            assert!(view.protocol != 6 || checksum::verify(&full));
        }
        assert_eq!(full, partial);
        if header.gso != GsoType::None {
            joined.extend_from_slice(&full[headers_bytes(&one, &full)..]);
        }
    }
    if header.gso != GsoType::None {
        assert_eq!(joined, packet[headers_bytes(&view, &packet)..]);
    }
}

fn fix_up(fix: u8, header: &mut VnetHeader, packet: &mut [u8]) {
    let length = packet.len();
    if fix & FIX_IP_LENGTH != 0 {
        match packet.first().map(|first| first >> 4) {
            Some(4) if length >= 20 => packet[2..4].copy_from_slice(&(length as u16).to_be_bytes()),
            Some(6) if length >= 40 => packet[4..6].copy_from_slice(&((length - 40) as u16).to_be_bytes()),
            _ => {}
        }
    }
    let Ok(view) = IpView::parse(packet) else { return };
    if fix & FIX_UDP_LENGTH != 0 && view.protocol == 17 && length >= view.transport_offset + 8 {
        let at = view.transport_offset;
        packet[at + 4..at + 6].copy_from_slice(&((length - at) as u16).to_be_bytes());
    }
    if fix & FIX_CHECKSUM_FIELD != 0 {
        header.checksum_start = view.transport_offset as u16;
        header.checksum_offset = if view.protocol == 17 { 6 } else { 16 };
    }
    if fix & FIX_KIND != 0 {
        header.gso = match (view.protocol, view.source.is_ipv4()) {
            (17, _) => GsoType::UdpL4,
            (_, true) => GsoType::TcpV4,
            (_, false) => GsoType::TcpV6,
        };
    }
}

fn all(segmenter: &Segmenter<'_>, wanted: ChecksumState) -> Vec<Vec<u8>> {
    let mut segmenter = segmenter.clone();
    let mut out = BytesMut::new();
    let mut packets = Vec::new();
    while let Some(bytes) = segmenter.next_into(&mut out, wanted) {
        assert_eq!(out.len(), bytes);
        packets.push(out.split().to_vec());
    }
    packets
}

/// Bytes before the payload of TCP or UDP.
fn headers_bytes(view: &IpView, packet: &[u8]) -> usize {
    view.transport_offset
        + match view.transport(packet) {
            segment if view.protocol == 6 && segment.len() >= 20 => usize::from(segment[12] >> 4) * 4,
            _ => 8.min(packet.len() - view.transport_offset),
        }
}

/// Super-packets of each kind, and single packets with a partial checksum.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for is_ipv6 in [false, true] {
        for transport in [Transport::Tcp(u32::MAX - 100, 0x99), Transport::Udp] {
            let packet = packets::packet(is_ipv6, &transport, 1, &[7; 700]);
            let mut header = VnetHeader {
                needs_checksum: true,
                gso_size: 100,
                ..VnetHeader::default()
            };
            for fix in [FIX_CHECKSUM_FIELD | FIX_KIND, FIX_CHECKSUM_FIELD] {
                fix_up(fix, &mut header, &mut packet.clone());
                for mtu in [1280_u16, 130] {
                    let mut seed = vec![15];
                    seed.extend(mtu.to_be_bytes());
                    seed.extend(header.encode());
                    seed.extend(&packet);
                    all.push(seed);
                }
                header.gso = GsoType::None;
            }
        }
    }
    all
}
