//! Packets from somebody on the side, who knows the addresses but does not see the packets; and nonsense.

use std::time::Duration;

use fake_tcp::segment::Flags;
use fake_tcp::{CloseReason, Config, Event, Profile, limits};
use proptest::prelude::*;

use super::data::renumbered;
use super::pair::{CLIENT, Pair, SERVER, Sent, delayed, listening};

/// A connected pair, and a segment with data as a model for forged ones.
fn connected() -> (Pair, Sent) {
    let (mut pair, [client, _]) = Pair::new().connected();
    pair.send(CLIENT, client, &[1; 100], 0).unwrap();
    pair.run(Duration::from_millis(30));
    let sample = pair
        .take_sent(CLIENT)
        .into_iter()
        .find(|sent| !sent.segment.payload.is_empty())
        .unwrap();
    pair.take_sent(SERVER);
    pair.received = Default::default();
    pair.is_watched = false;
    (pair, sample)
}

fn forged(sample: &Sent, flags: Flags, ahead: u32) -> Vec<u8> {
    let sequence = sample.segment.end().plus(ahead).0;
    let mut packet = renumbered(&sample.bytes, sequence, sample.segment.acknowledgement.0);
    packet[33] = flags.0;
    if !flags.has(Flags::ACK) || flags.has(Flags::SYN) {
        // No payload.
        packet.truncate(40);
        packet[3] = 40;
    }
    packet
}

/// FTCP-15.
#[test]
fn a_rst_counts_only_with_the_very_next_number() {
    for (ahead, answers) in [(1, 1), (u32::MAX, 1), (1 << 20, 1), (1 << 30, 0), (1 << 31, 0)] {
        let (mut pair, sample) = connected();
        pair.deliver(SERVER, &forged(&sample, Flags::RST, ahead), None);
        assert!(pair.events[SERVER].is_empty(), "{ahead:#x}");
        assert_eq!(pair.take_sent(SERVER).len(), answers, "{ahead:#x}");
    }
    let (mut pair, sample) = connected();
    pair.deliver(SERVER, &forged(&sample, Flags::RST, 0), None);
    let reason = CloseReason::Reset;
    assert!(matches!(pair.events[SERVER][..], [Event::Closed { reason: why, .. }] if why == reason));
    assert!(pair.take_sent(SERVER).is_empty());
}

/// FTCP-15.
#[test]
fn a_syn_changes_nothing_and_answers_are_bounded() {
    let (mut pair, sample) = connected();
    for _ in 0..1_000 {
        for flags in [Flags::SYN, Flags::SYN.and(Flags::ACK)] {
            pair.deliver(SERVER, &forged(&sample, flags, 0), None);
        }
        pair.deliver(SERVER, &forged(&sample, Flags::ACK, 1 << 31), None);
        pair.run(Duration::from_millis(2));
    }
    let answers = pair.take_sent(SERVER);
    assert!((4..=5).contains(&answers.len()), "{}", answers.len());
    assert!(answers.iter().all(|sent| sent.segment.flags == Flags::ACK));
    assert!(pair.events.iter().all(Vec::is_empty));
    assert!(pair.received[SERVER].is_empty());
    assert_eq!(pair.stacks[SERVER].counters().outside, 3_000);
}

/// FTCP-13, FTCP-15: a flood of forged segments does not silence the answers to keep-alives.
#[test]
fn forged_segments_do_not_keep_a_keep_alive_from_its_answer() {
    let (mut pair, sample) = connected();
    let probe = renumbered(
        &forged(&sample, Flags::SYN, 0),
        sample.segment.end().plus(u32::MAX).0,
        sample.segment.acknowledgement.0,
    );
    let probe = {
        let mut probe = probe;
        probe[33] = Flags::ACK.0;
        probe
    };
    pair.deliver(SERVER, &forged(&sample, Flags::SYN, 0), None);
    pair.take_sent(SERVER);
    pair.deliver(SERVER, &probe, None);
    assert_eq!(pair.take_sent(SERVER).len(), 1);
    // Many of them within a tenth of a second are answered once.
    (0..10).for_each(|_| pair.deliver(SERVER, &probe, None));
    assert_eq!(pair.take_sent(SERVER).len(), 0);
}

/// FTCP-10: somebody who does not see the packets has to guess both numbers.
#[test]
fn guessed_data_rarely_counts() {
    let (mut pair, sample) = connected();
    let mut guess = 1_u32;
    let mut next = || {
        guess = guess.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        guess
    };
    for _ in 0..20_000 {
        let packet = renumbered(&sample.bytes, next(), next());
        pair.deliver(SERVER, &packet, None);
    }
    // The windows are 1/51 and 1/64 of all numbers; one hit moves the window.
    assert!(
        pair.received[SERVER].len() < 30,
        "{}",
        pair.received[SERVER].len()
    );
}

/// FTCP-16.
#[test]
fn rsts_are_bounded_and_never_answered() {
    let (mut pair, sample) = connected();
    let mut packet = sample.bytes.clone();
    for port in 1..1_000_u16 {
        packet[20..22].copy_from_slice(&port.to_be_bytes());
        pair.deliver(SERVER, &packet, None);
    }
    while pair.stacks[SERVER].poll_segment().is_some() {}
    assert_eq!(
        pair.stacks[SERVER].counters().resets_sent,
        u64::from(limits::RESETS.1)
    );
    packet[33] = Flags::RST.0;
    pair.run(Duration::from_secs(2));
    pair.deliver(SERVER, &packet, None);
    assert_eq!(
        pair.stacks[SERVER].counters().resets_sent,
        u64::from(limits::RESETS.1)
    );
}

/// FTCP-16.
#[test]
fn only_single_hosts_are_answered() {
    let (mut pair, sample) = connected();
    for source in [[0, 0, 0, 0], [255; 4], [224, 0, 0, 1]] {
        for flags in [Flags::SYN, Flags::ACK] {
            let mut packet = forged(&sample, flags, 0);
            packet[12..16].copy_from_slice(&source);
            pair.deliver(SERVER, &packet, None);
        }
    }
    assert!(pair.take_sent(SERVER).is_empty());
    assert_eq!(pair.stacks[SERVER].connections(), 1);
}

proptest! {
    /// FTCP-19: whatever comes in whatever order, nothing panics, answers are fewer than packets, and the connections
    /// that nobody spoke for are bounded.
    #[test]
    fn no_sequence_of_segments_breaks_a_stack(
        packets in prop::collection::vec(
            (any::<u8>(), -3_i32..4, -3_i32..4, 0_u16..3, any::<bool>(), 0_u64..2_000),
            1..200,
        ),
    ) {
        let profile = Profile::Linux;
        let addresses = ["192.0.2.1:40000", "198.51.100.2:4433"];
        let mut pair = Pair::with([Config::new(profile), listening(profile)], delayed(1), addresses, 5);
        pair.is_watched = false;
        pair.connect();
        pair.run(Duration::from_millis(1));
        let model = pair.sent[0].bytes.clone();
        let mut given = 0;
        for (flags, sequence, acknowledgement, port, to_server, wait) in packets {
            let to = if to_server { SERVER } else { CLIENT };
            let newest = |from: usize| pair.sent.iter().rev().find(|sent| sent.from == from);
            let near = newest(1 - to).or(newest(to)).unwrap().segment.end();
            let other = newest(to).map_or(near, |sent| sent.segment.end());
            let mut packet = renumbered(
                &model,
                near.plus(sequence as u32).0,
                other.plus(acknowledgement as u32).0,
            );
            packet[33] = flags;
            if !to_server {
                let (source, destination) = (packet[12..16].to_vec(), packet[16..20].to_vec());
                packet[12..16].copy_from_slice(&destination);
                packet[16..20].copy_from_slice(&source);
                packet[20..24].rotate_left(2);
            } else {
                packet[21] = packet[21].wrapping_add(port as u8);
            }
            pair.deliver(to, &packet, None);
            given += 1;
            pair.run(Duration::from_millis(wait));
        }
        for stack in &pair.stacks {
            prop_assert!(stack.connections() <= 3);
        }
        prop_assert!(pair.sent.len() <= 40 + 20 * given);
    }
}
