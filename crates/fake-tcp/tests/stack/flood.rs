//! Floods of SYNs from addresses that may be forged.

use std::time::Duration;

use fake_tcp::segment::Flags;
use fake_tcp::{Event, limits};

use super::data::renumbered;
use super::pair::{CLIENT, Pair, SERVER, Sent};

const SYN_ACK: Flags = Flags::SYN.and(Flags::ACK);

/// A pair that has not connected, and the client's SYN, which the server has not seen.
fn with_syn() -> (Pair, Sent) {
    let mut pair = Pair::new();
    pair.is_watched = false;
    let id = pair.connect();
    let syn = pair.sent.pop().unwrap();
    pair.stacks[CLIENT].close(pair.now(), id);
    pair.filter = Box::new(|sent| sent.from == CLIENT);
    pair.run(Duration::from_millis(20));
    pair.take_sent(SERVER);
    (pair, syn)
}

fn from(syn: &Sent, source: u32) -> Vec<u8> {
    let mut packet = syn.bytes.clone();
    packet[12..16].copy_from_slice(&source.to_be_bytes());
    packet
}

/// FTCP-6.
#[test]
fn ten_thousand_half_open_connections_a_second_cost_bounded_memory() {
    let (mut pair, syn) = with_syn();
    let mut answers = 0;
    for number in 0..100_000_u32 {
        pair.deliver(SERVER, &from(&syn, 0x0a00_0000 + (number << 8)), None);
        answers += pair.take_sent(SERVER).len();
        assert!(pair.stacks[SERVER].connections() <= limits::HALF_OPEN_MAX + 1);
        pair.run(Duration::from_micros(100));
    }
    let counters = pair.stacks[SERVER].counters();
    assert_eq!(counters.syns_ignored, 0);
    assert!(counters.cookies > 98_000, "{counters:?}");
    assert!((100_000..103_000).contains(&answers), "{answers}");
    assert!(pair.events[SERVER].is_empty());
    pair.run(Duration::from_secs(8));
    assert!(pair.stacks[SERVER].connections() <= 1);
}

/// FTCP-6.
#[test]
fn a_client_connects_beside_the_flood_by_a_cookie() {
    let (mut pair, syn) = with_syn();
    for number in 0..1_000_u32 {
        pair.deliver(SERVER, &from(&syn, 0x0a00_0000 + (number << 8)), None);
    }
    pair.filter = Box::new(|_| true);
    pair.events = Default::default();
    pair.sent.clear();
    pair.addresses[CLIENT].set_port(41_000);
    let before = pair.stacks[SERVER].connections();
    let client = pair.connect();
    pair.run(Duration::from_millis(10));
    assert_eq!(pair.stacks[SERVER].connections(), before, "nothing is kept");
    pair.run(Duration::from_millis(30));
    assert_eq!(pair.events[CLIENT], [Event::Connected { connection: client }]);
    let [
        Event::Accepted {
            connection: server, ..
        },
    ] = pair.events[SERVER][..]
    else {
        panic!("{:?}", pair.events[SERVER]);
    };
    // All that the SYN said holds: the MSS, and the scale of the window.
    assert_eq!(
        pair.stacks[SERVER].segment_bytes_max(pair.now(), server),
        Some(1_460)
    );
    for _ in 0..10 {
        pair.send(SERVER, server, &[1; 64_400], 1_400).unwrap();
    }
    pair.send(CLIENT, client, &[2; 500], 0).unwrap();
    pair.run(Duration::from_millis(100));
    assert_eq!(pair.received[CLIENT].len(), 460);
    assert_eq!(pair.received[SERVER], [vec![2; 500]]);
}

/// FTCP-6.
#[test]
fn a_cookie_counts_for_its_own_client_and_a_while() {
    for (wait, change, opens) in [
        (0, 0, true),
        (60, 0, true),
        (130, 0, false),
        (256, 0, false),
        (0, 1, false),
        (0, 1 << 25, false),
    ] {
        let (mut pair, syn) = with_syn();
        for number in 0..600_u32 {
            pair.deliver(SERVER, &from(&syn, 0x0a00_0000 + (number << 8)), None);
        }
        let last = from(&syn, 0x0a00_0000 + (599 << 8));
        let answer = pair.take_sent(SERVER).pop().unwrap().segment;
        assert_eq!(answer.flags, SYN_ACK);
        pair.run(Duration::from_secs(wait));
        let mut packet = renumbered(
            &last,
            syn.segment.sequence.plus(1).0,
            answer.sequence.plus(1).0 ^ change,
        );
        packet[33] = Flags::ACK.0;
        pair.events = Default::default();
        pair.deliver(SERVER, &packet, None);
        let is_open = matches!(pair.events[SERVER][..], [Event::Accepted { .. }]);
        assert_eq!(is_open, opens, "after {wait} s, changed by {change:#x}");
        // Neither another address nor another first number has the same cookie.
        let mut other = packet.clone();
        other[15] ^= 1;
        pair.deliver(SERVER, &other, None);
        let other = renumbered(&packet, syn.segment.sequence.plus(2).0, answer.sequence.plus(1).0);
        pair.deliver(SERVER, &other, None);
        assert_eq!(pair.stacks[SERVER].counters().accepted, u64::from(opens));
    }
}

/// FTCP-6: without a flood there are no cookies, so nobody can try to guess one.
#[test]
fn acknowledgements_of_nothing_are_refused() {
    let (mut pair, syn) = with_syn();
    let before = pair.stacks[SERVER].connections();
    let mut packet = from(&syn, 0x0a00_0001);
    packet[33] = Flags::ACK.0;
    pair.deliver(SERVER, &packet, None);
    assert_eq!(pair.stacks[SERVER].connections(), before);
    assert_eq!(pair.take_sent(SERVER)[0].segment.flags, Flags::RST);
}

/// FTCP-7.
#[test]
fn one_network_gets_its_part_of_the_answers() {
    let (mut pair, syn) = with_syn();
    for number in 0..3_000_u32 {
        pair.deliver(SERVER, &from(&syn, 0x0a00_0000 + (number & 0xff)), None);
        let mut packet = from(&syn, 0x0a00_0000 + (number & 0xff));
        packet[20..22].copy_from_slice(&(1_000 + number as u16).to_be_bytes());
        pair.deliver(SERVER, &packet, None);
    }
    // Those of a SYN that came before are no new ones.
    let counters = pair.stacks[SERVER].counters();
    assert!(counters.syns_ignored > 900, "{counters:?}");
    pair.deliver(SERVER, &from(&syn, 0x0b00_0000), None);
    assert_eq!(pair.stacks[SERVER].counters().syns_ignored, counters.syns_ignored);
}

/// FTCP-7.
#[test]
fn one_network_has_its_part_of_the_connections() {
    let (mut pair, syn) = with_syn();
    let open = |pair: &mut Pair, host: u32, port: u16| {
        let mut packet = from(&syn, 0x0a00_0000 + host);
        packet[20..22].copy_from_slice(&port.to_be_bytes());
        pair.take_sent(SERVER);
        pair.deliver(SERVER, &packet, None);
        let Some(answer) = pair.take_sent(SERVER).pop() else {
            return false;
        };
        let sequence = syn.segment.sequence.plus(1).0;
        let mut packet = renumbered(&packet, sequence, answer.segment.sequence.plus(1).0);
        packet[33] = Flags::ACK.0;
        pair.deliver(SERVER, &packet, None);
        true
    };
    for number in 0..limits::PREFIX_CONNECTIONS_MAX {
        assert!(open(&mut pair, number & 0x7f, 1_000 + (number >> 7) as u16));
        pair.run(Duration::from_millis(1));
    }
    assert_eq!(
        pair.stacks[SERVER].counters().accepted,
        limits::PREFIX_CONNECTIONS_MAX.into()
    );
    assert!(!open(&mut pair, 200, 5));
    assert!(open(&mut pair, 0x1_0000, 5));
    // A place is free again where one ended.
    let Event::Accepted { connection, .. } = pair.events[SERVER][0] else {
        panic!("{:?}", pair.events[SERVER][0]);
    };
    pair.stacks[SERVER].close(pair.now(), connection);
    assert!(open(&mut pair, 200, 5));
}
