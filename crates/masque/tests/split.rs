//! Split and reassembly: identity under reordering, duplicates and loss; hostile fragments; every fragment accounted
//! for.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use masque::{
    limits::{REASSEMBLY_SLOTS, REASSEMBLY_TIMEOUT, UDP_PAYLOAD_BYTES_MAX},
    split::{Joined, ROOM_BYTES_MIN, Reassembler, Refusal, Splitter},
};
use proptest::prelude::*;

/// The first instant of virtual time; nothing depends on which one it is.
fn start() -> Instant {
    // tidy-allow(pure): first instant of virtual time
    Instant::now()
}

const FLOW: u64 = 44;

fn payload(bytes: usize, salt: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at * 31 + at / 251 + salt * 17) as u8)
        .collect()
}

fn fragments(splitter: &mut Splitter, payload: &[u8], room: usize) -> Vec<Vec<u8>> {
    let fragments = splitter.fragments(payload.len(), room).unwrap();
    fragments
        .map(|(header, range)| [&header[..], &payload[range]].concat())
        .collect()
}

fn fragment(message: u32, index: u8, last: u8, piece: &[u8]) -> Vec<u8> {
    [&message.to_be_bytes()[..], &[index, last], piece].concat()
}

/// The payload that completes with this fragment.
fn complete(reassembler: &mut Reassembler, now: Instant, fragment: &[u8]) -> Option<Vec<u8>> {
    match reassembler.handle(now, FLOW, fragment).unwrap().joined {
        Joined::Complete { payload, .. } => Some(payload.to_vec()),
        _ => None,
    }
}

/// SPLIT-3, SPLIT-5.
#[test]
fn a_payload_becomes_fragments_of_the_layout_that_the_specification_draws() {
    let mut splitter = Splitter::new();
    assert_eq!(
        fragments(&mut splitter, b"abcdefgh", 9),
        [
            fragment(0, 0, 2, b"abc"),
            fragment(0, 1, 2, b"def"),
            fragment(0, 2, 2, b"gh")
        ]
    );
    assert_eq!(fragments(&mut splitter, b"", 9), [fragment(1, 0, 0, b"")]);
}

#[test]
fn the_longest_payload_fits_at_the_least_room_and_not_below() {
    assert_eq!(Splitter::count(UDP_PAYLOAD_BYTES_MAX, ROOM_BYTES_MIN), Some(256));
    assert_eq!(Splitter::count(65_507, ROOM_BYTES_MIN), Some(256));
    assert_eq!(Splitter::count(UDP_PAYLOAD_BYTES_MAX, ROOM_BYTES_MIN - 1), None);
    assert_eq!(Splitter::count(UDP_PAYLOAD_BYTES_MAX + 1, 60_000), None);
    assert_eq!(Splitter::count(1, 6), None);
    assert_eq!(Splitter::count(1, 0), None);
    assert_eq!(Splitter::count(0, 7), Some(1));
}

#[test]
fn the_last_fragment_may_come_first() {
    let now = start();
    let whole = payload(5000, 1);
    let mut reassembler = Reassembler::new();
    let pieces = fragments(&mut Splitter::new(), &whole, 1400);
    for piece in pieces[1..].iter().rev() {
        assert_eq!(complete(&mut reassembler, now, piece), None);
    }
    assert_eq!(complete(&mut reassembler, now, &pieces[0]), Some(whole));
}

#[test]
fn flows_with_equal_message_numbers_do_not_mix() {
    let now = start();
    let mut reassembler = Reassembler::new();
    reassembler.handle(now, 0, &fragment(7, 0, 1, b"ab")).unwrap();
    reassembler.handle(now, 4, &fragment(7, 0, 1, b"xy")).unwrap();
    let handled = reassembler.handle(now, 0, &fragment(7, 1, 1, b"c")).unwrap();
    assert_eq!(
        handled.joined,
        Joined::Complete {
            payload: b"abc",
            fragments: 2
        }
    );
    assert_eq!(reassembler.forget(0), 0);
    assert_eq!(reassembler.forget(4), 1);
    assert_eq!(reassembler.waiting(), 0);
}

/// SPLIT-4 to SPLIT-6.
#[test]
fn hostile_fragments_are_refused_and_leave_the_message_alone() {
    let now = start();
    let mut reassembler = Reassembler::new();
    reassembler.handle(now, FLOW, &fragment(1, 0, 3, b"abc")).unwrap();
    reassembler
        .handle(now, FLOW, &fragment(2, 3, 3, b"long tail"))
        .unwrap();
    for (bytes, refusal) in [
        (vec![], Refusal::Truncated),
        (vec![0; 5], Refusal::Truncated),
        (fragment(1, 4, 3, b"abc"), Refusal::Index),
        (fragment(1, 1, 3, b""), Refusal::Empty),
        (fragment(1, 1, 2, b"abc"), Refusal::Contradiction),
        (fragment(1, 1, 3, b"ab"), Refusal::Contradiction),
        (fragment(1, 3, 3, b"abcd"), Refusal::Contradiction),
        (fragment(2, 0, 3, b"short"), Refusal::Contradiction),
        (fragment(3, 0, 255, &[0; 300]), Refusal::TooLong),
        (fragment(3, 255, 255, &[0; 65_300]), Refusal::TooLong),
        (fragment(3, 0, 0, &[0; 65_528]), Refusal::TooLong),
    ] {
        assert_eq!(reassembler.handle(now, FLOW, &bytes), Err(refusal));
    }
    assert_eq!(reassembler.waiting(), 2);
    for (index, piece) in [(1, b"def"), (2, b"ghi")] {
        reassembler
            .handle(now, FLOW, &fragment(1, index, 3, piece))
            .unwrap();
    }
    assert_eq!(
        complete(&mut reassembler, now, &fragment(1, 3, 3, b"j")),
        Some(b"abcdefghij".to_vec())
    );
}

/// The size is only known to be too long once both kinds of fragment came.
#[test]
fn a_message_too_long_in_sum_is_refused_in_either_order() {
    let now = start();
    for order in [[0, 1], [1, 0]] {
        let pieces = [fragment(1, 0, 1, &[0; 40_000]), fragment(1, 1, 1, &[0; 39_000])];
        let mut reassembler = Reassembler::new();
        assert!(reassembler.handle(now, FLOW, &pieces[order[0]]).is_ok());
        assert_eq!(
            reassembler.handle(now, FLOW, &pieces[order[1]]),
            Err(Refusal::TooLong)
        );
        assert_eq!(reassembler.handle_timeout(now + REASSEMBLY_TIMEOUT), 1);
    }
}

/// SPLIT-8.
#[test]
fn a_duplicate_of_a_kept_fragment_is_dropped_and_a_delivered_message_is_not_remembered() {
    let now = start();
    let mut reassembler = Reassembler::new();
    let pieces = [fragment(1, 0, 1, b"ab"), fragment(1, 1, 1, b"c")];
    reassembler.handle(now, FLOW, &pieces[0]).unwrap();
    let repeated = fragment(1, 0, 1, b"xy");
    assert_eq!(
        reassembler.handle(now, FLOW, &repeated).unwrap().joined,
        Joined::Duplicate
    );
    assert_eq!(reassembler.waiting(), 1);
    assert_eq!(complete(&mut reassembler, now, &pieces[1]), Some(b"abc".to_vec()));
    assert_eq!(reassembler.waiting(), 0);
    assert_eq!(complete(&mut reassembler, now, &pieces[1]), None);
    assert_eq!(complete(&mut reassembler, now, &pieces[0]), Some(b"abc".to_vec()));
}

/// SPLIT-7.
#[test]
fn an_incomplete_message_expires_with_all_its_fragments() {
    let start = start();
    let mut reassembler = Reassembler::new();
    assert_eq!(reassembler.poll_timeout(), None);
    for index in 0..5 {
        let now = start + Duration::from_millis(u64::from(index));
        reassembler
            .handle(now, FLOW, &fragment(9, index, 5, b"piece"))
            .unwrap();
    }
    let deadline = reassembler.poll_timeout().unwrap();
    assert_eq!(deadline, start + REASSEMBLY_TIMEOUT);
    assert_eq!(reassembler.handle_timeout(deadline - Duration::from_nanos(1)), 0);
    assert_eq!(reassembler.handle_timeout(deadline), 5);
    assert_eq!(reassembler.poll_timeout(), None);
}

/// SPLIT-7.
#[test]
fn a_full_table_evicts_the_oldest_message_and_tells_its_fragments() {
    let start = start();
    let mut reassembler = Reassembler::new();
    for message in 0..REASSEMBLY_SLOTS as u32 {
        let now = start + Duration::from_millis(u64::from(message));
        for index in 0..2 {
            assert_eq!(
                reassembler
                    .handle(now, FLOW, &fragment(message, index, 2, b"x"))
                    .unwrap()
                    .evicted,
                0
            );
        }
    }
    let handled = reassembler
        .handle(start, FLOW, &fragment(1000, 0, 2, b"x"))
        .unwrap();
    assert_eq!((handled.joined, handled.evicted), (Joined::Waiting, 2));
    assert_eq!(
        complete(&mut reassembler, start, &fragment(1, 2, 2, b"y")),
        Some(b"xxy".to_vec())
    );
}

#[test]
fn message_numbers_wrap() {
    let now = start();
    let mut reassembler = Reassembler::new();
    reassembler
        .handle(now, FLOW, &fragment(u32::MAX, 0, 1, b"a"))
        .unwrap();
    reassembler.handle(now, FLOW, &fragment(0, 0, 1, b"b")).unwrap();
    assert_eq!(
        complete(&mut reassembler, now, &fragment(u32::MAX, 1, 1, b"a")),
        Some(b"aa".to_vec())
    );
}

proptest! {
    #[test]
    fn pieces_are_equal_within_room_and_cover_the_payload(bytes in 0..=65_507_usize, room in ROOM_BYTES_MIN..9000) {
        let ranges: Vec<_> = Splitter::new().fragments(bytes, room).unwrap().map(|(_, range)| range).collect();
        prop_assert_eq!(ranges.len(), Splitter::count(bytes, room).unwrap());
        let (last, inner) = ranges.split_last().unwrap();
        let piece_bytes = ranges[0].len();
        prop_assert!(piece_bytes + 6 <= room && last.len() <= piece_bytes && (inner.is_empty() || !last.is_empty()));
        prop_assert!(inner.iter().all(|range| range.len() == piece_bytes));
        prop_assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
        prop_assert_eq!((ranges[0].start, last.end), (0, bytes));
    }

    /// Whatever the network does, a payload comes out as it went in or not at all, and every fragment is accounted
    /// for.
    #[test]
    fn reassembly_is_the_inverse_of_splitting_under_reordering_duplicates_and_loss(
        sizes in prop::collection::vec(0..20_000_usize, 1..30),
        room in ROOM_BYTES_MIN..1500,
        faults in prop::collection::vec((0..100_u8, 0..200_usize), 50),
    ) {
        let now = start();
        let mut splitter = Splitter::new();
        let payloads: Vec<_> = sizes.iter().enumerate().map(|(salt, bytes)| payload(*bytes, salt)).collect();
        let sent: Vec<_> = payloads.iter().flat_map(|payload| fragments(&mut splitter, payload, room)).collect();
        let mut arriving = Vec::new();
        for (fragment, (fault, distance)) in sent.iter().zip(faults.iter().cycle()) {
            let place = arriving.len().saturating_sub(*distance);
            match fault {
                0..4 => {}
                4..8 => arriving.extend([fragment, fragment]),
                8..40 => arriving.insert(place, fragment),
                _ => arriving.push(fragment),
            }
        }
        let mut reassembler = Reassembler::new();
        let (mut delivered, mut dropped) = (0, 0);
        for fragment in &arriving {
            let handled = reassembler.handle(now, FLOW, fragment).unwrap();
            dropped += handled.evicted;
            match handled.joined {
                Joined::Waiting => {}
                Joined::Duplicate => dropped += 1,
                Joined::Complete { payload, fragments } => {
                    delivered += fragments;
                    let message = u32::from_be_bytes(fragment[..4].try_into().unwrap());
                    prop_assert_eq!(payload, &payloads[message as usize]);
                }
            }
        }
        dropped += reassembler.handle_timeout(now + REASSEMBLY_TIMEOUT);
        prop_assert_eq!(arriving.len(), (delivered + dropped) as usize);
        prop_assert_eq!(reassembler.waiting(), 0);
    }

    #[test]
    fn no_fragments_make_the_reassembler_panic_or_lose_count(
        hostile in prop::collection::vec(
            (0..4_u64, 0..6_u32, 0..5_u8, 0..5_u8, prop_oneof![0..5_usize, Just(16_000), Just(33_000)]),
            0..200,
        ),
    ) {
        let now = start();
        let mut reassembler = Reassembler::new();
        let (mut taken, mut accounted) = (0, 0);
        for (flow, message, index, last, bytes) in hostile {
            let fragment = fragment(message, index, last, &payload(bytes, 0));
            let Ok(handled) = reassembler.handle(now, flow, &fragment) else { continue };
            taken += 1;
            accounted += handled.evicted;
            match handled.joined {
                Joined::Waiting => {}
                Joined::Duplicate => accounted += 1,
                Joined::Complete { payload, fragments } => {
                    accounted += fragments;
                    prop_assert!(payload.len() <= UDP_PAYLOAD_BYTES_MAX);
                }
            }
        }
        prop_assert_eq!(taken, accounted + reassembler.waiting());
    }
}
