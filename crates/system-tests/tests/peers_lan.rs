//! Peers on one network, without a rendezvous and without addresses.

use std::net::{SocketAddr, UdpSocket};

use peer::blocking::{wait, wait_for};
use peer::{Endpoint, SecretKey};
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::require_root;
use system_tests::topology::{PAIR_SERVER_V4, Pair};
use testbed::namespace::Namespace;
use testbed::wait::wait_until;

/// Where multicast DNS is spoken.
const GROUP: &str = "224.0.0.251:5353";

/// A new peer on a machine, which is announced.
fn announced(machine: &Namespace, address: &str) -> Endpoint {
    let address: SocketAddr = address.parse().unwrap();
    let endpoint = machine.inside(|| {
        let builder = Endpoint::builder(SecretKey::generate().unwrap()).announce_on_lan();
        builder.bind(address).unwrap()
    });
    let is_announced = wait_for(PROGRAM_LIMIT, endpoint.announced());
    assert_eq!(is_announced, Some(true), "{:?}", endpoint.lan_problem());
    endpoint
}

/// A new peer on a machine, which finds others.
fn finder(machine: &Namespace) -> Endpoint {
    machine.inside(|| {
        let builder = Endpoint::builder(SecretKey::generate().unwrap()).find_on_lan();
        builder.bind("[::]:0".parse().unwrap()).unwrap()
    })
}

/// LAN-1, LAN-2, LAN-3.
#[test]
fn an_announced_peer_is_found_at_its_address_until_it_closes() {
    require_root!();
    let pair = Pair::new(1_500);
    let (v4, both) = (
        announced(&pair.server, "0.0.0.0:4000"),
        announced(&pair.server, "[::]:4001"),
    );
    let caller = finder(&pair.client);
    let connect = |id| {
        pair.client
            .inside(|| wait_for(PROGRAM_LIMIT, caller.connect(id, &[])))
    };
    for listener in [&v4, &both] {
        let peer = connect(listener.id()).unwrap().unwrap();
        assert_eq!(peer.id(), listener.id());
    }
    let expected: SocketAddr = format!("{PAIR_SERVER_V4}:4000").parse().unwrap();
    assert_eq!(caller.found_on_lan(v4.id()), [expected]);
    // Its addresses come one after the other, and one of IPv4 was enough to connect.
    wait_until("an address of IPv6", PROGRAM_LIMIT, || {
        caller.found_on_lan(both.id()).iter().any(SocketAddr::is_ipv6)
    });

    v4.close(0, "");
    wait(v4.ended());
    let newcomer = finder(&pair.client);
    let failed = pair
        .client
        .inside(|| wait_for(PROGRAM_LIMIT, newcomer.connect(v4.id(), &[])));
    assert!(failed.unwrap().is_err());
    assert_eq!(newcomer.found_on_lan(v4.id()), []);
}

/// LAN-5.
#[test]
fn a_peer_that_waits_for_a_number_is_found_by_it() {
    require_root!();
    let pair = Pair::new(1_500);
    let host = pair.server.inside(|| {
        let builder = Endpoint::builder(SecretKey::generate().unwrap());
        let builder = builder.announce_numbers_on_lan([4_711, 5_000]);
        builder.bind("[::]:0".parse().unwrap()).unwrap()
    });
    let is_announced = wait_for(PROGRAM_LIMIT, host.announced());
    assert_eq!(is_announced, Some(true), "{:?}", host.lan_problem());
    let guest = finder(&pair.client);
    let inside = |number| pair.client.inside(|| wait(guest.inviter_on_lan(number)));
    assert_eq!(inside(4_712), None);
    assert_eq!(inside(5_000), Some(host.id()));
    let connected = pair
        .client
        .inside(|| wait_for(PROGRAM_LIMIT, guest.connect(host.id(), &[])));
    assert_eq!(connected.unwrap().unwrap().id(), host.id());
}

/// An answer of multicast DNS with so many addresses, each of a machine of its own.
fn answer(first: u32, count: u16) -> Vec<u8> {
    let mut packet = vec![0, 0, 0x84, 0, 0, 0];
    packet.extend(count.to_be_bytes());
    packet.extend([0; 4]);
    for number in (first..).take(count.into()) {
        let name = format!("m{number:08}");
        packet.push(name.len() as u8);
        packet.extend(name.as_bytes());
        packet.extend(b"\x05local\0");
        // A, IN, 120 s, four bytes.
        packet.extend([0, 1, 0, 1, 0, 0, 0, 120, 0, 4, 10, 77, 0, 2]);
    }
    packet
}

/// LAN-4.
#[test]
fn who_is_flooded_with_records_leaves_the_network_alone_and_says_so() {
    require_root!();
    let pair = Pair::new(1_500);
    let listener = announced(&pair.server, "0.0.0.0:4000");
    let stranger = pair.client.inside(|| UdpSocket::bind("10.77.0.2:5353").unwrap());
    let mut next = 0;
    wait_until("the flood is noticed", PROGRAM_LIMIT, || {
        for _ in 0..100 {
            stranger.send_to(&answer(next, 40), GROUP).unwrap();
            next += 40;
        }
        let problem = listener.lan_problem();
        problem.is_some_and(|problem| problem.contains("floods this machine"))
    });
}
