//! IP packets for tests, with right checksums.

use std::net::IpAddr;

use packet::checksum;
use packet::ip::IpView;
use packet::vnet::VnetHeader;

const TCP: u8 = 6;
const UDP: u8 = 17;

const SOURCE_PORT: u16 = 40_000;
const DESTINATION_PORT: u16 = 7;

/// A UDP packet of `total` bytes.
pub(crate) fn udp(source: &str, destination: &str, total: usize) -> Vec<u8> {
    let header = ip_header_bytes(source);
    let mut segment = vec![0; total - header];
    segment[..2].copy_from_slice(&SOURCE_PORT.to_be_bytes());
    segment[2..4].copy_from_slice(&DESTINATION_PORT.to_be_bytes());
    let length = segment.len() as u16;
    segment[4..6].copy_from_slice(&length.to_be_bytes());
    for (index, byte) in segment[8..].iter_mut().enumerate() {
        *byte = index as u8;
    }
    ip(source, destination, UDP, 64, &segment)
}

/// A TCP SYN with this maximum segment size.
pub(crate) fn syn(source: &str, destination: &str, mss: u16) -> Vec<u8> {
    let mut segment = tcp_header(0, 6, 2);
    segment.extend([2, 4, (mss >> 8) as u8, mss as u8]);
    ip(source, destination, TCP, 64, &segment)
}

/// A TCP packet with `payload` bytes.
pub(crate) fn tcp(source: &str, destination: &str, payload: usize) -> Vec<u8> {
    let mut segment = tcp_header(1_000, 5, 16);
    segment.extend((0..payload).map(|index| index as u8));
    ip(source, destination, TCP, 64, &segment)
}

fn tcp_header(sequence: u32, words: u8, flags: u8) -> Vec<u8> {
    let mut header = vec![0; 20];
    header[..2].copy_from_slice(&SOURCE_PORT.to_be_bytes());
    header[2..4].copy_from_slice(&DESTINATION_PORT.to_be_bytes());
    header[4..8].copy_from_slice(&sequence.to_be_bytes());
    header[12] = words << 4;
    header[13] = flags;
    header
}

fn ip_header_bytes(address: &str) -> usize {
    if address.contains(':') { 40 } else { 20 }
}

/// A packet of `protocol` whose transport checksum is made right where it is TCP or UDP.
pub(crate) fn ip(source: &str, destination: &str, protocol: u8, hop_limit: u8, segment: &[u8]) -> Vec<u8> {
    let (source, destination): (IpAddr, IpAddr) = (
        source.parse().expect("tests name addresses"),
        destination.parse().expect("tests name addresses"),
    );
    let mut packet = Vec::new();
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            packet.extend([0x45, 0]);
            packet.extend(((20 + segment.len()) as u16).to_be_bytes());
            packet.extend([0, 0, 0x40, 0, hop_limit, protocol, 0, 0]);
            packet.extend(source.octets());
            packet.extend(destination.octets());
            let sum = !checksum::sum(&packet);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            packet.extend([0x60, 0, 0, 0]);
            packet.extend((segment.len() as u16).to_be_bytes());
            packet.extend([protocol, hop_limit]);
            packet.extend(source.octets());
            packet.extend(destination.octets());
        }
        _ => panic!("two versions in one packet"),
    }
    let header = packet.len();
    packet.extend(segment);
    let field = match protocol {
        TCP => 16,
        UDP => 6,
        _ => return packet,
    };
    let pseudo = checksum::pseudo_header(source, destination, protocol, segment.len());
    packet[header + field..header + field + 2].copy_from_slice(&pseudo.to_be_bytes());
    checksum::complete(&mut packet).expect("it is TCP or UDP, whole");
    packet
}

/// What a TUN says of a packet whose checksum is not finished, and the packet, made from one with a finished checksum.
pub(crate) fn unfinished(mut packet: Vec<u8>) -> (VnetHeader, Vec<u8>) {
    let view = IpView::parse(&packet).expect("tests make whole packets");
    let offset = if view.protocol == TCP { 16 } else { 6 };
    let field = view.transport_offset + offset;
    let sum = pseudo_header(&packet);
    packet[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    let header = VnetHeader {
        needs_checksum: true,
        checksum_start: view.transport_offset as u16,
        checksum_offset: offset as u16,
        ..VnetHeader::default()
    };
    (header, packet)
}

/// The sum of a packet's pseudo-header.
pub(crate) fn pseudo_header(packet: &[u8]) -> u16 {
    let view = IpView::parse(packet).expect("tests make whole packets");
    let length = view.transport(packet).len();
    checksum::pseudo_header(view.source, view.destination, view.protocol, length)
}

/// What an ICMP error says: type, code, MTU.
pub(crate) fn icmp_error(packet: &[u8]) -> Option<(u8, u8, u32)> {
    let view = IpView::parse(packet).ok()?;
    let message = view.transport(packet);
    matches!(view.protocol, 1 | 58).then(|| {
        let rest = u32::from_be_bytes(message[4..8].try_into().expect("four bytes"));
        (message[0], message[1], rest)
    })
}
