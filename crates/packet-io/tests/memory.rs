//! What a socket costs its process. The only test here: others beside it in the process would be counted as well.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::fs;

use common::{address, options};
use packet_io::{DatagramSocket, Outgoing, UdpSocket};

/// As many as fit the usual limit of descriptors.
const SOCKETS: usize = 500;

/// Of resident memory, for each socket that sends one message at a time.
const SOCKET_BYTES_MAX: usize = 4 << 10;

/// Pages that belong to nobody in particular.
const REST_BYTES_MAX: usize = 1 << 20;

/// Resident memory of this process, in bytes.
fn resident_bytes() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.split_ascii_whitespace()
        .next()
        .unwrap()
        .parse::<usize>()
        .unwrap()
        << 10
}

#[test]
fn a_socket_that_sends_one_datagram_at_a_time_costs_little_memory() {
    let receiver = UdpSocket::bind(address("127.0.0.1:0"), &options()).unwrap();
    let remote = receiver.local_addr().unwrap();
    let mut sockets = Vec::with_capacity(SOCKETS);
    let before = resident_bytes();
    for _ in 0..SOCKETS {
        let mut socket = UdpSocket::connect(None, remote, &options()).unwrap();
        let outcome = socket.send(&[Outgoing::connected(&[7; 1_200], 1_200)]).unwrap();
        assert_eq!(outcome.segments, 1);
        sockets.push(socket);
    }
    let grown = resident_bytes().saturating_sub(before);
    println!("{SOCKETS} sockets take {grown} bytes, each {}", grown / SOCKETS);
    assert!(grown <= SOCKETS * SOCKET_BYTES_MAX + REST_BYTES_MAX, "{grown}");
}
