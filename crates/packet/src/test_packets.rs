//! Well-formed packets for the tests of this crate.

use crate::checksum;
use crate::ip::{IpView, V4_HEADER_BYTES, V6_HEADER_BYTES};
use crate::transport::checksum_offset;
use crate::wire::{put_u16, put_u32};

/// Version of the packets made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ip {
    V4,
    V6,
}

impl Ip {
    pub(crate) fn header_bytes(self) -> usize {
        match self {
            Self::V4 => V4_HEADER_BYTES,
            Self::V6 => V6_HEADER_BYTES,
        }
    }
}

/// A packet of `protocol` around `transport`, with the checksum of the latter filled in where it has one.
pub(crate) fn ip(version: Ip, protocol: u8, transport: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; version.header_bytes()];
    match version {
        Ip::V4 => {
            packet[0] = 0x45;
            put_u16(&mut packet, 2, (20 + transport.len()) as u16);
            packet[6] = 0x40;
            packet[8] = 64;
            packet[9] = protocol;
            packet[12..20].copy_from_slice(&[10, 1, 0, 1, 10, 2, 0, 2]);
            let sum = !checksum::sum(&packet);
            put_u16(&mut packet, 10, sum);
        }
        Ip::V6 => {
            packet[0] = 0x60;
            put_u16(&mut packet, 4, transport.len() as u16);
            packet[6] = protocol;
            packet[7] = 64;
            (packet[8], packet[23]) = (0xfd, 1);
            (packet[24], packet[39]) = (0xfd, 2);
        }
    }
    packet.extend_from_slice(transport);
    if let (Ok(view), Some(offset)) = (IpView::parse(&packet), checksum_offset(protocol)) {
        let start = view.transport_offset;
        let pseudo = checksum::pseudo_header(view.source, view.destination, protocol, transport.len());
        put_u16(&mut packet[start..], offset, pseudo);
        checksum::complete_at(&mut packet[start..], offset);
    }
    packet
}

/// `count` bytes that differ from place to place.
pub(crate) fn payload(count: usize) -> Vec<u8> {
    (0..count).map(|index| (index * 7 + index / 251) as u8).collect()
}

/// A TCP segment with a timestamp option, from port 1000 + `flow` to port 443.
pub(crate) fn tcp_at(version: Ip, flow: u16, sequence: u32, payload: &[u8], flags: u8) -> Vec<u8> {
    let mut segment = vec![0; 32];
    put_u16(&mut segment, 0, 1000 + flow);
    put_u16(&mut segment, 2, 443);
    put_u32(&mut segment, 4, sequence);
    put_u32(&mut segment, 8, 77);
    (segment[12], segment[13]) = (0x80, flags);
    put_u16(&mut segment, 14, 500);
    segment[20..32].copy_from_slice(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    segment.extend_from_slice(payload);
    ip(version, 6, &segment)
}

/// A TCP segment without options and with `bytes` of payload.
pub(crate) fn tcp(version: Ip, flow: u16, bytes: usize, flags: u8) -> Vec<u8> {
    let mut segment = vec![0; 20];
    put_u16(&mut segment, 0, 1000 + flow);
    put_u16(&mut segment, 2, 443);
    (segment[12], segment[13]) = (0x50, flags);
    segment.extend(payload(bytes));
    ip(version, 6, &segment)
}

/// A UDP datagram with `bytes` of payload, from port 1000 + `flow` to port 443.
pub(crate) fn udp(version: Ip, flow: u16, bytes: usize) -> Vec<u8> {
    udp_with(version, flow, &payload(bytes))
}

/// A UDP datagram with this payload, from port 1000 + `flow` to port 443.
pub(crate) fn udp_with(version: Ip, flow: u16, payload: &[u8]) -> Vec<u8> {
    let mut segment = vec![0; 8];
    put_u16(&mut segment, 0, 1000 + flow);
    put_u16(&mut segment, 2, 443);
    put_u16(&mut segment, 4, 8 + payload.len() as u16);
    segment.extend_from_slice(payload);
    ip(version, 17, &segment)
}
