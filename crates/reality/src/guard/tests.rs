//! QR1-22.

use aws_lc_rs::agreement::{PrivateKey, X25519};

use super::*;
use crate::hello_assembly::first_initial;
use crate::test_hellos::{HelloShape, SOURCE_ID, hello};
use crate::test_initials::{DESTINATION_ID, crypto, initial, initial_with, two_initials};

/// The server's connection ID.
const SERVER_ID: [u8; 8] = [0x51; 8];

fn message() -> Vec<u8> {
    let key = PrivateKey::from_private_key(&X25519, &[7; 32]).expect("a key");
    hello(&key, HelloShape::Hybrid)
}

/// After the client's two Initials, and `sent` of the server's.
fn guard(sent: u64) -> Guard {
    let flight = two_initials(&message());
    let mut assembly = HelloAssembly::new(&first_initial(&flight[0]).expect("an Initial"));
    let mut space = Vec::new();
    for datagram in &flight {
        assembly.push(datagram, &mut space);
    }
    let mut guard = Guard::new(assembly);
    for number in 0..sent {
        guard.handle_sent(&server_initial(number));
    }
    guard
}

fn server_initial(number: u64) -> Vec<u8> {
    let keys = InitialKeys::new(&DESTINATION_ID);
    keys.seal(Sender::Server, (&SOURCE_ID, &SERVER_ID), &[], number, 2, &[2; 90])
}

/// What the client sends once it knows the server's ID; its keys stay those of the first one.
fn later(number: u64, frames: &[u8]) -> Vec<u8> {
    let keys = InitialKeys::new(&DESTINATION_ID);
    keys.seal(Sender::Client, (&SERVER_ID, &SOURCE_ID), &[], number, 1, frames)
}

fn long(kind: u8) -> Vec<u8> {
    let mut packet = vec![0xc0 | kind << 4, 0, 0, 0, 1, 8];
    packet.extend_from_slice(&SERVER_ID);
    packet.extend_from_slice(&[0, 30]);
    packet.resize(packet.len() + 30, 9);
    packet
}

/// QR1-22.
#[test]
fn what_a_client_sends_in_a_handshake_passes() {
    let mut guard = guard(3);
    for again in two_initials(&message()) {
        assert!(guard.passes(&again));
    }
    assert!(guard.passes(&initial(2, &crypto(&message(), 3..900))));
    assert!(guard.passes(&later(3, &[2, 2, 0, 0, 0])));
    assert!(guard.passes(&later(4, &[1, 0, 0, 2, 0, 0, 0, 0])));
    // With its Handshake and 1-RTT packets in the same datagram.
    let coalesced = [later(5, &[2, 1, 0, 0, 0]), long(2), vec![0x44; 50]].concat();
    assert!(guard.passes(&coalesced));
    assert!(guard.passes(&long(2)));
    assert!(guard.passes(&[0x44; 50]));
}

/// QR1-22.
#[test]
fn forged_initials_are_dropped_with_all_of_their_datagram() {
    let message = message();
    let mut other = message.clone();
    other[700] ^= 1;
    let end = message.len();
    let beyond = [&message[..], &[0]].concat();
    for frames in [
        crypto(&other, 650..750),
        crypto(&beyond, end - 5..end + 1),
        vec![6, 0xc0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 1, 0],
        b"\x1c\x0a\0\x03bad".to_vec(),
        b"\x1d\0\0".to_vec(),
        vec![8, 0],
        vec![0x1e],
        vec![2, 0, 0],
        // Packet 3 was not sent.
        vec![2, 3, 0, 0, 0],
        vec![2, 0x40, 0xff, 0, 0, 0],
    ] {
        let mut guard = guard(3);
        let forged = later(2, &[&[1][..], &frames].concat());
        assert!(!guard.passes(&forged), "{frames:02x?}");
        assert!(!guard.passes(&[&forged[..], &long(2)].concat()));
        assert!(!guard.passes(&[long(2), forged].concat()));
    }
}

/// QR1-22.
#[test]
fn other_packets_and_garbage_are_dropped() {
    let mut guard = guard(1);
    assert!(!guard.passes(&long(1)), "0-RTT");
    assert!(!guard.passes(&long(3)), "Retry");
    assert!(
        !guard.passes(&initial_with(&DESTINATION_ID, &SOURCE_ID, &[1], 2, &[1])),
        "a token"
    );
    let mut garbled = initial(2, &[1]);
    *garbled.last_mut().expect("bytes") ^= 1;
    assert!(!guard.passes(&garbled));
    assert!(
        !guard.passes(&[&later(2, &[1])[..], &[0; 9]].concat()),
        "bytes behind the packet"
    );
    let mut version = later(2, &[1]);
    version[4] = 2;
    assert!(!guard.passes(&version));
    // Made with the keys of the server's ID, or of the other side.
    assert!(!guard.passes(&initial_with(&SERVER_ID, &SOURCE_ID, &[], 2, &[1])));
    assert!(!guard.passes(&server_initial(2)));
}

/// Numbers are expanded as QUIC does, which hears of no packet that is dropped.
#[test]
fn a_dropped_packet_does_not_move_the_numbers() {
    let keys = InitialKeys::new(&DESTINATION_ID);
    let far = |frames: &[u8]| keys.seal(Sender::Client, (&SERVER_ID, &SOURCE_ID), &[], 1 << 20, 4, frames);
    let mut guard = guard(1);
    assert!(!guard.passes(&far(&[8, 0, 0])));
    assert!(guard.passes(&later(2, &[1])));
    assert!(guard.passes(&far(&[1])));
    assert!(
        !guard.passes(&later(3, &[1])),
        "one byte stands for a number near 2^20 by now"
    );
}
