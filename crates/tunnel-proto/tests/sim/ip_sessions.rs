//! The rules of specs/ip-session.md at a server: names, leases, several requests of one client, the shard that it tells.

use std::net::SocketAddr;

use masque::ip::{ClientId, Extensions, Scope, connect_ip};
use masque::{ServerShard, Target, request};
use tunnel_proto::{ClientAction, DropReason, EngineConfig, Oversize, ServerAction};

use crate::ip_hostile::{datagram, foreigner};
use crate::support::packets::udp;
use crate::support::{SECOND, Setup, World, user};

const FAR: &str = "198.51.100.9";

/// A server and a client with two stripes, the second of them being the one that asked last.
fn two_stripes() -> (World, [SocketAddr; 2]) {
    let mut world = World::with_server(Setup::default());
    world.serve_ip(&["10.9.0.0/24", "fd09::/64"], &["0.0.0.0/0"], false);
    let stripes = [(), ()].map(|()| {
        let stripe = world.add_ip_client(1, 7);
        world.run_until(20 * SECOND, |world| {
            world.client_at(stripe).assignment().is_some()
        });
        stripe
    });
    world.run(2 * SECOND);
    (world, stripes)
}

fn packet_sizes(world: &mut World, stripe: SocketAddr) -> Vec<usize> {
    let packets = std::mem::take(&mut world.client_at(stripe).packets);
    packets.iter().map(|(packet, _)| packet.len()).collect()
}

fn lease_counts(world: &mut World) -> (usize, usize) {
    world
        .server()
        .data
        .leases
        .as_ref()
        .expect("it serves IP")
        .counts()
}

/// SESSION-7, SESSION-8: one lease, one list of routes; sources are checked against the lease.
#[test]
fn requests_of_one_client_are_told_the_same_and_carry_packets_of_the_same_address() {
    let (mut world, stripes) = two_stripes();
    let [first, second] = stripes.map(|stripe| world.client_at(stripe).assignment().cloned());
    assert_eq!(first, second);
    assert_eq!(lease_counts(&mut world), (1, 1));
    for stripe in stripes {
        world.send_packet(stripe, &udp("10.9.0.2", FAR, 100));
        world.run(SECOND);
    }
    assert_eq!(world.server().packets.len(), 2);
    assert_eq!(world.server().egress_drops(DropReason::SourceSpoofed), 0);
}

/// SESSION-7: the packets of a flow keep their order because they stay on one request.
#[test]
fn a_flow_stays_on_one_request() {
    let (mut world, stripes) = two_stripes();
    let (server, sizes) = (world.server, (100..200).collect::<Vec<usize>>());
    for size in &sizes {
        world.send_packet(server, &udp(FAR, "10.9.0.2", *size));
        world.run(SECOND / 100);
    }
    world.run(SECOND);
    let mut taken = stripes.map(|stripe| packet_sizes(&mut world, stripe));
    taken.sort();
    assert_eq!(taken, [vec![], sizes]);
}

/// SESSION-9.
#[test]
fn the_end_of_one_request_leaves_the_lease_and_the_packets_to_the_others() {
    let (mut world, [other, last]) = two_stripes();
    let server = world.server;
    let now = world.now();
    world.client_at(last).leave(now);
    world.run(SECOND / 20);
    assert_eq!(lease_counts(&mut world), (1, 1));
    world.send_packet(server, &udp(FAR, "10.9.0.2", 300));
    world.run(SECOND / 40);
    assert_eq!(packet_sizes(&mut world, other), [300]);
    assert_eq!(
        world
            .client_at(other)
            .count(|action| *action == ClientAction::IpLost),
        0
    );
    let now = world.now();
    world.client_at(other).engine.disconnect(now);
    world.run_until(SECOND, |world| lease_counts(world) == (0, 1));
}

/// SESSION-3: neither a lease nor the end of the sessions that the name has.
#[test]
fn a_name_is_not_looked_at_without_a_valid_token() {
    let (mut world, stripes) = two_stripes();
    let foreigner = world.add_foreign_client();
    world.run_until(20 * SECOND, |world| world.foreign(foreigner).is_connected);
    for name in [1, 2] {
        let extensions = Extensions {
            client: Some(ClientId([name; 16])),
            run: Some(8),
            ..Extensions::default()
        };
        let list = connect_ip("server.test:443", &Scope::ANY, "wrong", &extensions);
        let stream = world.foreign(foreigner).request(&list);
        world.run(SECOND);
        assert_eq!(world.foreign(foreigner).status(stream), Some(401));
    }
    assert_eq!(lease_counts(&mut world), (1, 1));
    for stripe in stripes {
        assert_eq!(
            world
                .client_at(stripe)
                .count(|action| *action == ClientAction::IpLost),
            0
        );
    }
}

/// SESSION-5.
#[test]
fn requests_without_a_name_have_leases_of_their_own_that_end_with_them() {
    let mut world = World::with_server(Setup::default());
    let foreigner = foreigner(&mut world, &Extensions::default());
    let list = connect_ip(
        "server.test:443",
        &Scope::ANY,
        &user().reveal(),
        &Extensions::default(),
    );
    let second = world.foreign(foreigner).request(&list);
    world.run(SECOND);
    assert_eq!(world.foreign(foreigner).status(second), Some(200));
    assert_eq!(lease_counts(&mut world), (2, 2));
    // Over the first request, whose quarter stream ID is 0.
    for (source, spoofed, taken) in [("10.9.0.2", 0, 1), ("10.9.0.3", 1, 1)] {
        world
            .foreign(foreigner)
            .datagram(datagram(0, &udp(source, FAR, 100)));
        world.run(SECOND);
        assert_eq!(world.server().egress_drops(DropReason::SourceSpoofed), spoofed);
        assert_eq!(world.server().packets.len(), taken);
    }
    // A broken capsule ends the second request.
    world.foreign(foreigner).write(second, &[0x00, 0x02, 0x02, 0x00]);
    world.run(SECOND);
    assert_eq!(lease_counts(&mut world), (1, 1));
}

/// SESSION-10: told to users only.
#[test]
fn a_server_tells_its_shard_only_to_who_has_a_token() {
    let shard = ServerShard { index: 1, count: 2 };
    let mut world = World::with_server(Setup::default());
    world.start_shard(shard);
    let foreigner = world.add_foreign_client();
    world.run_until(20 * SECOND, |world| world.foreign(foreigner).is_connected);
    let check = Target::new("0.0.0.0", 9).expect("the target of a token check");
    for (token, status, told) in [("wrong", 401, None), (&user().reveal(), 502, Some(shard))] {
        let list = request::connect_udp("server.test:443", &check, token, None);
        let stream = world.foreign(foreigner).request(&list);
        world.run(SECOND);
        let answer = world.foreign(foreigner).response(stream).expect("it answers");
        assert_eq!(masque::response::status_of(&answer), Ok(status));
        assert_eq!(ServerShard::of(&answer), told);
    }
}

/// SESSION-5: shards share the leases of a server.
#[test]
fn clients_without_a_name_on_two_shards_are_two_clients() {
    let owners = [0, 1].map(|index| {
        let mut world = World::with_server(Setup::default());
        world.start_shard(ServerShard { index, count: 2 });
        foreigner(&mut world, &Extensions::default());
        let asked = world.server().actions().find_map(|(_, action)| match action {
            ServerAction::Lease { owner, .. } => Some(owner.client),
            _ => None,
        });
        asked.expect("the client asks for a lease")
    });
    assert_ne!(owners[0], owners[1]);
}

/// The request is over when its lease is there.
#[test]
fn a_request_that_ends_with_its_first_flight_keeps_no_lease() {
    let mut world = World::with_server(Setup::default());
    let foreigner = foreigner(&mut world, &Extensions::default());
    let held = lease_counts(&mut world);
    let list = connect_ip(
        "server.test:443",
        &Scope::ANY,
        &user().reveal(),
        &Extensions::default(),
    );
    let hasty = world.foreign(foreigner).request(&list);
    world.foreign(foreigner).finish(hasty);
    world.run(SECOND);
    assert_eq!(lease_counts(&mut world), held);
}

/// Without the split context a session has no IPv6 address, but its client has one leased.
#[test]
fn a_lease_whose_address_no_session_can_use_is_given_back() {
    let client = EngineConfig {
        oversize: Oversize::Drop,
        ..EngineConfig::default()
    };
    let mut world = World::with_server(Setup {
        client,
        ..Setup::default()
    });
    world.serve_ip(&["fd09::/64"], &["::/0"], false);
    let client = world.add_ip_client(1, 7);
    world.run(2 * SECOND);
    assert_eq!(lease_counts(&mut world), (1, 1));
    let now = world.now();
    world.client_at(client).leave(now);
    world.run(SECOND);
    assert_eq!(lease_counts(&mut world), (0, 1));
}
