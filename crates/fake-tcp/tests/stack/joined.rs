//! Something between the ends joins segments, and says nothing about where one ends.

use std::time::Duration;

use fake_tcp::segment::{Flags, Segment};
use fake_tcp::{Config, ConnectionId, Profile, limits};
use sim::{LinkConfig, for_each_seed};

use super::pair::{CLIENT, Pair, SERVER, delayed, listening};

const IPV6: [&str; 2] = ["[2001:db8::1]:40000", "[2001:db8:1::2]:4433"];

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Joins what came at once and follows on each other, as receive offloads do that lose the sizes.
pub(crate) fn join(packets: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut joined: Vec<Vec<u8>> = Vec::new();
    for packet in packets {
        let segment = Segment::parse(&packet).unwrap();
        let last = joined.last_mut().filter(|last| {
            let last = Segment::parse(last).unwrap();
            last.end() == segment.sequence
                && last.acknowledgement == segment.acknowledgement
                && last.window == segment.window
                && !last.payload.is_empty()
                && !segment.payload.is_empty()
                && last.payload.end + segment.payload.len() <= limits::PACKET_BYTES_MAX
        });
        match last {
            Some(last) => {
                last.extend(&packet[segment.payload]);
                let bytes = last.len() as u16;
                if last[0] >> 4 == 4 {
                    last[2..4].copy_from_slice(&bytes.to_be_bytes());
                } else {
                    last[4..6].copy_from_slice(&(bytes - 40).to_be_bytes());
                }
            }
            None => joined.push(packet),
        }
    }
    joined
}

fn pair(addresses: [&str; 2], seed: u64) -> (Pair, [ConnectionId; 2]) {
    let profile = Profile::Linux;
    let configs = [Config::new(profile), listening(profile)];
    let (mut pair, ids) = Pair::with(configs, delayed(10), addresses, seed).connected();
    pair.joins = true;
    (pair, ids)
}

fn numbered(number: u32) -> Vec<u8> {
    let mut datagram = vec![number as u8; 4 + number as usize * 311 % 1_400];
    datagram[..4].copy_from_slice(&number.to_be_bytes());
    datagram
}

/// FTCP-21, FTCP-22.
#[test]
fn who_receives_joined_segments_gets_lengths_and_loses_nothing_from_then_on() {
    for addresses in [IPV6, ["192.0.2.1:40000", "198.51.100.2:4433"]] {
        let (mut pair, [client, server]) = pair(addresses, 1);
        // One datagram at a time passes as it is.
        pair.send(CLIENT, client, &[5; 1_000], 0).unwrap();
        pair.run(millis(50));
        assert_eq!(pair.received[SERVER], [vec![5; 1_000]]);
        // Of these nobody knows where one ends.
        pair.send(CLIENT, client, &[6; 3_000], 1_000).unwrap();
        pair.run(millis(50));
        assert_eq!(pair.received[SERVER].len(), 1);
        assert_eq!(pair.stacks[SERVER].counters().joined, 1);
        let expected: Vec<_> = (0..40).map(numbered).collect();
        for datagram in &expected {
            pair.send(CLIENT, client, datagram, 0).unwrap();
        }
        pair.run(millis(50));
        assert!(pair.received[SERVER][1..] == expected);
        // The other direction goes on as it was until it is joined itself.
        pair.take_sent(SERVER);
        pair.send(SERVER, server, &[7; 500], 0).unwrap();
        assert_eq!(pair.take_sent(SERVER).pop().unwrap().segment.payload.len(), 500);
        pair.run(millis(50));
        pair.send(SERVER, server, &[7; 3_000], 1_000).unwrap();
        pair.run(millis(50));
        pair.send(SERVER, server, &[8; 3_000], 1_000).unwrap();
        pair.run(millis(50));
        assert!(pair.received[CLIENT][1..] == vec![vec![8; 1_000]; 3]);
    }
}

/// FTCP-21: what lost its borders is never handed on, whatever else the path does meanwhile.
#[test]
fn nothing_arrives_that_was_not_sent() {
    for_each_seed(20, |seed| {
        let addresses = if seed % 2 == 0 {
            IPV6
        } else {
            ["192.0.2.1:40000", "198.51.100.2:4433"]
        };
        let (mut pair, [client, server]) = pair(addresses, seed);
        pair.set_link(LinkConfig {
            loss: 0.1,
            reorder: 0.05,
            duplicate: 0.05,
            ..delayed(10)
        });
        // So long that two never pass for one: those are told apart by nothing.
        let long = |number: u32, end: usize| {
            let mut datagram = vec![end as u8; 800 + number as usize * 37 % 600];
            datagram[..4].copy_from_slice(&number.to_be_bytes());
            datagram
        };
        for number in 0..1_000 {
            pair.send(CLIENT, client, &long(number, CLIENT), 0).unwrap();
            pair.send(SERVER, server, &long(number, SERVER), 0).unwrap();
            if number % 4 == 0 {
                pair.run(millis(1));
            }
        }
        pair.run(millis(200));
        for (to, from) in [(SERVER, CLIENT), (CLIENT, SERVER)] {
            let came = &pair.received[to];
            assert!(came.len() > 700, "{}", came.len());
            for datagram in came {
                let number = u32::from_be_bytes(datagram[..4].try_into().unwrap());
                assert_eq!(*datagram, long(number, from));
            }
            assert!(pair.stacks[to].counters().joined > 0);
            assert_eq!(pair.stacks[to].counters().outside, 0);
        }
    });
}

/// FTCP-22: the question is in every segment, so one that is lost costs nothing but time.
#[test]
fn a_lost_question_is_asked_again_at_a_bounded_rate() {
    let (mut pair, [client, _]) = pair(IPV6, 1);
    // Its acknowledgement opens the window.
    pair.send(CLIENT, client, &[5; 1_000], 0).unwrap();
    pair.run(millis(50));
    pair.filter = Box::new(|sent| sent.from == CLIENT);
    pair.take_sent(SERVER);
    for _ in 0..50 {
        pair.send(CLIENT, client, &[6; 3_000], 1_000).unwrap();
        pair.run(millis(10));
    }
    let asked = pair.take_sent(SERVER);
    assert!((5..=8).contains(&asked.len()), "{}", asked.len());
    assert!(asked.iter().all(|sent| sent.segment.flags == Flags::ACK));
    pair.filter = Box::new(|_| true);
    pair.run(millis(600));
    pair.send(CLIENT, client, &[6; 3_000], 1_000).unwrap();
    pair.run(millis(150));
    pair.received[SERVER].clear();
    pair.send(CLIENT, client, &[7; 3_000], 1_000).unwrap();
    pair.run(millis(50));
    assert!(pair.received[SERVER] == vec![vec![7; 1_000]; 3]);
}

/// FTCP-21: a length takes two bytes of a segment.
#[test]
fn the_longest_datagram_shrinks_by_its_length() {
    let (mut pair, [client, _]) = pair(IPV6, 1);
    let longest = |pair: &Pair| pair.stacks[CLIENT].segment_bytes_max(pair.now(), client).unwrap();
    let before = longest(&pair);
    pair.send(CLIENT, client, &[6; 3_000], 1_000).unwrap();
    pair.run(millis(50));
    assert_eq!(longest(&pair), before - limits::LENGTH_BYTES);
    let most = longest(&pair);
    pair.send(CLIENT, client, &vec![1; most], 0).unwrap();
    assert!(pair.send(CLIENT, client, &vec![1; most + 1], 0).is_err());
    pair.run(millis(50));
    assert!(pair.received[SERVER] == [vec![1; most]]);
}

/// FTCP-23.
#[test]
fn a_phantun_is_not_asked_and_what_is_joined_is_counted() {
    let profile = Profile::Phantun;
    let configs = [Config::new(profile), listening(profile)];
    let addresses = ["192.0.2.1:40000", "198.51.100.2:4433"];
    let (mut pair, [client, _]) = Pair::with(configs, delayed(10), addresses, 1).connected();
    pair.joins = true;
    for _ in 0..3 {
        pair.send(CLIENT, client, &[6; 3_000], 1_000).unwrap();
        pair.run(millis(50));
    }
    assert_eq!(pair.received[SERVER], Vec::<Vec<u8>>::new());
    assert_eq!(pair.stacks[SERVER].counters().joined, 3);
    assert!(pair.sent.iter().all(|sent| sent.segment.window == u16::MAX));
}
