//! The faulty socket over real sockets: what is sent is received, lost, or said otherwise.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::collections::BTreeMap;
use std::time::Instant;

use common::{DEADLINE, address, options, pair};
use packet_io::{DatagramSocket, Faults, FaultySocket, Outgoing, ReceiveBatch, UdpSocket};

const TRAINS: u32 = 50;
const SEGMENTS: u32 = 20;

/// Sends numbered datagrams from `sender` to `receiver` and returns the numbers in the order of their arrival.
fn numbers(
    sender: &mut FaultySocket<UdpSocket>,
    receiver: &mut FaultySocket<UdpSocket>,
    expected: impl Fn(&FaultySocket<UdpSocket>, &FaultySocket<UdpSocket>) -> u64,
) -> Vec<u32> {
    let mut batch = ReceiveBatch::new(8, 2048);
    let mut numbers = Vec::new();
    let deadline = Instant::now() + DEADLINE;
    for train in 0..TRAINS {
        let payload: Vec<u8> = (train * SEGMENTS..(train + 1) * SEGMENTS)
            .flat_map(u32::to_be_bytes)
            .collect();
        let outcome = sender.send(&[Outgoing::connected(&payload, 4)]).unwrap();
        assert_eq!((outcome.messages, outcome.segments), (1, SEGMENTS.into()));
        collect(receiver, &mut batch, &mut numbers);
    }
    while sender.held().1 > 0 || receiver.held().0 > 0 || (numbers.len() as u64) < expected(sender, receiver)
    {
        assert!(Instant::now() < deadline, "{} arrived", numbers.len());
        sender.receive(&mut batch).unwrap();
        collect(receiver, &mut batch, &mut numbers);
    }
    numbers
}

fn collect(receiver: &mut FaultySocket<UdpSocket>, batch: &mut ReceiveBatch, numbers: &mut Vec<u32>) {
    receiver.receive(batch).unwrap();
    numbers.extend(
        batch
            .iter()
            .map(|received| u32::from_be_bytes(received.payload.try_into().unwrap())),
    );
}

fn faulty(seed: u64, receive: Faults, send: Faults) -> (FaultySocket<UdpSocket>, FaultySocket<UdpSocket>) {
    let (receiver, sender) = pair("127.0.0.1:0", &options(), &options());
    let sender = FaultySocket::new(sender, seed, Faults::default(), send);
    (
        FaultySocket::new(receiver, seed, receive, Faults::default()),
        sender,
    )
}

#[test]
fn what_is_sent_is_received_or_counted_in_either_direction() {
    let faults = Faults {
        loss: 0.2,
        duplicate: 0.1,
        reorder: 0.1,
        delay: 0.1,
        ..Faults::default()
    };
    for (receive, send) in [(faults, Faults::default()), (Faults::default(), faults)] {
        let (mut receiver, mut sender) = faulty(5, receive, send);
        let numbers = numbers(&mut sender, &mut receiver, |sender, receiver| {
            let (out, back) = (sender.send_counts(), receiver.receive_counts());
            u64::from(TRAINS * SEGMENTS) + out.duplicated + back.duplicated - out.lost - back.lost
        });
        let (out, back) = (sender.send_counts(), receiver.receive_counts());
        assert_eq!(out.taken, u64::from(TRAINS * SEGMENTS));
        assert_eq!((out.passed, out.refused), (back.taken, 0));
        assert_eq!(out.taken + out.duplicated, out.passed + out.lost);
        assert_eq!(back.taken + back.duplicated, back.passed + back.lost);
        assert_eq!(numbers.len() as u64, back.passed);
        assert!(!numbers.is_sorted() && out.lost + back.lost > 100);
        let mut seen = BTreeMap::new();
        numbers
            .iter()
            .for_each(|number| *seen.entry(number).or_insert(0) += 1);
        assert!(seen.values().all(|times| *times <= 2));
    }
}

#[test]
fn the_same_seed_loses_the_same_datagrams() {
    let run = |seed| {
        let loss = Faults {
            loss: 0.3,
            ..Faults::default()
        };
        let (mut receiver, mut sender) = faulty(seed, Faults::default(), loss);
        numbers(&mut sender, &mut receiver, |sender, _| {
            sender.send_counts().passed
        })
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn what_the_real_socket_refuses_is_counted() {
    let socket = UdpSocket::bind(address("127.0.0.1:0"), &options()).unwrap();
    let mut socket = FaultySocket::new(socket, 1, Faults::default(), Faults::default());
    let too_large = vec![0; 65_508];
    let outcome = socket
        .send(&[Outgoing::to(address("127.0.0.1:9"), &too_large, 0)])
        .unwrap();
    assert_eq!((outcome.segments, outcome.dropped.total()), (1, 0));
    assert_eq!(
        (socket.send_counts().passed, socket.send_counts().refused),
        (0, 1)
    );
}
