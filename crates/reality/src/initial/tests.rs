//! Against the packets of RFC 9001, appendix A, and against ourselves.

use data_encoding::HEXLOWER;
use proptest::prelude::*;

use super::*;
use crate::long_header::{Part, parts};

/// Of appendix A.1.
const DESTINATION_ID: [u8; 8] = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];

fn hex(text: &str) -> Vec<u8> {
    HEXLOWER.decode(text.as_bytes()).expect("hexadecimal")
}

fn packet(bytes: &[u8]) -> LongPacket<'_> {
    match parts(bytes).next() {
        Some(Part::Long(packet)) => packet,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_clients_packet_of_the_rfc_is_sealed_and_opened() {
    let mut frames = hex(concat!(
        "060040f1010000ed0303ebf8fa56f12939b9584a3896472ec40bb863cfd3e868",
        "04fe3a47f06a2b69484c00000413011302010000c000000010000e00000b6578",
        "616d706c652e636f6dff01000100000a00080006001d00170018001000070005",
        "04616c706e000500050100000000003300260024001d00209370b2c9caa47fba",
        "baf4559fedba753de171fa71f50f1ce15d43e994ec74d748002b000302030400",
        "0d0010000e0403050306030203080408050806002d00020101001c0002400100",
        "3900320408ffffffffffffffff05048000ffff07048000ffff08011001048000",
        "75300901100f088394c8f03e51570806048000ffff",
    ));
    frames.resize(1162, 0);
    let keys = InitialKeys::new(&DESTINATION_ID);
    let sealed = keys.seal(Sender::Client, (&DESTINATION_ID, &[]), &[], 2, 4, &frames);
    assert_eq!(sealed.len(), 1200);
    let beginning = hex(concat!(
        "c000000001088394c8f03e5157080000449e7b9aec34d1b1c98dd7689fb8ec11",
        "d242b123dc9bd8bab936b47d92ec356c0bab7df5976d27cd449f63300099f399",
    ));
    assert_eq!(sealed[..64], beginning);
    assert_eq!(sealed[1184..], hex("e221af44860018ab0856972e194cd934"));
    let mut space = Vec::new();
    let opened = keys
        .open(Sender::Client, &packet(&sealed), None, &mut space)
        .expect("genuine");
    assert_eq!((opened.number, opened.payload), (2, &frames[..]));
    assert_eq!(
        keys.open(Sender::Server, &packet(&sealed), None, &mut space),
        None
    );
}

#[test]
fn the_servers_packet_of_the_rfc_is_opened() {
    let sealed = hex(concat!(
        "cf000000010008f067a5502a4262b5004075c0d95a482cd0991cd25b0aac406a",
        "5816b6394100f37a1c69797554780bb38cc5a99f5ede4cf73c3ec2493a1839b3",
        "dbcba3f6ea46c5b7684df3548e7ddeb9c3bf9c73cc3f3bded74b562bfb19fb84",
        "022f8ef4cdd93795d77d06edbb7aaf2f58891850abbdca3d20398c276456cbc4",
        "2158407dd074ee",
    ));
    let keys = InitialKeys::new(&DESTINATION_ID);
    let mut space = Vec::new();
    let opened = keys
        .open(Sender::Server, &packet(&sealed), None, &mut space)
        .expect("genuine");
    assert_eq!(opened.number, 1);
    assert!(
        opened
            .payload
            .starts_with(&hex("02000000000600405a020000560303eefce7f7b3"))
    );
    assert_eq!(
        keys.open(Sender::Client, &packet(&sealed), None, &mut space),
        None
    );
}

#[test]
fn no_packet_opens_that_differs_by_one_bit() {
    let keys = InitialKeys::new(&DESTINATION_ID);
    let mut sealed = keys.seal(Sender::Client, (&DESTINATION_ID, &[9; 3]), &[], 7, 2, &[1; 20]);
    let mut space = Vec::new();
    for bit in 0..8 * sealed.len() {
        sealed[bit / 8] ^= 1 << (bit % 8);
        if let Some(Part::Long(packet)) = parts(&sealed).next() {
            assert_eq!(
                keys.open(Sender::Client, &packet, None, &mut space),
                None,
                "bit {bit}"
            );
        }
        sealed[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(
        keys.open(Sender::Client, &packet(&sealed), None, &mut space)
            .is_some()
    );
    for end in 0..sealed.len() {
        if let Some(Part::Long(packet)) = parts(&sealed[..end]).next() {
            assert_eq!(
                keys.open(Sender::Client, &packet, None, &mut space),
                None,
                "{end} bytes"
            );
        }
    }
}

/// RFC 9000 section 17.2: only who knows the keys can set them, and QUIC would end the connection.
#[test]
fn a_reserved_bit_is_refused() {
    let keys = InitialKeys::new(&DESTINATION_ID);
    let sealed = keys.seal(Sender::Client, (&DESTINATION_ID, &[]), &[], 7, 2, &[1; 20]);
    let mut space = Vec::new();
    for bit in [0x04, 0x08] {
        let mut changed = sealed.clone();
        changed[0] ^= bit;
        // The AEAD covers the bit, so that this shows the bit only where the check comes first.
        let number = keys.number(Sender::Client, &packet(&changed), None, &mut space);
        assert_eq!(number, None);
    }
    assert_eq!(
        keys.number(Sender::Client, &packet(&sealed), None, &mut space),
        Some(7)
    );
}

proptest! {
    #[test]
    fn a_packet_is_opened_as_it_was_sealed(
        number in 0_u64..1 << 31,
        distance in 0_u64..100,
        number_bytes in 1_usize..5,
        frames in any::<Vec<u8>>(),
        token in any::<Vec<u8>>(),
    ) {
        let keys = InitialKeys::new(&DESTINATION_ID);
        let sealed = keys.seal(Sender::Client, (&DESTINATION_ID, &[1, 2]), &token, number, number_bytes, &frames);
        let packet = packet(&sealed);
        prop_assert_eq!(packet.token, &token[..]);
        let mut space = Vec::new();
        let opened = keys.open(Sender::Client, &packet, number.checked_sub(1 + distance), &mut space);
        let largest_known = number > distance;
        if largest_known || number_bytes == 4 || number < 128 {
            let opened = opened.expect("genuine");
            prop_assert_eq!(opened.number, number);
            prop_assert!(opened.payload.starts_with(&frames));
            prop_assert!(opened.payload[frames.len()..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn no_bytes_make_the_reader_panic(datagram in any::<Vec<u8>>(), largest in any::<Option<u32>>()) {
        let bytes = [&[0xc3, 0, 0, 0, 1, 0, 0, 0][..], &datagram].concat();
        let mut space = Vec::new();
        for part in parts(&bytes) {
            if let Part::Long(packet) = part {
                let keys = InitialKeys::new(packet.destination_id);
                prop_assert_eq!(keys.open(Sender::Client, &packet, largest.map(u64::from), &mut space), None);
            }
        }
    }
}
