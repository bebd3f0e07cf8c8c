//! A server that comes back without its state.

use std::time::Duration;

use bytes::BytesMut;
use packet::Ecn;
use quic::limits::RESETS_PER_PREFIX_PER_SECOND;
use quic::{CloseReason, Direction, Event, Path};

use crate::support::{Link, Pair, Random, Setup};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_restarted_server_with_the_same_reset_key_is_noticed_within_a_round_trip() {
    let one_way = Duration::from_millis(20);
    for keep_alive in [false, true] {
        let setup = Setup {
            link: Link::with_delay(one_way),
            ..Setup::default()
        };
        let (mut pair, client, _) = Pair::connected(setup);
        pair.drive(3 * SECOND);
        pair.restart_server([7; 64]);
        if !keep_alive {
            pair.client.send_datagram(client, &b"0123456789"[..]);
        }
        let sent_before = pair.client.sent.len();
        pair.drive_until(15 * SECOND, |pair| pair.client.closed.first().map(|_| ()));
        let (at, reason) = pair.client.closed[0].clone();
        assert_eq!(reason, CloseReason::Reset);
        let first_packet = pair.client.sent[sent_before].at;
        assert!(
            at - first_packet <= 2 * one_way + Duration::from_millis(1),
            "{:?}",
            at - first_packet
        );
        pair.connect();
        pair.drive(SECOND);
        assert_eq!((pair.client.connected.len(), pair.server.connected.len()), (2, 1));
    }
}

/// A server restarts, and strangers send what `stranger` gives just before its client sends a packet. How many answers the
/// strangers get, and whether the client has noticed the restart a little more than a round trip later.
fn restart_among_strangers(count: usize, mut stranger: impl FnMut(&[u8]) -> Vec<u8>) -> (usize, bool) {
    let one_way = Duration::from_millis(20);
    let setup = Setup {
        link: Link::with_delay(one_way),
        ..Setup::default()
    };
    let (mut pair, client, _) = Pair::connected(setup);
    pair.client.captured = Some(Vec::new());
    pair.client.send_datagram(client, &b"before"[..]);
    pair.drive(SECOND);
    let mut captured = pair.client.captured.take().unwrap();
    pair.restart_server([7; 64]);
    pair.client.send_datagram(client, &b"0123456789"[..]);
    pair.drive(one_way - Duration::from_millis(1));
    let genuine = captured.pop().unwrap();
    let path = Path {
        remote: "203.0.113.9:9".parse().unwrap(),
        local: None,
    };
    let mut answers = 0;
    for _ in 0..count {
        let bytes = BytesMut::from(&stranger(&genuine)[..]);
        pair.server.receive(pair.now, path, Ecn::NotEct, bytes, 0);
        answers += pair.server.take_trains(pair.now).len();
    }
    pair.drive(one_way + Duration::from_millis(2));
    (
        answers,
        pair.client
            .closed
            .iter()
            .any(|(_, reason)| *reason == CloseReason::Reset),
    )
}

#[test]
fn random_connection_ids_use_up_no_stateless_resets() {
    let mut random = Random(5);
    let (answers, is_noticed) = restart_among_strangers(20_000, |_| {
        let mut packet: Vec<u8> = (0..60).map(|_| random.next() as u8).collect();
        packet[0] = 0x40;
        packet
    });
    assert_eq!((answers, is_noticed), (0, true));
}

#[test]
fn a_stranger_that_repeats_an_id_of_before_the_restart_leaves_resets_to_others() {
    let (answers, is_noticed) = restart_among_strangers(20_000, <[u8]>::to_vec);
    assert_eq!(
        (answers, is_noticed),
        (RESETS_PER_PREFIX_PER_SECOND as usize, true)
    );
}

#[test]
fn a_server_with_another_reset_key_is_not_believed() {
    let (mut pair, client, _) = Pair::connected(Setup::default());
    pair.restart_server([8; 64]);
    let stream = pair
        .client
        .endpoint
        .open_stream(client, Direction::Bidirectional)
        .unwrap();
    pair.client
        .endpoint
        .write(client, stream, b"anyone there?")
        .unwrap();
    pair.drive(29 * SECOND);
    assert!(pair.client.closed.is_empty());
    pair.drive(20 * SECOND);
    assert_eq!(pair.client.closed[0].1, CloseReason::TimedOut);
}

#[test]
fn a_client_that_vanished_is_forgotten_after_the_idle_timeout() {
    let (mut pair, _, _) = Pair::connected(Setup::default());
    pair.link.loss_per_mille = [1_000, 1_000];
    pair.drive(45 * SECOND);
    assert_eq!(pair.server.closed[0].1, CloseReason::TimedOut);
    assert_eq!(
        (
            pair.server.endpoint.open_connections(),
            pair.client.endpoint.open_connections()
        ),
        (0, 0)
    );
}

#[test]
fn keep_alives_hold_an_idle_connection_open() {
    let (mut pair, client, _) = Pair::connected(Setup::default());
    pair.drive(300 * SECOND);
    assert!(pair.client.closed.is_empty() && pair.server.closed.is_empty());
    pair.client.send_datagram(client, &b"still here"[..]);
    pair.drive(SECOND);
    assert_eq!(pair.server.recorder.datagrams.len(), 1);
}

#[test]
fn a_client_behind_a_new_address_keeps_its_connection() {
    let (mut pair, client, server) = Pair::connected(Setup::default());
    pair.client.address = "203.0.113.5:61000".parse().unwrap();
    pair.client.send_datagram(client, &b"from elsewhere"[..]);
    pair.drive(SECOND);
    assert_eq!(pair.server.recorder.datagrams.len(), 1);
    assert_eq!(
        pair.server.endpoint.report(server).unwrap().remote,
        pair.client.address
    );
    pair.client.endpoint.local_address_changed(client);
    pair.drive(SECOND);
    pair.server.send_datagram(server, &b"back"[..]);
    pair.drive(SECOND);
    assert_eq!(pair.client.recorder.datagrams.len(), 1);
}

/// The connection has ended by its timer, and its end has not been asked for.
#[test]
fn a_move_at_the_moment_of_the_end_changes_nothing() {
    let (mut pair, client, _) = Pair::connected(Setup::default());
    pair.link.loss_per_mille = [1_000, 1_000];
    let end = pair.now + 45 * SECOND;
    let endpoint = &mut pair.client.endpoint;
    endpoint.handle_timeout(end);
    endpoint.local_address_changed(client);
    let mut closed = 0;
    while let Some(event) = endpoint.poll_event() {
        closed += usize::from(matches!(event, Event::Closed { .. }));
    }
    assert_eq!((closed, endpoint.open_connections()), (1, 0));
}

/// Its number is another connection's only after that, so that nobody takes one for the other.
#[test]
fn a_connection_that_silence_ended_stays_until_the_caller_was_told() {
    let (mut pair, client, _) = Pair::connected(Setup::default());
    pair.link.loss_per_mille = [1_000, 1_000];
    pair.now += 45 * SECOND;
    let now = pair.now;
    pair.client.endpoint.handle_timeout(now);
    let told = |pair: &mut Pair| loop {
        match pair.client.endpoint.poll_event() {
            Some(Event::Closed { connection, .. }) => return Some(connection),
            Some(_) => {}
            None => return None,
        }
    };
    assert_eq!(told(&mut pair), Some(client));
    let next = pair.connect();
    assert_ne!(next, client);
    assert_eq!(pair.client.endpoint.open_connections(), 2);
    assert_eq!(told(&mut pair), None);
    assert_eq!(pair.client.endpoint.open_connections(), 1);
    assert_eq!(pair.connect(), client);
}
