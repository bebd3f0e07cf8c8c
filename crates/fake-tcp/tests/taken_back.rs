//! Trains that were not sent after all.
#![expect(clippy::unwrap_used, reason = "a helper that fails is a failed test")]

use std::net::SocketAddr;
use std::time::Instant;

use fake_tcp::segment::Segment;
use fake_tcp::{Config, ConnectionId, Event, Key, Profile, Stack, limits};
use packet::Ecn;
use sim::Clock;

/// Hands all segments over until both are silent.
fn exchange(now: Instant, one: &mut Stack, other: &mut Stack) {
    loop {
        let mut is_silent = true;
        while let Some(segment) = one.poll_segment() {
            other.receive(now, segment.headers.bytes(), None);
            is_silent = false;
        }
        while let Some(segment) = other.poll_segment() {
            one.receive(now, segment.headers.bytes(), None);
            is_silent = false;
        }
        if is_silent {
            return;
        }
    }
}

/// A client and a server that have met, with a common key or without.
fn connected(key: Option<Key>) -> (Instant, Stack, ConnectionId) {
    let now = Clock::default().now();
    let [local, remote]: [SocketAddr; 2] = ["192.0.2.1:4000", "192.0.2.2:443"].map(|at| at.parse().unwrap());
    let config = || Config {
        key,
        ..Config::new(Profile::Linux)
    };
    let mut client = Stack::new(config(), [1; 32]);
    let mut server = Stack::new(
        Config {
            listen: Some(443),
            ..config()
        },
        [2; 32],
    );
    let connection = client.connect(now, local, remote).unwrap();
    exchange(now, &mut client, &mut server);
    assert_eq!(client.poll_event(), Some(Event::Connected { connection }));
    (now, client, connection)
}

/// FTCP-25.
#[test]
fn a_place_is_sealed_once() {
    let (now, mut client, connection) = connected(Some(Key([7; limits::KEY_BYTES])));
    let mut places = Vec::new();
    for taken_back in [true, false, true, true, false] {
        let mut framed = Vec::new();
        let headers = client
            .send(now, connection, &[1; 2_500], 1_000, Ecn::NotEct, &mut framed)
            .unwrap();
        let packet = [headers.bytes(), &framed].concat();
        places.push(Segment::parse(&packet).unwrap().sequence);
        if taken_back {
            client.take_back(connection, framed.len());
        }
    }
    let bytes = 2_500 + 3 * limits::TAG_BYTES as u32;
    let expected: Vec<_> = (0..5).map(|number| places[0].plus(number * bytes)).collect();
    assert_eq!(places, expected);
}

#[test]
fn a_train_that_is_taken_back_leaves_no_gap_and_no_more_than_was_sent_comes_back() {
    let (now, mut client, connection) = connected(None);
    let send = |client: &mut Stack, len| {
        let (payload, mut framed) = (vec![0; len], Vec::new());
        let headers = client
            .send(now, connection, &payload, 1_000, Ecn::NotEct, &mut framed)
            .unwrap();
        let packet = [headers.bytes(), &payload].concat();
        Segment::parse(&packet).unwrap().sequence
    };
    let first = send(&mut client, 2_500);
    let second = send(&mut client, 700);
    client.take_back(connection, 700);
    assert_eq!(send(&mut client, 100), second);
    client.take_back(connection, 100);
    client.take_back(connection, 2_500);
    client.take_back(connection, 1);
    assert_eq!(send(&mut client, 10), first);
}
