//! What is joined, what is not, and that nothing is lost or overtaken.

use bytes::BytesMut;
use proptest::prelude::*;

use super::*;
use crate::ip::{V4_FLAGS, V4_ID};
use crate::segmentation::Segmenter;
use crate::test_packets::{Ip, ip as packet_of, payload, tcp_at, udp, udp_with};
use crate::transport::tcp;
use crate::vnet::GsoType;
use crate::wire::put_u16;

/// What comes out: header, bytes and count of each.
type Drained = Vec<(VnetHeader, Vec<u8>, usize)>;

fn drained(coalescer: &mut Coalescer) -> Drained {
    let mut all = Vec::new();
    coalescer.drain(|packet| all.push((packet.header, packet.bytes.to_vec(), packet.packets)));
    all
}

fn coalesced(packets: &[Vec<u8>]) -> Drained {
    let mut coalescer = Coalescer::default();
    for packet in packets {
        coalescer.push(packet, ChecksumState::Full).unwrap();
    }
    drained(&mut coalescer)
}

fn counts(drained: &Drained) -> Vec<usize> {
    drained.iter().map(|(_, _, packets)| *packets).collect()
}

/// Segments of 100 bytes with the flags given, in sequence.
fn run(version: Ip, flags: &[u8]) -> Vec<Vec<u8>> {
    let segment =
        |(index, flags): (usize, &u8)| tcp_at(version, 1, 1000 + 100 * index as u32, &payload(100), *flags);
    flags.iter().enumerate().map(segment).collect()
}

fn segmented(header: &VnetHeader, packet: &[u8], wanted: ChecksumState) -> Vec<Vec<u8>> {
    let mut segmenter = Segmenter::new(header, packet, 65_575).unwrap();
    let mut out = BytesMut::new();
    let mut packets = Vec::new();
    while segmenter.next_into(&mut out, wanted).is_some() {
        packets.push(out.split().to_vec());
    }
    packets
}

#[test]
fn segments_in_sequence_become_one_super_packet() {
    for (version, kind) in [(Ip::V4, GsoType::TcpV4), (Ip::V6, GsoType::TcpV6)] {
        let packets = run(version, &[tcp::ACK, tcp::ACK, tcp::ACK | tcp::PSH]);
        let all = coalesced(&packets);
        let (header, bytes, count) = &all[0];
        let start = version.header_bytes() as u16;
        assert_eq!((all.len(), *count), (1, 3));
        assert_eq!(
            *header,
            VnetHeader {
                needs_checksum: true,
                gso: kind,
                ecn: false,
                header_bytes: start + 32,
                gso_size: 100,
                checksum_start: start,
                checksum_offset: 16,
            }
        );
        assert_eq!(IpView::parse(bytes).unwrap().total_bytes, bytes.len());
        assert_eq!(bytes.len(), version.header_bytes() + 32 + 300);
        assert_eq!(bytes[version.header_bytes() + 13], tcp::ACK | tcp::PSH);
    }
}

#[test]
fn datagrams_of_equal_size_become_one_super_packet_that_a_shorter_one_closes() {
    for version in [Ip::V4, Ip::V6] {
        let sizes = [200, 200, 50, 200, 200];
        let all = coalesced(&sizes.map(|size| udp(version, 1, size)));
        assert_eq!(counts(&all), [3, 2]);
        assert_eq!(all[0].0.gso, GsoType::UdpL4);
        assert_eq!(all[0].0.gso_size, 200);
        assert_eq!(all[0].1.len(), version.header_bytes() + 8 + 450);
    }
}

#[test]
fn a_larger_datagram_starts_a_super_packet_of_its_own() {
    assert_eq!(
        counts(&coalesced(&[100, 101, 101].map(|size| udp(Ip::V4, 1, size)))),
        [1, 2]
    );
    assert_eq!(
        counts(&coalesced(&[100, 0, 100].map(|size| udp(Ip::V4, 1, size)))),
        [1, 1, 1]
    );
}

#[test]
fn flows_that_alternate_are_joined_each_for_itself() {
    let mut packets = Vec::new();
    for index in 0..10 {
        for flow in 0..8 {
            packets.push(tcp_at(Ip::V6, flow, 100 * index, &payload(100), tcp::ACK));
            packets.push(udp(Ip::V4, flow, 300));
        }
    }
    let all = coalesced(&packets);
    assert_eq!(all.iter().map(|(_, _, packets)| packets).sum::<usize>(), 160);
    // Sixteen flows in 256 buckets: at most a few collide.
    assert!(all.len() <= 16 + 2 * 10, "{} super-packets", all.len());
}

#[test]
fn a_gap_or_a_repetition_starts_anew() {
    let mut packets = run(Ip::V4, &[tcp::ACK; 5]);
    packets.remove(2);
    assert_eq!(counts(&coalesced(&packets)), [2, 2]);
    let packets = run(Ip::V4, &[tcp::ACK; 2]);
    let twice = [packets.clone(), packets].concat();
    assert_eq!(counts(&coalesced(&twice)), [2, 2]);
}

#[test]
fn every_header_field_that_must_agree_parts_two_packets() {
    // TOS, TTL; acknowledgement, reserved bits, window, urgent pointer, timestamp.
    for changed in [1, 8, 20 + 11, 20 + 12, 20 + 15, 20 + 19, 20 + 25] {
        let mut packets = run(Ip::V4, &[tcp::ACK; 2]);
        packets[1][changed] ^= 1;
        let mut packet = packet_of(Ip::V4, 6, &packets[1][20..]);
        let total = packet.len();
        packet[..20].copy_from_slice(&packets[1][..20]);
        ip::set_total_bytes(&mut packet, IpVersion::V4, 20, total);
        assert_eq!(
            counts(&coalesced(&[packets.remove(0), packet])),
            [1, 1],
            "byte {changed}"
        );
    }
    // Traffic class, flow label, hop limit.
    for changed in [1, 3, 7] {
        let mut packets = run(Ip::V6, &[tcp::ACK; 2]);
        packets[1][changed] ^= 0x10;
        assert_eq!(counts(&coalesced(&packets)), [1, 1], "byte {changed}");
    }
}

#[test]
fn flags_that_mean_something_travel_alone() {
    for flags in [tcp::SYN, tcp::ACK | 0x04, tcp::ACK | 0x20, tcp::ACK | 0x40, 0] {
        assert_eq!(
            counts(&coalesced(&run(Ip::V4, &[tcp::ACK, flags, tcp::ACK]))),
            [1, 1, 1],
            "{flags:#x}"
        );
    }
    let packets = run(
        Ip::V4,
        &[tcp::ACK, tcp::ACK | tcp::PSH, tcp::ACK, tcp::ACK | tcp::FIN],
    );
    assert_eq!(counts(&coalesced(&packets)), [2, 2]);
}

#[test]
fn what_is_joined_can_be_taken_apart_again_so_tiny_segments_travel_alone() {
    let stream = |bytes: usize| -> Vec<Vec<u8>> {
        let segment = |index| tcp_at(Ip::V4, 1, index * bytes as u32, &payload(bytes), tcp::ACK);
        (0..5).map(segment).collect()
    };
    assert_eq!(counts(&coalesced(&stream(7))), [1; 5]);
    let all = coalesced(&stream(8));
    assert_eq!(counts(&all), [5]);
    assert_eq!(segmented(&all[0].0, &all[0].1, ChecksumState::Full).len(), 5);
}

/// RFC 3168 section 6.1.2.
#[test]
fn cwr_is_on_the_first_segment_of_a_super_packet_only() {
    let cwr = tcp::ACK | tcp::CWR;
    let all = coalesced(&run(Ip::V4, &[tcp::ACK, cwr, tcp::ACK, cwr]));
    assert_eq!(counts(&all), [1, 2, 1]);
    assert!(all[1].0.ecn);
    let restored = segmented(&all[1].0, &all[1].1, ChecksumState::Full);
    assert_eq!([restored[0][33], restored[1][33]], [cwr, tcp::ACK]);
}

/// CSUM-8: only verified checksums are joined.
#[test]
fn a_wrong_checksum_is_not_made_right() {
    for broken in [0, 1, 2] {
        for version in [Ip::V4, Ip::V6] {
            for mut packets in [
                run(version, &[tcp::ACK; 3]),
                vec![udp(version, 1, 100), udp(version, 1, 100), udp(version, 1, 100)],
            ] {
                *packets[broken].last_mut().unwrap() ^= 1;
                let wrong = packets[broken].clone();
                let all = coalesced(&packets);
                let (header, bytes, _) = all
                    .iter()
                    .find(|(_, bytes, _)| *bytes == wrong)
                    .expect("the wrong packet passes as it is");
                assert_eq!(*header, VnetHeader::default());
                assert!(!checksum::verify(bytes));
            }
        }
    }
    let mut packets = run(Ip::V4, &[tcp::ACK; 2]);
    packets[0][10] ^= 1;
    assert_eq!(counts(&coalesced(&packets)), [1, 1]);
}

/// CSUM-6, CSUM-8: the offsets are those of this packet's header.
#[test]
fn a_partial_checksum_that_is_not_the_pseudo_header_is_not_joined() {
    let packets = run(Ip::V4, &[tcp::ACK; 2]);
    let mut coalescer = Coalescer::default();
    for packet in &packets {
        // These are full.
        coalescer.push(packet, ChecksumState::Partial).unwrap();
    }
    let all = drained(&mut coalescer);
    assert_eq!(counts(&all), [1, 1]);
    assert!(all[0].0.needs_checksum);
    assert_eq!((all[0].0.checksum_start, all[0].0.checksum_offset), (20, 16));
}

/// RFC 768: zero says "none", and a super-packet has one.
#[test]
fn udp_without_checksum_is_not_joined() {
    let mut packet = udp(Ip::V4, 1, 100);
    packet[26..28].fill(0);
    assert_eq!(counts(&coalesced(&[packet.clone(), packet])), [1, 1]);
}

/// RFC 6864 section 4.1.
#[test]
fn the_ip_id_must_count_on_where_fragmentation_is_allowed() {
    let with_id = |id, flags| {
        let mut packet = udp(Ip::V4, 1, 100);
        packet[6] = flags;
        put_u16(&mut packet, V4_ID, id);
        ip::set_total_bytes(&mut packet, IpVersion::V4, 20, 128);
        packet
    };
    assert_eq!(counts(&coalesced(&[9, 10, 12].map(|id| with_id(id, 0)))), [2, 1]);
    assert_eq!(counts(&coalesced(&[9, 4, 9].map(|id| with_id(id, 0x40)))), [3]);
}

#[test]
fn a_fragment_is_not_overtaken_by_its_flow() {
    let mut fragment = udp(Ip::V4, 1, 104);
    fragment[6] = 0x20;
    let packets = [udp(Ip::V4, 1, 100), fragment.clone(), udp(Ip::V4, 1, 100)];
    let all = coalesced(&packets);
    assert_eq!(counts(&all), [1, 1, 1]);
    assert_eq!(all[1].1, fragment);
}

#[test]
fn other_protocols_pass_unchanged_and_in_order() {
    let echo = packet_of(Ip::V4, 1, &[8, 0, 1, 2, 3, 4, 5, 6]);
    let packets = [
        udp(Ip::V4, 1, 100),
        echo.clone(),
        udp(Ip::V4, 1, 100),
        echo.clone(),
    ];
    let all = coalesced(&packets);
    assert_eq!(counts(&all), [2, 1, 1]);
    assert_eq!((all[1].0, &all[1].1), (VnetHeader::default(), &echo));
    let mut coalescer = Coalescer::default();
    assert_eq!(
        coalescer.push(&echo, ChecksumState::Partial),
        Err(PushError::NoChecksumField { protocol: 1 })
    );
    assert!(matches!(
        coalescer.push(&[0x12], ChecksumState::Full),
        Err(PushError::Ip(_))
    ));
    assert!(coalescer.is_empty());
}

#[test]
fn super_packets_end_at_their_bounds() {
    let all = coalesced(&vec![udp(Ip::V6, 1, 100); 100]);
    assert_eq!(counts(&all), [64, 36]);
    let all = coalesced(&vec![udp(Ip::V4, 1, 1400); 100]);
    assert_eq!(counts(&all), [46, 46, 8]);
    let segments: Vec<_> = (0..60)
        .map(|index| tcp_at(Ip::V4, 1, index * 1400, &payload(1400), tcp::ACK))
        .collect();
    let all = coalesced(&segments);
    assert_eq!(counts(&all), [46, 14]);
    assert!(all[0].1.len() <= limits::IP_PACKET_BYTES_MAX);
}

#[test]
fn a_full_coalescer_refuses_until_it_is_drained() {
    let mut coalescer = Coalescer::default();
    let large = udp(Ip::V4, 1, 60_000);
    let mut taken = 0;
    while coalescer.push(&large, ChecksumState::Full).is_ok() {
        taken += 1;
    }
    assert_eq!(taken, limits::COALESCE_BYTES_MAX / large.len());
    assert_eq!(drained(&mut coalescer).len(), taken);
    for flow in 0..limits::COALESCE_ENTRIES_MAX as u16 {
        coalescer
            .push(&udp(Ip::V4, flow, 0), ChecksumState::Full)
            .unwrap();
    }
    assert_eq!(
        coalescer.push(&udp(Ip::V4, 99, 0), ChecksumState::Full),
        Err(PushError::Full)
    );
    assert_eq!(drained(&mut coalescer).len(), limits::COALESCE_ENTRIES_MAX);
    assert!(coalescer.is_empty());
}

#[test]
fn rules_switch_off_what_the_kernel_lacks() {
    let mut coalescer = Coalescer::new(MergeRules {
        tcp: false,
        udp_datagrams_max: 3,
    });
    let packets = [run(Ip::V4, &[tcp::ACK; 2]), vec![udp(Ip::V4, 1, 10); 4]].concat();
    let push_all = |coalescer: &mut Coalescer| {
        for packet in &packets {
            coalescer.push(packet, ChecksumState::Full).unwrap();
        }
        counts(&drained(coalescer))
    };
    assert_eq!(push_all(&mut coalescer), [1, 1, 3, 1]);
    coalescer.set_rules(MergeRules {
        tcp: true,
        udp_datagrams_max: 1,
    });
    assert_eq!(push_all(&mut coalescer), [2, 1, 1, 1, 1]);
}

proptest! {
    #[test]
    fn a_super_packet_taken_apart_and_joined_again_is_the_same(
        four: bool,
        is_tcp: bool,
        partial: bool,
        bytes in 1..65_000_usize,
        gso_size in 1_100..9_000_usize,
        end_flags in 0..4_usize,
        cwr: bool,
    ) {
        let version = if four { Ip::V4 } else { Ip::V6 };
        let data = payload(bytes);
        let flags = tcp::ACK | [0, tcp::PSH, tcp::FIN, tcp::PSH | tcp::FIN][end_flags] | if cwr { tcp::CWR } else { 0 };
        let (packet, gso) = match (is_tcp, version) {
            (true, Ip::V4) => (tcp_at(version, 1, u32::MAX - 20_000, &data, flags), GsoType::TcpV4),
            (true, Ip::V6) => (tcp_at(version, 1, u32::MAX - 20_000, &data, flags), GsoType::TcpV6),
            (false, _) => (udp_with(version, 1, &data), GsoType::UdpL4),
        };
        let state = if partial { ChecksumState::Partial } else { ChecksumState::Full };
        let start = version.header_bytes();
        let field = if is_tcp { 16 } else { 6 };
        let header = VnetHeader {
            needs_checksum: true,
            gso,
            ecn: is_tcp && cwr,
            header_bytes: (start + if is_tcp { 32 } else { 8 }) as u16,
            gso_size: gso_size as u16,
            checksum_start: start as u16,
            checksum_offset: field as u16,
        };
        let packets = segmented(&header, &packet, state);
        let mut coalescer = Coalescer::default();
        for packet in &packets {
            coalescer.push(packet, state).unwrap();
        }
        let all = drained(&mut coalescer);
        prop_assert_eq!(counts(&all), [packets.len()]);
        if packets.len() == 1 {
            prop_assert_eq!(&all[0].1, &packets[0]);
        } else {
            prop_assert_eq!(all[0].0, header);
            // Equal but for the checksum field, which is partial.
            prop_assert_eq!(&all[0].1[..start + field], &packet[..start + field]);
            prop_assert_eq!(&all[0].1[start + field + 2..], &packet[start + field + 2..]);
            prop_assert_eq!(segmented(&all[0].0, &all[0].1, state), packets);
        }
    }

    #[test]
    fn nothing_is_lost_and_no_flow_is_reordered(picks in proptest::collection::vec((0..6_u16, 0..4_usize, any::<bool>()), 1..60)) {
        let mut sequences = [0_u32; 6];
        let mut packets = Vec::new();
        for (flow, size, is_tcp) in picks {
            let data = payload([0, 50, 100, 100][size]);
            packets.push(if is_tcp {
                let sequence = sequences[usize::from(flow)];
                sequences[usize::from(flow)] += data.len() as u32;
                tcp_at(Ip::V4, flow, sequence, &data, tcp::ACK)
            } else {
                udp_with(Ip::V6, flow, &data)
            });
        }
        let restored: Vec<Vec<u8>> = coalesced(&packets)
            .iter()
            .flat_map(|(header, bytes, count)| {
                let packets = segmented(header, bytes, ChecksumState::Full);
                assert_eq!(packets.len(), *count);
                packets
            })
            .collect();
        prop_assert_eq!(restored.len(), packets.len());
        let flow_of = |packet: &Vec<u8>| ip::flow_key(&IpView::parse(packet).unwrap(), packet);
        for flow in &packets {
            let of_flow = |all: &[Vec<u8>]| -> Vec<Vec<u8>> {
                all.iter().filter(|packet| flow_of(packet) == flow_of(flow)).map(|packet| {
                    let mut packet = packet.clone();
                    if packet[0] == 0x45 {
                        // DF is set: the ID and with it the header checksum have no meaning.
                        packet[V4_ID..V4_FLAGS].fill(0);
                        packet[ip::V4_CHECKSUM..ip::V4_SOURCE].fill(0);
                    }
                    packet
                }).collect()
            };
            prop_assert_eq!(of_flow(&restored), of_flow(&packets));
        }
    }

    #[test]
    fn no_bytes_make_the_coalescer_panic(packets in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 1..120), 0..4_u8, any::<bool>()), 1..20)) {
        let mut coalescer = Coalescer::default();
        let mut taken = 0;
        for (mut bytes, shape, partial) in packets {
            let length = bytes.len() as u16;
            match shape {
                0 if length > 20 => { bytes[0] = 0x45; put_u16(&mut bytes, 2, length); bytes[6] = 0x40; bytes[7] = 0; bytes[9] = 6; }
                1 if length > 20 => { bytes[0] = 0x45; put_u16(&mut bytes, 2, length); bytes[6] = 0x40; bytes[7] = 0; bytes[9] = 17; }
                2 if length > 40 => { bytes[0] = 0x60; put_u16(&mut bytes, 4, length - 40); bytes[6] = 6; }
                _ => {}
            }
            let state = if partial { ChecksumState::Partial } else { ChecksumState::Full };
            taken += usize::from(coalescer.push(&bytes, state).is_ok());
        }
        let all = drained(&mut coalescer);
        prop_assert_eq!(counts(&all).iter().sum::<usize>(), taken);
    }
}
