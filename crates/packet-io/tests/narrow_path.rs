//! Sending where the path is slow or narrow: in a network namespace whose loopback interface is made so.
//!
//! Where there is no namespace to be had, a test says so and passes, because nothing was shown.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::time::{Duration, Instant};

use common::{DEADLINE, address, in_namespace, options, pair, pattern, receive, without_offloads};
use packet_io::{DatagramSocket, Interest, Outgoing, Poller, ReceiveBatch, SocketOptions, UdpSocket};

#[test]
fn a_full_socket_tells_where_to_go_on_and_nothing_is_lost_or_doubled() {
    let name = "a_full_socket_tells_where_to_go_on_and_nothing_is_lost_or_doubled";
    if !in_namespace(
        name,
        "tc qdisc add dev lo root tbf rate 80mbit burst 32k limit 4m",
    ) {
        return;
    }
    for sender_options in [options(), without_offloads()] {
        let narrow = SocketOptions {
            send_buffer_bytes: 20_000,
            ..sender_options
        };
        let (mut receiver, mut sender) = pair("127.0.0.1:0", &options(), &narrow);
        let payloads: Vec<Vec<u8>> = (0..40).map(|salt| pattern(9_500, salt)).collect();
        let mut messages: Vec<_> = payloads
            .iter()
            .map(|payload| Outgoing::connected(payload, 1000))
            .collect();
        let mut poller = Poller::new().unwrap();
        poller.add(&sender, 0, Interest::WRITABLE).unwrap();
        let (mut ready, deadline, mut segments) = (Vec::new(), Instant::now() + DEADLINE, 0);
        let mut blocks_in_mid_message = 0;
        while !messages.is_empty() {
            assert!(Instant::now() < deadline);
            let outcome = sender.send(&messages).unwrap();
            assert_eq!(
                (outcome.blocked, outcome.dropped.total()),
                (outcome.messages < messages.len(), 0)
            );
            messages.drain(..outcome.messages);
            if let Some(first) = messages.first_mut() {
                first.payload = &first.payload[outcome.partial_segments * 1000..];
            }
            blocks_in_mid_message += u32::from(outcome.partial_segments > 0);
            segments += outcome.segments;
            poller.wait(&mut ready, Some(Duration::from_millis(100))).unwrap();
        }
        assert_eq!((segments, sender.stats().segments_sent), (400, 400));
        assert!(sender.stats().would_block > 0);
        assert_eq!(blocks_in_mid_message > 0, !sender_options.offloads.gso);
        let expected = payloads.iter().flat_map(|payload| payload.chunks(1000));
        assert!(
            receive(&mut receiver, 400)
                .iter()
                .map(|datagram| &datagram.payload[..])
                .eq(expected)
        );
    }
}

#[test]
fn datagrams_larger_than_the_path_are_dropped_alone_and_gso_stays() {
    let name = "datagrams_larger_than_the_path_are_dropped_alone_and_gso_stays";
    if !in_namespace(name, "ip link set lo mtu 1500") {
        return;
    }
    for at in ["127.0.0.1:0", "[::1]:0"] {
        let whole = SocketOptions {
            dont_fragment: true,
            ..options()
        };
        let (mut receiver, mut sender) = pair(at, &options(), &whole);
        assert_eq!(sender.path_mtu().unwrap(), 1500);
        let (large, small) = (pattern(4400, 1), pattern(2000, 2));
        let messages = [
            Outgoing::connected(&large, 2000), // 2000, 2000, 400
            Outgoing::connected(&large[..1600], 0),
            Outgoing::connected(&small, 1000),
        ];
        let outcome = sender.send(&messages).unwrap();
        assert_eq!(
            (outcome.messages, outcome.segments, outcome.dropped.too_large),
            (3, 3, 3),
            "{at}"
        );
        let stats = sender.stats();
        assert_eq!(
            (stats.split_resends, stats.gso_step_downs, stats.gso_messages),
            (1, 0, 1),
            "{at}"
        );
        let sizes: Vec<_> = receive(&mut receiver, 3)
            .iter()
            .map(|datagram| datagram.payload.len())
            .collect();
        assert_eq!(sizes, [400, 1000, 1000]);
    }
}

#[test]
fn a_train_that_only_gso_refuses_is_resent_one_by_one_and_the_path_steps_down() {
    let name = "a_train_that_only_gso_refuses_is_resent_one_by_one_and_the_path_steps_down";
    if !in_namespace(name, "ip link set lo mtu 1500") {
        return;
    }
    // Segments above the MTU: refused as a train, fragmented one by one.
    let mut receiver = UdpSocket::bind(address("127.0.0.1:0"), &options()).unwrap();
    let mut sender = UdpSocket::bind(address("127.0.0.1:0"), &options()).unwrap();
    let payload = pattern(4400, 1);
    let train = Outgoing::to(receiver.local_addr().unwrap(), &payload, 2000);
    let outcome = sender.send(&[train, train]).unwrap();
    assert_eq!(
        (outcome.messages, outcome.segments, outcome.dropped.total()),
        (2, 6, 0)
    );
    assert_eq!(
        (sender.stats().split_resends, sender.stats().gso_step_downs),
        (1, 1)
    );
    let datagrams = receive(&mut receiver, 6);
    let expected = payload.chunks(2000).chain(payload.chunks(2000));
    assert!(
        datagrams
            .iter()
            .map(|datagram| &datagram.payload[..])
            .eq(expected)
    );
    let mut batch = ReceiveBatch::new(1, 64);
    assert_eq!(receiver.receive(&mut batch).unwrap(), 0);
}
