//! Hostile datagrams: nothing panics, and living connections do not notice.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use packet::Ecn;
use proptest::prelude::*;
use quic::{Direction, Path};

use crate::front_door::wire::{self, Initial};
use crate::support::{Identity, Pair, Random, Setup, Side, client_endpoint, server_endpoint};

fn both_sides() -> [Side; 2] {
    let setup = Setup::default();
    let server = server_endpoint(&setup, &Identity::new(), [7; 64]);
    let client = client_endpoint(&setup, 1);
    [server, client].map(|endpoint| Side::new(endpoint, "198.51.100.1:443".parse().unwrap(), 1_452))
}

fn feed(sides: &mut [Side; 2], bytes: &[u8], segment_size: usize) {
    // tidy-allow(pure): first instant of virtual time
    let now = Instant::now();
    for side in sides {
        let path = Path {
            remote: "192.0.2.1:9".parse().unwrap(),
            local: None,
        };
        side.receive(now, path, Ecn::Ce, BytesMut::from(bytes), segment_size);
        side.work(now);
        let sent: usize = side.take_trains(now).iter().map(|train| train.bytes.len()).sum();
        // RFC 9000 section 8.1: at most three times what came.
        assert!(sent <= 3 * bytes.len().max(1), "{sent} bytes for {}", bytes.len());
    }
}

fn long_header(first: u8, version: u32, id_lengths: (u8, u8), rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xc0 | first];
    bytes.extend_from_slice(&version.to_be_bytes());
    for length in [id_lengths.0, id_lengths.1] {
        bytes.push(length);
        bytes.extend(std::iter::repeat_n(0xab, usize::from(length)));
    }
    bytes.extend_from_slice(rest);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn random_bytes_in_segments_of_any_size_are_harmless(
        bytes in proptest::collection::vec(any::<u8>(), 0..3_000),
        segment_size in 0_usize..4_000,
    ) {
        feed(&mut both_sides(), &bytes, segment_size);
    }

    #[test]
    fn long_headers_with_absurd_lengths_are_harmless(
        first in any::<u8>(),
        version in prop_oneof![Just(1_u32), Just(0), Just(0xff00_001d), any::<u32>()],
        id_lengths in any::<(u8, u8)>(),
        rest in proptest::collection::vec(any::<u8>(), 0..2_500),
        segment_size in prop_oneof![Just(0_usize), 1_usize..2_000],
    ) {
        feed(&mut both_sides(), &long_header(first, version, id_lengths, &rest), segment_size);
    }
}

/// The packets of a real handshake, and of some traffic after it.
fn real_packets() -> Vec<Vec<u8>> {
    let mut pair = Pair::new(Setup::default());
    pair.client.captured = Some(Vec::new());
    pair.server.captured = Some(Vec::new());
    let client = pair.connect();
    pair.drive(Duration::from_secs(1));
    let stream = pair
        .client
        .endpoint
        .open_stream(client, Direction::Bidirectional)
        .unwrap();
    pair.client.endpoint.write(client, stream, &[1; 5_000]).unwrap();
    pair.drive(Duration::from_secs(1));
    let mut packets = pair.client.captured.take().unwrap();
    packets.extend(pair.server.captured.take().unwrap());
    packets
}

#[test]
fn truncated_and_changed_packets_of_a_real_handshake_are_harmless() {
    let packets = real_packets();
    let mut sides = both_sides();
    let mut random = Random(3);
    for packet in &packets {
        for _ in 0..40 {
            let mut changed = packet.clone();
            changed.truncate(random.next() as usize % (packet.len() + 1));
            feed(&mut sides, &changed, 0);
            let mut changed = packet.clone();
            for _ in 0..1 + random.next() % 4 {
                let place = random.next() as usize % changed.len().min(60);
                changed[place] = random.next() as u8;
            }
            feed(&mut sides, &changed, random.next() as usize % 2_000);
        }
    }
}

#[test]
fn a_living_connection_does_not_notice_garbage() {
    let (mut pair, client, server) = Pair::connected(Setup::default());
    let mut random = Random(8);
    let packets = real_packets();
    for round in 0..2_000_usize {
        let garbage: Vec<u8> = match round % 3 {
            0 => (0..random.next() % 1_500).map(|_| random.next() as u8).collect(),
            1 => packets[random.next() as usize % packets.len()].clone(),
            _ => long_header(random.next() as u8, 1, (8, random.next() as u8), &[0xff; 1_200]),
        };
        let now = pair.now;
        for side in [&mut pair.client, &mut pair.server] {
            let path = Path {
                remote: "203.0.113.200:53".parse().unwrap(),
                local: None,
            };
            side.receive(now, path, Ecn::NotEct, BytesMut::from(&garbage[..]), 0);
        }
        pair.drive(Duration::from_millis(1));
    }
    pair.client.send_datagram(client, &b"alive"[..]);
    pair.server.send_datagram(server, &b"as well"[..]);
    pair.drive(Duration::from_secs(1));
    assert_eq!(pair.server.recorder.datagrams, [&b"alive"[..]]);
    assert_eq!(pair.client.recorder.datagrams, [&b"as well"[..]]);
    assert!(pair.client.closed.is_empty());
}

#[test]
fn duplicated_and_corrupted_packets_lose_nothing_but_themselves() {
    let (mut pair, client, server) = Pair::connected(Setup::default());
    pair.link.corrupt_per_mille = 50;
    let stream = pair
        .client
        .endpoint
        .open_stream(client, Direction::Bidirectional)
        .unwrap();
    let content = vec![0xc3; 200_000];
    assert_eq!(
        pair.client.endpoint.write(client, stream, &content).unwrap(),
        content.len()
    );
    for index in 0..400_u32 {
        pair.client.send_datagram(client, vec![0x11; 1 + index as usize]);
    }
    pair.drive(Duration::from_secs(20));
    assert!(pair.server.streams[&(server, stream)] == content);
    assert!(
        pair.server
            .recorder
            .datagrams
            .iter()
            .all(|datagram| datagram.iter().all(|byte| *byte == 0x11))
    );
}

/// One whose first packets nobody answers.
fn unanswered() -> Pair {
    let mut pair = Pair::new(Setup::default());
    pair.client.captured = Some(Vec::new());
    pair.connect();
    pair
}

/// When the client gives that up.
fn given_up_after() -> Duration {
    let mut pair = unanswered();
    pair.link.loss_per_mille = [1_000, 1_000];
    let at = pair.drive_until(Duration::from_secs(120), |pair| {
        pair.client.closed.first().map(|(at, _)| *at)
    });
    at - pair.start
}

#[test]
fn an_illegal_packet_that_comes_with_the_end_of_a_connection_does_not_keep_it() {
    let mut pair = unanswered();
    let ends = pair.start + given_up_after();
    let mut now = pair.start;
    while now < ends {
        pair.client.work(now);
        pair.client.take_trains(now);
        let (due, _) = pair.client.endpoint.poll_timeout().unwrap();
        now = due.max(now);
    }
    pair.client.endpoint.handle_timeout(now);
    let first = pair.client.captured.as_ref().unwrap().first().unwrap();
    let illegal = wire::illegal_answer(&Initial::open(first).unwrap());
    let path = Path {
        remote: pair.server.address,
        local: None,
    };
    pair.client
        .receive(now, path, Ecn::NotEct, BytesMut::from(&illegal[..]), 0);
    pair.client.work(now);
    assert_eq!(pair.client.closed.len(), 1);
    assert_eq!(pair.client.endpoint.open_connections(), 0);
}
