//! Bound UDP: what both ends say, and what is refused (draft-ietf-masque-connect-udp-listen).

use std::net::SocketAddr;

use bytes::Bytes;
use masque::bind::{self, BindCapsule, BindCapsuleReader};
use masque::request::{self, Credential, Request};
use masque::{Code, HeaderList, response};

fn asked(list: &HeaderList) -> request::ConnectUdp {
    match request::classify(list) {
        Ok(Request::ConnectUdp(asked)) => asked,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_for_a_bound_socket_names_no_target() {
    let bound = asked(&bind::bind("proxy.example", "token", Some(2)));
    assert!(bound.bind && bound.target.is_err() && bound.capsule_protocol);
    assert_eq!(bound.split, Some(2));
    assert_eq!(bound.credential, Credential::Bearer("token".to_owned()));
    let target = "192.0.2.1:53".parse().unwrap();
    // With a target the extension is left out: a server may (section 2).
    let with_target = request::connect_udp("proxy.example", &target, "token", None).with(bind::FIELD, "?1");
    assert!(!asked(&with_target).bind);
    let plain = |field: &str| {
        HeaderList::new()
            .with(":method", "CONNECT")
            .with(":protocol", "connect-udp")
            .with(":scheme", "https")
            .with(":path", "/.well-known/masque/udp/*/%2a/")
            .with(":authority", "proxy.example")
            .with(bind::FIELD, field)
    };
    assert!(asked(&plain("?1")).bind && asked(&plain("?1;a=1")).bind);
    for field in ["?0", "1", "true", "?1, ?1", ""] {
        assert!(!asked(&plain(field)).bind, "{field}");
    }
    assert!(!asked(&plain("?1").with(bind::FIELD, "?1")).bind);
}

#[test]
fn the_answer_says_where_the_socket_is() {
    for address in ["192.0.2.1:80", "[100::7]:1"] {
        let list = bind::accepted(address.parse().unwrap(), Some(2));
        assert_eq!(bind::address_of(&list), address.parse().ok());
        assert_eq!(request::split_context(&list), Some(2));
    }
    let with = |value: &str| {
        response::response(200)
            .with(bind::FIELD, "?1")
            .with(bind::ADDRESS_FIELD, value)
    };
    let several = with("\"192.0.2.1:80\", \"[2001:db8::1]:81\"");
    assert_eq!(bind::address_of(&several), "192.0.2.1:80".parse().ok());
    for value in ["", "192.0.2.1:80", "\"192.0.2.1\"", "\"192.0.2.1:80", "\"a:80\""] {
        assert_eq!(bind::address_of(&with(value)), None, "{value}");
    }
    let silent = response::response(200).with(bind::ADDRESS_FIELD, "\"192.0.2.1:80\"");
    assert_eq!(bind::address_of(&silent), None);
}

fn all() -> Vec<BindCapsule> {
    let assign = |context_id, address| BindCapsule::Assign { context_id, address };
    vec![
        assign(2, Some(SocketAddr::from(([192, 0, 2, 1], 80)))),
        assign(
            1 << 61,
            Some(SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 65_535))),
        ),
        assign(4, None),
        BindCapsule::Ack(2),
        BindCapsule::Close(1 << 20),
    ]
}

#[test]
fn capsules_are_read_back_in_any_pieces_and_unknown_ones_are_skipped() {
    let mut content = Vec::new();
    for capsule in all() {
        content.extend(capsule.encode().unwrap());
        content.extend([0x40, 0x99, 3, 1, 2, 3]);
    }
    content.extend([0, 2, 8, 9]);
    let mut expected = all();
    expected.push(BindCapsule::Datagram(Bytes::from_static(&[8, 9])));
    for piece_bytes in [1, 2, 7, 1_000] {
        let mut reader = BindCapsuleReader::default();
        let mut read = Vec::new();
        for piece in content.chunks(piece_bytes) {
            let mut piece = Bytes::copy_from_slice(piece);
            while let Some(capsule) = reader.next(&mut piece).unwrap() {
                read.push(capsule);
            }
        }
        assert_eq!(read, expected);
        assert!(reader.finish().is_ok());
    }
    assert!(expected[5].encode().is_none());
}

#[test]
fn a_capsule_that_breaks_a_rule_costs_the_request() {
    for bad in [
        &[0x11, 0][..],
        &[0x11, 1, 2],
        &[0x11, 2, 0, 0],
        &[0x11, 2, 2, 5],
        &[0x11, 3, 2, 0, 0],
        &[0x11, 7, 2, 4, 192, 0, 2, 1, 0],
        &[0x11, 9, 2, 4, 192, 0, 2, 1, 0, 80, 0],
        &[0x12, 0],
        &[0x12, 1, 0],
        &[0x12, 2, 2, 2],
        &[0x13, 1, 0],
        &[0x11, 28],
        &[0x13, 0x7f, 0xff],
    ] {
        let error = BindCapsuleReader::default().next(&mut Bytes::copy_from_slice(bad));
        assert_eq!(error.unwrap_err().code(), Code::MessageError, "{bad:?}");
    }
    let mut reader = BindCapsuleReader::default();
    assert_eq!(reader.next(&mut Bytes::from_static(&[0x11, 8, 2])), Ok(None));
    assert!(reader.finish().is_err());
}
