//! Capsules in content of any chunks.

use bytes::Bytes;
use masque::{
    Code,
    capsule::{Capsule, CapsuleReader, datagram_prefix, split_context},
    limits::CAPSULE_BYTES_MAX,
};
use packet::varint;
use proptest::prelude::*;

fn capsule(kind: u64, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    varint::write(kind, &mut out);
    varint::write(value.len() as u64, &mut out);
    out.extend_from_slice(value);
    out
}

fn read(content: &[u8], chunk_bytes: usize) -> (Vec<Capsule>, bool) {
    let mut reader = CapsuleReader::new();
    let mut capsules = Vec::new();
    for chunk in content.chunks(chunk_bytes) {
        let mut input = Bytes::copy_from_slice(chunk);
        capsules.extend(std::iter::from_fn(|| reader.next(&mut input)));
        assert!(input.is_empty(), "None means that all input is consumed");
    }
    (capsules, reader.finish().is_ok())
}

#[test]
fn datagrams_are_delivered_and_unknown_capsules_skipped() {
    let content = [
        capsule(0x00, b"\0one"),
        capsule(0x1234, &[9; 300]),
        capsule(0x00, b""),
        capsule(0x00, b"\0two"),
    ]
    .concat();
    let expected =
        [&b"\0one"[..], b"", b"\0two"].map(|datagram| Capsule::Datagram(Bytes::from_static(datagram)));
    for chunk_bytes in [1, 2, 3, 7, 1000] {
        assert_eq!(
            read(&content, chunk_bytes),
            (expected.to_vec(), true),
            "{chunk_bytes}"
        );
    }
}

#[test]
fn a_written_capsule_is_read_again() {
    let (prefix, used) = datagram_prefix(2, 7);
    let content = [&prefix[..used], b"payload"].concat();
    let (capsules, is_whole) = read(&content, 1000);
    let [Capsule::Datagram(datagram)] = &capsules[..] else {
        panic!("{capsules:?}")
    };
    assert_eq!(
        split_context(datagram.clone()),
        Some((2, Bytes::from_static(b"payload")))
    );
    assert!(is_whole);
    assert_eq!(split_context(Bytes::new()), None);
    assert_eq!(split_context(Bytes::from_static(&[0x40])), None);
}

#[test]
fn an_oversized_datagram_is_told_once_and_skipped() {
    let length = CAPSULE_BYTES_MAX + 1;
    let content = [capsule(0x00, &vec![0; length as usize]), capsule(0x00, b"\0next")].concat();
    let expected = vec![
        Capsule::Oversized(length),
        Capsule::Datagram(Bytes::from_static(b"\0next")),
    ];
    assert_eq!(read(&content, 5000), (expected, true));
    let mut endless = vec![0x00];
    varint::write(varint::MAX, &mut endless);
    assert_eq!(read(&endless, 1), (vec![Capsule::Oversized(varint::MAX)], false));
}

/// RFC 9297 section 3.3.
#[test]
fn content_that_ends_inside_a_capsule_is_malformed() {
    for content in [capsule(0x00, b"\0x"), capsule(0x21, b"x")] {
        for cut in 1..content.len() {
            assert!(!read(&content[..cut], 1).1);
        }
    }
    let mut reader = CapsuleReader::new();
    assert_eq!(reader.next(&mut Bytes::from_static(&[0x00])), None);
    assert_eq!(reader.finish().unwrap_err().code(), Code::MessageError);
}

proptest! {
    #[test]
    fn any_chunking_of_any_content_gives_the_same(
        parts in prop::collection::vec(
            (prop_oneof![Just(0_u64), 0..100_u64], prop::collection::vec(any::<u8>(), 0..80)),
            0..6,
        ),
        junk in prop::collection::vec(any::<u8>(), 0..20),
        chunk_bytes in 1..50_usize,
    ) {
        let mut content: Vec<u8> = parts.iter().flat_map(|(kind, value)| capsule(*kind, value)).collect();
        content.extend(junk);
        prop_assert_eq!(read(&content, chunk_bytes), read(&content, usize::MAX));
    }
}
