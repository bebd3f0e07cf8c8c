//! What is read of a hello, and what is refused.

use aws_lc_rs::agreement::{self, PrivateKey};
use proptest::prelude::*;

use super::*;
use crate::test_hellos::{HelloShape, extensions, hello, message, vector};

fn key() -> PrivateKey {
    PrivateKey::from_private_key(&agreement::X25519, &[7; 32]).expect("a key")
}

fn with_shares(shares: &[(u16, Vec<u8>)]) -> Vec<u8> {
    message(&extensions(shares))
}

#[test]
fn everything_that_a_hello_offers_is_told_in_its_order() {
    let message = hello(&key(), HelloShape::Hybrid);
    let hello = ClientHello::parse(&message).expect("a hello");
    assert_eq!(hello.message(), message);
    assert_eq!(hello.random(), &[0; 32]);
    assert_eq!(hello.random_range(), 6..38);
    assert_eq!(hello.server_name(), Some(&b"cover.example"[..]));
    assert_eq!(hello.alpn().collect::<Vec<_>>(), [&b"h3"[..], b"http/1.1"]);
    assert_eq!(
        hello.cipher_suites().collect::<Vec<_>>(),
        [0x1301, 0x1302, 0x1303]
    );
    assert_eq!(hello.groups().collect::<Vec<_>>(), [X25519MLKEM768, X25519]);
    let shares: Vec<_> = hello
        .key_shares()
        .map(|(group, key)| (group, key.len()))
        .collect();
    assert_eq!(shares, [(X25519MLKEM768, HYBRID_BYTES), (X25519, X25519_BYTES)]);
    let kinds: Vec<_> = hello.extensions().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [57, 0, 43, 16, 10, 51]);
}

/// QR1-4.
#[test]
fn the_end_of_the_first_hybrid_share_is_the_clients_key_and_else_the_classic_one() {
    let hybrid = |last: u8| (X25519MLKEM768, [vec![9; 1184], vec![last; 32]].concat());
    let classic = |byte: u8| (X25519, vec![byte; 32]);
    let other = (0x0a0a, vec![0]);
    let share = |shares: &[(u16, Vec<u8>)]| {
        let message = with_shares(shares);
        let hello = ClientHello::parse(&message).expect("a hello");
        hello.x25519_share().copied()
    };
    assert_eq!(share(&[other.clone(), classic(1), hybrid(2)]), Some([2; 32]));
    assert_eq!(share(&[hybrid(3), hybrid(2), classic(1)]), Some([3; 32]));
    assert_eq!(share(&[classic(1), classic(4)]), Some([1; 32]));
    assert_eq!(share(&[other]), None);
    assert_eq!(share(&[]), None);
    assert_eq!(share(&[(X25519, vec![1; 31])]), None);
    // A hybrid share of another length is not replaced by the other one.
    assert_eq!(share(&[(X25519MLKEM768, vec![1; 1215]), classic(1)]), None);
}

#[test]
fn a_message_ends_where_its_length_says() {
    let whole = hello(&key(), HelloShape::Hybrid);
    for end in 0..whole.len() {
        assert_eq!(ClientHello::parse(&whole[..end]).err(), Some(HelloError::Length));
    }
    let longer = [&whole[..], &[0]].concat();
    assert_eq!(ClientHello::parse(&longer).err(), Some(HelloError::Length));
    for place in 0..4 {
        assert_eq!(message_bytes(&whole[..place]), None);
    }
    assert_eq!(message_bytes(&whole), Some(Ok(whole.len())));
    assert_eq!(message_bytes(&[2, 0, 0, 4]), Some(Err(HelloError::NotAHello)));
    assert_eq!(message_bytes(&[1, 0, 0x40, 0]), Some(Err(HelloError::TooLong)));
    assert_eq!(message_bytes(&[1, 0, 0x3f, 0xfc]), Some(Ok(HELLO_BYTES_MAX)));
}

#[test]
fn lengths_inside_that_do_not_fit_are_refused() {
    let base = extensions(&[(X25519, vec![1; 32])]);
    let with = |kind: u16, data: Vec<u8>| {
        let mut changed = base.clone();
        changed
            .iter_mut()
            .find(|(known, _)| *known == kind)
            .expect("there")
            .1 = data;
        message(&changed)
    };
    for (kind, data) in [
        (SERVER_NAME, vec![]),
        (SERVER_NAME, vec![0, 9, 0, 0, 1, b'a']),
        (SERVER_NAME, vector(&[0, 0, 9, b'a'])),
        (ALPN, vector(b"\x03h3")),
        (ALPN, vector(b"")),
        (ALPN, [vector(b"\x02h3"), vec![0]].concat()),
        (SUPPORTED_GROUPS, vector(&[0, 0x1d, 0])),
        (SUPPORTED_GROUPS, vector(&[])),
        (KEY_SHARE, vector(&[0, 0x1d, 0, 2, 1])),
        (KEY_SHARE, vector(&[0])),
    ] {
        let message = with(kind, data.clone());
        let found = ClientHello::parse(&message).err();
        assert_eq!(found, Some(HelloError::Length), "{kind} {data:02x?}");
    }
    // No key yet: the client asks for a HelloRetryRequest (RFC 8446 section 4.2.8).
    let message = with(KEY_SHARE, vector(&[]));
    assert!(ClientHello::parse(&message).is_ok_and(|hello| hello.x25519_share().is_none()));
}

#[test]
fn an_extension_that_is_read_comes_once_and_others_as_they_like() {
    for (kind, data) in extensions(&[(X25519, vec![1; 32])]) {
        let mut twice = extensions(&[(X25519, vec![1; 32])]);
        twice.push((kind, data));
        let message = message(&twice);
        let found = ClientHello::parse(&message).err();
        let is_read = [SERVER_NAME, SUPPORTED_GROUPS, ALPN, KEY_SHARE].contains(&kind);
        assert_eq!(found, is_read.then_some(HelloError::Duplicate), "{kind}");
    }
}

proptest! {
    #[test]
    fn nothing_makes_the_reader_panic(change in any::<Vec<(u16, u8)>>(), end in any::<u16>()) {
        let mut message = hello(&key(), HelloShape::Classic);
        for (place, value) in change {
            let place = usize::from(place) % message.len();
            message[place] = value;
        }
        message.truncate(usize::from(end) % (message.len() + 1));
        if let Ok(hello) = ClientHello::parse(&message) {
            let _ = (hello.x25519_share(), hello.server_name());
            let shares: usize = hello.key_shares().map(|(_, key)| key.len()).sum();
            prop_assert!(shares + hello.alpn().count() + hello.extensions().count() <= message.len());
        }
    }
}
