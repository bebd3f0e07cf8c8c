//! QR1-6.

use aws_lc_rs::agreement::{PrivateKey, X25519};
use proptest::prelude::*;

use super::*;
use crate::test_hellos::{HelloShape, SOURCE_ID, extensions, hello, message};
use crate::test_initials::{DESTINATION_ID, crypto, initial, initial_with, two_initials};

fn hybrid() -> Vec<u8> {
    let key = PrivateKey::from_private_key(&X25519, &[7; 32]).expect("a key");
    hello(&key, HelloShape::Hybrid)
}

/// How far the hello is after each datagram.
fn progress(datagrams: &[Vec<u8>]) -> Vec<Progress> {
    let first = first_initial(&datagrams[0]).expect("an Initial");
    let mut assembly = HelloAssembly::new(&first);
    let mut space = Vec::new();
    datagrams
        .iter()
        .map(|datagram| assembly.push(datagram, &mut space))
        .collect()
}

fn last(datagrams: &[Vec<u8>]) -> Progress {
    *progress(datagrams).last().expect("one at least")
}

/// QR1-6.
#[test]
fn two_initials_make_a_hello_in_either_order_and_twice() {
    use Progress::{Complete, Incomplete};
    let [first, second] = two_initials(&hybrid());
    let order =
        |datagrams: &[&Vec<u8>]| progress(&datagrams.iter().map(|one| (*one).clone()).collect::<Vec<_>>());
    assert_eq!(order(&[&first, &second]), [Incomplete, Complete]);
    assert_eq!(order(&[&second, &first]), [Incomplete, Complete]);
    assert_eq!(
        order(&[&first, &first, &second]),
        [Incomplete, Incomplete, Complete]
    );
    assert_eq!(
        order(&[&second, &second, &second, &first]),
        [Incomplete, Incomplete, Incomplete, Complete]
    );
}

/// QR1-6.
#[test]
fn a_fifth_initial_is_one_too_many() {
    let [first, second] = two_initials(&hybrid());
    let four = [first.clone(), first.clone(), first.clone(), second.clone()];
    assert_eq!(last(&four), Progress::Complete);
    let five = [first.clone(), first.clone(), first.clone(), first, second];
    assert_eq!(last(&five), Progress::Refused);
}

/// QR1-6.
#[test]
fn frames_come_in_any_order_with_ping_and_padding_anywhere() {
    let message = hybrid();
    let end = message.len();
    let frames = [
        vec![1],
        crypto(&message, 900..1_100),
        vec![0, 0, 1],
        crypto(&message, 0..55),
        crypto(&message, 40..60),
    ];
    let others = [
        crypto(&message, 1_100..end),
        vec![0; 9],
        crypto(&message, 60..900),
        vec![1],
        crypto(&message, 10..10),
    ];
    let datagrams = [initial(1, &frames.concat()), initial(2, &others.concat())];
    assert_eq!(progress(&datagrams), [Progress::Incomplete, Progress::Complete]);
}

/// QR1-6.
#[test]
fn data_that_overlaps_is_the_same_or_refused() {
    let message = hybrid();
    let mut other = message.clone();
    other[799] ^= 1;
    for overlap in [700..900, 799..800, 750..800] {
        let first = initial(0, &crypto(&message, 0..800));
        let same = initial(1, &crypto(&message, overlap.clone()));
        assert_eq!(last(&[first.clone(), same]), Progress::Incomplete);
        let differs = initial(1, &crypto(&other, overlap));
        assert_eq!(last(&[first, differs]), Progress::Refused);
    }
}

/// QR1-6.
#[test]
fn every_other_frame_and_everything_beside_initials_is_refused() {
    let message = hybrid();
    let good = crypto(&message, 0..700);
    assert_eq!(last(&[initial(0, &good)]), Progress::Incomplete);
    // ACK: there is nothing yet that a client could acknowledge. CONNECTION_CLOSE.
    for frame in [&b"\x02\0\0\0\0"[..], b"\x1c\0\0\0"] {
        assert_eq!(last(&[initial(0, &[&good, frame].concat())]), Progress::Refused);
    }
    let whole = initial(0, &good);
    for behind in [
        &[0][..],
        &[0x40; 30],
        &[0xe3, 0, 0, 0, 1, 0, 0, 20, 0],
        b"\xc3\0\0\0\x02\0\0\0",
    ] {
        assert_eq!(last(&[[&whole[..], behind].concat()]), Progress::Refused);
    }
    // Two Initials in one datagram are a client's too.
    let both = [
        initial(0, &good),
        initial(1, &crypto(&message, 700..message.len())),
    ]
    .concat();
    assert_eq!(last(&[both]), Progress::Complete);
    let mut garbled = whole;
    garbled[600] ^= 1;
    assert_eq!(last(&[garbled]), Progress::Refused);
}

/// QR1-3, QR1-6.
#[test]
fn a_token_other_ids_and_short_datagrams_are_refused() {
    let message = hybrid();
    let frames = crypto(&message, 0..700);
    let begin = |datagram: &[u8]| first_initial(datagram).is_some();
    let made = |destination: &[u8], source: &[u8], token: &[u8]| {
        initial_with(destination, source, token, 0, &frames)
    };
    assert!(begin(&made(&DESTINATION_ID, &SOURCE_ID, &[])));
    assert!(begin(&made(&[1; 20], &[], &[])));
    assert!(!begin(&made(&DESTINATION_ID, &SOURCE_ID, &[1])));
    assert!(!begin(&made(&[1; 7], &SOURCE_ID, &[])));
    assert!(!begin(&made(&DESTINATION_ID, &SOURCE_ID, &[])[..1_199]));
    assert!(!begin(&[0x40; 1_200]));
    let first = made(&DESTINATION_ID, &SOURCE_ID, &[]);
    for other in [
        made(&[1; 8], &SOURCE_ID, &[]),
        made(&DESTINATION_ID, &[1; 5], &[]),
        made(&DESTINATION_ID, &SOURCE_ID, &[1]),
    ] {
        assert_eq!(last(&[first.clone(), other]), Progress::Refused);
    }
}

/// QR1-6: the source ID of the packets, which everybody could change, is the hello's.
#[test]
fn a_hello_names_the_source_id_of_its_packets_once() {
    let whole = |source: &[u8], message: &[u8]| {
        last(&[initial_with(
            &DESTINATION_ID,
            source,
            &[],
            0,
            &crypto(message, 0..message.len()),
        )])
    };
    let message = hybrid();
    assert_eq!(whole(&SOURCE_ID, &message), Progress::Complete);
    assert_eq!(whole(&[], &message), Progress::Refused);
    let with = |parameters: &[u8]| {
        let mut changed = extensions(&[(0x1d, vec![1; 32])]);
        changed[0].1 = parameters.to_vec();
        crate::test_hellos::message(&changed)
    };
    assert_eq!(whole(&[], &with(&[0x0f, 0])), Progress::Complete);
    assert_eq!(whole(&[7], &with(&[4, 1, 0, 0x0f, 1, 7])), Progress::Complete);
    for parameters in [&[][..], &[0x0f, 0, 0x0f, 0], &[0x0f, 1], &[0x0f], &[4, 1, 0]] {
        assert_eq!(
            whole(&[], &with(parameters)),
            Progress::Refused,
            "{parameters:02x?}"
        );
    }
    let mut twice = extensions(&[(0x1d, vec![1; 32])]);
    twice.push(twice[0].clone());
    assert_eq!(whole(&SOURCE_ID, &message_of(&twice)), Progress::Refused);
}

fn message_of(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    message(extensions)
}

/// QR1-6.
#[test]
fn a_hello_that_is_too_long_goes_beyond_its_end_or_has_too_many_holes_is_refused() {
    let [first, _] = two_initials(&hybrid());
    let too_long = [1, 0, 0x40, 0];
    assert_eq!(last(&[initial(0, &crypto(&too_long, 0..4))]), Progress::Refused);
    assert_eq!(
        last(&[initial(0, &crypto(&[2, 0, 0, 9], 0..4))]),
        Progress::Refused
    );
    // At the limit, and one byte beyond it.
    for (start, expected) in [(16_383_u16, Progress::Incomplete), (16_384, Progress::Refused)] {
        let [high, low] = start.to_be_bytes();
        let frame = [6, 0x80, 0, high, low, 1, 0];
        assert_eq!(last(&[initial(0, &frame)]), expected);
    }
    // A byte behind the message.
    let beyond = initial(1, &[6, 0x80, 0, 0x3f, 0, 1, 0]);
    assert_eq!(last(&[first, beyond]), Progress::Refused);
    let holes = |count: u16| -> Vec<u8> {
        (1..=count)
            .flat_map(|piece| {
                let [high, low] = (2 * piece).to_be_bytes();
                [6, 0x40 | high, low, 1, 0]
            })
            .collect()
    };
    let most = limits::HELLO_PIECES_MAX as u16;
    assert_eq!(last(&[initial(0, &holes(most))]), Progress::Incomplete);
    assert_eq!(last(&[initial(0, &holes(most + 1))]), Progress::Refused);
}

proptest! {
    /// QR1-6.
    #[test]
    fn a_hello_is_put_together_however_it_was_cut(
        mut cuts in proptest::collection::vec(0_usize..1_500, 0..20),
        shuffle in any::<u64>(),
    ) {
        let message = hybrid();
        cuts.retain(|cut| *cut < message.len());
        cuts.extend([0, message.len()]);
        cuts.sort_unstable();
        let mut frames: Vec<Vec<u8>> = cuts.windows(2).map(|pair| crypto(&message, pair[0]..pair[1])).collect();
        let mut numbers = crate::test_hellos::Numbers::new(shuffle);
        frames.sort_by_cached_key(|_| numbers.next());
        let half = frames.len() / 2;
        let datagrams = [initial(0, &[&[1][..], &frames[..half].concat()].concat()), initial(1, &frames[half..].concat())];
        prop_assert_eq!(last(&datagrams), Progress::Complete);
    }
}
