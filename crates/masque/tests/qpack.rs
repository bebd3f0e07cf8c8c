//! QPACK against the RFC's examples, hostile field sections, and itself.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use masque::{Code, HeaderList, MessageError, qpack};
use proptest::prelude::*;

fn code_of(section: &[u8]) -> Code {
    qpack::decode(section).unwrap_err().code()
}

/// RFC 9204 appendix B.1.
#[test]
fn the_static_example_of_the_rfc_decodes() {
    let section = b"\x00\x00\x51\x0b/index.html";
    assert_eq!(
        qpack::decode(section),
        Ok(HeaderList::new().with(":path", "/index.html"))
    );
}

/// RFC 9204 appendix B.2 and B.4: sections that need the dynamic table which we do not offer.
#[test]
fn the_dynamic_examples_of_the_rfc_end_the_connection() {
    for section in [&[0x03, 0x81, 0x10, 0x11][..], &[0x05, 0x00, 0x80, 0xc1, 0x81]] {
        let Err(MessageError::Connection(error)) = qpack::decode(section) else {
            panic!("taken")
        };
        assert_eq!(error.code, Code::QpackDecompressionFailed);
    }
}

/// RFC 9204 section 4.5: every form of a dynamic reference, and a base below zero.
#[test]
fn dynamic_references_are_refused_in_every_form() {
    for line in [&[0x80][..], &[0xbf, 0x00], &[0x10], &[0x40, 0x00], &[0x00, 0x00]] {
        let section = [&[0x00, 0x00], line].concat();
        assert_eq!(code_of(&section), Code::QpackDecompressionFailed, "{line:?}");
    }
    assert_eq!(code_of(&[0x00, 0x80, 0xc1]), Code::QpackDecompressionFailed);
}

#[test]
fn truncated_sections_are_refused_at_every_byte() {
    let section = b"\x00\x00\x51\x0b/index.html";
    for cut in (0..section.len()).filter(|cut| *cut != 2) {
        assert_eq!(
            code_of(&section[..cut]),
            Code::QpackDecompressionFailed,
            "cut at {cut}"
        );
    }
    assert_eq!(qpack::decode(&section[..2]), Ok(HeaderList::new()));
}

#[test]
fn an_index_beyond_the_static_table_is_refused() {
    assert_eq!(
        code_of(&[0x00, 0x00, 0xff, 99 - 63]),
        Code::QpackDecompressionFailed
    );
    assert!(qpack::decode(&[0x00, 0x00, 0xff, 98 - 63]).is_ok());
}

#[test]
fn a_huge_length_is_refused_without_allocating() {
    let section = [
        0x00, 0x00, 0x51, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f,
    ];
    assert_eq!(code_of(&section), Code::QpackDecompressionFailed);
}

#[test]
fn a_short_section_that_decodes_to_a_long_list_is_refused() {
    // 8,000 one-byte references to the longest entry of the static table.
    let mut section = vec![0x00, 0x00];
    section.resize(8000, 0xc0 | 37);
    let error = qpack::decode(&section).unwrap_err();
    assert_eq!(error.code(), Code::ExcessiveLoad);
    assert!(matches!(error, MessageError::Stream { .. }));
}

#[test]
fn names_and_values_with_forbidden_characters_are_malformed() {
    for section in [
        &b"\x00\x00\x21A\x01x"[..],
        b"\x00\x00\x21 \x01x",
        b"\x00\x00\x21:\x01x",
        b"\x00\x00\x20\x01x",
        b"\x00\x00\x21a\x01\n",
        b"\x00\x00\x21a\x01\0",
        b"\x00\x00\x21\xff\x01x",
    ] {
        assert_eq!(code_of(section), Code::MessageError, "{section:?}");
    }
}

/// RFC 9204 section 7.1.3.
#[test]
fn tokens_are_marked_as_never_indexed_and_never_printed() {
    let list = HeaderList::new()
        .with("authorization", "Bearer s3cret")
        .with("proxy-authorization", "Bearer s3cret");
    let section = qpack::encode(&list);
    assert_eq!(section[2] & 0xf0, 0x70);
    assert!(!format!("{list:?}").contains("s3cret"));
}

fn fields() -> impl Strategy<Value = HeaderList> {
    let name = prop_oneof![
        Just(":method".to_owned()),
        Just("accept".to_owned()),
        Just("authorization".to_owned()),
        "[a-z0-9!#$%&'*+.^_`|~-]{1,40}",
    ];
    let value = prop_oneof![
        Just(b"CONNECT".to_vec()),
        "[ -~]{0,200}".prop_map(String::into_bytes),
        prop::collection::vec(0x80_u8.., 0..50),
    ];
    prop::collection::vec((name, value), 0..12).prop_map(|fields| {
        fields
            .iter()
            .fold(HeaderList::new(), |list, (name, value)| list.with(name, value))
    })
}

proptest! {
    #[test]
    fn every_list_survives_a_round_trip(list in fields()) {
        prop_assert_eq!(qpack::decode(&qpack::encode(&list)), Ok(list));
    }

    #[test]
    fn no_section_makes_the_decoder_panic(section in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = qpack::decode(&section);
        let _ = qpack::decode(&[&[0, 0], &section[..]].concat());
    }
}
