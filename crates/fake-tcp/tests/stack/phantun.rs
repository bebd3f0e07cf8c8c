//! The profile that talks to phantun 0.8, against what its source sends and takes.

use std::time::Duration;

use fake_tcp::segment::Flags;
use fake_tcp::{Config, Event, Profile};
use packet::Ecn;

use super::pair::{CLIENT, Pair, SERVER, delayed, listening};

const ADDRESSES: [&str; 2] = ["192.0.2.1:40000", "198.51.100.2:4433"];

fn connected() -> (Pair, [fake_tcp::ConnectionId; 2]) {
    let profile = Profile::Phantun;
    Pair::with(
        [Config::new(profile), listening(profile)],
        delayed(10),
        ADDRESSES,
        1,
    )
    .connected()
}

/// FTCP-20.
#[test]
fn numbers_begin_at_zero_and_a_scale_is_the_only_option() {
    let (mut pair, [client, _]) = connected();
    pair.send(CLIENT, client, &[1; 600], 300).unwrap();
    pair.run(Duration::from_millis(100));
    let flags: Vec<_> = pair.sent.iter().map(|sent| sent.segment.flags).collect();
    let (syn, ack) = (Flags::SYN, Flags::ACK);
    assert_eq!(flags, [syn, syn.and(ack), ack, ack, ack, ack]);
    let numbers = |at: usize| {
        let segment = &pair.sent[at].segment;
        (segment.sequence.0, segment.acknowledgement.0)
    };
    assert_eq!(
        [0, 1, 2, 3, 4].map(numbers),
        [(0, 0), (0, 1), (1, 1), (1, 1), (301, 1)]
    );
    for sent in &pair.sent {
        assert_eq!(sent.segment.window, u16::MAX);
        let options: &[u8] = if sent.segment.flags.has(syn) {
            &[1, 3, 3, 14]
        } else {
            &[]
        };
        assert_eq!(sent.bytes[40..sent.segment.payload.start], *options);
    }
}

/// FTCP-20: phantun acknowledges only what it answers, up to 128 MiB.
#[test]
fn a_peer_that_never_acknowledges_gets_everything() {
    let (mut pair, [client, _]) = connected();
    pair.filter = Box::new(|sent| sent.from == CLIENT);
    for _ in 0..4_000 {
        pair.headers(client, &[0; 60_000], 1_000, Ecn::NotEct).unwrap();
    }
    pair.run(Duration::from_secs(600));
    assert!(pair.events[CLIENT].is_empty());
    let sent = pair.take_sent(CLIENT);
    assert_eq!(sent.len(), 2, "{sent:?}");
}

/// FTCP-20.
#[test]
fn an_end_is_a_rst() {
    let (mut pair, [client, server]) = connected();
    pair.stacks[CLIENT].close(pair.now(), client);
    pair.run(Duration::from_millis(50));
    let last = pair.sent.last().unwrap();
    assert_eq!((last.from, last.segment.flags), (CLIENT, Flags::RST));
    assert!(matches!(pair.events[SERVER][..], [Event::Closed { connection, .. }] if connection == server));
    // The next one may begin at zero again at once at the listener.
    pair.run(Duration::from_secs(4));
    pair.events = Default::default();
    pair.connected();
}

/// FTCP-20.
#[test]
fn half_open_connections_are_bounded_without_cookies() {
    let profile = Profile::Phantun;
    let mut pair = Pair::with(
        [Config::new(profile), listening(profile)],
        delayed(10),
        ADDRESSES,
        1,
    );
    pair.is_watched = false;
    pair.connect();
    let syn = pair.sent[0].bytes.clone();
    for number in 0..1_000_u16 {
        let mut packet = syn.clone();
        packet[13..15].copy_from_slice(&number.to_be_bytes());
        pair.deliver(SERVER, &packet, None);
    }
    let counters = pair.stacks[SERVER].counters();
    assert_eq!((counters.cookies, counters.syns_ignored), (0, 488));
}
