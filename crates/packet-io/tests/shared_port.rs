//! Ports that several sockets of this process share. Nothing here starts a program, which would hold copies of them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::collections::BTreeSet;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use common::{DEADLINE, address, options};
use packet_io::{
    DatagramSocket, Outgoing, ReceiveBatch, SocketOptions, UdpSocket, join_tcp_group, listen_tcp_group,
};

fn joining() -> SocketOptions {
    SocketOptions {
        reuse_port: true,
        ..options()
    }
}

#[test]
fn senders_spread_over_a_group_and_each_keeps_its_socket() {
    let mut group = UdpSocket::bind_group(address("127.0.0.1:0"), 3, &options()).unwrap();
    let to = group[0].local_addr().unwrap();
    assert!(group.iter().all(|socket| socket.local_addr().unwrap() == to));
    // All at once, so that no two have the same port.
    let mut senders: Vec<_> = (0..60)
        .map(|_| UdpSocket::connect(None, to, &options()).unwrap())
        .collect();
    for from in &mut senders {
        for _ in 0..3 {
            from.send(&[Outgoing::connected(b"hello", 0)]).unwrap();
        }
    }
    let (mut batch, mut counts) = (ReceiveBatch::new(200, 64), Vec::new());
    for socket in &mut group {
        socket.receive(&mut batch).unwrap();
        let sources: BTreeSet<_> = batch.iter().map(|received| received.meta.source).collect();
        assert_eq!(batch.len(), 3 * sources.len());
        counts.push(sources.len());
    }
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    assert_eq!(counts.iter().sum::<usize>(), 60);
}

#[test]
fn a_group_never_joins_sockets_that_were_there_before() {
    for at in ["127.0.0.1:0", "[::]:0"] {
        let group = UdpSocket::bind_group(address(at), 2, &options()).unwrap();
        let taken = group[0].local_addr().unwrap();
        for count in [1, 2] {
            let error = UdpSocket::bind_group(taken, count, &joining()).err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{error}");
        }
        // Who asks for it joins.
        assert!(UdpSocket::bind(taken, &joining()).is_ok());
        drop(group);
        // Another test may have got the port for a moment.
        let deadline = Instant::now() + DEADLINE;
        while UdpSocket::bind_group(taken, 2, &options()).is_err() {
            assert!(Instant::now() < deadline, "the port does not become free");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn connections_spread_over_tcp_listeners_that_come_and_go() {
    let mut group = listen_tcp_group(address("127.0.0.1:0"), 2).unwrap();
    let to = group[0].local_addr().unwrap();
    let error = listen_tcp_group(to, 2).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    assert!(error.to_string().contains(&to.to_string()), "{error}");
    assert!(TcpListener::bind(to).is_err());
    let connect = |count: usize| -> Vec<_> { (0..count).map(|_| TcpStream::connect(to).unwrap()).collect() };
    let streams = connect(40);
    let counts: Vec<_> = group.iter().map(accept_all).collect();
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    assert_eq!(counts.iter().sum::<usize>(), streams.len());
    drop(group.pop());
    let _streams = connect(10);
    assert_eq!(accept_all(&group[0]), 10);
    group.push(join_tcp_group(to).unwrap());
    let _streams = connect(40);
    assert!(group.iter().all(|listener| accept_all(listener) > 0));
}

/// Connections that wait; over the loopback interface they are there when `connect` returns.
fn accept_all(listener: &TcpListener) -> usize {
    std::iter::from_fn(|| listener.accept().ok()).count()
}
