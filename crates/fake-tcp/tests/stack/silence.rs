//! Peers that say nothing, and connections that carry nothing.

use std::time::Duration;

use fake_tcp::segment::Flags;
use fake_tcp::{CloseReason, Config, ConnectionId, Event, Profile};

use super::pair::{CLIENT, Pair, SERVER, delayed, listening};

const ADDRESSES: [&str; 2] = ["192.0.2.1:40000", "198.51.100.2:4433"];

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// FTCP-13.
#[test]
fn a_silent_peer_that_answers_is_asked_every_thirty_seconds() {
    let (mut pair, [client, _]) = Pair::new().connected();
    pair.sent.clear();
    pair.run(seconds(100));
    let asked: Vec<_> = pair.take_sent(CLIENT);
    let answered = pair.take_sent(SERVER);
    assert!((6..=8).contains(&(asked.len() + answered.len())), "{asked:?}");
    for sent in asked.iter().chain(&answered) {
        assert_eq!((sent.segment.flags, sent.segment.payload.len()), (Flags::ACK, 0));
    }
    assert!(pair.events.iter().all(Vec::is_empty));
    assert_eq!(pair.send(CLIENT, client, b"still there", 0), Ok(()));
}

/// Nothing else happened to the client than that its connection ended for want of an answer.
fn assert_timed_out(pair: &Pair, connection: ConnectionId) {
    let reason = CloseReason::TimedOut;
    assert_eq!(pair.events[CLIENT], [Event::Closed { connection, reason }]);
}

/// FTCP-13.
#[test]
fn a_peer_that_is_gone_is_given_up() {
    let (mut pair, [client, _]) = Pair::new().connected();
    pair.filter = Box::new(|sent| sent.from == CLIENT && sent.segment.flags.has(Flags::RST));
    pair.sent.clear();
    let start = pair.clock.elapsed();
    pair.run(seconds(44));
    assert!(pair.events[CLIENT].is_empty());
    pair.run(seconds(2));
    assert_timed_out(&pair, client);
    let sent = pair.take_sent(CLIENT);
    let times: Vec<_> = sent.iter().map(|sent| (sent.at - start).as_secs()).collect();
    // The handshake's last segment was heard 180 ms before.
    assert_eq!(times, [29, 34, 39, 44]);
    assert_eq!(sent[3].segment.flags, Flags::RST);
    // The RST names the very next number.
    pair.run(seconds(1));
    assert!(matches!(pair.events[SERVER][..], [Event::Closed { .. }]));
    pair.run(seconds(10));
    assert_eq!([0, 1].map(|end| pair.stacks[end].connections()), [0, 0]);
}

/// FTCP-13.
#[test]
fn data_without_acknowledgement_is_asked_about_sooner() {
    let (mut pair, [client, _]) = Pair::new().connected();
    pair.run(seconds(20));
    pair.take_sent(CLIENT);
    pair.filter = Box::new(|_| false);
    let start = pair.clock.elapsed();
    for _ in 0..25 {
        let _ = pair.send(CLIENT, client, &[1; 100], 0);
        pair.run(seconds(1));
    }
    assert_timed_out(&pair, client);
    let times: Vec<_> = pair
        .take_sent(CLIENT)
        .into_iter()
        .filter(|sent| sent.segment.payload.is_empty())
        .map(|sent| (sent.at - start).as_secs())
        .collect();
    assert_eq!(times, [5, 10, 15, 20]);
}

/// FTCP-12, FTCP-13: one direction alone, for longer than firewalls wait for an acknowledgement.
#[test]
fn one_way_data_is_acknowledged_every_second() {
    let (mut pair, [client, _]) = Pair::new().connected();
    for _ in 0..4_000 {
        pair.send(CLIENT, client, &[1; 200], 0).unwrap();
        pair.run(Duration::from_millis(100));
    }
    let times: Vec<_> = pair.take_sent(SERVER).into_iter().map(|sent| sent.at).collect();
    let longest = times.windows(2).skip(1).map(|pair| pair[1] - pair[0]).max();
    assert!(longest.unwrap() <= seconds(1), "{longest:?}");
    assert!(pair.events.iter().all(Vec::is_empty));
}

/// FTCP-14.
#[test]
fn a_connection_without_datagrams_ends_by_fin() {
    let profile = Profile::Linux;
    let idle = Config {
        idle: Some(seconds(60)),
        ..listening(profile)
    };
    let (mut pair, [client, server]) =
        Pair::with([Config::new(profile), idle], delayed(10), ADDRESSES, 1).connected();
    pair.run(seconds(40));
    pair.send(CLIENT, client, b"in use", 0).unwrap();
    pair.run(seconds(59));
    assert!(pair.events[SERVER].is_empty(), "{:?}", pair.events);
    pair.run(seconds(2));
    let reason = CloseReason::Idle;
    assert_eq!(
        pair.events[SERVER],
        [Event::Closed {
            connection: server,
            reason
        }]
    );
    let reason = CloseReason::Finished;
    assert_eq!(
        pair.events[CLIENT],
        [Event::Closed {
            connection: client,
            reason
        }]
    );
    pair.run(seconds(5));
    assert_eq!([0, 1].map(|end| pair.stacks[end].connections()), [0, 0]);
}
