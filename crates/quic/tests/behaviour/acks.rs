//! Acknowledgements: sparse for datagrams, prompt enough for streams.

use std::time::Duration;

use quic::{Direction, Profile};

use crate::support::{Link, Pair, Setup};

/// Sends `count` datagrams that fill a packet each; ACK frames that came back, and datagrams sent.
fn acks_of_datagrams(profile: Profile, count: u64) -> (u64, u64) {
    let link = Link {
        queue: Duration::from_secs(10),
        ..Link::default()
    };
    let (mut pair, client, _) = Pair::connected(Setup {
        profile,
        link,
        ..Setup::default()
    });
    let before = pair.client.endpoint.totals();
    let mut given = 0;
    while given < count {
        while given < count && pair.client.send_datagram(client, vec![1; 1_380]) {
            given += 1;
        }
        pair.drive(Duration::from_micros(500));
    }
    pair.drive(Duration::from_secs(1));
    let totals = pair.client.endpoint.totals();
    assert_eq!(pair.server.recorder.datagram_count, count);
    (
        totals.acks_received - before.acks_received,
        totals.datagrams_sent - before.datagrams_sent,
    )
}

#[test]
fn datagrams_one_way_are_acknowledged_sparsely() {
    let (acks, datagrams) = acks_of_datagrams(Profile::Throughput, 10_000);
    assert_eq!(datagrams, 10_000);
    assert!(acks <= 10_000 / 32, "{acks} ACK frames");
    assert!(
        acks >= 10_000 / 200,
        "{acks} ACK frames are too few to see losses"
    );
}

#[test]
fn the_latency_profile_acknowledges_more_often() {
    let (sparse, _) = acks_of_datagrams(Profile::Throughput, 4_000);
    let (dense, _) = acks_of_datagrams(Profile::Latency, 4_000);
    // A coalesced batch is acknowledged once, however many packets it has.
    assert!(
        dense >= 2 * sparse && dense <= 4_000 / 2,
        "{dense} against {sparse}"
    );
}

#[test]
fn stream_data_is_acknowledged_within_a_round_trip_and_the_acknowledgement_delay() {
    for (profile, delay) in [(Profile::Throughput, 2), (Profile::Latency, 1)] {
        let one_way = Duration::from_millis(5);
        let setup = Setup {
            profile,
            link: Link::with_delay(one_way),
            ..Setup::default()
        };
        let (mut pair, client, _) = Pair::connected(setup);
        for _ in 0..20 {
            pair.client.finished.clear();
            let stream = pair
                .client
                .endpoint
                .open_stream(client, Direction::Bidirectional)
                .unwrap();
            pair.client.endpoint.write(client, stream, &[1; 100]).unwrap();
            pair.client.endpoint.finish(client, stream);
            let written = pair.now;
            let (acknowledged, _) = pair.drive_until(Duration::from_secs(1), |pair| {
                pair.client.finished.first().copied()
            });
            let waited = acknowledged - written;
            assert!(
                waited <= 2 * one_way + Duration::from_millis(delay + 1),
                "{profile:?}: {waited:?}"
            );
            pair.drive(Duration::from_millis(73));
        }
    }
}

#[test]
fn losses_of_stream_data_are_found_within_few_round_trips() {
    let setup = Setup {
        link: Link::with_delay(Duration::from_millis(5)),
        ..Setup::default()
    };
    let (mut pair, client, server) = Pair::connected(setup);
    let stream = pair
        .client
        .endpoint
        .open_stream(client, Direction::Bidirectional)
        .unwrap();
    pair.link.loss_per_mille = [1_000, 0];
    pair.client.endpoint.write(client, stream, b"lost").unwrap();
    pair.client.endpoint.finish(client, stream);
    pair.drive(Duration::from_millis(1));
    pair.link.loss_per_mille = [0, 0];
    let lost = pair.now;
    let (found, _) = pair.drive_until(Duration::from_secs(1), |pair| {
        pair.client.finished.first().copied()
    });
    assert!(found - lost < Duration::from_millis(60), "{:?}", found - lost);
    assert_eq!(pair.server.streams[&(server, stream)], b"lost");
}
