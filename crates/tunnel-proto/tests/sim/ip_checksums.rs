//! The rules of specs/checksum.md at both ends: what goes in the context of unfinished checksums, and what may come in it.

use masque::datagram;
use masque::ip::{CHECKSUM_CONTEXT_ID, ClientId, Extensions, PACKET_CONTEXT_ID};
use packet::checksum::{self, ChecksumState};
use packet::ip::IpView;
use packet::vnet::VnetHeader;
use tunnel_proto::DropReason;

use crate::support::packets::{icmp_error, ip, pseudo_header, tcp, udp, unfinished};
use crate::support::{End, SECOND, Setup, World};
use crate::{ip_foreign, ip_hostile};

const OWN: &str = "10.99.0.7";
const FAR: &str = "198.51.100.9";

/// What stands in the checksum field of a TCP or UDP packet.
fn held(packet: &[u8]) -> u16 {
    let view = IpView::parse(packet).expect("tests look at whole packets");
    let field = if view.protocol == 6 { 16 } else { 6 };
    let transport = view.transport(packet);
    u16::from_be_bytes([transport[field], transport[field + 1]])
}

/// Makes the checksum of an IPv4 header right after a change.
fn with_header_sum(mut packet: Vec<u8>) -> Vec<u8> {
    packet[10..12].fill(0);
    let sum = !checksum::sum(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// A client with an address, at a foreign server that answered its offer with this context ID.
fn client_at(echoed: Option<u64>) -> World {
    let (mut world, stream) = ip_foreign::world();
    let extensions = Extensions {
        checksum: echoed,
        ..Extensions::default()
    };
    ip_foreign::accept(&mut world, stream, &extensions);
    ip_foreign::say_capsule(&mut world, stream, &ip_foreign::routes(&["0.0.0.0/0"]));
    ip_foreign::say_capsule(&mut world, stream, &ip_foreign::addresses(&["10.99.0.7/32"]));
    world
}

/// The context and the payload in which the server gets what the client's TUN gives.
fn arrives(world: &mut World, header: &VnetHeader, packet: &[u8]) -> (u64, Vec<u8>) {
    let (now, server) = (world.now(), world.server);
    let before = world.foreign(server).datagrams().len();
    world.client().send_packet(now, header, packet);
    world.run(SECOND);
    let datagrams = &world.foreign(server).datagrams()[before..];
    assert_eq!(datagrams.len(), 1);
    let view = datagram::decode(&datagrams[0]).expect("our datagrams are well-formed");
    (view.context_id, view.payload.to_vec())
}

/// CSUM-2, CSUM-3, CSUM-4: only the ID that was offered makes the context exist; without it the sender finishes.
#[test]
fn an_unfinished_checksum_stays_so_only_where_the_server_echoes_the_offer() {
    for (echoed, expected) in [
        (None, PACKET_CONTEXT_ID),
        (Some(CHECKSUM_CONTEXT_ID + 2), PACKET_CONTEXT_ID),
        (Some(CHECKSUM_CONTEXT_ID), CHECKSUM_CONTEXT_ID),
    ] {
        let mut world = client_at(echoed);
        for whole in [tcp(OWN, FAR, 500), udp(OWN, FAR, 500)] {
            let (header, packet) = unfinished(whole);
            let (context, payload) = arrives(&mut world, &header, &packet);
            assert_eq!(context, expected, "{echoed:?}");
            assert_eq!(
                held(&payload) == pseudo_header(&payload),
                echoed.is_some_and(|id| id == expected)
            );
            assert_eq!(checksum::verify(&payload), expected == PACKET_CONTEXT_ID);
            assert_eq!(
                checksum::sum(&payload[..20]),
                0xffff,
                "the IPv4 header is finished"
            );
        }
    }
}

/// CSUM-4.
#[test]
fn whatever_has_no_unfinished_checksum_goes_in_context_0() {
    let mut world = client_at(Some(CHECKSUM_CONTEXT_ID));
    let mut without_checksum = udp(OWN, FAR, 100);
    without_checksum[26..28].fill(0);
    let mut fragment = udp(OWN, FAR, 100);
    fragment[6] = 0x20;
    for packet in [
        tcp(OWN, FAR, 100),
        udp(OWN, FAR, 100),
        without_checksum,
        with_header_sum(fragment),
        ip(OWN, FAR, 1, 64, &[8, 0, 0xf7, 0xff, 0, 0, 0, 0]),
    ] {
        let (context, payload) = arrives(&mut world, &VnetHeader::default(), &packet);
        assert_eq!(context, PACKET_CONTEXT_ID, "{packet:?}");
        assert_eq!(payload[20..], packet[20..]);
    }
}

/// CSUM-4: fragments of specs/split.md carry finished checksums.
#[test]
fn a_packet_that_is_split_is_finished_first() {
    let mut world = World::with_server(Setup {
        ceiling: 1_232,
        ..Setup::default()
    });
    world.serve_ip(&["fd09::/64"], &["::/0"], false);
    world.client = world.add_ip_client(1, 7);
    world.run_until(20 * SECOND, |world| world.client().assignment().is_some());
    for (bytes, state) in [(600, ChecksumState::Partial), (1_280, ChecksumState::Full)] {
        let (header, packet) = unfinished(udp("fd09::2", "2001:db8::9", bytes));
        let now = world.now();
        world.client().send_packet(now, &header, &packet);
        world.run(SECOND);
        let packets = std::mem::take(&mut world.server().packets);
        assert_eq!((packets.len(), packets[0].1), (1, state), "{bytes}");
        assert_eq!(checksum::verify(&packets[0].0), state == ChecksumState::Full);
    }
}

/// CSUM-5: dropped and counted, and the request goes on.
#[test]
fn what_cannot_have_an_unfinished_checksum_is_dropped_in_its_context() {
    let mut world = World::with_server(Setup::default());
    let extensions = Extensions {
        client: Some(ClientId([1; 16])),
        split: Some(2),
        checksum: Some(4),
        ..Extensions::default()
    };
    let foreigner = ip_hostile::foreigner(&mut world, &extensions);
    let (_, good) = unfinished(udp("10.9.0.2", FAR, 100));
    let (_, good_v6) = unfinished(udp("fd09::2", "2001:db8::9", 100));
    let (_, good_tcp) = unfinished(tcp("10.9.0.2", FAR, 0));
    let changed = |packet: &[u8], at: usize, byte: u8| {
        let mut packet = packet.to_vec();
        packet[at] = byte;
        packet
    };
    let mut fragment_header = good_v6[..40].to_vec();
    fragment_header[5] += 8;
    fragment_header[6] = 44;
    fragment_header.extend([17, 0, 0, 1, 0, 0, 0, 1]);
    fragment_header.extend(&good_v6[40..]);
    let cut_tcp = changed(&good_tcp[..37], 3, 37);
    let cut_udp = changed(&good[..27], 3, 27);
    let bad = [
        vec![],
        good[..99].to_vec(),
        [&good[..], &[0]].concat(),
        changed(&good, 3, 99),
        with_header_sum(changed(&good, 6, 0x20)),
        with_header_sum(changed(&good, 7, 1)),
        fragment_header,
        with_header_sum(changed(&good, 9, 1)),
        with_header_sum(changed(&good, 9, 47)),
        with_header_sum(cut_tcp),
        with_header_sum(cut_udp),
        changed(&good, 25, 79),
        changed(&good, 25, 81),
    ];
    for (index, payload) in bad.iter().enumerate() {
        world
            .foreign(foreigner)
            .datagram(ip_hostile::datagram(4, payload));
        world.run(SECOND / 10);
        let dropped = world.server().egress_drops(DropReason::Malformed);
        assert_eq!(dropped, index as u64 + 1, "payload {index}");
    }
    assert!(world.server().packets.is_empty());
    for payload in [&good, &good_v6, &good_tcp] {
        world
            .foreign(foreigner)
            .datagram(ip_hostile::datagram(4, payload));
        world.run(SECOND / 10);
    }
    let packets = std::mem::take(&mut world.server().packets);
    assert_eq!(packets.len(), 3);
    assert!(packets.iter().all(|(_, state)| *state == ChecksumState::Partial));
}

/// CSUM-8: source and destination are checked as in context 0.
#[test]
fn addresses_are_checked_in_the_context_too() {
    let mut world = World::with_server(Setup::default());
    let extensions = Extensions {
        checksum: Some(4),
        ..Extensions::default()
    };
    let foreigner = ip_hostile::foreigner(&mut world, &extensions);
    for (source, destination, reason) in [
        ("10.9.0.3", FAR, DropReason::SourceSpoofed),
        ("10.9.0.2", "127.0.0.1", DropReason::PolicyDenied),
        ("10.9.0.2", "10.9.0.77", DropReason::PolicyDenied),
    ] {
        let (_, packet) = unfinished(udp(source, destination, 100));
        let before = world.server().egress_drops(reason);
        world
            .foreign(foreigner)
            .datagram(ip_hostile::datagram(4, &packet));
        world.run(SECOND / 10);
        assert_eq!(
            world.server().egress_drops(reason),
            before + 1,
            "{source} {destination}"
        );
    }
    assert!(world.server().packets.is_empty());
}

/// CSUM-8: the hop limit falls where the packet enters, and an ICMP error quotes it.
#[test]
fn the_hop_limit_falls_in_the_context_too() {
    let mut world = client_at(Some(CHECKSUM_CONTEXT_ID));
    let (header, packet) = unfinished(udp(OWN, FAR, 100));
    let (context, payload) = arrives(&mut world, &header, &packet);
    assert_eq!((context, payload[8]), (CHECKSUM_CONTEXT_ID, packet[8] - 1));
    let mut last_hop = packet;
    last_hop[8] = 1;
    let last_hop = with_header_sum(last_hop);
    let now = world.now();
    world.client().send_packet(now, &header, &last_hop);
    world.run(SECOND);
    let answers = std::mem::take(&mut world.client().packets);
    assert_eq!(answers.len(), 1);
    assert_eq!(icmp_error(&answers[0].0).map(|(kind, ..)| kind), Some(11));
    assert_eq!(answers[0].0[28..48], last_hop[..20]);
}
