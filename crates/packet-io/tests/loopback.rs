//! Trains, sizes, addresses, ECN and errors over real sockets on the loopback interface.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::io::ErrorKind;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use common::{DEADLINE, address, options, pair, pattern, receive, receive_once, without_offloads};
use packet::Ecn;
use packet_io::{
    Capabilities, DatagramSocket, Interest, Outgoing, Poller, ReceiveBatch, SocketOptions, UdpSocket,
    route_mtu,
};

#[test]
fn a_train_arrives_coalesced_with_gro_and_as_single_datagrams_without() {
    assert!(
        Capabilities::probe().gso && Capabilities::probe().gro,
        "this kernel lacks what is tested"
    );
    for (receiver_options, messages) in [(options(), 1), (without_offloads(), 3)] {
        let (mut receiver, mut sender) = pair("127.0.0.1:0", &receiver_options, &options());
        let payload = pattern(2500, 0);
        let outcome = sender.send(&[Outgoing::connected(&payload, 1000)]).unwrap();
        assert_eq!(
            (outcome.messages, outcome.segments, outcome.blocked),
            (1, 3, false)
        );
        assert_eq!((sender.stats().sends, sender.stats().gso_messages), (1, 1));

        let datagrams = receive(&mut receiver, 3);
        assert!(
            datagrams
                .iter()
                .map(|datagram| &datagram.payload[..])
                .eq(payload.chunks(1000))
        );
        let stats = receiver.stats();
        assert_eq!((stats.messages_received, stats.segments_received), (messages, 3));
        assert_eq!(
            (stats.bytes_received, stats.gro_messages),
            (2500, u64::from(messages == 1))
        );
    }
}

#[test]
fn the_offload_switch_sends_single_datagrams_in_one_call() {
    let (mut receiver, mut sender) = pair("127.0.0.1:0", &without_offloads(), &without_offloads());
    let payload = pattern(100 * 1000, 3);
    let outcome = sender.send(&[Outgoing::connected(&payload, 1000)]).unwrap();
    assert_eq!((outcome.messages, outcome.segments), (1, 100));
    let stats = sender.stats();
    assert_eq!(
        (
            stats.sends,
            stats.messages_sent,
            stats.gso_messages,
            stats.split_resends
        ),
        (1, 100, 0, 0)
    );
    let datagrams = receive(&mut receiver, 100);
    assert!(
        datagrams
            .iter()
            .map(|datagram| &datagram.payload[..])
            .eq(payload.chunks(1000))
    );
}

#[test]
fn several_trains_of_several_sizes_share_one_call() {
    let (mut receiver, mut sender) = pair("[::1]:0", &options(), &options());
    let payloads = [pattern(64 * 1000, 1), pattern(5, 2), pattern(120, 3)];
    let messages = [
        Outgoing::connected(&payloads[0], 1000),
        Outgoing::connected(&payloads[1], 0),
        Outgoing::connected(&payloads[2], 50),
    ];
    let outcome = sender.send(&messages).unwrap();
    assert_eq!(
        (outcome.messages, outcome.segments, sender.stats().sends),
        (3, 68, 1)
    );
    let expected = payloads[0]
        .chunks(1000)
        .chain(payloads[1].chunks(5))
        .chain(payloads[2].chunks(50));
    assert!(
        receive(&mut receiver, 68)
            .iter()
            .map(|datagram| &datagram.payload[..])
            .eq(expected)
    );
}

#[test]
fn the_empty_and_the_largest_datagram_pass() {
    let (mut receiver, mut sender) = pair("127.0.0.1:0", &options(), &options());
    let largest = pattern(65_507, 9);
    let messages = [Outgoing::connected(&[], 0), Outgoing::connected(&largest, 65_507)];
    assert_eq!(sender.send(&messages).unwrap().segments, 2);
    let datagrams = receive(&mut receiver, 2);
    assert_eq!(datagrams[0].payload, b"");
    assert_eq!(datagrams[1].payload, largest);

    let mut batch = ReceiveBatch::new(1, 65_536);
    sender.send(&messages[..1]).unwrap();
    receive_once(&mut receiver, &mut batch);
    assert_eq!((batch.get(0).meta.segment_size, batch.get(0).meta.len), (0, 0));
}

#[test]
fn a_datagram_longer_than_its_slot_is_marked() {
    let (mut receiver, mut sender) = pair("127.0.0.1:0", &options(), &options());
    sender.send(&[Outgoing::connected(&[1; 100], 0)]).unwrap();
    let mut batch = ReceiveBatch::new(2, 64);
    receive_once(&mut receiver, &mut batch);
    assert!(batch.get(0).meta.truncated);
    assert_eq!((batch.get(0).payload.len(), receiver.stats().truncated), (64, 1));
}

#[test]
fn one_datagram_too_large_for_udp_is_dropped_and_the_next_one_goes() {
    let (mut receiver, mut sender) = pair("127.0.0.1:0", &options(), &options());
    let too_large = vec![0; 65_508];
    let messages = [
        Outgoing::connected(&too_large, 0),
        Outgoing::connected(b"next", 0),
    ];
    let outcome = sender.send(&messages).unwrap();
    assert_eq!(
        (outcome.messages, outcome.segments, outcome.dropped.too_large),
        (2, 1, 1)
    );
    assert_eq!(receive(&mut receiver, 1)[0].payload, b"next");
}

#[test]
fn ecn_passes_both_ways_in_both_families() {
    for (bind, to) in [
        ("127.0.0.1:0", "127.0.0.1"),
        ("[::1]:0", "::1"),
        ("[::]:0", "::1"),
        ("[::]:0", "127.0.0.1"),
    ] {
        let mut server = UdpSocket::bind(address(bind), &options()).unwrap();
        let to: IpAddr = to.parse().unwrap();
        let remote = (to, server.local_addr().unwrap().port()).into();
        let mut client = UdpSocket::connect(None, remote, &options()).unwrap();
        for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
            client
                .send(&[Outgoing {
                    ecn,
                    ..Outgoing::connected(&[7; 20], 10)
                }])
                .unwrap();
            let datagrams = receive(&mut server, 2);
            assert!(
                datagrams.iter().all(|datagram| datagram.ecn == ecn),
                "{bind} {to}: {datagrams:?}"
            );
            server
                .send(&[Outgoing {
                    ecn,
                    ..Outgoing::to(datagrams[0].source, &[7; 20], 10)
                }])
                .unwrap();
            assert!(receive(&mut client, 2).iter().all(|datagram| datagram.ecn == ecn));
        }
    }
}

#[test]
fn a_wildcard_socket_knows_the_local_address_and_answers_from_it() {
    for (bind, to) in [
        ("0.0.0.0:0", "127.0.0.2"),
        ("[::]:0", "127.0.0.3"),
        ("[::]:0", "::1"),
    ] {
        let mut server = UdpSocket::bind(address(bind), &options()).unwrap();
        let to: IpAddr = to.parse().unwrap();
        let remote = (to, server.local_addr().unwrap().port()).into();
        let mut client = UdpSocket::connect(None, remote, &options()).unwrap();
        client.send(&[Outgoing::connected(b"question", 0)]).unwrap();
        let question = receive(&mut server, 1).remove(0);
        assert_eq!(
            (question.local, question.source),
            (Some(to), client.local_addr().unwrap())
        );

        let answer = Outgoing {
            source: question.local,
            ..Outgoing::to(question.source, b"answers", 4)
        };
        assert_eq!(server.send(&[answer]).unwrap().segments, 2);
        // A connected socket takes it only if it comes from the address that was asked.
        assert_eq!(receive(&mut client, 2)[0].source, remote);
    }
}

#[test]
fn an_ipv6_wildcard_sends_to_ipv4_without_a_source() {
    let mut server = UdpSocket::bind(address("[::]:0"), &options()).unwrap();
    let mut receiver = UdpSocket::bind(address("127.0.0.1:0"), &options()).unwrap();
    server
        .send(&[Outgoing::to(receiver.local_addr().unwrap(), b"hello", 0)])
        .unwrap();
    let hello = receive(&mut receiver, 1).remove(0);
    assert_eq!((hello.payload, hello.local), (b"hello".to_vec(), None));
}

#[test]
fn a_refused_datagram_is_reported_once_and_the_next_one_is_not_lost() {
    let closed = UdpSocket::bind(address("127.0.0.1:0"), &options())
        .unwrap()
        .local_addr()
        .unwrap();
    let mut sender = UdpSocket::connect(None, closed, &options()).unwrap();
    sender.send(&[Outgoing::connected(b"lost", 0)]).unwrap();
    let mut batch = ReceiveBatch::new(1, 2048);
    assert_eq!(
        sender.receive(&mut batch).unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
    assert_eq!(sender.receive(&mut batch).unwrap(), 0);

    sender.send(&[Outgoing::connected(b"lost", 0)]).unwrap();
    let mut receiver = UdpSocket::bind(closed, &options()).unwrap();
    let outcome = sender.send(&[Outgoing::connected(b"arrives", 3)]).unwrap();
    assert_eq!(
        (outcome.messages, outcome.segments, outcome.dropped.total()),
        (1, 3, 0)
    );
    assert_eq!(
        (sender.stats().stale_errors, sender.stats().split_resends),
        (1, 0)
    );
    assert_eq!(receive(&mut receiver, 3)[0].payload, b"arr");
}

#[test]
fn an_unreachable_destination_is_a_counted_drop() {
    let mut socket = UdpSocket::bind(address("127.0.0.1:0"), &options()).unwrap();
    let mut receiver = UdpSocket::bind(address("127.0.0.1:0"), &options()).unwrap();
    // A socket bound to the loopback address may not send elsewhere, and an IPv4 one never to IPv6.
    let messages = [
        Outgoing::to(address("192.0.2.1:9"), b"away", 0),
        Outgoing::to(address("[2001:db8::1]:9"), b"away", 2),
        Outgoing::to(receiver.local_addr().unwrap(), b"near", 0),
    ];
    let outcome = socket.send(&messages).unwrap();
    assert_eq!(
        (outcome.messages, outcome.segments, outcome.dropped.total()),
        (3, 1, 3)
    );
    assert_eq!(receive(&mut receiver, 1)[0].payload, b"near");
}

#[test]
fn overflow_shows_in_the_kernels_drop_count() {
    let small = SocketOptions {
        receive_buffer_bytes: 8192,
        ..without_offloads()
    };
    for refresh in [false, true] {
        let (mut receiver, mut sender) = pair("127.0.0.1:0", &small, &options());
        let payload = pattern(50 * 1000, 0);
        for _ in 0..4 {
            assert_eq!(
                sender
                    .send(&[Outgoing::connected(&payload, 1000)])
                    .unwrap()
                    .segments,
                50
            );
        }
        if refresh {
            receiver.refresh_kernel_drops().unwrap();
        }
        let mut batch = ReceiveBatch::new(64, 2048);
        receive_once(&mut receiver, &mut batch);
        while receiver.receive(&mut batch).unwrap() > 0 {}
        assert_eq!(receiver.stats().kernel_drops > 0, refresh);
        // Unasked, the count travels with datagrams that were queued after the drops.
        sender.send(&[Outgoing::connected(b"last", 0)]).unwrap();
        receive_once(&mut receiver, &mut batch);
        assert_eq!(
            receiver.stats().segments_received + receiver.stats().kernel_drops,
            201
        );
    }
}

#[test]
fn a_slot_is_used_again_when_its_slices_are_gone_and_left_alone_while_they_live() {
    let (mut receiver, mut sender) = pair("127.0.0.1:0", &options(), &options());
    let mut batch = ReceiveBatch::new(1, 65_536);
    let mut next = |salt: u8, batch: &mut ReceiveBatch| {
        sender
            .send(&[Outgoing::connected(&pattern(3000, salt), 1000)])
            .unwrap();
        receive_once(&mut receiver, batch);
        batch.take(0).1
    };
    let first = next(1, &mut batch);
    let pointer = first.as_ptr();
    drop(first);
    for salt in 2..10 {
        let again = next(salt, &mut batch).freeze();
        assert_eq!(again.as_ptr(), pointer, "a new allocation for datagram {salt}");
        assert_eq!(again, pattern(3000, salt));
    }
    let kept: Vec<_> = (10..30)
        .map(|salt| next(salt, &mut batch).freeze().slice(1000..2000))
        .collect();
    for (salt, kept) in (10..30).zip(kept) {
        assert_eq!(kept, pattern(3000, salt)[1000..2000]);
    }
}

#[test]
fn buffers_are_reported_as_obtained() {
    let options = SocketOptions {
        receive_buffer_bytes: 65_536,
        send_buffer_bytes: 32_768,
        ..options()
    };
    let socket = UdpSocket::bind(address("127.0.0.1:0"), &options).unwrap();
    let grants = socket.grants();
    assert_eq!((grants.receive.wanted, grants.receive.obtained), (65_536, 65_536));
    assert_eq!((grants.send.wanted, grants.send.obtained), (32_768, 32_768));
    assert_eq!(socket.buffer_warning(), None);
    let default = SocketOptions {
        receive_buffer_bytes: 0,
        send_buffer_bytes: 0,
        ..options
    };
    let grants = UdpSocket::bind(address("127.0.0.1:0"), &default)
        .unwrap()
        .grants();
    assert!(grants.receive.obtained > 0 && grants.receive.wanted == 0);
}

#[test]
fn the_mtu_of_the_loopback_route_is_known() {
    // The kernel cuts the interface's 65,536 to what an IPv4 packet can hold.
    assert_eq!(route_mtu(address("127.0.0.1:9"), None).unwrap(), 65_535);
    assert_eq!(route_mtu(address("[::1]:9"), None).unwrap(), 65_536);
    let (receiver, sender) = pair("127.0.0.1:0", &options(), &options());
    assert_eq!(sender.path_mtu().unwrap(), 65_535);
    assert!(receiver.path_mtu().is_err());
}

#[test]
fn an_occupied_port_is_named_in_the_error() {
    let socket = UdpSocket::bind(address("127.0.0.1:0"), &options()).unwrap();
    let local = socket.local_addr().unwrap();
    let error = UdpSocket::bind(local, &options()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert!(error.to_string().contains(&local.to_string()), "{error}");
}

#[test]
fn nothing_there_is_no_error() {
    let mut socket = UdpSocket::bind(address("127.0.0.1:0"), &options()).unwrap();
    let mut batch = ReceiveBatch::new(2, 64);
    assert_eq!(socket.receive(&mut batch).unwrap(), 0);
    assert!(batch.is_empty());
    assert_eq!(socket.stats().receives, 0);
    let mut poller = Poller::new().unwrap();
    poller.add(&socket, 1, Interest::READABLE).unwrap();
    let (mut ready, started) = (Vec::new(), Instant::now());
    poller.wait(&mut ready, Some(Duration::from_micros(100))).unwrap();
    assert!(ready.is_empty() && started.elapsed() >= Duration::from_micros(100));
    assert!(started.elapsed() < DEADLINE);
}
