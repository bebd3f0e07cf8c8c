//! Sockets bound to a network interface, and sockets whose mark leads them to one.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::io;

use common::{address, in_namespace, options, receive, without_privileges};
use packet_io::{DatagramSocket, Outgoing, SocketOptions, UdpSocket, route_mtu, set_mark};

/// Interfaces `left` and `right`, with [`NEIGHBOUR`] behind each; the route leads by the right one. Without IPv6, and
/// with the neighbour known, nothing but the test sends.
const TWO_WAYS: &str = "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6 \
    && for side in left right; do \
    ip link add $side type veth peer name far-$side && ip link set far-$side up && ip link set $side up \
    && ip neighbour add 10.1.0.9 lladdr 02:00:00:00:00:01 dev $side || exit 1; done \
    && ip address add 10.1.0.1/24 dev right";

const NEIGHBOUR: &str = "10.1.0.9:9";

#[test]
fn a_socket_bound_to_an_interface_uses_it_and_can_be_moved() {
    let name = "a_socket_bound_to_an_interface_uses_it_and_can_be_moved";
    if !in_namespace(name, TWO_WAYS) {
        return;
    }
    let bound = SocketOptions {
        interface: Some("left".parse().unwrap()),
        ..options()
    };
    let mut socket = UdpSocket::bind(address("0.0.0.0:0"), &bound).unwrap();
    let send = |socket: &mut UdpSocket| {
        transmitted_by(|| {
            let message = Outgoing::to(address(NEIGHBOUR), b"hello", 0);
            assert_eq!(socket.send(&[message]).unwrap().segments, 1);
        })
    };
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
    let rule = "ip link set left mtu 1400 \
        && ip route add default dev left table 77 && ip rule add fwmark 0x77 table 77";
    if !in_namespace(name, &format!("{TWO_WAYS} && {rule}")) {
        return;
    }
    let remote = address(NEIGHBOUR);
    for (mark, sent, mtu) in [(None, (0, 1), 1_500), (Some(0x77), (1, 0), 1_400)] {
        let mut socket = UdpSocket::connect(None, remote, &SocketOptions { mark, ..options() }).unwrap();
        let transmitted = transmitted_by(|| {
            socket.send(&[Outgoing::connected(b"hello", 0)]).unwrap();
        });
        assert_eq!(transmitted, sent);
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

/// Packets that the left and the right interface send while `act` runs.
fn transmitted_by(act: impl FnOnce()) -> (u64, u64) {
    let before = ["left", "right"].map(transmitted);
    act();
    let after = ["left", "right"].map(transmitted);
    (after[0] - before[0], after[1] - before[1])
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
