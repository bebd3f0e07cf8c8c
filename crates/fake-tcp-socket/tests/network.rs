//! Sockets in network namespaces: a client, a router that watches connections, and a server. Needs root; without it
//! each test says so and passes, because nothing was shown.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fake_tcp_socket::{ConnectionId, Event, FakeTcpSocket, Options};
use packet_io::{Outgoing, ReceiveBatch, SLOT_BYTES_MAX, SendOutcome};
use testbed::namespace::{End, Namespace, join};

const DEADLINE: Duration = Duration::from_secs(20);

/// Client 10.1.0.2, router, server 10.2.0.2, and the same in IPv6.
struct Net {
    client: Namespace,
    router: Namespace,
    server: Namespace,
}

impl Net {
    fn new(test: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("{test}: not run, network namespaces need root");
            return None;
        }
        let [client, router, server] = [0; 3].map(|_| Namespace::create().unwrap());
        let near = ["10.1.0.1/24", "fd01::1/64"];
        let far = ["10.2.0.1/24", "fd02::1/64"];
        join(
            End {
                namespace: &client,
                interface: "uplink",
                addresses: &["10.1.0.2/24", "fd01::2/64"],
            },
            End {
                namespace: &router,
                interface: "near",
                addresses: &near,
            },
            1_500,
        )
        .unwrap();
        join(
            End {
                namespace: &router,
                interface: "far",
                addresses: &far,
            },
            End {
                namespace: &server,
                interface: "uplink",
                addresses: &["10.2.0.2/24", "fd02::2/64"],
            },
            1_500,
        )
        .unwrap();
        for (host, gateways) in [
            (&client, ["10.1.0.1", "fd01::1"]),
            (&server, ["10.2.0.1", "fd02::1"]),
        ] {
            for gateway in gateways {
                host.run("ip", ["route", "add", "default", "via", gateway])
                    .unwrap();
            }
        }
        router.set_parameter("net.ipv4.ip_forward", "1").unwrap();
        router.set_parameter("net.ipv6.conf.all.forwarding", "1").unwrap();
        Some(Self {
            client,
            router,
            server,
        })
    }

    fn listen(&self, at: &str, workers: usize) -> Vec<FakeTcpSocket> {
        let listen = || FakeTcpSocket::listen(at.parse().unwrap(), workers, &Options::default()).unwrap();
        self.server.inside(listen)
    }

    fn connect(&self, to: &str) -> FakeTcpSocket {
        let connect = || FakeTcpSocket::connect(None, to.parse().unwrap(), &Options::default()).unwrap();
        self.client.inside(connect)
    }
}

/// Datagrams with whom they came from.
type Received = Vec<(SocketAddr, ConnectionId, Vec<u8>)>;

/// Lets a socket work until nothing is there; what it received.
fn turn(socket: &mut FakeTcpSocket, batch: &mut ReceiveBatch) -> Received {
    let mut received = Vec::new();
    let now = Instant::now();
    if socket.poll_timeout().is_some_and(|due| due <= now) {
        socket.handle_timeout(now);
    }
    while socket.receive(now, batch).unwrap() > 0 {
        for (index, message) in batch.iter().enumerate() {
            let connection = socket.connection_of(index);
            let datagrams = message.segments();
            received.extend(datagrams.map(|datagram| (message.meta.source, connection, datagram.to_vec())));
        }
    }
    received
}

/// Lets all sockets work until `done`.
fn work(sockets: &mut [&mut FakeTcpSocket], mut done: impl FnMut(usize, Received) -> bool) {
    let mut batch = ReceiveBatch::new(16, SLOT_BYTES_MAX);
    let deadline = Instant::now() + DEADLINE;
    loop {
        for (index, socket) in sockets.iter_mut().enumerate() {
            if done(index, turn(socket, &mut batch)) {
                return;
            }
        }
        assert!(Instant::now() < deadline, "it takes too long");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Numbered datagrams: a train of `count` of 1,200 bytes, and a last one of 300.
fn train(first: u32, count: u32) -> Vec<u8> {
    let datagram = |number: u32, len: usize| {
        let mut bytes = vec![number as u8; len];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        bytes
    };
    let whole = (first..first + count).flat_map(|number| datagram(number, 1_200));
    whole.chain(datagram(first + count, 300)).collect()
}

fn number(datagram: &[u8]) -> u32 {
    let number = u32::from_be_bytes(datagram[..4].try_into().unwrap());
    assert!(datagram[4..].iter().all(|byte| *byte == number as u8));
    number
}

/// Answers to the address and connection that something came by.
fn answer(socket: &mut FakeTcpSocket, connection: ConnectionId, payload: &[u8]) -> SendOutcome {
    let message = Outgoing::connected(payload, 1_200);
    socket.send_by(Instant::now(), &[message], &[Some(connection)])
}

#[test]
fn trains_cross_a_router_in_order_and_no_connection_tracker_objects() {
    let Some(net) = Net::new("trains_cross_a_router_in_order_and_no_connection_tracker_objects") else {
        return;
    };
    net.router
        .nft(
            "table inet watch {
                counter invalid {}
                chain through { type filter hook forward priority 0; ct state invalid counter name invalid drop; }
            }
            table ip translate {
                chain out { type nat hook postrouting priority 100; oifname \"far\" masquerade; }
            }",
        )
        .unwrap();
    for host in [&net.client, &net.server] {
        // What these hosts' own firewalls say does not matter.
        host.nft(
            "table inet closed {
                chain in { type filter hook input priority 0; policy drop; meta l4proto icmpv6 accept; }
                chain out { type filter hook output priority 0; policy drop; meta l4proto icmpv6 accept; }
            }",
        )
        .unwrap();
        host.set_parameter("net.ipv4.conf.all.rp_filter", "1").unwrap();
    }
    for to in ["10.2.0.2:4443", "[fd02::2]:4443"] {
        let mut workers = net.listen("[::]:4443", 2);
        let mut client = net.connect(to);
        let [first, second] = &mut workers[..] else {
            unreachable!()
        };
        // Sent before there is a connection.
        client.send(Instant::now(), &[Outgoing::connected(&train(0, 1), 1_200)]);
        let (mut up, mut down, mut sent, mut by) = (0, 0, 2, None);
        let mut sockets = [&mut client, first, second];
        while down < 2_002 {
            work(&mut sockets, |index, received| {
                for (source, connection, datagram) in &received {
                    let expected = if index == 0 { &mut down } else { &mut up };
                    assert_eq!(number(datagram), *expected, "in order");
                    *expected += 1;
                    if index != 0 {
                        assert_eq!(
                            *by.get_or_insert((index, *source, *connection)),
                            (index, *source, *connection)
                        );
                    }
                }
                !received.is_empty()
            });
            let (worker, _, connection) = by.unwrap();
            if down < up {
                let outcome = answer(sockets[worker], connection, &train(down, up - down - 1)[..]);
                assert_eq!(outcome.dropped.total(), 0);
                let received = up;
                work(&mut sockets, |index, got| {
                    for (_, _, datagram) in got.iter().filter(|_| index == 0) {
                        assert_eq!(number(datagram), down, "in order");
                        down += 1;
                    }
                    down == received
                });
            }
            if down == up && sent == up && sent < 2_002 {
                let outcome =
                    sockets[0].send(Instant::now(), &[Outgoing::connected(&train(sent, 39), 1_200)]);
                assert_eq!((outcome.segments, outcome.dropped.total()), (40, 0));
                sent += 40;
            }
        }
        let stats = sockets[0].stats();
        assert!(stats.gso_messages >= 50 && stats.gro_messages > 0, "{stats:?}");
    }
    let counted = net.router.run("nft", ["list", "counters"]).unwrap();
    assert!(counted.contains("packets 0 bytes 0"), "{counted}");
}

#[test]
fn a_narrow_path_is_told_by_icmp_and_then_refused_here() {
    let Some(net) = Net::new("a_narrow_path_is_told_by_icmp_and_then_refused_here") else {
        return;
    };
    net.router.set_mtu("far", 1_280).unwrap();
    for (to, headers) in [("10.2.0.2:4443", 40), ("[fd02::2]:4443", 60)] {
        let mut server = net.listen("[::]:4443", 1).remove(0);
        let mut client = net.connect(to);
        client.send(Instant::now(), &[Outgoing::connected(&[1; 100], 0)]);
        work(&mut [&mut client, &mut server], |index, received| {
            index == 1 && received.len() == 1
        });
        let (large, fitting) = ([2; 1_300], vec![3; 1_280 - headers]);
        assert_eq!(
            client
                .send(Instant::now(), &[Outgoing::connected(&large, 0)])
                .segments,
            1
        );
        let deadline = Instant::now() + DEADLINE;
        let mut batch = ReceiveBatch::new(4, SLOT_BYTES_MAX);
        loop {
            assert_eq!(turn(&mut client, &mut batch), []);
            let outcome = client.send(Instant::now(), &[Outgoing::connected(&large, 0)]);
            if outcome.dropped.too_large == 1 {
                break;
            }
            assert!(Instant::now() < deadline, "no error came");
            std::thread::sleep(Duration::from_millis(50));
        }
        client.send(Instant::now(), &[Outgoing::connected(&fitting, 0)]);
        work(&mut [&mut client, &mut server], |_, received| {
            received.iter().any(|(_, _, datagram)| *datagram == fitting)
        });
    }
}

#[test]
fn many_connections_to_one_peer_stay_each_with_the_worker_that_opened_it() {
    let Some(net) = Net::new("many_connections_to_one_peer_stay_each_with_the_worker_that_opened_it") else {
        return;
    };
    const EACH: usize = 10;
    let mut server = net.listen("10.2.0.2:4443", 1).remove(0);
    let to = "10.2.0.2:4443".parse().unwrap();
    let options = Options::default();
    let mut workers = net
        .client
        .inside(|| FakeTcpSocket::towards(to, 2, &options).unwrap());
    let mut opened: [Vec<ConnectionId>; 2] = Default::default();
    let (mut echoed, mut batch, deadline) = (
        0,
        ReceiveBatch::new(16, SLOT_BYTES_MAX),
        Instant::now() + DEADLINE,
    );
    while echoed < 2 * EACH {
        assert!(Instant::now() < deadline, "{echoed} were echoed");
        for (worker, opened) in workers.iter_mut().zip(&mut opened) {
            if opened.len() < EACH {
                match net.client.inside(|| worker.open(Instant::now())) {
                    Ok(connection) => opened.push(connection),
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                }
            }
            for (source, connection, datagram) in turn(worker, &mut batch) {
                assert_eq!(
                    (source, usize::from(datagram[0])),
                    (to, place(opened, connection))
                );
                echoed += 1;
            }
            while let Some(event) = worker.poll_event() {
                let Event::Connected { connection } = event else {
                    panic!("{event:?}")
                };
                let place = place(opened, connection) as u8;
                assert_eq!(answer(worker, connection, &[place; 9]).segments, 1);
            }
        }
        for (_, connection, datagram) in turn(&mut server, &mut batch) {
            answer(&mut server, connection, &datagram);
        }
    }
    assert_eq!(server.counters().accepted, 2 * EACH as u64);
    // Closed in order, they end at the server as well.
    for (worker, opened) in workers.iter_mut().zip(&opened) {
        opened
            .iter()
            .for_each(|connection| worker.close(Instant::now(), *connection));
    }
    let mut closed = 0;
    let [first, second] = &mut workers[..] else {
        unreachable!()
    };
    while closed < 2 * EACH {
        assert!(Instant::now() < deadline, "{closed} were closed");
        for socket in [&mut server, &mut *first, &mut *second] {
            turn(socket, &mut batch);
        }
        while let Some(event) = server.poll_event() {
            closed += usize::from(matches!(event, Event::Closed { .. }));
        }
    }
}

fn place(opened: &[ConnectionId], connection: ConnectionId) -> usize {
    opened.iter().position(|other| *other == connection).unwrap()
}

#[test]
fn a_client_is_told_of_a_closed_port_and_comes_back_when_the_server_does() {
    let Some(net) = Net::new("a_client_is_told_of_a_closed_port_and_comes_back_when_the_server_does") else {
        return;
    };
    let mut client = net.connect("10.2.0.2:4443");
    let mut batch = ReceiveBatch::new(4, SLOT_BYTES_MAX);
    let deadline = Instant::now() + DEADLINE;
    let refused = loop {
        let now = Instant::now();
        if client.poll_timeout().is_some_and(|due| due <= now) {
            client.handle_timeout(now);
        }
        match client.receive(now, &mut batch) {
            Ok(_) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => break error,
        }
        assert!(now < deadline, "nobody said anything");
    };
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    for _ in 0..2 {
        // The second one knows nothing of the first one's connection.
        let mut server = net.listen("10.2.0.2:4443", 1).remove(0);
        loop {
            client.send(Instant::now(), &[Outgoing::connected(b"hello", 0)]);
            let now = Instant::now();
            if client.poll_timeout().is_some_and(|due| due <= now) {
                client.handle_timeout(now);
            }
            // Refused once more, perhaps, before the server was there.
            let _ = client.receive(now, &mut batch);
            if !turn(&mut server, &mut batch).is_empty() {
                break;
            }
            assert!(now < deadline, "nothing arrives");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
