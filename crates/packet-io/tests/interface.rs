//! Sockets bound to a network interface, and sockets whose mark leads them to one.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::io;

use common::{address, in_namespace, options, receive, without_privileges};
use packet_io::{DatagramSocket, Outgoing, SocketOptions, UdpSocket, route_mtu, set_mark};

#[test]
fn a_socket_bound_to_an_interface_uses_it_and_can_be_moved() {
    let name = "a_socket_bound_to_an_interface_uses_it_and_can_be_moved";
    // Without IPv6, and with the neighbour known, nothing but the test sends.
    let setup = "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6 \
        && for side in left right; do \
        ip link add $side type veth peer name far-$side && ip link set far-$side up && ip link set $side up \
        && ip neighbour add 10.1.0.9 lladdr 02:00:00:00:00:01 dev $side || exit 1; done \
        && ip address add 10.1.0.1/24 dev right";
    if !in_namespace(name, setup) {
        return;
    }
    let bound = SocketOptions {
        interface: Some("left".parse().unwrap()),
        ..options()
    };
    let mut socket = UdpSocket::bind(address("0.0.0.0:0"), &bound).unwrap();
    let send = |socket: &mut UdpSocket| {
        let before = ["left", "right"].map(transmitted);
        let message = Outgoing::to(address("10.1.0.9:9"), b"hello", 0);
        assert_eq!(socket.send(&[message]).unwrap().segments, 1);
        (transmitted("left") - before[0], transmitted("right") - before[1])
    };
    // The route leads by the right interface.
    assert_eq!(send(&mut socket), (1, 0));
    socket.set_interface(Some("right".parse().unwrap())).unwrap();
    assert_eq!(send(&mut socket), (0, 1));
    socket.set_interface(Some("left".parse().unwrap())).unwrap();
    assert_eq!(send(&mut socket), (1, 0));
    let error = socket
        .set_interface(Some("nowhere".parse().unwrap()))
        .unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
    assert!(error.to_string().contains("nowhere"), "{error}");
    let moved = &mut socket;
    let error = without_privileges(move || moved.set_interface(None).unwrap_err());
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    socket.set_interface(None).unwrap();
    assert_eq!(send(&mut socket), (0, 1));
    // A connected socket moves too, and still sends.
    let mut local = UdpSocket::bind(address("127.0.0.1:0"), &options()).unwrap();
    let mut from = UdpSocket::connect(None, local.local_addr().unwrap(), &options()).unwrap();
    from.set_interface(Some("lo".parse().unwrap())).unwrap();
    from.send(&[Outgoing::connected(b"by lo", 0)]).unwrap();
    assert_eq!(receive(&mut local, 1)[0].payload, b"by lo");
}

#[test]
fn what_a_marked_socket_sends_goes_where_the_rule_for_its_mark_says() {
    let name = "what_a_marked_socket_sends_goes_where_the_rule_for_its_mark_says";
    let setup = "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6 \
        && for side in left right; do \
        ip link add $side type veth peer name far-$side && ip link set far-$side up && ip link set $side up \
        && ip neighbour add 10.1.0.9 lladdr 02:00:00:00:00:01 dev $side || exit 1; done \
        && ip address add 10.1.0.1/24 dev right && ip link set left mtu 1400 \
        && ip route add default dev left table 77 && ip rule add fwmark 0x77 table 77";
    if !in_namespace(name, setup) {
        return;
    }
    let remote = address("10.1.0.9:9");
    for (mark, sent, mtu) in [(None, (0, 1), 1_500), (Some(0x77), (1, 0), 1_400)] {
        let mut socket = UdpSocket::connect(None, remote, &SocketOptions { mark, ..options() }).unwrap();
        let before = ["left", "right"].map(transmitted);
        socket.send(&[Outgoing::connected(b"hello", 0)]).unwrap();
        let after = ["left", "right"].map(transmitted);
        assert_eq!((after[0] - before[0], after[1] - before[1]), sent);
        assert_eq!(route_mtu(remote, mark).unwrap(), mtu);
    }
    let marked = SocketOptions {
        mark: Some(0x77),
        ..options()
    };
    let error = without_privileges(|| UdpSocket::connect(None, remote, &marked).err().unwrap());
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    // A socket that was opened elsewhere is marked afterwards.
    let other = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let only_by_rule = "10.2.0.9:9";
    other.connect(only_by_rule).unwrap_err();
    set_mark(&other, 0x77).unwrap();
    other.connect(only_by_rule).unwrap();
}

/// Packets that an interface has sent.
fn transmitted(interface: &str) -> u64 {
    let table = std::fs::read_to_string("/proc/net/dev").unwrap();
    let line = table
        .lines()
        .find_map(|line| line.trim().strip_prefix(interface)?.strip_prefix(':'))
        .unwrap();
    line.split_whitespace().nth(9).unwrap().parse().unwrap()
}
