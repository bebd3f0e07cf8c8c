//! Datagrams in both directions, and what acknowledges them.

use std::time::Duration;

use fake_tcp::segment::{Flags, Segment};
use fake_tcp::{Config, Profile, Refused, Sequence, limits};
use packet::Ecn;
use sim::{LinkConfig, for_each_seed};

use super::pair::{CLIENT, Pair, SERVER, delayed, listening};

const IPV6: [&str; 2] = ["[2001:db8::1]:40000", "[2001:db8:1::2]:4433"];

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn numbered(number: u32, bytes: usize) -> Vec<u8> {
    let mut payload = vec![number as u8; bytes.max(4)];
    payload[..4].copy_from_slice(&number.to_be_bytes());
    payload
}

/// FTCP-1.
#[test]
fn a_datagram_is_the_payload_of_one_segment() {
    for (addresses, ip_bytes) in [(IPV6, 40), (["192.0.2.1:40000", "198.51.100.2:4433"], 20)] {
        let profile = Profile::Linux;
        let configs = [Config::new(profile), listening(profile)];
        let (mut pair, [client, server]) = Pair::with(configs, delayed(10), addresses, 1).connected();
        pair.take_sent(CLIENT);
        for bytes in [1, 2, 999, 1_440] {
            pair.send(CLIENT, client, &vec![5; bytes], 0).unwrap();
        }
        pair.send(SERVER, server, b"answer", 0).unwrap();
        pair.run(millis(100));
        let sizes: Vec<_> = pair.received[SERVER].iter().map(Vec::len).collect();
        assert_eq!(sizes, [1, 2, 999, 1_440]);
        assert_eq!(pair.received[CLIENT], [b"answer".to_vec()]);
        let sent = pair.take_sent(CLIENT);
        assert_eq!(sent[2].bytes.len(), ip_bytes + 20 + 999);
        if ip_bytes == 20 {
            assert_eq!((sent[2].bytes[6], sent[2].bytes[8]), (0x40, 64));
            let ids: Vec<_> = sent.iter().map(|sent| sent.bytes[5]).collect();
            assert_eq!(ids[1], ids[0].wrapping_add(1));
        }
        assert_eq!(pair.send(CLIENT, client, &[], 0), Err(Refused::Empty));
    }
}

/// FTCP-1.
#[test]
fn the_ecn_codepoint_is_that_of_the_datagram() {
    let (mut pair, [client, _]) = Pair::new().connected();
    for ecn in [Ecn::Ect0, Ecn::Ce, Ecn::NotEct] {
        let headers = pair.headers(client, &[1; 4], 0, ecn).unwrap();
        let packet = [headers.bytes(), &[1; 4]].concat();
        let data = pair.stacks[SERVER].receive(pair.now(), &packet, None).unwrap();
        assert_eq!(data.ecn, ecn);
    }
}

/// FTCP-2.
#[test]
fn a_train_is_one_super_segment_and_its_borders_survive() {
    for (bytes, sizes) in [
        (3_600, &[1_200, 1_200, 1_200][..]),
        (2_500, &[1_200, 1_200, 100]),
        (1_200, &[1_200]),
    ] {
        let (mut pair, [client, _]) = Pair::new().connected();
        let payload: Vec<_> = (0..bytes).map(|at| at as u8).collect();
        let headers = pair.headers(client, &payload, 1_200, Ecn::NotEct).unwrap();
        let vnet = headers.vnet();
        assert_eq!(
            usize::from(vnet.gso_size),
            if sizes.len() > 1 { 1_200 } else { 0 }
        );
        assert_eq!(
            (vnet.checksum_start, vnet.checksum_offset, vnet.header_bytes),
            (20, 16, 40)
        );
        // As one super-segment.
        let packet = [headers.bytes(), &payload].concat();
        pair.deliver(SERVER, &packet, Some(1_200));
        // As segments that the path cut; they are late by now.
        pair.send(CLIENT, client, &payload, 1_200).unwrap();
        pair.run(millis(100));
        let lengths: Vec<_> = pair.received[SERVER].iter().map(Vec::len).collect();
        assert_eq!(lengths, [sizes, sizes].concat());
        assert_eq!(pair.received[SERVER].concat(), [&payload[..], &payload].concat());
    }
}

/// FTCP-2.
#[test]
fn a_train_fits_an_ip_packet() {
    let (mut pair, [client, _]) = Pair::new().connected();
    let refused = pair.headers(client, &[0; 65_496], 1_400, Ecn::NotEct);
    assert_eq!(refused.unwrap_err(), Refused::TooLong);
    let refused = pair.headers(client, &[0; 100_000], 1_461, Ecn::NotEct);
    assert_eq!(
        refused.unwrap_err(),
        Refused::TooLarge {
            segment_bytes_max: 1_460
        }
    );
    let packet = [&[0; 65_495][..]].concat();
    assert_eq!(pair.send(CLIENT, client, &packet[..60_000], 1_400), Ok(()));
    pair.run(millis(100));
    assert_eq!(pair.received[SERVER].concat().len(), 60_000);
}

/// FTCP-8: 2^32 and more bytes in one direction, in steps that hit the wrap at different places.
#[test]
fn sequence_numbers_wrap() {
    for_each_seed(2, |seed| {
        let profile = Profile::Linux;
        let configs = [Config::new(profile), listening(profile)];
        let (mut pair, [client, _]) = Pair::with(configs, delayed(0), IPV6, seed).connected();
        let train = vec![3; 65_000 - seed as usize];
        let mut total = 0_u64;
        while total < (1 << 32) + (64 << 20) {
            // The headers alone: the payload is what nobody looks at.
            let headers = pair.headers(client, &train, 1_300, Ecn::NotEct).unwrap();
            let packet = [headers.bytes(), &train].concat();
            let data = pair.stacks[SERVER]
                .receive(pair.now(), &packet, Some(1_300))
                .unwrap();
            assert_eq!(data.payload.len(), train.len());
            total += train.len() as u64;
            while let Some(answer) = pair.stacks[SERVER].poll_segment() {
                pair.stacks[CLIENT].receive(pair.now(), answer.headers.bytes(), None);
            }
        }
        assert_eq!(pair.stacks[SERVER].counters().outside, 0);
        assert_eq!(pair.stacks[CLIENT].counters().outside, 0);
    });
}

/// FTCP-9, FTCP-10, and no firewall finds anything invalid.
#[test]
fn losses_reordering_and_duplicates_are_those_of_the_path() {
    for_each_seed(30, |seed| {
        let profile = Profile::Linux;
        let configs = [Config::new(profile), listening(profile)];
        let addresses = if seed % 2 == 0 {
            IPV6
        } else {
            ["192.0.2.1:40000", "198.51.100.2:4433"]
        };
        let (mut pair, [client, server]) = Pair::with(configs, delayed(10), addresses, seed).connected();
        let bad = LinkConfig {
            loss: 0.1,
            reorder: 0.1,
            duplicate: 0.1,
            jitter: millis(5),
            ..delayed(10)
        };
        pair.set_link(bad);
        for number in 0..2_000 {
            let size = 100 + (number as usize * 37) % 1_300;
            pair.send(CLIENT, client, &numbered(number, size), 0).unwrap();
            if number % 3 == 0 {
                pair.send(SERVER, server, &numbered(number, 60), 0).unwrap();
            }
            pair.run(millis(1));
        }
        pair.run(millis(100));
        let came = &pair.received[SERVER];
        assert!((1_700..2_200).contains(&came.len()), "{}", came.len());
        for datagram in came {
            let number = u32::from_be_bytes(datagram[..4].try_into().unwrap());
            assert_eq!(*datagram, numbered(number, 100 + (number as usize * 37) % 1_300));
        }
        let numbers: Vec<_> = came.iter().map(|datagram| datagram[..4].to_vec()).collect();
        let mut sorted = numbers.clone();
        sorted.sort();
        assert_ne!(numbers, sorted, "the path reorders");
        sorted.dedup();
        assert!(sorted.len() < numbers.len(), "the path duplicates");
        for end in [CLIENT, SERVER] {
            assert_eq!(pair.stacks[end].counters().outside, 0);
            assert!(pair.events[end].is_empty());
        }
    });
}

/// FTCP-12.
#[test]
fn data_is_acknowledged_at_once_after_256_kib_and_within_a_second() {
    let (mut pair, [client, _]) = Pair::new().connected();
    pair.take_sent(SERVER);
    pair.send(CLIENT, client, &[1; 500], 0).unwrap();
    pair.run(millis(15));
    assert_eq!(pair.take_sent(SERVER).len(), 1, "the first data");
    pair.send(CLIENT, client, &[1; 500], 0).unwrap();
    pair.run(millis(300));
    assert_eq!(pair.take_sent(SERVER).len(), 0, "later data waits");
    pair.run(millis(700));
    let [answer] = &pair.take_sent(SERVER)[..] else {
        panic!("one acknowledgement of what waits")
    };
    assert_eq!(answer.segment.flags, Flags::ACK);
    for _ in 0..10 {
        pair.send(CLIENT, client, &[1; 60_000], 1_000).unwrap();
    }
    pair.run(millis(20));
    let acks = pair.take_sent(SERVER);
    assert_eq!(acks.len(), 2, "one for each 256 KiB");
    let last = pair.take_sent(CLIENT).pop().unwrap().segment;
    pair.run(millis(600));
    let [answer] = &pair.take_sent(SERVER)[..] else {
        panic!("one acknowledgement of the rest")
    };
    assert_eq!(answer.segment.acknowledgement, last.end());
}

/// FTCP-12: an answer acknowledges.
#[test]
fn no_acknowledgement_goes_beside_an_answer() {
    let (mut pair, [client, server]) = Pair::new().connected();
    pair.sent.clear();
    for number in 0..100 {
        pair.send(CLIENT, client, &numbered(number, 300), 0).unwrap();
        pair.run(millis(20));
        pair.send(SERVER, server, &numbered(number, 200), 0).unwrap();
        pair.run(millis(20));
    }
    let without_data = |sent: &super::pair::Sent| sent.segment.payload.is_empty();
    // The first data in each direction is acknowledged at once.
    assert_eq!(pair.take_sent(SERVER).into_iter().filter(without_data).count(), 1);
    assert_eq!(pair.take_sent(CLIENT).into_iter().filter(without_data).count(), 1);
}

/// FTCP-9: a gap is not asked for again.
#[test]
fn what_is_missing_is_acknowledged_all_the_same() {
    let (mut pair, [client, _]) = Pair::new().connected();
    pair.filter = Box::new(|sent| sent.from == SERVER);
    pair.send(CLIENT, client, &[1; 50_000], 1_000).unwrap();
    pair.filter = Box::new(|_| true);
    pair.send(CLIENT, client, &[2; 10], 0).unwrap();
    let end = pair.sent.last().unwrap().segment.end();
    pair.run(millis(15));
    let answer = pair.take_sent(SERVER).pop().unwrap();
    assert_eq!(answer.segment.acknowledgement, end);
    // A loss at the end shows by the next segment without data.
    pair.filter = Box::new(|sent| sent.from == SERVER || sent.segment.payload.is_empty());
    pair.send(CLIENT, client, &[1; 5_000], 1_000).unwrap();
    let end = pair.sent.last().unwrap().segment.end();
    let server = pair.stacks[SERVER].counters();
    assert_eq!(server.outside, 0);
    pair.filter = Box::new(|_| true);
    pair.send(CLIENT, client, &[1; 1], 0).unwrap();
    pair.run(millis(600));
    let answer = pair.take_sent(SERVER).pop().unwrap();
    assert_eq!(answer.segment.acknowledgement, end.plus(1));
}

/// FTCP-11.
#[test]
fn no_more_is_on_the_way_than_the_window() {
    let (mut pair, [client, _]) = Pair::new().connected();
    // The SYN-ACK's window counts until the first data is acknowledged.
    pair.send(CLIENT, client, &[0; 64_400], 1_400).unwrap();
    assert_eq!(
        pair.send(CLIENT, client, &[0; 800], 800),
        Err(Refused::WindowFull)
    );
    pair.run(millis(30));
    pair.take_sent(CLIENT);
    pair.filter = Box::new(|sent| sent.from == CLIENT);
    let mut total = 0_u64;
    while pair.send(CLIENT, client, &[0; 64_400], 1_400).is_ok() {
        total += 64_400;
        pair.run(Duration::from_micros(100));
    }
    let window = u64::from(u16::MAX) << 10;
    assert!(total <= window && total + 64_400 > window, "{total}");
    let probes: Vec<_> = pair
        .take_sent(CLIENT)
        .into_iter()
        .filter(|sent| sent.segment.payload.is_empty())
        .collect();
    // Half of the window takes about 52 ms.
    assert!((4..=7).contains(&probes.len()), "{}", probes.len());
    pair.filter = Box::new(|_| true);
    pair.run(limits::PROBE_INTERVAL);
    pair.send(CLIENT, client, &[0; 64_400], 1_400).unwrap();
}

/// FTCP-9, FTCP-11: nobody acknowledges what was lost; the window opens again all the same, also for who only sends.
#[test]
fn a_window_of_which_all_was_lost_opens_again() {
    let (mut pair, [client, _]) = Pair::new().connected();
    pair.send(CLIENT, client, &[0; 1_000], 0).unwrap();
    pair.run(millis(30));
    pair.filter = Box::new(|_| false);
    while pair.send(CLIENT, client, &[0; 64_400], 1_400).is_ok() {}
    pair.filter = Box::new(|_| true);
    pair.run(millis(200));
    let refused = pair.send(CLIENT, client, &[0; 64_400], 1_400);
    assert_eq!(refused, Err(Refused::WindowFull));
    pair.run(millis(30));
    pair.send(CLIENT, client, &[0; 64_400], 1_400).unwrap();
}

/// FTCP-10.
#[test]
fn data_far_from_the_window_is_dropped() {
    let (mut pair, [client, _]) = Pair::new().connected();
    pair.is_watched = false;
    pair.send(CLIENT, client, &[1; 100], 0).unwrap();
    pair.run(millis(20));
    let sample = pair.take_sent(CLIENT).pop().unwrap();
    let next = sample.segment.end();
    let window = u32::from(u16::MAX) << 10;
    let counts_at = |pair: &mut Pair, next: Sequence, offset| {
        let before = pair.received[SERVER].len();
        let number = next.plus(offset).0;
        let packet = renumbered(&sample.bytes, number, sample.segment.acknowledgement.0);
        pair.deliver(SERVER, &packet, None);
        pair.received[SERVER].len() > before
    };
    let late = 0_u32.wrapping_sub(limits::REORDER_BYTES_MAX);
    for (offset, counts) in [
        (late, true),
        (late - 1, false),
        (1 << 31, false),
        (window - 100, true),
    ] {
        assert_eq!(counts_at(&mut pair, next, offset), counts, "{offset:#x}");
    }
    // The window moved with the last one.
    let next = next.plus(window);
    for (offset, counts) in [(window - 99, false), (window - 100, true)] {
        assert_eq!(counts_at(&mut pair, next, offset), counts, "{offset:#x}");
    }
}

/// FTCP-10.
#[test]
fn data_with_an_acknowledgement_of_what_was_never_sent_is_dropped() {
    let (mut pair, [client, _]) = Pair::new().connected();
    pair.is_watched = false;
    pair.send(CLIENT, client, &[1; 100], 0).unwrap();
    let sample = pair.take_sent(CLIENT).pop().unwrap();
    let (sequence, right) = (sample.segment.sequence.0, sample.segment.acknowledgement);
    let window = u32::from(u16::MAX) << 10;
    for (offset, counts) in [
        (1, false),
        (1 << 31, false),
        (0_u32.wrapping_sub(window + 1), false),
        (0, true),
    ] {
        let before = pair.received[SERVER].len();
        pair.deliver(
            SERVER,
            &renumbered(&sample.bytes, sequence, right.plus(offset).0),
            None,
        );
        assert_eq!(pair.received[SERVER].len() > before, counts, "{offset:#x}");
    }
}

/// The packet with other numbers; checksums are not looked at behind them.
pub(crate) fn renumbered(packet: &[u8], sequence: u32, acknowledgement: u32) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let start = Segment::parse(&packet).unwrap();
    let tcp = if start.source.is_ipv4() { 20 } else { 40 };
    packet[tcp + 4..tcp + 8].copy_from_slice(&sequence.to_be_bytes());
    packet[tcp + 8..tcp + 12].copy_from_slice(&acknowledgement.to_be_bytes());
    packet
}
