//! QR1-20, QR1-22.

use std::time::Duration;

use aws_lc_rs::agreement::{PrivateKey, X25519};

use super::*;
use crate::hello_assembly::{HelloAssembly, first_initial};
use crate::initial::{InitialKeys, Sender};
use crate::test_hellos::{HelloShape, SOURCE_ID, hello};
use crate::test_initials::{DESTINATION_ID, crypto, initial, initial_with};

const SERVER_ID: [u8; 8] = [0x51; 8];

fn path(port: u16) -> Path {
    Path {
        remote: ([192, 0, 2, 1], port).into(),
        local: None,
    }
}

fn guard() -> Guard {
    let key = PrivateKey::from_private_key(&X25519, &[7; 32]).expect("a key");
    let message = hello(&key, HelloShape::Classic);
    let datagram = initial(0, &crypto(&message, 0..message.len()));
    let mut assembly = HelloAssembly::new(&first_initial(&datagram).expect("an Initial"));
    assembly.push(&datagram, &mut Vec::new());
    Guard::new(assembly)
}

fn begun() -> (Handshakes, Instant) {
    // tidy-allow(pure): first instant of virtual time
    let now = Instant::now();
    let mut handshakes = Handshakes::default();
    handshakes.begin(now, path(1), (&DESTINATION_ID, &SOURCE_ID), guard());
    (handshakes, now)
}

fn from_server(server_id: &[u8]) -> Vec<u8> {
    InitialKeys::new(&DESTINATION_ID).seal(Sender::Server, (&SOURCE_ID, server_id), &[], 0, 1, &[1; 40])
}

fn to_server(server_id: &[u8], frames: &[u8]) -> Vec<u8> {
    InitialKeys::new(&DESTINATION_ID).seal(Sender::Client, (server_id, &SOURCE_ID), &[], 1, 1, frames)
}

/// QR1-20: a replayer has the ID, but not the address.
#[test]
fn the_first_id_belongs_to_a_handshake_from_its_address_only() {
    let (mut handshakes, _) = begun();
    let again = initial(1, &[1]);
    assert_eq!(handshakes.filter(path(1), &again), Some(Filtered::Pass));
    assert_eq!(handshakes.filter(path(2), &again), None);
    let other = initial_with(&[9; 8], &SOURCE_ID, &[], 0, &[1]);
    assert_eq!(handshakes.filter(path(1), &other), None);
    assert_eq!(handshakes.filter(path(1), &[0x40; 40]), None);
    assert_eq!(handshakes.filter(path(1), &[0xc0, 0, 0, 0, 1, 21]), None);
    let long_id = [&[0xc0, 0, 0, 0, 9, 60][..], &[1; 80]].concat();
    assert_eq!(handshakes.filter(path(1), &long_id), None);
}

/// QR1-22.
#[test]
fn the_servers_id_is_learnt_from_what_it_sends() {
    let (mut handshakes, _) = begun();
    let acknowledgement = to_server(&SERVER_ID, &[2, 0, 0, 0, 0]);
    assert_eq!(handshakes.filter(path(1), &acknowledgement), None);
    handshakes.handle_sent(path(2), &from_server(&SERVER_ID));
    assert_eq!(handshakes.filter(path(1), &acknowledgement), None);
    handshakes.handle_sent(path(1), &from_server(&SERVER_ID));
    assert_eq!(handshakes.filter(path(1), &acknowledgement), Some(Filtered::Pass));
    let close = to_server(&SERVER_ID, &[0x1c, 0, 0, 0]);
    assert_eq!(handshakes.filter(path(1), &close), Some(Filtered::Drop));
    // Nobody moves during a handshake (RFC 9000 section 9).
    assert_eq!(handshakes.filter(path(2), &acknowledgement), Some(Filtered::Drop));
}

/// QR1-20: late packets of a connection that is gone are a stranger's.
#[test]
fn a_handshake_ends_when_it_is_told_or_by_itself() {
    let (mut handshakes, now) = begun();
    handshakes.handle_sent(path(1), &from_server(&SERVER_ID));
    handshakes.end(path(1), &DESTINATION_ID);
    assert!(handshakes.is_empty());
    assert_eq!(handshakes.filter(path(1), &initial(1, &[1])), None);
    assert_eq!(handshakes.filter(path(1), &to_server(&SERVER_ID, &[1])), None);
    assert_eq!(handshakes.poll_timeout(), None);

    handshakes.begin(now, path(1), (&DESTINATION_ID, &SOURCE_ID), guard());
    let due = handshakes.poll_timeout().expect("a deadline");
    assert_eq!(due, now + limits::HANDSHAKE_GUARD_TIME);
    handshakes.handle_timeout(due - Duration::from_nanos(1));
    assert_eq!(handshakes.len(), 1);
    handshakes.handle_timeout(due);
    assert!(handshakes.is_empty() && handshakes.by_server_id.is_empty());
}

#[test]
fn there_are_so_many_and_the_oldest_makes_room() {
    let (mut handshakes, now) = begun();
    for port in 2..=limits::HANDSHAKES_MAX as u16 + 1 {
        handshakes.begin(now, path(port), (&DESTINATION_ID, &SOURCE_ID), guard());
        // The same again is no second one.
        handshakes.begin(now, path(port), (&DESTINATION_ID, &SOURCE_ID), guard());
    }
    assert_eq!(handshakes.len(), limits::HANDSHAKES_MAX);
    assert_eq!(handshakes.by_number.len(), limits::HANDSHAKES_MAX);
    assert_eq!(handshakes.filter(path(1), &initial(1, &[1])), None);
    assert_eq!(
        handshakes.filter(path(2), &initial(1, &[1])),
        Some(Filtered::Pass)
    );
}
