//! Trains that were not sent after all.

use std::net::SocketAddr;
use std::time::Instant;

use fake_tcp::segment::Segment;
use fake_tcp::{Config, Event, Profile, Stack};
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

#[test]
fn a_train_that_is_taken_back_leaves_no_gap_and_no_more_than_was_sent_comes_back() {
    let now = Clock::default().now();
    let [local, remote]: [SocketAddr; 2] = ["192.0.2.1:4000", "192.0.2.2:443"].map(|at| at.parse().unwrap());
    let mut client = Stack::new(Config::new(Profile::Linux), [1; 32]);
    let mut server = Stack::new(
        Config {
            listen: Some(443),
            ..Config::new(Profile::Linux)
        },
        [2; 32],
    );
    let connection = client.connect(now, local, remote).unwrap();
    exchange(now, &mut client, &mut server);
    assert_eq!(client.poll_event(), Some(Event::Connected { connection }));
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
