//! IP sessions of peers that do not keep the rules.

use std::net::SocketAddr;

use masque::ip::{ClientId, Extensions, Scope, connect_ip};
use tunnel_proto::DropReason;

use crate::support::packets::{ip, udp};
use crate::support::{SECOND, Setup, World, user};

/// A foreign client with an IP session, its first request.
pub(super) fn foreigner(world: &mut World, extensions: &Extensions) -> SocketAddr {
    world.serve_ip(&["10.9.0.0/24", "fd09::/64"], &["0.0.0.0/0", "::/0"], false);
    let foreigner = world.add_foreign_client();
    world.run_until(20 * SECOND, |world| world.foreign(foreigner).is_connected);
    let list = connect_ip("server.test:443", &Scope::ANY, &user().reveal(), extensions);
    let stream = world.foreign(foreigner).request(&list);
    world.run_until(20 * SECOND, |world| {
        world.foreign(foreigner).status(stream) == Some(200)
    });
    foreigner
}

pub(super) fn datagram(context: u8, payload: &[u8]) -> Vec<u8> {
    [&[0, context], payload].concat()
}

#[test]
fn a_server_takes_no_packet_with_a_source_that_it_did_not_lease() {
    let mut world = World::with_server(Setup::default());
    let foreigner = foreigner(&mut world, &Extensions::default());
    for source in ["10.9.0.3", "192.0.2.1", "10.9.0.1", "127.0.0.1"] {
        let packet = udp(source, "198.51.100.9", 100);
        world.foreign(foreigner).datagram(datagram(0, &packet));
    }
    // It has no split context, so it was given no IPv6 address.
    let packet = udp("fd09::2", "2001:db8::9", 100);
    world.foreign(foreigner).datagram(datagram(0, &packet));
    world.run(SECOND);
    assert_eq!(world.server().egress_drops(DropReason::SourceSpoofed), 5);
    let packet = udp("10.9.0.2", "198.51.100.9", 100);
    world.foreign(foreigner).datagram(datagram(0, &packet));
    world.run(SECOND);
    assert_eq!(world.server().packets.len(), 1);
}

/// ICMP about a packet of `source` for `destination`.
fn icmp_about(kind: u8, source: &str, destination: &str) -> Vec<u8> {
    [&[kind, 3, 0, 0, 0, 0, 0, 0], &udp(source, destination, 100)[..28]].concat()
}

#[test]
fn of_the_servers_own_address_a_client_reaches_echoes_and_names() {
    const ICMP: u8 = 1;
    let mut world = World::with_server(Setup::default());
    let foreigner = foreigner(&mut world, &Extensions::default());
    let mut question = [0; 12];
    question[3] = 53;
    for (protocol, segment, is_admitted) in [
        (ICMP, vec![8, 0, 0, 0, 0, 1, 0, 1], true),
        (ICMP, vec![0, 0, 0, 0, 0, 1, 0, 1], true),
        (17, question.to_vec(), true),
        (ICMP, icmp_about(3, "10.9.0.1", "10.9.0.2"), true),
        // The server's connection to somebody else, and one of another client.
        (ICMP, icmp_about(3, "192.0.2.1", "198.51.100.9"), false),
        (ICMP, icmp_about(3, "10.9.0.1", "10.9.0.3"), false),
        (ICMP, vec![3, 3, 0, 0], false),
        // A redirect, and a question for the time.
        (ICMP, icmp_about(5, "10.9.0.1", "10.9.0.2"), false),
        (ICMP, vec![13, 0, 0, 0, 0, 1, 0, 1], false),
        // ICMPv6 in IPv4, and a tunnel in the tunnel.
        (58, vec![128, 0, 0, 0, 0, 1, 0, 1], false),
        (41, vec![0; 40], false),
        (ICMP, Vec::new(), false),
        (17, vec![0; 12], false),
        (6, vec![0; 20], false),
    ] {
        let packet = ip("10.9.0.2", "10.9.0.1", protocol, 64, &segment);
        let before = world.server().egress_drops(DropReason::PolicyDenied);
        world.foreign(foreigner).datagram(datagram(0, &packet));
        world.run(SECOND / 10);
        let taken = std::mem::take(&mut world.server().packets).len();
        let dropped = world.server().egress_drops(DropReason::PolicyDenied) - before;
        let expected = (usize::from(is_admitted), u64::from(!is_admitted));
        assert_eq!((taken, dropped), expected, "{protocol} {segment:?}");
    }
}

#[test]
fn what_is_no_packet_is_dropped_and_counted_and_ends_nothing() {
    let mut world = World::with_server(Setup::default());
    let extensions = Extensions {
        client: Some(ClientId([1; 16])),
        run: Some(1),
        split: Some(2),
        checksum: Some(4),
        repair: None,
    };
    let foreigner = foreigner(&mut world, &extensions);
    let good = udp("10.9.0.2", "198.51.100.9", 100);
    let mut too_long = good.clone();
    too_long[3] = 101;
    let mut icmp_unfinished = good.clone();
    icmp_unfinished[9] = 1;
    for (context, payload) in [
        (0, &[][..]),
        (0, &[0x45]),
        (0, &[0; 40]),
        (0, &too_long[..]),
        (4, &icmp_unfinished[..]),
        (4, &good[..27]),
        (2, &[1, 2]),
    ] {
        world.foreign(foreigner).datagram(datagram(context, payload));
    }
    world.foreign(foreigner).datagram(datagram(6, &good));
    world.run(SECOND);
    assert_eq!(world.server().egress_drops(DropReason::Malformed), 7);
    assert_eq!(world.server().egress_drops(DropReason::UnknownContext), 1);
    assert!(world.server().packets.is_empty());
    world.foreign(foreigner).datagram(datagram(4, &good));
    world.run(SECOND);
    assert_eq!(world.server().packets.len(), 1);
}

#[test]
fn only_a_valid_token_and_the_whole_scope_open_a_session() {
    let mut world = World::with_server(Setup::default());
    world.serve_ip(&["10.9.0.0/24"], &[], false);
    let foreigner = world.add_foreign_client();
    world.run_until(20 * SECOND, |world| world.foreign(foreigner).is_connected);
    let narrow = Scope::from_path("198.51.100.1", "17").unwrap();
    let token = user().reveal();
    let mut streams = Vec::new();
    for (scope, bearer) in [(Scope::ANY, "wrong"), (narrow, token.as_str())] {
        let list = connect_ip("server.test:443", &scope, bearer, &Extensions::default());
        streams.push(world.foreign(foreigner).request(&list));
    }
    world.run(SECOND);
    let status = |stream| world.foreign(foreigner).status(stream);
    assert_eq!(
        streams.into_iter().map(status).collect::<Vec<_>>(),
        [Some(401), Some(501)]
    );
    assert_eq!(world.server().data.leases.as_ref().unwrap().counts(), (0, 0));
}

/// SESSION-5.
#[test]
fn a_broken_capsule_ends_the_session_and_frees_its_lease() {
    let mut world = World::with_server(Setup::default());
    let foreigner = foreigner(&mut world, &Extensions::default());
    assert_eq!(world.server().data.leases.as_ref().unwrap().counts(), (1, 1));
    let stream = world.foreign(foreigner).requests()[0];
    // An ADDRESS_REQUEST that asks for nothing, in a DATA frame.
    world.foreign(foreigner).write(stream, &[0x00, 0x02, 0x02, 0x00]);
    world.run(SECOND);
    assert_eq!(world.server().data.leases.as_ref().unwrap().counts(), (0, 0));
    let now = world.now();
    world.foreign(foreigner).close(now, 0x100);
    world.run(SECOND);
}
