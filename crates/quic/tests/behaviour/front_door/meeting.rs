//! Whom a client finds behind a front door, and what it does then.

use std::time::Duration;

use quic::{AcceptParameters, CloseReason, ConfigurationError, ConnectError, CoverTls, Direction};
use reality::credentials::{ServerKey, UserKey};

use super::wire::{self, Initial};
use super::world::{COVER, Door, Somebody};

const SECOND: Duration = Duration::from_secs(1);

/// QR1-16, QR1-19: the tunnel.
#[test]
fn a_client_that_is_recognised_meets_its_server_and_both_speak() {
    let mut door = Door::new(&COVER);
    let (client, server) = door.meet();
    assert!(door.pair.client.redirected.is_empty());
    door.pair.client.send_datagram(client, &b"question"[..]);
    door.pair.drive(SECOND);
    door.pair.server.send_datagram(server, &b"answer"[..]);
    let stream = door
        .pair
        .client
        .endpoint
        .open_stream(client, Direction::Bidirectional);
    let written = door
        .pair
        .client
        .endpoint
        .write(client, stream.unwrap(), b"request");
    assert_eq!(written, Ok(7));
    door.pair.drive(SECOND);
    assert_eq!(door.pair.server.recorder.datagrams, [&b"question"[..]]);
    assert_eq!(door.pair.client.recorder.datagrams, [&b"answer"[..]]);
    assert_eq!(door.pair.server.streams.values().next().unwrap(), b"request");
}

/// QR1-27: suite and group are the cover's, whatever the client would like better, and so is the order of extensions,
/// whatever rustls writes.
#[test]
fn every_suite_group_and_order_of_a_cover_is_followed() {
    for cipher_suite in [0x1301, 0x1302, 0x1303] {
        for group in [0x11ec, 0x001d, 0x0017, 0x0018] {
            for (is_version_first, order) in [(false, [51, 43]), (true, [43, 51])] {
                let mut door = Door::new(&CoverTls {
                    cipher_suite,
                    group,
                    is_version_first,
                    ..COVER
                });
                door.meet();
                let hello = server_hello(&door);
                assert_eq!(hello, (cipher_suite, group, order.to_vec()));
            }
        }
    }
}

/// QR1-27.
#[test]
fn a_cover_with_another_suite_or_group_or_without_a_certificate_is_refused() {
    for cover in [
        CoverTls {
            cipher_suite: 0x1304,
            ..COVER
        },
        CoverTls {
            cipher_suite: 0xc02b,
            ..COVER
        },
        CoverTls {
            group: 0x0019,
            ..COVER
        },
        CoverTls {
            group: 0x11eb,
            ..COVER
        },
        CoverTls {
            certificate_message_bytes: 100,
            ..COVER
        },
        CoverTls {
            certificate_message_bytes: usize::MAX,
            ..COVER
        },
    ] {
        let made = quic::FrontDoorIdentity::generate(quic::Aead::default(), &cover);
        assert!(matches!(made, Err(ConfigurationError::Cover(_))), "{cover:?}");
    }
}

/// Suite, group and types of extensions of the server's first answer (RFC 8446 section 4.1.3), as a watcher reads them.
fn server_hello(door: &Door) -> (u16, u16, Vec<u16>) {
    let client = Initial::open(&Door::datagrams(&door.pair.client)[0]).unwrap();
    let datagrams = Door::datagrams(&door.pair.server);
    let open = |datagram: &Vec<u8>| Initial::of_server(datagram, &client.destination_id);
    let message = wire::messages(datagrams.iter().filter_map(open));
    let number = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
    // A second one follows where the first asks for another hello.
    let end = 4 + usize::from(number(2));
    let suite_at = 4 + 2 + 32 + 1 + usize::from(message[38]);
    let mut at = suite_at + 5;
    let (mut group, mut types) = (0, Vec::new());
    while at < end {
        types.push(number(at));
        if number(at) == 51 {
            group = number(at + 4);
        }
        at += 4 + usize::from(number(at + 2));
    }
    (number(suite_at), group, types)
}

/// QR1-17. Both ends have the same 32 bytes, and no two connections do.
#[test]
fn both_ends_prove_to_each_other_that_nobody_stands_between() {
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let mut door = Door::new(&COVER);
        let (client, server) = door.meet();
        let [client_end, server_end] = [(&mut door.pair.client, client), (&mut door.pair.server, server)]
            .map(|(side, connection)| {
                let exporter = side.endpoint.exporter(connection, b"EXPORTER-other", b"context");
                (
                    side.endpoint.channel_binding(connection).unwrap(),
                    exporter.unwrap(),
                )
            });
        assert_eq!(client_end, server_end);
        assert!(seen.insert(client_end.0) && seen.insert(client_end.1));
        let again = door
            .pair
            .client
            .endpoint
            .exporter(client, b"EXPORTER-other", b"other");
        assert!(seen.insert(again.unwrap()));
    }
}

#[test]
fn there_is_nothing_to_prove_before_the_handshake_and_without_a_front_door() {
    let mut door = Door::new(&COVER);
    let client = door.connect();
    assert_eq!(door.pair.client.endpoint.channel_binding(client), None);
    assert_eq!(door.pair.client.endpoint.exporter(client, b"EXPORTER", b""), None);
    let (mut pair, client, server) = crate::support::Pair::connected(crate::support::Setup::default());
    assert_eq!(pair.client.endpoint.channel_binding(client), None);
    assert_eq!(pair.server.endpoint.channel_binding(server), None);
    assert!(pair.client.endpoint.exporter(client, b"EXPORTER", b"").is_some());
}

/// QR1-19: redirected. The cover sees a browser that connects and rests.
#[test]
fn where_the_genuine_site_answers_nothing_of_the_tunnel_is_sent() {
    let mut door = Door::new(&COVER);
    door.lead_to(Somebody::Cover);
    let client = door.connect();
    door.pair
        .client
        .source
        .push(client, bytes::Bytes::from_static(b"secret"));
    door.pair.drive(2 * SECOND);
    assert_eq!(door.pair.client.redirected, [client]);
    assert!(door.pair.client.connected.is_empty() && door.pair.client.closed.is_empty());
    assert_eq!(door.pair.server.connected.len(), 1, "its handshake is complete");
    let endpoint = &mut door.pair.client.endpoint;
    for direction in [Direction::Bidirectional, Direction::Unidirectional] {
        assert_eq!(endpoint.open_stream(client, direction), None);
    }
    endpoint.mark_ready(client);
    door.pair.drive(17 * SECOND);
    assert!(door.pair.server.recorder.datagrams.is_empty() && door.pair.server.opened.is_empty());
    let now = door.pair.now;
    door.pair.client.endpoint.close(now, client, 0x100, b"");
    door.pair.drive(SECOND);
    let reason = String::new();
    let closed = CloseReason::ApplicationClosed { code: 0x100, reason };
    assert_eq!(door.pair.server.closed[0].1, closed);
}

/// QR1-19: invalid. The alert is what a browser's TLS would send, and says no more.
#[test]
fn where_somebody_else_answers_the_handshake_ends_with_an_alert() {
    // bad_certificate and unknown_ca (RFC 8446 section 6.2).
    for (somebody, alert) in [(Somebody::OtherSite, 42), (Somebody::Pretender, 48)] {
        let mut door = Door::new(&COVER);
        door.lead_to(somebody);
        door.connect();
        door.pair.drive(2 * SECOND);
        assert_eq!(door.pair.client.closed[0].1, CloseReason::WrongServer);
        assert!(door.pair.client.connected.is_empty() && door.pair.client.redirected.is_empty());
        let CloseReason::Aborted { code, description } = &door.pair.server.closed[0].1 else {
            panic!("{:?}", door.pair.server.closed);
        };
        assert_eq!(*code, 0x100 + alert);
        assert!(!description.contains("certificate"), "{description}");
    }
}

/// QR1-15, QR1-16: the proof is for one hello.
#[test]
fn a_proof_for_another_hello_is_no_proof() {
    let mut door = Door::new(&COVER);
    door.connect();
    door.arrival();
    let of_the_first = door.recognise().unwrap().keys;
    door.pair = Door::new(&COVER).pair;
    door.connect();
    let key = door.arrival();
    let parameters = AcceptParameters {
        identity: Some(door.identity.for_client(of_the_first)),
        ..AcceptParameters::default()
    };
    let now = door.pair.now;
    door.pair.server.endpoint.accept(now, key, &parameters).unwrap();
    door.pair.drive(2 * SECOND);
    assert_eq!(door.pair.client.closed[0].1, CloseReason::WrongServer);
    assert!(door.pair.server.connected.is_empty());
}

/// QR1-7.
#[test]
fn without_the_link_nobody_is_recognised() {
    let mut door = Door::new(&COVER);
    door.user = UserKey::derive(&[8; 32]);
    door.connect();
    door.arrival();
    door.user = UserKey::derive(&[7; 32]);
    assert!(door.recognise().is_none(), "another user");
    let mut door = Door::new(&COVER);
    door.connect();
    door.arrival();
    door.server_key = ServerKey::from_bytes(&[0x43; 32]);
    assert!(door.recognise().is_none(), "another server");
}

#[test]
fn without_connection_ids_there_is_one_connection_to_an_address_and_the_next_after_its_end() {
    let mut door = Door::new(&COVER);
    door.meet();
    let parameters = door.client_parameters();
    let again = door.pair.connect_with(&parameters);
    assert_eq!(
        again,
        Err(ConnectError::AlreadyConnected(door.pair.server.address))
    );
    for _ in 0..3 {
        let (now, open) = (door.pair.now, door.pair.client.connected.last().copied().unwrap());
        door.pair.client.endpoint.close(now, open, 0x100, b"");
        // What the former connection's server still sends comes to the next one, and does nothing.
        let (client, server) = door.meet();
        door.pair.drive(10 * SECOND);
        door.pair.server.send_datagram(server, &b"still here"[..]);
        door.pair.client.send_datagram(client, &b"still here"[..]);
        door.pair.drive(SECOND);
        assert_eq!(door.pair.client.endpoint.open_connections(), 1);
    }
    assert_eq!(door.pair.client.recorder.datagrams.len(), 3);
    assert_eq!(door.pair.server.recorder.datagrams.len(), 3);
    assert!(
        door.pair
            .client
            .closed
            .iter()
            .all(|(_, why)| *why == CloseReason::LocallyClosed)
    );
}

#[test]
fn a_client_without_connection_ids_keeps_its_connection_at_a_new_address() {
    let mut door = Door::new(&COVER);
    let (client, server) = door.meet();
    door.pair.client.address = "203.0.113.5:61000".parse().unwrap();
    door.pair.client.endpoint.local_address_changed(client);
    door.pair.client.send_datagram(client, &b"from elsewhere"[..]);
    door.pair.drive(SECOND);
    door.pair.server.send_datagram(server, &b"back"[..]);
    door.pair.drive(SECOND);
    assert_eq!(door.pair.server.recorder.datagrams, [&b"from elsewhere"[..]]);
    assert_eq!(door.pair.client.recorder.datagrams, [&b"back"[..]]);
}

/// QR1-30.
#[test]
fn a_client_acknowledges_as_rarely_as_one_that_says_it_can() {
    let mut door = Door::new(&COVER);
    let (client, server) = door.meet();
    let acknowledged = |door: &mut Door| {
        door.pair
            .client
            .endpoint
            .report(client)
            .unwrap()
            .counters
            .acks_sent
    };
    let before = acknowledged(&mut door);
    for _ in 0..200 {
        door.pair.server.send_datagram(server, &[5; 100][..]);
        door.pair.drive(SECOND / 10_000);
    }
    door.pair.drive(SECOND / 100);
    let acknowledgements = acknowledged(&mut door) - before;
    assert_eq!(door.pair.client.recorder.datagrams.len(), 200);
    assert!(
        (1..=30).contains(&acknowledgements),
        "{acknowledgements} for 200 packets"
    );
}
