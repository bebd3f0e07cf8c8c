//! Streams and datagrams beside each other: neither starves the other.

use std::time::Duration;

use packet::limits::TURN_BYTES;
use quic::{Direction, Outbox, Profile};

use crate::support::{Link, Pair, Setup};

const SECOND: Duration = Duration::from_secs(1);

/// Packets of datagrams and of streams, bytes of both as they arrived.
#[derive(Debug)]
struct Shares {
    datagrams: u64,
    stream_frames: u64,
    datagram_bytes: u64,
    stream_bytes: u64,
}

fn shares(setup: Setup, link: Link, size: Option<usize>, duration: Duration) -> Shares {
    let (mut pair, client, _) = Pair::connected(setup);
    pair.link = link;
    let stream = pair
        .client
        .endpoint
        .open_stream(client, Direction::Bidirectional)
        .unwrap();
    pair.client.bulk = Some((client, stream));
    pair.client.saturate(client, size);
    // The start is not the steady state.
    pair.drive(duration / 4);
    let sent = pair.client.endpoint.totals();
    let (datagram_bytes, stream_bytes) = (pair.server.recorder.datagram_bytes, pair.server.stream_bytes);
    pair.drive(duration);
    let totals = pair.client.endpoint.totals();
    pair.client.assert_every_datagram_is_accounted_for();
    Shares {
        datagrams: totals.datagrams_sent - sent.datagrams_sent,
        stream_frames: totals.stream_frames_sent - sent.stream_frames_sent,
        datagram_bytes: pair.server.recorder.datagram_bytes - datagram_bytes,
        stream_bytes: pair.server.stream_bytes - stream_bytes,
    }
}

/// With datagrams of the largest size, every datagram and every STREAM frame is a packet of its own.
fn assert_fair_in_packets(shares: &Shares) {
    let packets = shares.datagrams + shares.stream_frames;
    assert!(
        shares.stream_frames * 100 >= packets * 24,
        "streams have less than a quarter: {shares:?}"
    );
    assert!(
        shares.datagrams * 100 >= packets * 24,
        "datagrams starve: {shares:?}"
    );
}

#[test]
fn streams_keep_a_quarter_of_the_packets_beside_saturated_datagrams_on_an_open_path() {
    let link = Link::with_delay(Duration::from_micros(200));
    let shares = shares(
        Setup {
            link: link.clone(),
            ..Setup::default()
        },
        link,
        None,
        SECOND / 4,
    );
    assert!(shares.datagrams > 2_000, "{shares:?}");
    assert_fair_in_packets(&shares);
}

#[test]
fn streams_keep_a_quarter_of_the_packets_where_congestion_control_limits_them() {
    let link = Link::with_delay(Duration::from_millis(10));
    let setup = Setup {
        link: link.clone(),
        ..Setup::default()
    };
    for loss in [2, 10, 30] {
        let shares = shares(
            setup.clone(),
            Link {
                loss_per_mille: [loss, 0],
                ..link.clone()
            },
            None,
            20 * SECOND,
        );
        assert!(shares.datagrams + shares.stream_frames > 1_000, "{shares:?}");
        assert_fair_in_packets(&shares);
    }
}

#[test]
fn streams_keep_a_quarter_of_the_packets_on_a_slow_link_with_a_queue() {
    let link = Link {
        bits_per_second: 20_000_000,
        ..Link::with_delay(Duration::from_millis(10))
    };
    let setup = Setup {
        link: link.clone(),
        ..Setup::default()
    };
    assert_fair_in_packets(&shares(setup, link, None, 10 * SECOND));
}

#[test]
fn streams_keep_their_share_beside_datagrams_of_any_size_and_in_every_profile() {
    let link = Link::with_delay(Duration::from_millis(2));
    for profile in [
        Profile::Throughput,
        Profile::Latency,
        Profile::Fixed {
            bits_per_second: 100_000_000,
        },
    ] {
        for size in [Some(20), Some(500), Some(1_150), None] {
            let setup = Setup {
                link: link.clone(),
                profile,
                ..Setup::default()
            };
            let shares = shares(setup, link.clone(), size, SECOND);
            // Short datagrams have more overhead in their packets, so that bytes say less against streams.
            let bytes = shares.datagram_bytes + shares.stream_bytes;
            assert!(
                shares.stream_bytes * 100 >= bytes * 23,
                "{profile:?} {size:?}: {shares:?}"
            );
            assert!(
                shares.datagram_bytes * 100 >= bytes * 20,
                "{profile:?} {size:?}: {shares:?}"
            );
        }
    }
}

#[test]
fn streams_keep_their_share_of_packets_that_carry_one_datagram_each() {
    for ceiling in [9_000, 65_507] {
        let link = Link::with_delay(Duration::from_micros(500));
        let setup = Setup {
            link: link.clone(),
            ceiling,
            ..Setup::default()
        };
        assert_fair_in_packets(&shares(setup, link, None, SECOND / 4));
    }
}

#[test]
fn datagrams_alone_have_the_whole_path_and_so_have_streams() {
    let rate = 20_000_000;
    let link = Link {
        bits_per_second: rate,
        ..Link::with_delay(Duration::from_millis(5))
    };
    for streams in [false, true] {
        let (mut pair, client, _) = Pair::connected(Setup {
            link: link.clone(),
            ..Setup::default()
        });
        let stream = pair
            .client
            .endpoint
            .open_stream(client, Direction::Bidirectional)
            .unwrap();
        if streams {
            pair.client.bulk = Some((client, stream));
            pair.client.mark();
        } else {
            pair.client.saturate(client, None);
        }
        pair.drive(5 * SECOND);
        let bits = (pair.server.recorder.datagram_bytes + pair.server.stream_bytes) * 8;
        assert!(
            bits >= rate * 5 * 7 / 10,
            "{bits} bits in 5 s, streams: {streams}"
        );
    }
}

#[test]
fn a_single_request_beside_saturated_datagrams_is_answered_within_a_few_round_trips() {
    let link = Link {
        bits_per_second: 50_000_000,
        queue: Duration::from_millis(20),
        ..Link::default()
    };
    let (mut pair, client, _) = Pair::connected(Setup {
        link,
        ..Setup::default()
    });
    pair.client.saturate(client, None);
    pair.drive(2 * SECOND);
    for _ in 0..20 {
        pair.client.finished.clear();
        let stream = pair
            .client
            .endpoint
            .open_stream(client, Direction::Bidirectional)
            .unwrap();
        pair.client.endpoint.write(client, stream, b"request").unwrap();
        pair.client.endpoint.finish(client, stream);
        let asked = pair.now;
        let (answered, _) = pair.drive_until(SECOND, |pair| pair.client.finished.first().copied());
        assert!(
            answered - asked < Duration::from_millis(250),
            "{:?}",
            answered - asked
        );
        pair.drive(Duration::from_millis(37));
    }
}

#[test]
fn an_owner_of_many_connections_sends_no_more_than_one_of_a_single_connection() {
    let (mut pair, ..) = Pair::connected(Setup {
        link: Link::with_delay(Duration::from_micros(200)),
        ..Setup::default()
    });
    for number in 2..=5 {
        pair.replace_client(&format!("192.0.2.{number}:40000"), number);
        pair.connect();
        pair.drive_until(SECOND, |pair| {
            (pair.server.connected.len() == usize::from(number)).then_some(())
        });
        pair.drive(2 * SECOND);
    }
    for (place, connection) in pair.server.connected.clone().into_iter().enumerate() {
        pair.server
            .endpoint
            .set_owner(connection, [u8::from(place == 4); 16]);
        pair.server.source.saturate(connection, None);
        pair.server.endpoint.mark_ready(connection);
    }
    let sole = pair.client.address;
    let mut outbox = Outbox::default();
    pair.server
        .endpoint
        .flush(pair.now, &mut pair.server.source, &mut outbox);
    let trains: Vec<_> = outbox
        .trains()
        .iter()
        .map(|train| (train.destination, train.bytes.len()))
        .collect();
    let place = trains.iter().position(|(destination, _)| *destination == sole);
    let before = &trains[..place.expect("it has sent something")];
    let sent = |to| before.iter().filter(move |(destination, _)| *destination == to);
    let largest = before
        .iter()
        .map(|(to, _)| sent(*to).map(|(_, bytes)| bytes).sum::<usize>());
    let largest = largest.max().expect("the other owner was ready first");
    let bytes: usize = before.iter().map(|(_, bytes)| bytes).sum();
    assert!(
        bytes < TURN_BYTES + largest && TURN_BYTES + largest < 4 * largest,
        "{bytes} bytes went before: {trains:?}"
    );
}
