//! Handshake, pin, ALPN, connection IDs, no 0-RTT, datagrams and streams both ways.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use quic::{CloseReason, Direction};

use crate::support::{Link, Pair, Setup};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn handshake_completes_and_datagrams_and_streams_pass_both_ways() {
    let (mut pair, client, server) = Pair::connected(Setup::default());
    pair.client.send_datagram(client, &b"up"[..]);
    pair.client.send_datagram(client, Bytes::new());
    pair.server.send_datagram(server, &b"down"[..]);
    let up = pair
        .client
        .endpoint
        .open_stream(client, Direction::Bidirectional)
        .unwrap();
    let down = pair
        .server
        .endpoint
        .open_stream(server, Direction::Unidirectional)
        .unwrap();
    assert_eq!(pair.client.endpoint.write(client, up, b"question").unwrap(), 8);
    let mut greeting = Bytes::from_static(b"greeting");
    assert_eq!(
        pair.server
            .endpoint
            .write_bytes(server, down, &mut greeting)
            .unwrap(),
        8
    );
    assert!(greeting.is_empty());
    pair.client.endpoint.finish(client, up);
    pair.server.endpoint.finish(server, down);
    pair.drive(SECOND);
    assert_eq!(pair.server.recorder.datagrams, [&b"up"[..], b""]);
    assert_eq!(pair.client.recorder.datagrams, [&b"down"[..]]);
    assert_eq!(pair.server.streams[&(server, up)], b"question");
    assert_eq!(pair.client.streams[&(client, down)], b"greeting");
    assert_eq!(
        (
            pair.server.ended_streams.as_slice(),
            pair.client.ended_streams.as_slice()
        ),
        (&[up][..], &[down][..])
    );
    assert_eq!(pair.server.endpoint.write(server, up, b"answer").unwrap(), 6);
    pair.drive(SECOND);
    assert_eq!(pair.client.streams[&(client, up)], b"answer");
}

#[test]
fn streams_arrive_whole_and_in_order_over_a_path_that_loses_and_corrupts() {
    let (mut pair, client, server) = Pair::connected(Setup::default());
    pair.link.loss_per_mille = [30, 30];
    pair.link.corrupt_per_mille = 10;
    let stream = pair
        .client
        .endpoint
        .open_stream(client, Direction::Bidirectional)
        .unwrap();
    let content: Vec<u8> = (0..1_000_000_u32)
        .map(|index| (index * 7 + index / 256) as u8)
        .collect();
    let mut rest = Bytes::from(content.clone());
    pair.client
        .endpoint
        .write_bytes(client, stream, &mut rest)
        .unwrap();
    assert!(rest.is_empty());
    pair.client.endpoint.finish(client, stream);
    pair.drive_until(60 * SECOND, |pair| pair.client.finished.first().copied());
    assert_eq!(pair.server.ended_streams, [stream]);
    assert!(pair.server.streams[&(server, stream)] == content);
}

#[test]
fn a_server_with_another_key_is_refused_as_wrong_pin() {
    let mut pair = Pair::new(Setup::default());
    let mut pin = pair.identity.pin;
    pin[31] ^= 1;
    pair.connect_with_pin(pin);
    pair.drive(5 * SECOND);
    assert_eq!(
        pair.client
            .closed
            .iter()
            .map(|(_, reason)| reason)
            .collect::<Vec<_>>(),
        [&CloseReason::WrongPin]
    );
    assert!(pair.client.connected.is_empty());
    assert!(matches!(
        pair.server.closed.as_slice(),
        [(_, CloseReason::Aborted { .. })]
    ));
}

#[test]
fn closing_tells_the_peer_the_code_and_the_reason() {
    let (mut pair, client, _) = Pair::connected(Setup::default());
    let now = pair.now;
    pair.client.endpoint.close(now, client, 0x100, b"done");
    pair.drive(SECOND);
    let expected = CloseReason::ApplicationClosed {
        code: 0x100,
        reason: "done".to_owned(),
    };
    assert_eq!(pair.server.closed[0].1, expected);
    assert_eq!(pair.client.closed[0].1, CloseReason::LocallyClosed);
    pair.drive(10 * SECOND);
    assert_eq!(
        (
            pair.client.endpoint.open_connections(),
            pair.server.endpoint.open_connections()
        ),
        (0, 0)
    );
}

/// No acknowledgement would make room for it any more.
#[test]
fn the_end_is_told_also_where_the_window_is_full_of_what_was_to_be_sent() {
    let setup = Setup {
        link: Link {
            bits_per_second: 10_000_000,
            ..Link::with_delay(Duration::from_millis(50))
        },
        ..Setup::default()
    };
    let moments = [1, 7, 30, 70, 155, 310];
    for (closes, after) in moments.iter().flat_map(|after| [(0, *after), (1, *after)]) {
        let (mut pair, client, server) = Pair::connected(setup.clone());
        let stream = pair
            .client
            .endpoint
            .open_stream(client, Direction::Bidirectional)
            .unwrap();
        while pair.client.endpoint.write(client, stream, &[1; 10_000]).unwrap() > 0 {}
        pair.drive(Duration::from_millis(after));
        let now = pair.now;
        match closes {
            0 => pair.client.endpoint.close(now, client, 0x100, b"done"),
            _ => pair.server.endpoint.close(now, server, 0x100, b"done"),
        }
        pair.drive(Duration::from_millis(300));
        let told = [&pair.server.closed, &pair.client.closed][closes];
        assert!(
            matches!(
                told.as_slice(),
                [(_, CloseReason::ApplicationClosed { code: 0x100, .. })]
            ),
            "end {closes} closes after {after} ms: {told:?}"
        );
        assert_eq!(pair.client.endpoint.closing() + pair.server.endpoint.closing(), 0);
    }
}

/// RFC 9000 section 10.2.1.
#[test]
fn an_end_that_the_path_lost_is_said_again_to_a_peer_that_sends_nothing() {
    let (mut pair, client, _) = Pair::connected(Setup::default());
    let now = pair.now;
    pair.link.loss_per_mille = [1_000, 0];
    pair.client.endpoint.close(now, client, 0x100, b"done");
    pair.drive(Duration::from_millis(5));
    assert!(pair.server.closed.is_empty());
    assert!(pair.client.endpoint.is_closing(client));
    pair.link.loss_per_mille = [0, 0];
    pair.drive(Duration::from_millis(20));
    let expected = CloseReason::ApplicationClosed {
        code: 0x100,
        reason: "done".to_owned(),
    };
    assert_eq!(pair.server.closed[0].1, expected);
    // It has answered.
    assert_eq!(pair.client.endpoint.closing(), 0);
}

#[test]
fn a_peer_that_never_answers_the_end_is_told_a_few_times_and_forgotten() {
    for delay in [10, 1_000, 100_000].map(Duration::from_micros) {
        let setup = Setup {
            link: Link::with_delay(delay),
            ..Setup::default()
        };
        let (mut pair, client, _) = Pair::connected(setup);
        let now = pair.now;
        pair.link.loss_per_mille = [1_000, 1_000];
        pair.client.captured = Some(Vec::new());
        pair.client.endpoint.close(now, client, 0x100, b"done");
        pair.drive(2 * SECOND);
        assert_eq!(pair.client.endpoint.closing(), 0);
        assert_eq!(pair.client.endpoint.open_connections(), 0);
        let told = pair.client.captured.take().unwrap();
        assert!(
            (2..=6).contains(&told.len()),
            "{} packets at {delay:?}",
            told.len()
        );
        assert!(told.windows(2).all(|pair| pair[0] == pair[1]));
    }
}

#[test]
fn what_a_peer_says_at_the_end_forges_no_line_and_moves_no_cursor() {
    let (mut pair, client, _) = Pair::connected(Setup::default());
    let now = pair.now;
    let hostile = format!("a\u{1b}[2J\nb\u{202e}\u{9b}c{}", "d".repeat(1_000));
    pair.client.endpoint.close(now, client, 0x100, hostile.as_bytes());
    pair.drive(SECOND);
    let CloseReason::ApplicationClosed { reason, .. } = &pair.server.closed[0].1 else {
        panic!("{:?}", pair.server.closed);
    };
    let begin = "a\u{fffd}[2J\u{fffd}b\u{fffd}\u{fffd}cddd";
    assert!(reason.starts_with(begin), "{reason:?}");
    assert_eq!(reason.chars().count(), quic::limits::CLOSE_REASON_CHARACTERS_MAX);
}

#[test]
fn connection_ids_of_1000_connections_share_no_constant_byte() {
    let mut pair = Pair::new(Setup::default());
    pair.client.captured = Some(Vec::new());
    pair.server.captured = Some(Vec::new());
    for _ in 0..1_000 {
        pair.connect();
        pair.drive(Duration::from_millis(8));
        pair.client.connected.clear();
    }
    for captured in [pair.client.captured.unwrap(), pair.server.captured.unwrap()] {
        // The source ID of a long header: after the first byte, the version and the destination ID.
        let ids: BTreeSet<Vec<u8>> = captured
            .iter()
            .filter(|bytes| bytes[0] & 0x80 != 0)
            .map(|bytes| {
                let at = 6 + usize::from(bytes[5]);
                bytes[at + 1..=at + usize::from(bytes[at])].to_vec()
            })
            .collect();
        assert!(ids.len() >= 1_000, "{} IDs", ids.len());
        assert!(ids.iter().all(|id| id.len() == quic::limits::CONNECTION_ID_BYTES));
        for place in 0..quic::limits::CONNECTION_ID_BYTES {
            let values: BTreeSet<u8> = ids.iter().map(|id| id[place]).collect();
            // 1,000 uniform draws give 251 of the 256 values on average.
            assert!(values.len() > 225, "byte {place} takes {} values", values.len());
            for bit in 0..8 {
                let share = ids.iter().filter(|id| id[place] >> bit & 1 == 1).count() * 1_000 / ids.len();
                assert!(
                    (400..=600).contains(&share),
                    "bit {bit} of byte {place} is set {share} times of 1,000"
                );
            }
        }
    }
}

#[test]
fn no_0_rtt_packet_leaves_and_no_stream_opens_before_the_handshake_even_on_a_second_connection() {
    let (mut pair, _, _) = Pair::connected(Setup::default());
    pair.client.sent.clear();
    let second = pair.connect();
    assert_eq!(
        pair.client.endpoint.open_stream(second, Direction::Bidirectional),
        None
    );
    pair.client.send_datagram(second, &b"early"[..]);
    pair.drive(SECOND);
    assert_eq!(pair.client.connected.len(), 2);
    let early = pair
        .client
        .sent
        .iter()
        .filter(|sent| sent.first_byte & 0xb0 == 0x90)
        .count();
    assert_eq!(early, 0);
    assert_eq!(pair.server.recorder.datagrams, [&b"early"[..]]);
}
