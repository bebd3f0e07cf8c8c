//! Super-packets taken apart: what comes out, and what is refused.

use super::*;
use crate::Ecn;
use crate::test_packets::{Ip, payload, tcp_at, udp, udp_with};
use crate::transport::checksum_offset;
use proptest::prelude::*;

/// The header that the kernel gives with `packet`, a super-packet in segments of `gso_size`.
fn header(packet: &[u8], gso: GsoType, gso_size: usize) -> VnetHeader {
    let view = IpView::parse(packet).unwrap();
    VnetHeader {
        needs_checksum: true,
        gso,
        gso_size: gso_size as u16,
        checksum_start: view.transport_offset as u16,
        checksum_offset: checksum_offset(view.protocol).unwrap() as u16,
        ..VnetHeader::default()
    }
}

fn tcp_kind(version: Ip) -> GsoType {
    match version {
        Ip::V4 => GsoType::TcpV4,
        Ip::V6 => GsoType::TcpV6,
    }
}

fn all(mut segmenter: Segmenter<'_>, wanted: ChecksumState) -> Vec<Vec<u8>> {
    let mut out = BytesMut::new();
    let mut packets = Vec::new();
    while let Some(bytes) = segmenter.next_into(&mut out, wanted) {
        packets.push(out.split().to_vec());
        assert_eq!(packets.last().unwrap().len(), bytes);
    }
    assert_eq!(packets.len(), segmenter.count());
    packets
}

#[test]
fn a_tcp_super_packet_becomes_the_segments_that_its_sender_meant() {
    for version in [Ip::V4, Ip::V6] {
        let data = payload(2500);
        let packet = tcp_at(version, 1, u32::MAX - 999, &data, tcp::ACK | tcp::PSH);
        let header = header(&packet, tcp_kind(version), 1000);
        let segmenter = Segmenter::new(&header, &packet, 1500).unwrap();
        assert_eq!(segmenter.segment_bytes(), version.header_bytes() + 32 + 1000);
        let packets = all(segmenter, ChecksumState::Full);
        let expected: Vec<Vec<u8>> = [
            (u32::MAX - 999, &data[..1000], tcp::ACK),
            (0, &data[1000..2000], tcp::ACK),
            (1000, &data[2000..], tcp::ACK | tcp::PSH),
        ]
        .iter()
        .enumerate()
        .map(|(index, (sequence, data, flags))| {
            let mut packet = tcp_at(version, 1, *sequence, data, *flags);
            if version == Ip::V4 {
                put_u16(&mut packet, V4_ID, index as u16);
                let total = packet.len();
                ip::set_total_bytes(&mut packet, IpVersion::V4, 20, total);
            }
            packet
        })
        .collect();
        assert_eq!(packets, expected);
        assert!(packets.iter().all(|packet| checksum::verify(packet)));
    }
}

#[test]
fn the_ip_id_counts_on_and_wraps() {
    let mut packet = tcp_at(Ip::V4, 1, 0, &payload(300), tcp::ACK);
    put_u16(&mut packet, V4_ID, 0xffff);
    let header = header(&packet, GsoType::TcpV4, 100);
    let packets = all(
        Segmenter::new(&header, &packet, 1500).unwrap(),
        ChecksumState::Full,
    );
    let ids: Vec<u16> = packets.iter().map(|packet| u16_at(packet, V4_ID)).collect();
    assert_eq!(ids, [0xffff, 0, 1]);
    assert!(
        packets
            .iter()
            .all(|packet| checksum::sum(&packet[..20]) == 0xffff)
    );
}

/// RFC 9293 section 3.9.1 for PSH and FIN, RFC 3168 section 6.1.2 for CWR.
#[test]
fn fin_and_psh_are_on_the_last_segment_and_cwr_on_the_first() {
    let flags = tcp::ACK | tcp::PSH | tcp::FIN | tcp::CWR;
    let packet = tcp_at(Ip::V6, 1, 0, &payload(300), flags);
    let header = header(&packet, GsoType::TcpV6, 100);
    let packets = all(
        Segmenter::new(&header, &packet, 1500).unwrap(),
        ChecksumState::Partial,
    );
    let seen: Vec<u8> = packets.iter().map(|packet| packet[40 + tcp::FLAGS]).collect();
    assert_eq!(
        seen,
        [tcp::ACK | tcp::CWR, tcp::ACK, tcp::ACK | tcp::PSH | tcp::FIN]
    );
}

#[test]
fn a_smaller_mtu_cuts_tcp_into_smaller_segments() {
    let packet = tcp_at(Ip::V4, 1, 5, &payload(30_000), tcp::ACK);
    let header = header(&packet, GsoType::TcpV4, 1448);
    let segmenter = Segmenter::new(&header, &packet, 1280).unwrap();
    assert_eq!(
        (segmenter.count(), segmenter.segment_bytes()),
        (30_000_usize.div_ceil(1228), 1280)
    );
    let packets = all(segmenter, ChecksumState::Full);
    assert!(packets.iter().all(|packet| packet.len() <= 1280));
    let joined: Vec<u8> = packets.iter().flat_map(|packet| &packet[52..]).copied().collect();
    assert_eq!(joined, payload(30_000));
}

#[test]
fn a_udp_super_packet_becomes_its_datagrams() {
    for version in [Ip::V4, Ip::V6] {
        let data = payload(2500);
        let packet = udp_with(version, 1, &data);
        let header = header(&packet, GsoType::UdpL4, 1000);
        let packets = all(
            Segmenter::new(&header, &packet, 1048).unwrap(),
            ChecksumState::Full,
        );
        let start = version.header_bytes() + 8;
        let datagrams: Vec<&[u8]> = packets.iter().map(|packet| &packet[start..]).collect();
        assert_eq!(datagrams, [&data[..1000], &data[1000..2000], &data[2000..]]);
        assert!(packets.iter().all(|packet| checksum::verify(packet)));
        assert!(matches!(
            Segmenter::new(&header, &packet, 1000),
            Err(OffloadError::TooBig { .. })
        ));
    }
}

#[test]
fn partial_checksums_complete_to_the_full_ones() {
    for version in [Ip::V4, Ip::V6] {
        let tcp_packet = tcp_at(version, 1, 9, &payload(3001), tcp::ACK);
        let udp_packet = udp_with(version, 1, &payload(3001));
        for (packet, kind) in [(tcp_packet, tcp_kind(version)), (udp_packet, GsoType::UdpL4)] {
            let header = header(&packet, kind, 999);
            let segmenter = Segmenter::new(&header, &packet, 1500).unwrap();
            assert_eq!(
                segmenter.checksum_state(ChecksumState::Partial),
                ChecksumState::Partial
            );
            let full = all(segmenter.clone(), ChecksumState::Full);
            let mut partial = all(segmenter, ChecksumState::Partial);
            assert_ne!(full, partial);
            partial
                .iter_mut()
                .for_each(|packet| checksum::complete(packet).unwrap());
            assert_eq!(full, partial);
        }
    }
}

#[test]
fn a_single_packet_stays_as_it_is_but_for_its_checksum() {
    let full = udp(Ip::V4, 1, 100);
    let plain = VnetHeader::default();
    let segmenter = Segmenter::new(&plain, &full, 1500).unwrap();
    assert_eq!(
        segmenter.checksum_state(ChecksumState::Partial),
        ChecksumState::Full
    );
    assert_eq!(all(segmenter, ChecksumState::Partial), vec![full.clone()]);

    let needs = VnetHeader {
        gso: GsoType::None,
        ..header(&full, GsoType::None, 0)
    };
    let mut partial = full.clone();
    put_u16(&mut partial, 26, 0);
    let segmenter = Segmenter::new(&needs, &partial, 1500).unwrap();
    assert_eq!(all(segmenter.clone(), ChecksumState::Full), vec![full.clone()]);
    let mut completed = all(segmenter, ChecksumState::Partial).remove(0);
    checksum::complete(&mut completed).unwrap();
    assert_eq!(completed, full);
}

#[test]
fn a_partial_checksum_of_another_protocol_is_completed_where_the_header_says() {
    let mut packet = crate::test_packets::ip(Ip::V6, 47, &payload(64));
    put_u16(&mut packet, 40 + 16 + 6, 0x1111);
    let header = VnetHeader {
        needs_checksum: true,
        checksum_start: 40 + 16,
        checksum_offset: 6,
        ..VnetHeader::default()
    };
    let segmenter = Segmenter::new(&header, &packet, 1500).unwrap();
    assert_eq!(
        segmenter.checksum_state(ChecksumState::Partial),
        ChecksumState::Full
    );
    let completed = all(segmenter, ChecksumState::Partial).remove(0);
    let mut expected = packet.clone();
    let sum = !checksum::sum(&packet[56..]);
    put_u16(&mut expected, 62, sum);
    assert_eq!(completed, expected);
}

#[test]
fn udp_without_checksum_stays_without() {
    let mut packet = udp_with(Ip::V4, 1, &payload(200));
    put_u16(&mut packet, 26, 0);
    let header = VnetHeader {
        needs_checksum: false,
        ..header(&packet, GsoType::UdpL4, 100)
    };
    let segmenter = Segmenter::new(&header, &packet, 1500).unwrap();
    assert_eq!(
        segmenter.checksum_state(ChecksumState::Partial),
        ChecksumState::Full
    );
    for packet in all(segmenter, ChecksumState::Partial) {
        assert_eq!(u16_at(&packet, 26), 0);
    }
}

#[test]
fn ecn_bits_are_on_every_segment() {
    let mut packet = tcp_at(Ip::V4, 1, 0, &payload(300), tcp::ACK);
    ip::set_ecn(&mut packet, Ecn::Ect0);
    let header = header(&packet, GsoType::TcpV4, 100);
    let packets = all(
        Segmenter::new(&header, &packet, 1500).unwrap(),
        ChecksumState::Full,
    );
    assert!(
        packets
            .iter()
            .all(|packet| IpView::parse(packet).unwrap().ecn == Ecn::Ect0)
    );
}

#[test]
fn headers_that_do_not_fit_their_packet_are_refused() {
    let packet = tcp_at(Ip::V4, 1, 0, &payload(3000), tcp::ACK);
    let good = header(&packet, GsoType::TcpV4, 1000);
    let refused = |header: VnetHeader, packet: &[u8]| Segmenter::new(&header, packet, 1500).unwrap_err();
    let wrong_kind = |gso| refused(VnetHeader { gso, ..good }, &packet);
    assert!(matches!(
        wrong_kind(GsoType::TcpV6),
        OffloadError::WrongPacket { .. }
    ));
    assert!(matches!(
        wrong_kind(GsoType::UdpL4),
        OffloadError::WrongPacket { .. }
    ));
    let elsewhere = VnetHeader {
        checksum_offset: 6,
        ..good
    };
    assert!(matches!(
        refused(elsewhere, &packet),
        OffloadError::ChecksumField { .. }
    ));
    let beyond = VnetHeader {
        checksum_start: 3050,
        ..good
    };
    assert!(matches!(
        refused(beyond, &packet),
        OffloadError::ChecksumOutside { .. }
    ));
    let tiny = VnetHeader { gso_size: 7, ..good };
    assert!(matches!(refused(tiny, &packet), OffloadError::SegmentSize { .. }));
    assert!(matches!(
        refused(good, &packet[..packet.len() - 1]),
        OffloadError::Ip(_)
    ));
    let padded = [&packet[..], &[0]].concat();
    assert!(matches!(refused(good, &padded), OffloadError::Length { .. }));
    let mut fragment = packet.clone();
    fragment[6] = 0x20;
    assert!(matches!(
        refused(good, &fragment),
        OffloadError::WrongPacket { .. }
    ));
    let mut long_header = tcp_at(Ip::V4, 1, 0, &[], tcp::ACK);
    long_header[32] = 0xf0;
    assert!(matches!(
        refused(good, &long_header),
        OffloadError::WrongPacket { .. }
    ));
}

#[test]
fn udp_super_packets_with_a_wrong_length_or_too_many_datagrams_are_refused() {
    let mut packet = udp_with(Ip::V6, 1, &payload(1290));
    let many = header(&packet, GsoType::UdpL4, 10);
    assert!(matches!(
        Segmenter::new(&many, &packet, 1500),
        Err(OffloadError::SegmentSize { .. })
    ));
    let good = header(&packet, GsoType::UdpL4, 100);
    assert!(Segmenter::new(&good, &packet, 1500).is_ok());
    put_u16(&mut packet, 44, 1200);
    assert!(matches!(
        Segmenter::new(&good, &packet, 1500),
        Err(OffloadError::Length { .. })
    ));
}

#[test]
fn a_single_packet_beyond_the_mtu_is_refused_with_its_size() {
    let packet = udp(Ip::V4, 1, 1473);
    assert_eq!(
        Segmenter::new(&VnetHeader::default(), &packet, 1500).unwrap_err(),
        OffloadError::TooBig {
            bytes: 1501,
            mtu: 1500
        }
    );
}

proptest! {
    #[test]
    fn segments_join_to_the_payload_with_right_checksums(
        four: bool,
        is_tcp: bool,
        bytes in 1..60_000_usize,
        gso_size in 500..9000_usize,
        mtu in 600..9100_usize,
    ) {
        let version = if four { Ip::V4 } else { Ip::V6 };
        let data = payload(bytes);
        let (packet, kind, headers) = if is_tcp {
            (tcp_at(version, 1, 7, &data, tcp::ACK), tcp_kind(version), 32)
        } else {
            (udp_with(version, 1, &data), GsoType::UdpL4, 8)
        };
        let headers = headers + version.header_bytes();
        match Segmenter::new(&header(&packet, kind, gso_size), &packet, mtu) {
            Err(error) => prop_assert!(!is_tcp, "{error}"),
            Ok(segmenter) => {
                let size = segmenter.segment_bytes();
                let packets = all(segmenter, ChecksumState::Full);
                for (index, packet) in packets.iter().enumerate() {
                    prop_assert!(packet.len() <= mtu);
                    prop_assert!(index + 1 == packets.len() || packet.len() == size);
                    prop_assert!(checksum::verify(packet));
                }
                let joined: Vec<u8> = packets.iter().flat_map(|packet| &packet[headers..]).copied().collect();
                prop_assert_eq!(joined, data);
            }
        }
    }

    #[test]
    fn no_header_and_no_packet_make_segmentation_panic(
        fields: [u16; 4],
        near in 0..80_u16,
        kind in 0..4_usize,
        mut bytes in proptest::collection::vec(any::<u8>(), 20..400),
        shape in 0..3_usize,
        mtu in 0..2000_usize,
    ) {
        let length = bytes.len() as u16;
        match shape {
            0 => { bytes[0] = 0x45; put_u16(&mut bytes, 2, length); bytes[6] = 0; bytes[7] = 0; bytes[9] = 6; }
            1 if length >= 40 => { bytes[0] = 0x60; put_u16(&mut bytes, 4, length - 40); bytes[6] = 17; }
            _ => {}
        }
        let gso = [GsoType::None, GsoType::TcpV4, GsoType::TcpV6, GsoType::UdpL4][kind];
        let header = VnetHeader {
            needs_checksum: fields[0] & 1 == 1,
            gso,
            gso_size: fields[1] % 100,
            checksum_start: if fields[0] & 2 == 2 { near } else { fields[2] },
            checksum_offset: fields[3] % 40,
            ..VnetHeader::default()
        };
        if let Ok(segmenter) = Segmenter::new(&header, &bytes, mtu) {
            for packet in all(segmenter, ChecksumState::Full) {
                prop_assert!(packet.len() <= mtu && IpView::parse(&packet).is_ok());
            }
        }
    }
}
