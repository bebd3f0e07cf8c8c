//! IP sessions of our client at a server that means harm: what it says and sends reaches nothing but what the user
//! leads into the tunnel.

use masque::ip::Extensions;
use tunnel_proto::{Acceptance, ClientId, DropReason, LocalNetworks, Prefix, TunRoutes, limits};

use crate::ip_foreign::{accept, addresses, assignments, routes, say_capsule, world};
use crate::support::packets::{ip, udp};
use crate::support::{SECOND, World};

/// Networks of the client's machine.
const LOCAL: [&str; 2] = ["192.168.1.0/24", "fd01::/64"];

/// The client's addresses in the tunnel.
const LEASED: [&str; 2] = ["10.99.0.7/32", "fd99::7/128"];

fn prefixes(texts: &[&str]) -> Vec<Prefix> {
    texts
        .iter()
        .map(|text| text.parse().expect("tests name prefixes"))
        .collect()
}

fn local(networks: &[&str]) -> LocalNetworks {
    LocalNetworks {
        networks: prefixes(networks),
        excluded: Vec::new(),
        resolvers: Vec::new(),
    }
}

/// A client with these settings whose session the server accepted, and the stream of that.
fn accepted(routes: TunRoutes, default_route: bool) -> (World, quic::StreamId) {
    let (mut world, stream) = world();
    let mut acceptance = Acceptance::new(routes, default_route);
    acceptance.set_local(&local(&LOCAL));
    let engine = &mut world.client().engine;
    engine.use_ip(ClientId([1; 16]), 7, 2, acceptance);
    accept(&mut world, stream, &Extensions::default());
    (world, stream)
}

/// The same with addresses, where the server routes everything.
fn leased(tun_routes: TunRoutes, default_route: bool) -> (World, quic::StreamId) {
    let (mut world, stream) = accepted(tun_routes, default_route);
    say_capsule(&mut world, stream, &routes(&["0.0.0.0/0", "::/0"]));
    say_capsule(&mut world, stream, &addresses(&LEASED));
    (world, stream)
}

/// How many of these packets, which the server sends, the client delivers.
fn delivered(world: &mut World, packets: &[Vec<u8>]) -> usize {
    let before = world.client().packets.len();
    let server = world.server;
    for packet in packets {
        // The session's stream is the client's second.
        let datagram = [&[1, 0], &packet[..]].concat();
        world.foreign(server).datagram(datagram);
    }
    world.run(SECOND);
    world.client().packets.len() - before
}

fn is_delivered(world: &mut World, source: &str, destination: &str) -> bool {
    delivered(world, &[udp(source, destination, 100)]) == 1
}

#[test]
fn of_assigned_addresses_single_ones_are_taken_that_belong_to_no_local_network() {
    let (mut world, stream) = accepted(TunRoutes::Advertised, true);
    let refused = [
        "192.168.1.1/32",
        "10.0.0.0/8",
        "0.0.0.0/0",
        "fd01::53/128",
        "127.0.0.1/32",
    ];
    say_capsule(&mut world, stream, &addresses(&[&LEASED[..], &refused].concat()));
    let told = assignments(&mut world).pop().unwrap();
    assert_eq!(told.addresses, prefixes(&LEASED));
    assert_eq!(told.refused, prefixes(&refused));
    // More than a client needs are left.
    let many: Vec<String> = (1..=60).map(|host| format!("10.99.1.{host}/32")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    say_capsule(&mut world, stream, &addresses(&many));
    let told = assignments(&mut world).pop().unwrap();
    assert_eq!(told.addresses.len(), limits::CLIENT_ADDRESSES_MAX);
}

#[test]
fn packets_come_to_the_lease_alone() {
    let (mut world, stream) = leased(TunRoutes::Advertised, true);
    assert!(is_delivered(&mut world, "203.0.113.9", "10.99.0.7"));
    assert!(is_delivered(&mut world, "2001:db8::9", "fd99::7"));
    // A machine of the local network, another one, multicast and ourselves.
    say_capsule(
        &mut world,
        stream,
        &addresses(&[
            "10.99.0.7/32",
            "192.168.1.0/24",
            "192.168.1.7/32",
            "172.17.0.0/16",
        ]),
    );
    for destination in [
        "192.168.1.7",
        "192.168.1.255",
        "172.17.0.2",
        "10.99.0.8",
        "224.0.0.1",
        "127.0.0.1",
    ] {
        assert!(
            !is_delivered(&mut world, "203.0.113.9", destination),
            "{destination}"
        );
    }
}

#[test]
fn packets_come_from_where_the_client_routes_into_the_tunnel_and_never_from_a_neighbour() {
    let (mut world, _) = leased(TunRoutes::Advertised, true);
    for source in [
        "192.168.1.1",
        "10.99.0.7",
        "127.0.0.1",
        "169.254.169.254",
        "0.0.0.0",
    ] {
        assert!(!is_delivered(&mut world, source, "10.99.0.7"), "{source}");
    }
    assert!(!is_delivered(&mut world, "fd01::53", "fd99::7"));
    assert_eq!(world.client().egress_drops(DropReason::SourceSpoofed), 6);

    let (mut world, _) = leased(TunRoutes::These(prefixes(&["10.0.0.0/8"])), false);
    assert!(is_delivered(&mut world, "10.1.2.3", "10.99.0.7"));
    for source in ["203.0.113.9", "192.168.1.1"] {
        assert!(!is_delivered(&mut world, source, "10.99.0.7"), "{source}");
    }
    assert!(!is_delivered(&mut world, "2001:db8::9", "fd99::7"));

    // A route that is not taken is no source, either: public, or one that covers a neighbour.
    let (mut world, stream) = leased(TunRoutes::Advertised, false);
    say_capsule(
        &mut world,
        stream,
        &routes(&["10.0.0.0/8", "192.168.0.0/16", "203.0.113.0/24"]),
    );
    assert!(is_delivered(&mut world, "10.1.2.3", "10.99.0.7"));
    for source in ["203.0.113.9", "192.168.2.1"] {
        assert!(!is_delivered(&mut world, source, "10.99.0.7"), "{source}");
    }
}

#[test]
fn a_source_is_accepted_only_as_long_as_it_is_routed_and_not_local() {
    let (mut world, stream) = leased(TunRoutes::Advertised, false);
    let (server, now) = (world.server, world.now());
    world.foreign(server).trust(now);
    let far = "10.1.2.3";
    for (advertised, is_taken) in [
        ("10.0.0.0/8", true),
        ("10.2.0.0/16", false),
        ("10.1.0.0/16", true),
    ] {
        say_capsule(&mut world, stream, &routes(&[advertised]));
        let is_delivered = is_delivered(&mut world, far, "10.99.0.7");
        assert_eq!(is_delivered, is_taken, "{advertised}");
    }
    world.client().engine.set_local(&local(&["10.1.0.0/16"]));
    assert!(!is_delivered(&mut world, far, "10.99.0.7"));
    world.client().engine.set_local(&local(&[]));
    assert!(is_delivered(&mut world, far, "10.99.0.7"));
    // It becomes ours.
    say_capsule(&mut world, stream, &addresses(&["10.99.0.7/32", "10.1.2.3/32"]));
    assert!(!is_delivered(&mut world, far, "10.99.0.7"));
}

/// Path MTU discovery and traceroute need routers that no route of the client leads to.
#[test]
fn a_router_on_the_way_may_answer_about_packets_that_the_client_may_have_sent() {
    let named = TunRoutes::These(prefixes(&["10.0.0.0/8", "2001:db8::/32"]));
    let (mut world, _) = leased(named, false);
    let error = |router: &str, kind: u8, quoted: &[u8]| {
        let is_ipv6 = router.contains(':');
        let (protocol, destination) = if is_ipv6 {
            (58, "fd99::7")
        } else {
            (1, "10.99.0.7")
        };
        let message = [&[kind, 4, 0, 0, 0, 0, 5, 0], quoted].concat();
        ip(router, destination, protocol, 64, &message)
    };
    let (sent, sent_v6) = (
        udp("10.99.0.7", "10.1.2.3", 100),
        udp("fd99::7", "2001:db8::1", 100),
    );
    let foreign = udp("10.99.0.8", "10.1.2.3", 100);
    let elsewhere = udp("10.99.0.7", "203.0.113.9", 100);
    let good = [error("198.51.100.1", 3, &sent), error("3fff::1", 2, &sent_v6)];
    assert_eq!(delivered(&mut world, &good), 2);
    let bad = [
        error("198.51.100.1", 3, &foreign),
        error("198.51.100.1", 3, &elsewhere),
        error("192.168.1.1", 3, &sent),
        // An echo and a redirect are no errors; this one quotes too little.
        error("198.51.100.1", 8, &sent),
        error("198.51.100.1", 5, &sent),
        error("198.51.100.1", 3, &sent[..18]),
        error("3fff::1", 129, &sent_v6),
    ];
    assert_eq!(delivered(&mut world, &bad), 0);
}

#[test]
fn a_lease_goes_when_its_addresses_become_local_and_comes_back() {
    let (mut world, _) = leased(TunRoutes::Advertised, true);
    world.client().engine.set_local(&local(&["10.99.0.0/16"]));
    world.run(SECOND);
    let told = assignments(&mut world).pop().unwrap();
    assert_eq!(told.addresses, prefixes(&LEASED[1..]));
    assert!(!is_delivered(&mut world, "203.0.113.9", "10.99.0.7"));
    world.client().engine.set_local(&local(&[]));
    world.run(SECOND);
    let told = assignments(&mut world).pop().unwrap();
    assert_eq!(told.addresses, prefixes(&LEASED));
    assert!(is_delivered(&mut world, "203.0.113.9", "10.99.0.7"));
}

#[test]
fn a_server_that_changes_its_mind_all_the_time_is_followed_now_and_then() {
    let (mut world, stream) = accepted(TunRoutes::Advertised, false);
    let server = world.server;
    let now = world.now();
    world.foreign(server).trust(now);
    for change in 0..10 {
        let address = format!("10.99.0.{}/32", change + 1);
        say_capsule(&mut world, stream, &addresses(&[&address]));
    }
    // Each was said a second after the other, in less time than one more takes.
    let told = assignments(&mut world).len();
    let followed = limits::ASSIGNMENTS_BURST as usize;
    assert!((followed..=followed + 1).contains(&told), "{told} told of 10");
    // What holds in the end is told.
    world.run(limits::ASSIGNMENT_INTERVAL);
    let last = assignments(&mut world).pop().unwrap();
    assert_eq!(last.addresses, prefixes(&["10.99.0.10/32"]));
    world.run(60 * SECOND);
    assert!(
        assignments(&mut world).len() <= told + 1,
        "nothing is told without a change"
    );
}
