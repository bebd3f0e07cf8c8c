//! What a covered server says to those whom it did not recognise: nothing, whatever they send.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use packet::Ecn;
use quic::{AcceptError, AcceptParameters, IdLength, Path};

use super::wire;
use super::world::{COVER, Door};
use crate::support::{Pair, Setup};

const SECOND: Duration = Duration::from_secs(1);

/// Somebody who has no link.
fn stranger() -> SocketAddr {
    "203.0.113.9:5000".parse().unwrap()
}

/// What the server answers to a datagram, within ten seconds and with its timers.
fn answers(pair: &mut Pair, remote: SocketAddr, datagram: &[u8]) -> usize {
    let path = Path { remote, local: None };
    let bytes = BytesMut::from(datagram);
    pair.server
        .receive(pair.now, path, Ecn::Ect0, bytes, datagram.len());
    let before = pair.server.sent.len();
    pair.drive(10 * SECOND);
    pair.server.sent.len() - before
}

/// A covered server that nobody is connected to.
fn alone() -> Pair {
    let mut pair = Door::new(&COVER).pair;
    pair.server.accepts = None;
    pair
}

fn long_header(first: u8, version: [u8; 4], destination_id: &[u8]) -> Vec<u8> {
    let mut packet = vec![first];
    packet.extend_from_slice(&version);
    packet.push(destination_id.len() as u8);
    packet.extend_from_slice(destination_id);
    packet.resize(1_200, 0x5a);
    packet
}

/// QR1-20, QR1-21.
#[test]
fn datagrams_of_no_connection_are_given_back_as_they_came() {
    let mut pair = alone();
    let probes = [
        (
            "an unknown version",
            long_header(0xc0, [0x1a, 0x2a, 0x3a, 0x4a], &[3; 8]),
        ),
        ("version negotiation", long_header(0x80, [0; 4], &[3; 8])),
        ("an Initial with a short ID", wire::forge(&[3; 5], 0, &[1])),
        ("0-RTT", long_header(0xd0, [0, 0, 0, 1], &[3; 8])),
        ("a Handshake packet", long_header(0xe0, [0, 0, 0, 1], &[3; 8])),
        ("a Retry", long_header(0xf0, [0, 0, 0, 1], &[3; 8])),
        ("a short header", [&[0x40][..], &[3; 60]].concat()),
        ("no fixed bit", [&[0x00][..], &[3; 60]].concat()),
        ("one byte", vec![0x40]),
    ];
    for (what, probe) in probes {
        pair.server.recorder.given_away.clear();
        assert_eq!(answers(&mut pair, stranger(), &probe), 0, "{what}");
        let expected = (stranger(), probe.clone(), probe.len());
        assert_eq!(pair.server.recorder.given_away, [expected], "{what}");
    }
    assert_eq!(pair.server.endpoint.classified().returned, 9);
}

/// QR1-20, QR1-21: the ID was issued by this process, and its connection has ended.
#[test]
fn late_packets_of_a_connection_that_has_ended_are_given_back() {
    for (bytes, authenticates) in [(8, false), (20, false), (20, true)] {
        let mut door = Door::with(
            &COVER,
            Setup {
                server_ids: IdLength::new(bytes).unwrap(),
                ..Setup::default()
            },
        );
        door.pair.server.authenticates = authenticates;
        let (client, server) = door.meet();
        door.pair.client.captured = Some(Vec::new());
        door.pair.client.send_datagram(client, &[5; 500][..]);
        door.pair.drive(SECOND);
        let late = Door::datagrams(&door.pair.client).swap_remove(0);
        assert!(late[0] & 0x80 == 0 && late.len() > 500);
        let now = door.pair.now;
        door.pair.server.endpoint.close(now, server, 0x100, b"");
        door.pair.drive(10 * SECOND);
        assert_eq!(door.pair.server.endpoint.open_connections(), 0);
        let address = door.pair.client.address;
        for times in 1..=2 {
            assert_eq!(answers(&mut door.pair, address, &late), 0);
            // The ID of a user's connection makes the first one lost, as any datagram may be.
            let lost = usize::from(authenticates);
            let given = &door.pair.server.recorder.given_away;
            assert_eq!(given.len(), times - lost);
            assert!(given.iter().all(|(_, datagram, _)| *datagram == late));
        }
    }
}

/// QR1-21: no Retry, no refusal, no end of a handshake; and nobody is accepted by the server's own certificate.
#[test]
fn a_hello_that_is_not_accepted_is_not_answered() {
    type Decision = fn(&mut Pair);
    let decisions: [Decision; 4] = [
        |pair| pair.server.endpoint.refuse(pair.now, pair.server.incoming[0].key),
        |pair| {
            assert!(!pair.server.endpoint.retry(pair.now, pair.server.incoming[0].key));
        },
        |pair| {
            let (now, key) = (pair.now, pair.server.incoming[0].key);
            let accepted = pair
                .server
                .endpoint
                .accept(now, key, &AcceptParameters::default());
            assert_eq!(accepted, Err(AcceptError::Unrecognised));
        },
        |_| {},
    ];
    for decide in decisions {
        let mut door = Door::new(&COVER);
        door.connect();
        door.arrival();
        decide(&mut door.pair);
        door.pair.drive(5 * SECOND);
        assert!(door.pair.server.sent.is_empty(), "{:?}", door.pair.server.sent);
    }
}

/// QR1-21: above the rate and the numbers at which other servers ask for a Retry.
#[test]
fn many_hellos_are_not_asked_for_their_addresses() {
    let mut pair = alone();
    for number in 0..quic::limits::RETRY_ABOVE_PER_SECOND as u16 * 2 {
        let remote = SocketAddr::from(([10, 0, (number >> 8) as u8, number as u8], 4_000));
        let path = Path { remote, local: None };
        let initial = wire::forge(&u64::from(number).to_be_bytes(), 0, &[1]);
        pair.server
            .receive(pair.now, path, Ecn::Ect0, BytesMut::from(&initial[..]), 0);
    }
    pair.drive(SECOND);
    assert!(pair.server.sent.is_empty());
    assert_eq!(pair.server.endpoint.incoming_totals().over_rate, 0);
}

/// QR1-22: what a watcher can forge ends the handshake, and tells nothing of why.
#[test]
fn a_handshake_that_somebody_else_ends_goes_silent() {
    let forgeries: [(&str, &[u8]); 4] = [
        ("a frame that is none", &[0x3f]),
        ("an ACK of what was never sent", &[0x02, 0x40, 0xff, 0, 0, 0]),
        ("a stream in an Initial", &[0x08, 0, 0]),
        ("a close", &[0x1c, 0x0a, 0, 0]),
    ];
    for (what, frames) in forgeries {
        let mut door = Door::new(&COVER);
        door.connect();
        let client = wire::Initial::open(&first_datagram(&mut door)).unwrap();
        door.accept();
        // The server's flight is on its way, the client's answer is not there yet.
        door.pair.server.work(door.pair.now);
        let flight = door.pair.server.take_trains(door.pair.now).len();
        assert!(flight > 0);
        let before = door.pair.server.sent.len();
        let forged = wire::forge(&client.destination_id, 200, frames);
        let path = Path {
            remote: door.pair.client.address,
            local: None,
        };
        let (now, bytes) = (door.pair.now, BytesMut::from(&forged[..]));
        door.pair.server.receive(now, path, Ecn::Ect0, bytes, 0);
        door.pair.drive(5 * SECOND);
        assert_eq!(door.pair.server.closed.len(), 1, "{what}");
        assert_eq!(door.pair.server.sent.len(), before, "{what}");
        assert!(door.pair.server.endpoint.open_connections() == 0, "{what}");
    }
}

fn first_datagram(door: &mut Door) -> Vec<u8> {
    door.arrival();
    Door::datagrams(&door.pair.client).swap_remove(0)
}

/// QR1-21: also where the client says nothing more, or its token does not come.
#[test]
fn a_handshake_that_stands_still_ends_without_a_word() {
    let mut door = Door::new(&COVER);
    door.connect();
    door.accept();
    door.pair.link.loss_per_mille = [1_000, 1_000];
    door.pair.drive(2 * SECOND);
    let sent = |door: &Door| door.pair.server.sent.iter().map(|sent| sent.bytes).sum::<usize>();
    let received: usize = Door::datagrams(&door.pair.client).iter().map(Vec::len).sum();
    assert!(
        sent(&door) <= 3 * received,
        "{} bytes for {received}",
        sent(&door)
    );
    let before = door.pair.server.sent.len();
    door.pair.drive(quic::limits::HANDSHAKE_TIME_MAX);
    assert_eq!(door.pair.server.closed.len(), 1);
    let at_end = door.pair.server.closed[0].0;
    let late = door.pair.server.sent[before..]
        .iter()
        .filter(|sent| sent.at >= at_end);
    assert_eq!(late.count(), 0);
}
