//! Nothing is dropped silently, and trains have the shape that one GSO send takes.

use std::time::Duration;

use bytes::Bytes;
use packet::{TRAIN_SEGMENTS_MAX, UDP_PAYLOAD_MAX};
use quic::Direction;

use crate::support::{Link, Pair, Random, Setup, Side};

fn assert_trains_have_their_shape(side: &Side) {
    for sent in &side.sent {
        assert!(
            sent.segment_size > 0 && sent.segment_size <= sent.bytes,
            "{sent:?}"
        );
        assert!(sent.bytes <= UDP_PAYLOAD_MAX, "{sent:?}");
        assert!(
            sent.bytes.div_ceil(sent.segment_size) <= TRAIN_SEGMENTS_MAX,
            "{sent:?}"
        );
    }
    let segments: usize = side
        .sent
        .iter()
        .map(|sent| sent.bytes.div_ceil(sent.segment_size))
        .sum();
    assert_eq!(
        segments as u64,
        side.endpoint.totals().packets_sent,
        "every segment is one packet"
    );
}

#[test]
fn nothing_is_dropped_silently_at_any_time_under_random_loss_and_sizes() {
    for seed in 1..=6 {
        let ceiling = [1_452, 1_452, 9_000, 65_507, 1_200, 1_500][seed as usize - 1];
        let loss_per_mille =
            [[0, 0], [20, 20], [100, 10], [50, 50], [10, 200], [300, 300]][seed as usize - 1];
        let (mut pair, client, server) = Pair::connected(Setup {
            ceiling,
            seed,
            link: Link::with_delay(Duration::from_millis(5)),
            ..Setup::default()
        });
        pair.link.loss_per_mille = loss_per_mille;
        let mut random = Random(seed);
        for _ in 0..400 {
            for _ in 0..random.next() % 100 {
                let size = match random.next() % 4 {
                    0 => random.next() as usize % 40,
                    1 => random.next() as usize % (2 * usize::from(ceiling)),
                    2 => usize::from(ceiling) - 60,
                    _ => 1_150,
                };
                pair.client.send_datagram(client, vec![1; size]);
                pair.server.send_datagram(server, vec![2; size / 2]);
            }
            pair.drive(Duration::from_micros(random.next() % 5_000));
            pair.client.assert_every_datagram_is_accounted_for();
            pair.server.assert_every_datagram_is_accounted_for();
        }
        assert_trains_have_their_shape(&pair.client);
        assert_trains_have_their_shape(&pair.server);
        // Whatever is still inside leaves or is given up when the connection ends.
        let now = pair.now;
        pair.client.endpoint.close(now, client, 0, b"");
        pair.drive(Duration::from_secs(10));
        assert_eq!(
            (
                pair.client.endpoint.datagrams_held(),
                pair.server.endpoint.datagrams_held()
            ),
            (0, 0)
        );
        pair.client.assert_every_datagram_is_accounted_for();
        pair.server.assert_every_datagram_is_accounted_for();
        let arrived = pair.server.recorder.datagram_count;
        assert!(arrived > 0 && arrived <= pair.client.endpoint.totals().datagrams_sent);
        assert_eq!(
            arrived,
            pair.server.endpoint.totals().datagrams_received,
            "each received frame is given out"
        );
    }
}

#[test]
fn datagrams_arrive_unchanged_and_in_order_on_a_clean_path() {
    let (mut pair, client, _) = Pair::connected(Setup::default());
    let mut random = Random(5);
    let mut given = Vec::new();
    for round in 0..100_u32 {
        for index in 0..50_u32 {
            let mut datagram = vec![0; 8 + random.next() as usize % 1_350];
            datagram[..4].copy_from_slice(&round.to_be_bytes());
            datagram[4..8].copy_from_slice(&index.to_be_bytes());
            let datagram = Bytes::from(datagram);
            assert!(pair.client.send_datagram(client, datagram.clone()));
            given.push(datagram);
        }
        pair.drive(Duration::from_millis(10));
    }
    pair.drive(Duration::from_secs(1));
    assert!(pair.server.recorder.datagrams == given);
}

#[test]
fn a_connection_that_ends_gives_its_datagrams_back_as_dropped() {
    let (mut pair, client, _) = Pair::connected(Setup::default());
    // Sizes that end each other's trains: one flush does not send all that it handed over.
    for index in 0..400 {
        pair.client
            .send_datagram(client, vec![0; if index % 2 == 0 { 300 } else { 1_150 }]);
    }
    let Side {
        endpoint,
        source,
        outbox,
        ..
    } = &mut pair.client;
    endpoint.flush(pair.now, source, outbox);
    assert!(
        endpoint.datagrams_held() > 0,
        "quinn-proto holds a part of a train"
    );
    endpoint.close(pair.now, client, 0, b"");
    pair.drive(Duration::from_secs(5));
    assert!(pair.client.datagrams_dropped > 0);
    pair.client.assert_every_datagram_is_accounted_for();
}

#[test]
fn trains_never_exceed_what_one_send_takes_and_are_long_under_load() {
    for (ceiling, size) in [
        (1_200, 1_100),
        (1_452, 1_150),
        (9_000, 300),
        (9_000, 8_900),
        (65_507, 60_000),
        (1_452, 3),
    ] {
        let (mut pair, client, _) = Pair::connected(Setup {
            ceiling,
            ..Setup::default()
        });
        pair.client.sent.clear();
        let before = pair.client.endpoint.totals();
        pair.client.saturate(client, Some(size));
        let stream = pair
            .client
            .endpoint
            .open_stream(client, Direction::Bidirectional)
            .unwrap();
        pair.client.bulk = Some((client, stream));
        pair.drive(Duration::from_millis(300));
        let mut longest = 0;
        for sent in &pair.client.sent {
            assert!(
                sent.bytes <= UDP_PAYLOAD_MAX && sent.segment_size <= sent.bytes,
                "{sent:?}"
            );
            let segments = sent.bytes.div_ceil(sent.segment_size);
            assert!(segments <= TRAIN_SEGMENTS_MAX, "{sent:?}");
            longest = longest.max(segments);
        }
        let possible = TRAIN_SEGMENTS_MAX.min(UDP_PAYLOAD_MAX / usize::from(ceiling));
        assert!(
            longest * 4 >= possible * 3,
            "{longest} of {possible} segments with datagrams of {size}"
        );
        let totals = pair.client.endpoint.totals();
        let segments: usize = pair
            .client
            .sent
            .iter()
            .map(|sent| sent.bytes.div_ceil(sent.segment_size))
            .sum();
        assert_eq!(segments as u64, totals.packets_sent - before.packets_sent);
        assert_eq!(
            pair.client.sent.len() as u64,
            totals.trains_sent - before.trains_sent
        );
    }
}

#[test]
fn unread_streams_do_not_corrupt_anything_while_packets_are_copied_out_of_their_batches() {
    let (mut pair, client, server) = Pair::connected(Setup::default());
    let content: Vec<u8> = (0..300_000_u32)
        .map(|index| (index ^ (index >> 8)) as u8)
        .collect();
    pair.server.reads = false;
    pair.server.endpoint.set_standing_readers(server, 1);
    let stream = pair
        .client
        .endpoint
        .open_stream(client, Direction::Bidirectional)
        .unwrap();
    assert_eq!(
        pair.client.endpoint.write(client, stream, &content).unwrap(),
        content.len()
    );
    pair.client.endpoint.finish(client, stream);
    let mut given = Vec::new();
    for index in 0..400_u32 {
        let datagram = Bytes::from(vec![index as u8; 1 + index as usize * 3]);
        given.push(datagram.clone());
        assert!(pair.client.send_datagram(client, datagram));
    }
    pair.drive(Duration::from_secs(1));
    assert!(pair.server.recorder.datagrams == given);
    assert_eq!(pair.server.stream_bytes, 0);
    pair.server.endpoint.set_standing_readers(server, 0);
    pair.server.read_all(server, stream);
    pair.drive(Duration::from_secs(1));
    assert!(pair.server.streams[&(server, stream)] == content);
    assert_eq!(pair.server.ended_streams, [stream]);
}
