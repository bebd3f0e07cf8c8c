//! How connections begin.

use std::time::Duration;

use fake_tcp::segment::Flags;
use fake_tcp::{CloseReason, Config, ConnectError, Event, Profile, Refused};

use super::pair::{CLIENT, PORT, Pair, SERVER, delayed, listening};

const SYN_ACK: Flags = Flags::SYN.and(Flags::ACK);

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// FTCP-4.
#[test]
fn both_syns_look_like_those_of_linux() {
    let (pair, _) = Pair::new().connected();
    let [syn, answer, ack] = &pair.sent[..] else {
        panic!("{:?}", pair.sent);
    };
    assert_eq!((syn.segment.flags, syn.segment.window), (Flags::SYN, 64_240));
    assert_eq!(syn.segment.acknowledgement.0, 0);
    let options = &syn.bytes[40..];
    assert_eq!(options[..8], [2, 4, 0x05, 0xb4, 4, 2, 8, 10]);
    assert_eq!(options[12..], [0, 0, 0, 0, 1, 3, 3, 10]);
    assert_eq!((answer.segment.flags, answer.segment.window), (SYN_ACK, 65_160));
    assert_eq!(answer.bytes[40..], [2, 4, 0x05, 0xb4, 1, 1, 4, 2, 1, 3, 3, 10]);
    assert_eq!((ack.segment.flags, ack.segment.window), (Flags::ACK, u16::MAX));
    assert_eq!(ack.bytes.len(), 40);
    assert_eq!(ack.segment.sequence, syn.segment.sequence.plus(1));
    assert_eq!(ack.segment.acknowledgement, answer.segment.sequence.plus(1));
}

/// FTCP-3.
#[test]
fn first_numbers_rise_with_time_and_differ_by_addresses_and_by_seed() {
    let first = |port: u16, after: u64, seed: u64| {
        let profile = Profile::Linux;
        let configs = [Config::new(profile), listening(profile)];
        let client = format!("192.0.2.1:{port}");
        let addresses = [client.as_str(), "198.51.100.2:4433"];
        let mut pair = Pair::with(configs, delayed(1), addresses, seed);
        let other = "192.0.2.1:39999".parse().unwrap();
        pair.is_watched = false;
        let id = pair.stacks[CLIENT].connect(pair.now(), other, pair.addresses[SERVER]);
        pair.stacks[CLIENT].close(pair.now(), id.unwrap());
        assert!(pair.stacks[CLIENT].poll_segment().is_some());
        pair.clock.advance(Duration::from_micros(after));
        pair.connect();
        pair.sent[0].segment.sequence
    };
    let reference = first(40_000, 0, 1);
    assert_eq!(first(40_000, 4_000, 1).since(reference), 1_000);
    let others = [first(40_001, 0, 1), first(40_000, 0, 2)];
    assert!(others.iter().all(|other| *other != reference) && others[0] != others[1]);
}

/// FTCP-5.
#[test]
fn a_lost_syn_goes_again_after_one_and_three_seconds() {
    let mut pair = Pair::new();
    pair.filter = Box::new(|sent| sent.from == SERVER);
    let id = pair.connect();
    pair.run(seconds(6));
    let times: Vec<_> = pair.sent.iter().map(|sent| sent.at).collect();
    assert_eq!(times, [0, 1, 3].map(seconds));
    let syns: Vec<_> = pair.sent.iter().map(|sent| sent.segment.clone()).collect();
    assert!(syns.iter().all(|syn| *syn == syns[0]));
    assert!(pair.events[CLIENT].is_empty());
    pair.run(seconds(1));
    let reason = CloseReason::TimedOut;
    assert_eq!(
        pair.events[CLIENT],
        [Event::Closed {
            connection: id,
            reason
        }]
    );
    assert_eq!(pair.stacks[CLIENT].connections(), 0);
    assert_eq!(pair.stacks[CLIENT].poll_timeout(), None);
}

/// FTCP-5.
#[test]
fn each_leg_of_the_handshake_may_be_lost_once() {
    for leg in 0..3 {
        let mut pair = Pair::new();
        let mut count = 0;
        pair.filter = Box::new(move |_| {
            count += 1;
            count != leg + 1
        });
        let id = pair.connect();
        pair.run(seconds(2));
        assert_eq!(
            pair.events[CLIENT],
            [Event::Connected { connection: id }],
            "leg {leg}"
        );
        assert!(
            matches!(pair.events[SERVER][..], [Event::Accepted { .. }]),
            "leg {leg}: {:?}",
            pair.events[SERVER]
        );
    }
}

/// FTCP-5: data opens the connection where the third segment is lost.
#[test]
fn data_behind_a_lost_third_segment_is_delivered() {
    let mut pair = Pair::new();
    pair.filter = Box::new(|sent| sent.segment.flags != Flags::ACK);
    let id = pair.connect();
    pair.run(Duration::from_millis(50));
    assert!(pair.events[SERVER].is_empty());
    pair.filter = Box::new(|_| true);
    // The first datagram is lost too.
    pair.headers(id, &[0; 100], 0, packet::Ecn::NotEct).unwrap();
    pair.is_watched = false;
    pair.send(CLIENT, id, &[7; 300], 0).unwrap();
    pair.run(Duration::from_millis(50));
    assert!(matches!(pair.events[SERVER][..], [Event::Accepted { .. }]));
    assert_eq!(pair.received[SERVER], [vec![7; 300]]);
}

/// FTCP-5.
#[test]
fn a_listener_forgets_who_never_acknowledges() {
    let mut pair = Pair::new();
    pair.filter =
        Box::new(|sent| sent.segment.flags == Flags::SYN || sent.from == SERVER && sent.at.is_zero());
    pair.connect();
    pair.run(seconds(20));
    assert!(pair.events[SERVER].is_empty());
    assert_eq!(pair.stacks[SERVER].connections(), 0);
    // Each SYN of the client is answered as well.
    let answers = pair.take_sent(SERVER);
    assert!(answers.iter().all(|sent| sent.segment.flags == SYN_ACK));
    assert!((3..=5).contains(&answers.len()), "{}", answers.len());
}

/// FTCP-5.
#[test]
fn both_ends_may_open_at_the_same_time() {
    for lost in 0..6 {
        let profile = Profile::Linux;
        let configs = [Config::new(profile); 2];
        let addresses = ["[2001:db8::1]:4433", "[2001:db8:1::2]:4433"];
        let mut pair = Pair::with(configs, delayed(10), addresses, 3);
        let mut count = 0;
        pair.filter = Box::new(move |_| {
            count += 1;
            count != lost
        });
        let server = pair.stacks[SERVER]
            .connect(pair.now(), pair.addresses[SERVER], pair.addresses[CLIENT])
            .unwrap();
        let client = pair.connect();
        pair.run(seconds(4));
        assert_eq!(
            pair.events[CLIENT],
            [Event::Connected { connection: client }],
            "{lost}"
        );
        assert_eq!(
            pair.events[SERVER],
            [Event::Connected { connection: server }],
            "{lost}"
        );
        pair.send(CLIENT, client, b"there", 0).unwrap();
        pair.send(SERVER, server, b"back", 0).unwrap();
        pair.run(seconds(1));
        assert_eq!(pair.received, [vec![b"back".to_vec()], vec![b"there".to_vec()]]);
    }
}

/// FTCP-15, FTCP-16.
#[test]
fn a_port_without_a_listener_refuses() {
    let profile = Profile::Linux;
    let other = Config {
        listen: Some(PORT + 1),
        ..Config::new(profile)
    };
    let addresses = ["192.0.2.1:40000", "198.51.100.2:4433"];
    let mut pair = Pair::with([Config::new(profile), other], delayed(10), addresses, 1);
    pair.is_watched = false;
    let id = pair.connect();
    pair.run(seconds(1));
    let reason = CloseReason::Refused;
    assert_eq!(
        pair.events[CLIENT],
        [Event::Closed {
            connection: id,
            reason
        }]
    );
    assert_eq!(pair.stacks[SERVER].connections(), 0);
}

#[test]
fn nothing_is_sent_before_the_handshake_is_complete() {
    let mut pair = Pair::new();
    let id = pair.connect();
    assert_eq!(pair.send(CLIENT, id, b"early", 0), Err(Refused::NotConnected));
    pair.stacks[CLIENT].close(pair.now(), id);
    assert_eq!(pair.send(CLIENT, id, b"late", 0), Err(Refused::NotConnected));
    assert_eq!(pair.stacks[CLIENT].connections(), 0);
    let (mixed, now) = ("[2001:db8::1]:1".parse().unwrap(), pair.now());
    let refused = pair.stacks[CLIENT].connect(now, mixed, pair.addresses[SERVER]);
    assert_eq!(refused, Err(ConnectError::Families));
}

/// FTCP-5: a SYN-ACK that comes again is acknowledged again.
#[test]
fn a_repeated_syn_ack_is_acknowledged_again() {
    let (mut pair, _) = Pair::new().connected();
    let answer = pair.sent[1].bytes.clone();
    pair.take_sent(CLIENT);
    pair.deliver(CLIENT, &answer, None);
    let again = pair.take_sent(CLIENT);
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].segment.flags, Flags::ACK);
    assert!(pair.events[CLIENT].is_empty());
}
