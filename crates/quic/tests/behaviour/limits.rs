//! What a peer may do before its token was seen, and how many may knock at once.

use std::time::Duration;

use quic::limits::{
    AUTHENTICATED_STREAMS, AUTHENTICATED_STREAMS_AT_FIRST, AUTHENTICATION_DEADLINE, HANDSHAKE_TIME_MAX,
    RETRY_ABOVE_PER_SECOND, STRANGERS_PER_PREFIX, UNAUTHENTICATED_CREDIT_BYTES, UNAUTHENTICATED_STREAMS,
};
use quic::{CloseReason, ConnectionKey, Direction, Timer};

use crate::support::{Link, Pair, Setup, Side};

const SECOND: Duration = Duration::from_secs(1);

fn unauthenticated() -> (Pair, ConnectionKey, ConnectionKey) {
    let mut pair = Pair::new(Setup::default());
    pair.server.authenticates = false;
    let client = pair.connect();
    let server = pair.drive_until(SECOND, |pair| pair.server.connected.first().copied());
    pair.drive(SECOND);
    (pair, client, server)
}

#[test]
fn a_peer_without_a_token_is_closed_after_ten_seconds() {
    let (mut pair, _, server) = unauthenticated();
    pair.drive(7 * SECOND);
    assert!(pair.server.closed.is_empty());
    pair.drive(3 * SECOND);
    assert_eq!(pair.server.closed.len(), 1);
    let (at, reason) = &pair.server.closed[0];
    assert_eq!(*reason, CloseReason::Unauthenticated);
    let waited = *at - pair.start;
    assert!(
        waited >= AUTHENTICATION_DEADLINE && waited < AUTHENTICATION_DEADLINE + SECOND / 10,
        "{waited:?}"
    );
    assert!(pair.server.timers_seen.contains(&Timer::Authentication(server)));
    assert!(
        matches!(&pair.client.closed[0].1, CloseReason::ApplicationClosed { reason, .. } if reason.contains("token"))
    );
    pair.drive(10 * SECOND);
    assert_eq!(pair.server.endpoint.open_connections(), 0);
}

#[test]
fn authentication_lifts_the_deadline_the_streams_and_the_credit() {
    let (mut pair, client, server) = unauthenticated();
    for _ in 0..UNAUTHENTICATED_STREAMS {
        pair.client
            .endpoint
            .open_stream(client, Direction::Bidirectional)
            .unwrap();
    }
    assert_eq!(
        pair.client.endpoint.open_stream(client, Direction::Bidirectional),
        None
    );
    pair.server.endpoint.authenticate(pair.now, server);
    pair.drive(SECOND / 10);
    let mut last = None;
    let mut opened = UNAUTHENTICATED_STREAMS;
    while opened < AUTHENTICATED_STREAMS {
        // A stream exists for the peer once something was written to it.
        while let Some(stream) = pair.client.endpoint.open_stream(client, Direction::Bidirectional) {
            pair.client.endpoint.write(client, stream, b"?").unwrap();
            opened += 1;
            last = Some(stream);
        }
        let before = opened;
        pair.drive(SECOND / 10);
        assert!(opened == before && opened >= AUTHENTICATED_STREAMS_AT_FIRST / 2);
        if opened < AUTHENTICATED_STREAMS {
            last = pair.client.endpoint.open_stream(client, Direction::Bidirectional);
            assert!(last.is_some(), "stuck at {opened} streams");
            opened += 1;
        }
    }
    assert_eq!(
        pair.client.endpoint.open_stream(client, Direction::Bidirectional),
        None
    );
    pair.client.bulk = last.map(|stream| (client, stream));
    pair.client.mark();
    pair.drive(SECOND);
    assert!(
        pair.server.stream_bytes > 20 << 20,
        "{}",
        pair.server.stream_bytes
    );
    pair.client.bulk = None;
    pair.drive(20 * SECOND);
    assert!(pair.server.closed.is_empty() && pair.client.closed.is_empty());
}

#[test]
fn at_most_64_kib_of_stream_data_are_accepted_before_the_token_whether_they_are_read_or_not() {
    for reads in [false, true] {
        let (mut pair, client, server) = unauthenticated();
        pair.server.reads = reads;
        let mut written = 0;
        let streams: Vec<_> = (0..UNAUTHENTICATED_STREAMS)
            .map(|_| {
                pair.client
                    .endpoint
                    .open_stream(client, Direction::Bidirectional)
                    .unwrap()
            })
            .collect();
        for _ in 0..50 {
            for stream in &streams {
                written += pair.client.endpoint.write(client, *stream, &[1; 20_000]).unwrap();
            }
            pair.drive(SECOND / 10);
        }
        assert!(written >= UNAUTHENTICATED_CREDIT_BYTES as usize);
        for stream in &streams {
            pair.server.read_all(server, *stream);
        }
        assert_eq!(
            pair.server.stream_bytes,
            u64::from(UNAUTHENTICATED_CREDIT_BYTES),
            "reads: {reads}"
        );
        pair.server.reads = true;
        pair.server.endpoint.authenticate(pair.now, server);
        pair.client.bulk = Some((client, streams[0]));
        pair.client.mark();
        pair.drive(SECOND);
        assert!(
            pair.server.stream_bytes > 20 << 20,
            "authentication lifts it: {}",
            pair.server.stream_bytes
        );
    }
}

#[test]
fn above_the_named_rate_handshakes_take_a_retry_and_succeed() {
    let mut pair = Pair::new(Setup {
        link: Link::with_delay(Duration::from_micros(100)),
        ..Setup::default()
    });
    let wanted = RETRY_ABOVE_PER_SECOND as usize + 60;
    while pair.client.connected.len() < wanted {
        pair.connect();
        pair.drive(Duration::from_millis(2));
    }
    let totals = pair.server.endpoint.incoming_totals();
    assert_eq!(totals.over_limit, 0);
    let retries = totals.over_rate;
    assert!((50..=70).contains(&retries), "{retries}");
    assert_eq!(pair.server.connected.len(), wanted);
    pair.drive(2 * SECOND);
    pair.connect();
    pair.drive(SECOND);
    assert_eq!(
        pair.server.endpoint.incoming_totals().over_rate,
        retries,
        "below the rate there is none"
    );
}

#[test]
fn a_token_for_one_address_says_nothing_about_another() {
    let mut pair = Pair::new(Setup {
        link: Link::with_delay(Duration::from_micros(100)),
        ..Setup::default()
    });
    while pair.server.endpoint.incoming_totals().over_rate == 0 {
        pair.connect();
        pair.drive(Duration::from_millis(1));
    }
    let connected = pair.server.connected.len();
    pair.connect();
    // The Retry comes back, and the Initial with its token leaves from elsewhere.
    pair.drive(Duration::from_micros(150));
    pair.client.address = "203.0.113.9:5000".parse().unwrap();
    pair.drive(SECOND / 20);
    assert!(pair.server.connected.len() <= connected + 1);
}

#[test]
fn half_open_handshakes_of_one_prefix_are_bounded_and_leave_room_for_others() {
    let mut pair = Pair::new(Setup::default());
    // The server's answers are lost, so no handshake completes.
    pair.link.loss_per_mille = [0, 1_000];
    for _ in 0..STRANGERS_PER_PREFIX + 20 {
        pair.connect();
    }
    pair.drive(SECOND / 10);
    assert_eq!(pair.server.endpoint.open_connections(), STRANGERS_PER_PREFIX / 2);
    assert!(pair.server.endpoint.incoming_totals().over_rate >= 20);
    pair.replace_client("192.0.2.77:1000", 11);
    pair.link.loss_per_mille = [0, 0];
    pair.connect();
    pair.drive(2 * SECOND);
    assert_eq!(
        pair.client.connected.len(),
        1,
        "the same /24 gets in by answering a Retry"
    );
    pair.replace_client("203.0.113.1:1000", 12);
    pair.connect();
    pair.drive(SECOND);
    assert_eq!(pair.client.connected.len(), 1, "another prefix gets in");
    pair.replace_client("192.0.2.78:1000", 13);
    pair.drive(11 * SECOND);
    pair.connect();
    pair.drive(SECOND);
    assert_eq!(
        pair.client.connected.len(),
        1,
        "ended handshakes free their place"
    );
}

/// Connects so many, one after the other, from the client's address. The keys that the server gave them.
fn complete_handshakes(pair: &mut Pair, count: usize) -> Vec<ConnectionKey> {
    let before = pair.server.connected.len();
    for number in 1..=count {
        pair.connect();
        pair.drive_until(SECOND, |pair| {
            (pair.server.connected.len() >= before + number).then_some(())
        });
    }
    pair.server.connected[before..].to_vec()
}

#[test]
fn connections_count_until_their_token_and_the_oldest_of_their_prefix_makes_room() {
    let mut pair = Pair::new(Setup {
        link: Link::with_delay(Duration::from_micros(100)),
        ..Setup::default()
    });
    pair.server.authenticates = false;
    let connections = complete_handshakes(&mut pair, STRANGERS_PER_PREFIX);
    assert!(pair.server.closed.is_empty());
    pair.server.endpoint.authenticate(pair.now, connections[0]);
    complete_handshakes(&mut pair, 11);
    pair.drive(SECOND / 10);
    // One place was free, and ten were taken from those who came first and had shown no token.
    let reasons: Vec<_> = pair
        .server
        .closed
        .iter()
        .map(|(_, reason)| reason.clone())
        .collect();
    assert_eq!(reasons, [const { CloseReason::PushedOut }; 10]);
    assert_eq!(pair.server.endpoint.incoming_totals().pushed_out, 10);
    assert_eq!(pair.server.endpoint.open_connections(), STRANGERS_PER_PREFIX + 1);
    assert!(pair.server.endpoint.report(connections[0]).is_some());
    // They are told, so that they can come again.
    let told = |reason: &CloseReason| matches!(reason, CloseReason::ApplicationClosed { .. });
    assert_eq!(pair.client.closed.len(), 10);
    assert!(pair.client.closed.iter().all(|(_, reason)| told(reason)));
    pair.drive(11 * SECOND);
    assert_eq!(pair.server.endpoint.open_connections(), 1);
}

#[test]
fn a_stranger_that_makes_room_is_told_also_where_an_answer_to_it_waits() {
    let mut pair = Pair::new(Setup {
        link: Link {
            bits_per_second: 2_000_000,
            ..Link::with_delay(Duration::from_millis(10))
        },
        ..Setup::default()
    });
    pair.server.authenticates = false;
    let server = complete_handshakes(&mut pair, STRANGERS_PER_PREFIX)[0];
    let client = pair.client.connected[0];
    let client_side = &mut pair.client.endpoint;
    let stream = client_side.open_stream(client, Direction::Bidirectional).unwrap();
    client_side.write(client, stream, b"question").unwrap();
    pair.drive(SECOND / 10);
    pair.connect();
    // When the newcomer is there, most of it waits for the path.
    while pair.server.endpoint.write(server, stream, &[0; 10_000]).unwrap() > 0 {}
    pair.drive(SECOND);
    let reasons = |side: &Side| -> Vec<_> { side.closed.iter().map(|(_, reason)| reason.clone()).collect() };
    assert_eq!(reasons(&pair.server), [CloseReason::PushedOut]);
    let told = reasons(&pair.client);
    assert!(
        matches!(&told[..], [CloseReason::ApplicationClosed { .. }]),
        "{told:?}"
    );
}

#[test]
fn a_handshake_that_stalls_is_given_up_after_three_seconds() {
    let mut pair = Pair::new(Setup::default());
    pair.link.loss_per_mille = [0, 1_000];
    pair.connect();
    pair.drive(SECOND / 10);
    // The client is silent from here on.
    pair.link.loss_per_mille = [1_000, 1_000];
    assert_eq!(pair.server.endpoint.open_connections(), 1);
    pair.drive(HANDSHAKE_TIME_MAX);
    assert_eq!(pair.server.endpoint.open_connections(), 0);
    let (at, reason) = &pair.server.closed[0];
    assert_eq!(*reason, CloseReason::Unauthenticated);
    assert!(*at - pair.start < HANDSHAKE_TIME_MAX + SECOND / 10);
}
