//! IP sessions of peers that do not keep the rules.

use std::net::SocketAddr;

use masque::ip::{ClientId, Extensions, Scope, connect_ip};
use tunnel_proto::DropReason;

use crate::support::packets::udp;
use crate::support::{SECOND, Setup, World, user};

/// A foreign client with an IP session, its first request.
pub(super) fn foreigner(world: &mut World, extensions: &Extensions) -> SocketAddr {
    world.serve_ip(&["10.9.0.0/24", "fd09::/64"], &["0.0.0.0/0"], false);
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
    let packet = udp("fd09::2", "fd09::1", 100);
    world.foreign(foreigner).datagram(datagram(0, &packet));
    world.run(SECOND);
    assert_eq!(world.server().egress_drops(DropReason::SourceSpoofed), 5);
    let packet = udp("10.9.0.2", "10.9.0.1", 100);
    world.foreign(foreigner).datagram(datagram(0, &packet));
    world.run(SECOND);
    assert_eq!(world.server().packets.len(), 1);
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
    let good = udp("10.9.0.2", "10.9.0.1", 100);
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
