//! Ends with a common key, and others who have none.

use std::time::Duration;

use fake_tcp::segment::{Flags, Segment};
use fake_tcp::{CloseReason, Config, ConnectionId, Event, Key, Profile, Proof, limits};
use packet::Ecn;
use sim::{LinkConfig, for_each_seed};

use super::data::renumbered;
use super::pair::{CLIENT, Pair, SERVER, Sent, delayed, listening};

const ADDRESSES: [&str; 2] = ["192.0.2.1:40000", "198.51.100.2:4433"];
const IPV6: [&str; 2] = ["[2001:db8::1]:40000", "[2001:db8:1::2]:4433"];

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn with_keys(keys: [Option<u8>; 2], addresses: [&str; 2], seed: u64) -> Pair {
    let key = |byte: Option<u8>| byte.map(|byte| Key([byte; limits::KEY_BYTES]));
    let profile = Profile::Linux;
    let configs = [
        Config {
            key: key(keys[CLIENT]),
            ..Config::new(profile)
        },
        Config {
            key: key(keys[SERVER]),
            ..listening(profile)
        },
    ];
    Pair::with(configs, delayed(10), addresses, seed)
}

fn connected(addresses: [&str; 2], seed: u64) -> (Pair, [ConnectionId; 2]) {
    with_keys([Some(1), Some(1)], addresses, seed).connected()
}

fn numbered(number: u32, bytes: usize) -> Vec<u8> {
    let mut payload = vec![number as u8; bytes.max(4)];
    payload[..4].copy_from_slice(&number.to_be_bytes());
    payload
}

/// FTCP-24, FTCP-25, FTCP-26.
#[test]
fn each_segment_of_a_connection_with_a_key_has_a_tag() {
    for addresses in [ADDRESSES, IPV6] {
        let (mut pair, [client, server]) = connected(addresses, 1);
        pair.send(CLIENT, client, &[7; 3_500], 1_000).unwrap();
        pair.send(SERVER, server, &[8; 1], 0).unwrap();
        pair.run(millis(700));
        let sizes: Vec<_> = pair.received[SERVER].iter().map(Vec::len).collect();
        assert_eq!(sizes, [1_000, 1_000, 1_000, 500]);
        assert_eq!(pair.received[CLIENT], [vec![8; 1]]);
        let now = pair.now();
        let longest = pair.stacks[CLIENT].segment_bytes_max(now, client).unwrap();
        let plain = if addresses == IPV6 { 1_440 } else { 1_460 };
        assert_eq!(longest, plain - limits::TAG_BYTES);
        pair.send(CLIENT, client, &vec![9; longest], 0).unwrap();
        pair.stacks[CLIENT].close(now, client);
        pair.run(millis(100));
        assert_eq!(pair.received[SERVER].last().unwrap().len(), longest);
        assert!(matches!(
            pair.events[SERVER][..],
            [Event::Closed {
                reason: CloseReason::Finished,
                ..
            }]
        ));
        let kinds = pair.sent.iter().map(|sent| {
            let segment = &sent.segment;
            let has_payload = !segment.payload.is_empty();
            match segment.proof {
                Proof::None if segment.flags.has(Flags::SYN) => 's',
                Proof::None if has_payload => 'd',
                Proof::Hello { .. } if !has_payload => 'h',
                Proof::Control { .. } if !has_payload => 'c',
                _ => panic!("{sent:?}"),
            }
        });
        let kinds: String = kinds.collect();
        assert!(kinds.starts_with("sshhddddd"), "{kinds}");
        assert!(kinds.ends_with("ccc"), "both FINs and the last ACK: {kinds}");
        for sent in pair.sent.iter().filter(|sent| !sent.segment.payload.is_empty()) {
            let payload = &sent.bytes[sent.segment.payload.clone()];
            assert!(payload.windows(8).all(|bytes| bytes != [7; 8]), "sealed");
        }
        for end in [CLIENT, SERVER] {
            assert_eq!(pair.stacks[end].counters().unproved, 0);
        }
    }
}

/// FTCP-24.
#[test]
fn a_hello_that_is_lost_is_said_again() {
    for lost in 0..4 {
        let mut pair = with_keys([Some(1), Some(1)], ADDRESSES, 1);
        let mut count = 0;
        pair.filter = Box::new(move |_| {
            count += 1;
            count - 1 != lost
        });
        let client = pair.connect();
        pair.run(Duration::from_secs(3));
        assert_eq!(
            pair.events[CLIENT],
            [Event::Connected { connection: client }],
            "{lost}"
        );
        assert!(
            matches!(pair.events[SERVER][..], [Event::Accepted { .. }]),
            "{lost}"
        );
        pair.send(CLIENT, client, b"datagram", 0).unwrap();
        pair.run(millis(50));
        assert_eq!(pair.received[SERVER], [b"datagram"]);
    }
}

/// FTCP-24: neither end opens towards one without its key, and both give up.
#[test]
fn ends_without_a_common_key_do_not_connect() {
    for (keys, accepts) in [
        ([Some(1), Some(2)], false),
        ([None, Some(1)], false),
        // An end that asks for no key lets in whoever comes; who has one notices.
        ([Some(1), None], true),
    ] {
        let mut pair = with_keys(keys, ADDRESSES, 1);
        pair.is_watched = false;
        let client = pair.connect();
        pair.run(millis(500));
        assert_eq!(!pair.events[SERVER].is_empty(), accepts, "{keys:?}");
        if keys[CLIENT].is_none() {
            assert_eq!(pair.events[CLIENT], [Event::Connected { connection: client }]);
            pair.send(CLIENT, client, b"datagram", 0).unwrap();
        } else {
            assert!(pair.send(CLIENT, client, b"datagram", 0).is_err());
        }
        pair.run(Duration::from_secs(60));
        assert!(pair.received[SERVER].is_empty());
        assert_eq!(pair.stacks[CLIENT].connections(), 0, "{keys:?}");
        let closed = pair.events[CLIENT].last().unwrap();
        assert!(matches!(closed, Event::Closed { connection, .. } if *connection == client));
        let unproved = pair.stacks[SERVER].counters().unproved;
        assert_eq!(unproved > 0, keys[SERVER].is_some(), "{keys:?}");
    }
}

/// A pair that has exchanged something, and a segment of the client's with data.
fn with_sample() -> (Pair, [ConnectionId; 2], Sent) {
    let (mut pair, ids) = connected(ADDRESSES, 1);
    pair.send(CLIENT, ids[CLIENT], &[1; 100], 0).unwrap();
    pair.run(millis(30));
    let mut sent = pair.take_sent(CLIENT).into_iter();
    let sample = sent.find(|sent| !sent.segment.payload.is_empty()).unwrap();
    pair.take_sent(SERVER);
    pair.received = Default::default();
    pair.is_watched = false;
    (pair, ids, sample)
}

/// A packet that is right in all but the tag.
fn forged(sample: &Sent, flags: Flags) -> Vec<u8> {
    let sequence = sample.segment.end().0;
    let mut packet = renumbered(&sample.bytes, sequence, sample.segment.acknowledgement.0);
    packet[33] = flags.0;
    if flags != Flags::ACK {
        packet.truncate(40);
        packet[3] = 40;
    }
    packet
}

/// FTCP-27.
#[test]
fn who_sees_all_and_has_no_key_ends_nothing_and_says_nothing() {
    let (mut pair, [client, _], sample) = with_sample();
    for _ in 0..500 {
        for flags in [
            Flags::RST,
            Flags::RST.and(Flags::ACK),
            Flags::RST.and(Flags::SYN),
            Flags::FIN.and(Flags::ACK),
            Flags::ACK,
        ] {
            pair.deliver(SERVER, &forged(&sample, flags), None);
        }
        pair.run(millis(2));
    }
    assert!(pair.events.iter().all(Vec::is_empty));
    assert!(pair.received[SERVER].is_empty());
    let answers = pair.take_sent(SERVER);
    assert!((2..=3).contains(&answers.len()), "{}", answers.len());
    for answer in answers {
        assert!(matches!(answer.segment.proof, Proof::Control { .. }));
        assert_eq!(
            answer.segment.acknowledgement,
            sample.segment.end(),
            "nothing forged counts"
        );
    }
    assert_eq!(pair.stacks[SERVER].counters().unproved, 2_500);
    pair.send(CLIENT, client, b"datagram", 0).unwrap();
    pair.run(millis(50));
    assert_eq!(pair.received[SERVER], [b"datagram"]);
}

/// FTCP-25, FTCP-26: what was seen before does not end anything with other flags or numbers.
#[test]
fn genuine_segments_that_were_changed_count_for_nothing() {
    let (mut pair, [client, server], sample) = with_sample();
    pair.send(SERVER, server, &[2; 10], 0).unwrap();
    pair.run(millis(700));
    let mut models = pair.take_sent(CLIENT);
    models.push(sample);
    assert!(models.iter().any(|sent| sent.segment.payload.is_empty()));
    let before = pair.stacks[SERVER].counters();
    let mut changed = 0;
    for model in &models {
        // Numbers and flags of TCP, its option, and the payload; not ports, which choose the connection, nor PSH,
        // window, checksum and urgent pointer.
        for at in (24..32).chain([33]).chain(40..model.bytes.len()) {
            for bit in 0..8 {
                let mut packet = model.bytes.clone();
                packet[at] ^= 1 << bit;
                let is_push = at == 33 && 1 << bit == Flags::PSH.0;
                let is_head_of_option = model.segment.payload.is_empty() && (40..44).contains(&at);
                // A SYN is challenged before anybody looks for a tag.
                let is_syn = at == 33 && 1 << bit == Flags::SYN.0;
                if !is_push && !is_head_of_option && !is_syn {
                    pair.deliver(SERVER, &packet, None);
                    changed += 1;
                }
            }
        }
    }
    let after = pair.stacks[SERVER].counters();
    assert_eq!(after.unproved - before.unproved, changed);
    assert_eq!(after.delivered, before.delivered);
    assert!(pair.events.iter().all(Vec::is_empty));
    pair.send(CLIENT, client, b"datagram", 0).unwrap();
    pair.run(millis(50));
    assert_eq!(pair.received[SERVER], [b"datagram"]);
}

/// FTCP-24, FTCP-28: a hello that is replayed neither ends, moves nor opens anything.
#[test]
fn a_replayed_hello_changes_nothing() {
    let mut pair = with_keys([Some(1), Some(1)], ADDRESSES, 1);
    let client = pair.connect();
    pair.run(millis(200));
    let is_hello = |sent: &&Sent| matches!(sent.segment.proof, Proof::Hello { .. });
    let hello = pair.sent.iter().find(is_hello).unwrap().clone();
    pair.events = Default::default();
    pair.is_watched = false;
    pair.take_sent(SERVER);
    let (sequence, acknowledgement) = (hello.segment.sequence, hello.segment.acknowledgement);
    for ahead in [0, 1 << 20, 1 << 25] {
        for flags in [Flags::ACK, Flags::FIN.and(Flags::ACK), Flags::RST] {
            let mut packet = renumbered(&hello.bytes, sequence.plus(ahead).0, acknowledgement.0);
            packet[33] = flags.0;
            pair.deliver(SERVER, &packet, None);
        }
    }
    let answers = pair.take_sent(SERVER);
    assert!(answers.len() <= 2, "{answers:?}");
    assert!(
        answers
            .iter()
            .all(|sent| sent.segment.acknowledgement == sequence)
    );
    assert!(pair.events.iter().all(Vec::is_empty));
    pair.send(CLIENT, client, b"datagram", 0).unwrap();
    pair.run(millis(50));
    assert_eq!(pair.received[SERVER], [b"datagram"]);
}

/// FTCP-28: a whole connection that is replayed towards a listener carries nothing.
#[test]
fn a_replayed_connection_carries_nothing() {
    let mut pair = with_keys([Some(1), Some(1)], ADDRESSES, 1);
    let client = pair.connect();
    pair.run(millis(200));
    pair.send(CLIENT, client, &[7; 900], 0).unwrap();
    pair.run(millis(50));
    let recorded = pair.take_sent(CLIENT);
    let mut again = with_keys([None, Some(1)], ADDRESSES, 2);
    again.is_watched = false;
    let mut theirs = None;
    for sent in &recorded {
        // Whoever replays can give the numbers that the listener expects.
        let mut packet = sent.bytes.clone();
        if let Some(initial) = theirs {
            let first: Segment = recorded[1].segment.clone();
            let behind = sent.segment.acknowledgement.since(first.acknowledgement);
            let acknowledgement = fake_tcp::Sequence(initial).plus(1 + behind).0;
            packet = renumbered(&packet, sent.segment.sequence.0, acknowledgement);
        }
        again.deliver(SERVER, &packet, None);
        theirs = theirs.or(again.sent.first().map(|answer| answer.segment.sequence.0));
    }
    assert!(matches!(again.events[SERVER][..], [Event::Accepted { .. }]));
    assert!(again.received[SERVER].is_empty());
    assert!(again.stacks[SERVER].counters().unproved > 0);
}

/// FTCP-25.
#[test]
fn losses_reordering_and_duplicates_are_those_of_the_path() {
    for_each_seed(10, |seed| {
        let addresses = if seed % 2 == 0 { IPV6 } else { ADDRESSES };
        let (mut pair, [client, server]) = connected(addresses, seed);
        pair.joins = seed % 3 == 0;
        pair.set_link(LinkConfig {
            loss: 0.1,
            reorder: 0.1,
            duplicate: 0.1,
            jitter: millis(5),
            ..delayed(10)
        });
        let sent = |number: u32| numbered(number, 800 + (number as usize * 37) % 600);
        for number in 0..1_000 {
            pair.send(CLIENT, client, &sent(number), 0).unwrap();
            if number % 3 == 0 {
                pair.send(SERVER, server, &sent(number), 0).unwrap();
            }
            pair.run(millis(1));
        }
        pair.run(millis(100));
        for (end, least) in [(SERVER, 800), (CLIENT, 250)] {
            let came = &pair.received[end];
            assert!(came.len() > least, "{}", came.len());
            for datagram in came {
                let number = u32::from_be_bytes(datagram[..4].try_into().unwrap());
                assert!(*datagram == sent(number), "{number}");
            }
            let counters = pair.stacks[end].counters();
            assert_eq!((counters.unproved, counters.outside), (0, 0));
        }
    });
}

/// FTCP-21, FTCP-25: lengths and tags together.
#[test]
fn a_path_that_joins_segments_carries_sealed_datagrams_too() {
    let (mut pair, [client, _]) = connected(ADDRESSES, 1);
    pair.joins = true;
    pair.send(CLIENT, client, &[6; 3_000], 1_000).unwrap();
    pair.run(millis(50));
    assert_eq!(pair.stacks[SERVER].counters().joined, 1);
    let expected: Vec<_> = (0..40)
        .map(|number| numbered(number, number as usize * 311 % 1_400))
        .collect();
    for datagram in &expected {
        pair.send(CLIENT, client, datagram, 0).unwrap();
    }
    pair.run(millis(50));
    assert!(pair.received[SERVER] == expected);
    assert_eq!(pair.stacks[SERVER].counters().unproved, 0);
}

/// FTCP-25: what was joined behind genuine segments neither arrives nor counts as received.
#[test]
fn what_is_forged_behind_genuine_segments_of_a_super_segment_is_left_away() {
    let (mut pair, [client, _]) = connected(ADDRESSES, 1);
    let (mut framed, now) = (Vec::new(), pair.now());
    let headers = pair.stacks[CLIENT]
        .send(now, client, &[7; 2_000], 1_000, Ecn::NotEct, &mut framed)
        .unwrap();
    let mut packet = [headers.bytes(), &framed, &[0; 1_016]].concat();
    let bytes = packet.len() as u16;
    packet[2..4].copy_from_slice(&bytes.to_be_bytes());
    pair.is_watched = false;
    pair.deliver(SERVER, &packet, Some(1_016));
    assert!(pair.received[SERVER] == vec![vec![7; 1_000]; 2]);
    let answer = pair.take_sent(SERVER).pop().unwrap().segment;
    let sent = Segment::parse(&packet).unwrap();
    assert_eq!(answer.acknowledgement, sent.sequence.plus(framed.len() as u32));
}

/// FTCP-21, FTCP-27: a window that says what a segment has is no tag.
#[test]
fn whoever_sends_blindly_has_nobody_write_lengths() {
    let (mut pair, [client, _]) = connected(ADDRESSES, 1);
    pair.send(CLIENT, client, &[7; 1_000], 0).unwrap();
    pair.run(millis(100));
    let genuine = pair.sent.iter().rfind(|sent| sent.segment.payload.len() > 1_000);
    let genuine = genuine.unwrap();
    let (bytes, segment) = (genuine.bytes.clone(), genuine.segment.clone());
    pair.is_watched = false;
    let [far, near] = [0x4000_0000, 0];
    for (sequence, acknowledgement) in [(far, near), (near, far), (far, far)] {
        let mut packet = renumbered(
            &bytes,
            segment.sequence.plus(sequence).0,
            segment.acknowledgement.plus(acknowledgement).0,
        );
        // Lengths, which lead nowhere.
        packet[34..36].copy_from_slice(&65_534_u16.to_be_bytes());
        packet[40..].fill(0xff);
        pair.deliver(SERVER, &packet, None);
        // And a segment that is longer than any.
        packet[34..36].copy_from_slice(&65_535_u16.to_be_bytes());
        packet.resize(40 + 5_000, 0xff);
        packet[2..4].copy_from_slice(&5_040_u16.to_be_bytes());
        pair.deliver(SERVER, &packet, None);
    }
    let counters = pair.stacks[SERVER].counters();
    assert_eq!((counters.joined, counters.unproved), (0, 6));
    pair.send(CLIENT, client, &[7; 1_000], 0).unwrap();
    pair.run(millis(100));
    let now = pair.now();
    let longest = pair.stacks[CLIENT].segment_bytes_max(now, client).unwrap();
    assert_eq!(longest, 1_460 - limits::TAG_BYTES);
}

/// FTCP-6, FTCP-24: a cookie opens with the hello.
#[test]
fn a_cookie_is_kept_by_who_has_the_key_alone() {
    for (key, opens) in [(Some(1), true), (Some(2), false), (None, false)] {
        let mut pair = with_keys([key, Some(1)], ADDRESSES, 1);
        pair.is_watched = false;
        let id = pair.connect();
        let syn = pair.sent.pop().unwrap();
        let now = pair.now();
        pair.stacks[CLIENT].close(now, id);
        pair.filter = Box::new(|sent| sent.from == CLIENT);
        for number in 0..600_u32 {
            let mut packet = syn.bytes.clone();
            packet[12..16].copy_from_slice(&(0x0a00_0000 + (number << 8)).to_be_bytes());
            pair.deliver(SERVER, &packet, None);
        }
        pair.filter = Box::new(|_| true);
        pair.events = Default::default();
        pair.addresses[CLIENT].set_port(41_000);
        let before = pair.stacks[SERVER].connections();
        pair.connect();
        pair.run(millis(50));
        assert_eq!(!pair.events[SERVER].is_empty(), opens, "{key:?}");
        assert_eq!(pair.stacks[SERVER].connections() > before, opens, "{key:?}");
        pair.stacks[CLIENT] = fake_tcp::Stack::new(Config::new(Profile::Linux), [9; 32]);
        pair.filter = Box::new(|_| false);
        pair.run(Duration::from_secs(100));
        assert_eq!(pair.stacks[SERVER].connections(), 0, "{key:?}");
    }
}

/// FTCP-25, FTCP-26: some firewalls give each connection other sequence numbers.
#[test]
fn a_router_that_moves_sequence_numbers_changes_nothing() {
    const MOVED: u32 = 0x9876_5432;
    let mut pair = with_keys([Some(1), Some(1)], ADDRESSES, 1);
    pair.is_watched = false;
    pair.filter = Box::new(|_| false);
    let carry = |pair: &mut Pair| {
        for _ in 0..5 {
            for sent in std::mem::take(&mut pair.sent) {
                let segment = &sent.segment;
                let acknowledges = segment.flags.has(Flags::ACK) && sent.from == SERVER;
                let forth = if sent.from == CLIENT { MOVED } else { 0 };
                let back = if acknowledges { MOVED.wrapping_neg() } else { 0 };
                let (sequence, acknowledgement) =
                    (segment.sequence.plus(forth), segment.acknowledgement.plus(back));
                let packet = renumbered(&sent.bytes, sequence.0, acknowledgement.0);
                pair.deliver(1 - sent.from, &packet, None);
            }
        }
    };
    let client = pair.connect();
    carry(&mut pair);
    assert_eq!(pair.events[CLIENT], [Event::Connected { connection: client }]);
    pair.send(CLIENT, client, &[7; 3_000], 1_000).unwrap();
    carry(&mut pair);
    assert!(pair.received[SERVER] == vec![vec![7; 1_000]; 3]);
    let now = pair.now();
    pair.stacks[CLIENT].close(now, client);
    pair.flush();
    carry(&mut pair);
    assert!(matches!(pair.events[SERVER].last(), Some(Event::Closed { .. })));
    for end in [CLIENT, SERVER] {
        assert_eq!(pair.stacks[end].counters().unproved, 0);
    }
}

/// FTCP-24: whoever answers a SYN by a bare one has shown no key, also where that is the peer itself.
#[test]
fn with_a_key_nobody_opens_by_syns_alone() {
    let key = Some(Key([1; limits::KEY_BYTES]));
    let config = Config {
        key,
        ..Config::new(Profile::Linux)
    };
    let addresses = ["[2001:db8::1]:4433", "[2001:db8:1::2]:4433"];
    let mut pair = Pair::with([config; 2], delayed(10), addresses, 3);
    pair.stacks[SERVER]
        .connect(pair.now(), pair.addresses[SERVER], pair.addresses[CLIENT])
        .unwrap();
    let client = pair.connect();
    pair.run(Duration::from_secs(4));
    for end in [CLIENT, SERVER] {
        let opened = |event: &Event| matches!(event, Event::Connected { .. } | Event::Accepted { .. });
        assert!(!pair.events[end].iter().any(opened), "{:?}", pair.events[end]);
    }
    assert!(pair.send(CLIENT, client, b"in clear", 0).is_err());
}
