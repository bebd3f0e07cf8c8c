//! Control messages: each as it was written, cut, too long, of later versions, and hostile ones.

use proptest::prelude::*;

use super::*;
use crate::entry::{Attribute, Kind};

fn entry(kind: Kind) -> Entry {
    Entry {
        id: 4,
        parent: Some(0),
        name: b"name".to_vec(),
        kind,
        mode: 0o755,
        modified_ns: -1_234_567_890_123_456_789,
        attributes: vec![Attribute {
            name: b"user.comment".to_vec(),
            value: b"\0value".to_vec(),
        }],
        disk_bytes_min: 1 << 20,
    }
}

fn all() -> Vec<Message> {
    vec![
        Message::Hello(Hello {
            version: VERSION,
            sender: true,
            extensions: vec![(70, b"value".to_vec()), (71, Vec::new())],
        }),
        Message::Entry(entry(Kind::File { size: 1 << 40 })),
        Message::Entry(entry(Kind::Directory)),
        Message::Entry(entry(Kind::Symlink {
            target: b"../elsewhere".to_vec(),
        })),
        Message::Entry(Entry {
            parent: None,
            attributes: Vec::new(),
            ..entry(Kind::Pipe)
        }),
        Message::DirectoryEnd { entry: 4 },
        Message::OfferEnd {
            entries: 5,
            bytes: 1 << 40,
        },
        Message::Hashes {
            entry: 4,
            first: 2,
            addresses: vec![[7; 32], [8; 32]],
        },
        Message::FileEnd {
            entry: 4,
            size: 6,
            root: [9; 32],
        },
        Message::Want {
            entry: 4,
            chunks: [0, 1, 2, 9, 11].into_iter().collect(),
        },
        Message::Skip {
            entry: 4,
            reason: SkipReason::Conflict,
        },
        Message::Ask { entry: 4 },
        Message::Ack {
            entry: 4,
            chunks: Ranges::from_range(5..6),
        },
        Message::Stored {
            entries: [4, 5, 8].into_iter().collect(),
        },
        Message::Failed {
            entry: 4,
            reason: FailReason::NoSpace,
            text: "No space left on device".to_owned(),
        },
        Message::Unoffered {
            reason: FailReason::Unreadable,
            path: "tree/secret".to_owned(),
            text: "Permission denied".to_owned(),
        },
        Message::Done(Totals {
            stored: 1,
            skipped: 2,
            failed: 3,
            bytes: 4,
            bytes_there: 5,
        }),
        Message::Abort {
            text: "stopped by the user".to_owned(),
        },
        Message::TcpOffer(TcpOffer {
            addresses: vec![
                "192.0.2.1:4000".parse().unwrap(),
                "[2001:db8::1]:4000".parse().unwrap(),
            ],
            key: [3; 32],
        }),
        Message::TcpKey { key: [4; 32] },
        Message::Measure(Measure {
            carrier: CarrierKind::Tcp,
            bytes: 1,
            elapsed_ns: 2,
            cpu_ns: 3,
        }),
        Message::Choice {
            carrier: CarrierKind::Quic,
            text: "TCP costs more".to_owned(),
        },
        Message::Held { by: Hindrance::Disk },
    ]
}

fn encoded(messages: &[Message]) -> Vec<u8> {
    let mut out = Vec::new();
    for message in messages {
        message.encode(&mut out);
    }
    out
}

fn decoded(bytes: &[u8], step: usize) -> Result<Vec<Message>, MessageError> {
    let mut decoder = Decoder::default();
    let mut messages = Vec::new();
    for part in bytes.chunks(step) {
        decoder.push(part);
        while let Some(message) = decoder.next_message()? {
            messages.push(message);
        }
    }
    Ok(messages)
}

/// Type, length and value.
fn raw(kind: u64, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put(kind, &mut out);
    put_bytes(value, &mut out);
    out
}

/// FILE-2.
#[test]
fn the_lower_version_holds_whatever_extensions_the_other_end_has() {
    let hello = |version, sender, extensions: &[(u64, &[u8])]| Hello {
        version,
        sender,
        extensions: extensions
            .iter()
            .map(|(number, value)| (*number, value.to_vec()))
            .collect(),
    };
    let ours = hello(VERSION, true, &[]);
    for (other, agreed) in [
        (hello(1, false, &[]), Ok(1)),
        (hello(9, false, &[(77, b"unknown")]), Ok(1)),
        (hello(0, false, &[]), Err(HelloError::Version)),
        (hello(1, true, &[]), Err(HelloError::SameRole { senders: true })),
    ] {
        let sent = Message::Hello(other.clone());
        assert_eq!(decoded(&encoded(std::slice::from_ref(&sent)), 3).unwrap(), [sent]);
        assert_eq!(ours.agree(&other), agreed);
    }
    let mut bytes = Vec::new();
    for field in [1, 0, EXTENSIONS_MAX as u64 + 1] {
        put(field, &mut bytes);
    }
    assert_eq!(
        decoded(&raw(HELLO, &bytes), 9),
        Err(MessageError::Malformed(HELLO))
    );
}

/// FILE-3, FILE-5.
#[test]
fn every_message_is_read_as_it_was_written_however_the_stream_is_cut() {
    let messages = all();
    let bytes = encoded(&messages);
    for step in [1, 2, 3, 7, 64, bytes.len()] {
        assert_eq!(decoded(&bytes, step).unwrap(), messages);
    }
}

/// FILE-3.
#[test]
fn a_message_that_is_cut_is_malformed_or_waits() {
    for message in all() {
        let whole = encoded(std::slice::from_ref(&message));
        for end in 0..whole.len() {
            assert_eq!(decoded(&whole[..end], 5).unwrap(), []);
        }
        let (kind, kind_bytes) = varint::read(&whole).unwrap();
        let (_, length_bytes) = varint::read(&whole[kind_bytes..]).unwrap();
        let value = &whole[kind_bytes + length_bytes..];
        for end in 0..value.len() {
            assert_eq!(
                decoded(&raw(kind, &value[..end]), 5),
                Err(MessageError::Malformed(kind))
            );
        }
    }
}

/// FILE-3.
#[test]
fn a_message_above_the_bound_is_refused_before_it_comes() {
    let mut bytes = Vec::new();
    put(ENTRY, &mut bytes);
    put(MESSAGE_BYTES_MAX as u64 + 1, &mut bytes);
    assert_eq!(
        decoded(&bytes, 1),
        Err(MessageError::TooLong(MESSAGE_BYTES_MAX as u64 + 1))
    );
}

/// FILE-4.
#[test]
fn messages_and_fields_of_a_later_version_are_passed_over() {
    let mut bytes = Vec::new();
    for message in all() {
        bytes.extend(raw(1_000, b"of a later version"));
        let whole = encoded(std::slice::from_ref(&message));
        let (kind, kind_bytes) = varint::read(&whole).unwrap();
        let (_, length_bytes) = varint::read(&whole[kind_bytes..]).unwrap();
        let value = [&whole[kind_bytes + length_bytes..], b"more fields"].concat();
        bytes.extend(raw(kind, &value));
    }
    assert_eq!(decoded(&bytes, 9).unwrap(), all());
}

/// FILE-12: a set of ranges has one encoding.
#[test]
fn ranges_that_touch_are_empty_or_overflow_are_malformed() {
    let want = |fields: &[u64]| {
        let mut value = Vec::new();
        for field in [&[4], fields].concat() {
            put(field, &mut value);
        }
        decoded(&raw(WANT, &value), 64)
    };
    assert!(want(&[2, 0, 3, 1, 1]).is_ok());
    for fields in [
        &[1, 5, 0][..],
        &[2, 0, 3, 0, 1],
        &[1, varint::MAX, 1],
        &[1, 1, varint::MAX],
        &[RANGES_MAX as u64 + 1],
        &[3, 0, 1],
    ] {
        assert_eq!(want(fields), Err(MessageError::Malformed(WANT)), "{fields:?}");
    }
}

/// FILE-7.
#[test]
fn an_entry_above_its_bounds_is_malformed() {
    let long = |name: usize, target: usize, attributes: &[usize]| {
        let mut value = Vec::new();
        put(0, &mut value);
        put(0, &mut value);
        put_bytes(&vec![b'a'; name], &mut value);
        put(2, &mut value);
        put_bytes(&vec![b'a'; target], &mut value);
        put(0o777, &mut value);
        value.extend([0; 8]);
        put(attributes.len() as u64, &mut value);
        for length in attributes {
            put_bytes(b"", &mut value);
            put_bytes(&vec![0; *length], &mut value);
        }
        put(0, &mut value);
        decoded(&raw(ENTRY, &value), 4_096)
    };
    assert!(long(255, 4_096, &[32 << 10, 32 << 10]).is_ok());
    assert!(long(255, 4_096, &[0; 128]).is_ok());
    for malformed in [
        long(256, 1, &[]),
        long(1, 4_097, &[]),
        long(1, 1, &[32 << 10, (32 << 10) + 1]),
        long(1, 1, &[0; 129]),
    ] {
        assert_eq!(malformed, Err(MessageError::Malformed(ENTRY)));
    }
}

/// FILE-7: what our own limits allow has room in a message.
#[test]
fn the_largest_entry_fits_a_message() {
    let attribute = Attribute {
        name: vec![b'a'; 255],
        value: vec![0; ATTRIBUTE_VALUE],
    };
    const ATTRIBUTE_VALUE: usize = crate::limits::ATTRIBUTES_BYTES_MAX / crate::limits::ATTRIBUTES_MAX - 255;
    let message = Message::Entry(Entry {
        id: varint::MAX - 1,
        parent: Some(varint::MAX - 1),
        name: vec![b'n'; 255],
        attributes: vec![attribute; 128],
        disk_bytes_min: crate::limits::FILE_BYTES_MAX,
        ..entry(Kind::Symlink {
            target: vec![b't'; 4_096],
        })
    });
    assert_eq!(
        decoded(&encoded(std::slice::from_ref(&message)), 1 << 16).unwrap(),
        [message]
    );
}

/// FILE-18.
#[test]
fn a_long_text_is_cut_at_a_character() {
    let message = Message::Abort {
        text: "ä".repeat(400),
    };
    let messages = decoded(&encoded(&[message]), 64).unwrap();
    let [Message::Abort { text }] = &messages[..] else {
        panic!("one message")
    };
    assert_eq!(*text, "ä".repeat(TEXT_BYTES_MAX / 2));
}

proptest! {
    /// FILE-3: whatever comes is messages or an error, and messages are written back alike.
    #[test]
    fn any_bytes_are_messages_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0_u64..20) {
        for input in [bytes.clone(), raw(kind, &bytes)] {
            if let Ok(messages) = decoded(&input, 16) {
                prop_assert_eq!(decoded(&encoded(&messages), 16).unwrap(), messages);
            }
        }
    }
}
