//! IP sessions of our client at a server of another make: it knows no names, and tells routes before addresses.

use masque::ip::{
    AddressEntry, CHECKSUM_CONTEXT_ID, ClientId, Extensions, Routes, accepted, address_assign, dns_assign,
    route_advertisement,
};
use masque::response::response;
use masque::{data_frame_header, headers_frame};
use quic::StreamId;
use tunnel_proto::{Assignment, ClientAction, Prefix};

use crate::support::{SECOND, Setup, World};

/// A client whose token a foreign server has taken, and the stream of its request for an IP session.
pub(super) fn world() -> (World, StreamId) {
    let mut world = World::with_server(Setup::default());
    world.replace_server_by_a_foreign_one();
    world.client = world.add_ip_client(1, 7);
    let server = world.server;
    world.run_until(20 * SECOND, |world| {
        world.foreign(server).requests_taken().len() == 2
    });
    let requests = world.foreign(server).requests_taken();
    let answer = headers_frame(&response(502));
    world.foreign(server).write(requests[0].0, &answer);
    (world, requests[1].0)
}

fn say(world: &mut World, stream: StreamId, bytes: &[u8]) {
    let server = world.server;
    assert_eq!(world.foreign(server).write(stream, bytes), bytes.len());
    world.run(SECOND);
}

/// The answer that agrees to the session, and to these extensions.
pub(super) fn accept(world: &mut World, stream: StreamId, extensions: &Extensions) {
    say(world, stream, &headers_frame(&accepted(extensions)));
}

pub(super) fn say_capsule(world: &mut World, stream: StreamId, capsule: &[u8]) {
    let (header, used) = data_frame_header(capsule.len() as u64);
    say(world, stream, &[&header[..used], capsule].concat());
}

pub(super) fn addresses(texts: &[&str]) -> Vec<u8> {
    let entry = |text: &&str| AddressEntry {
        request_id: 0,
        prefix: text.parse().expect("tests name prefixes"),
    };
    address_assign(&texts.iter().map(entry).collect::<Vec<_>>())
}

pub(super) fn routes(texts: &[&str]) -> Vec<u8> {
    let prefixes = texts
        .iter()
        .map(|text| text.parse().expect("tests name prefixes"));
    let prefixes: Vec<Prefix> = prefixes.collect();
    route_advertisement(&Routes::of(&prefixes))
}

pub(super) fn assignments(world: &mut World) -> Vec<Assignment> {
    let told = world.client().actions().filter_map(|(_, action)| match action {
        ClientAction::Assigned { assignment } => Some(assignment.clone()),
        _ => None,
    });
    told.collect()
}

#[test]
fn routes_that_come_before_the_addresses_are_told_with_them() {
    let (mut world, stream) = world();
    accept(&mut world, stream, &Extensions::default());
    say_capsule(&mut world, stream, &routes(&["10.98.0.0/16"]));
    assert_eq!(assignments(&mut world), []);
    say_capsule(&mut world, stream, &addresses(&["10.99.0.7/32"]));
    let expected = Assignment {
        addresses: vec!["10.99.0.7/32".parse().unwrap()],
        routes: Some(vec!["10.98.0.0/16".parse().unwrap()]),
        is_by_name: false,
        is_name_taken: false,
        is_name_shared: false,
        name_servers: Vec::new(),
        refused: Vec::new(),
        can_split: false,
    };
    assert_eq!(assignments(&mut world), [expected]);
}

/// SESSION-18: what means something on one machine or link only is no name server behind a tunnel.
#[test]
fn name_servers_that_come_late_or_change_are_told_again_without_those_that_nobody_may_ask() {
    let (mut world, stream) = world();
    accept(&mut world, stream, &Extensions::default());
    say_capsule(&mut world, stream, &addresses(&["10.99.0.7/32"]));
    for (offered, expected) in [
        (&["10.99.0.1", "127.0.0.1"][..], &["10.99.0.1"][..]),
        (&["169.254.0.1", "fe80::1", "fd99::1"], &["fd99::1"]),
        (&["224.0.0.1", "0.0.0.0"], &[]),
    ] {
        let parse = |texts: &[&str]| -> Vec<std::net::IpAddr> {
            texts
                .iter()
                .map(|text| text.parse().expect("an address"))
                .collect()
        };
        say_capsule(&mut world, stream, &dns_assign(&parse(offered)));
        let told = assignments(&mut world);
        let last = told.last().expect("each change is told");
        assert_eq!(last.name_servers, parse(expected));
        assert_eq!(last.addresses.len(), 1);
    }
    assert_eq!(assignments(&mut world).len(), 4);
}

#[test]
fn an_assignment_of_nothing_is_told_so_that_the_user_hears_of_it() {
    let (mut world, stream) = world();
    accept(&mut world, stream, &Extensions::default());
    say_capsule(&mut world, stream, &addresses(&[]));
    let told = assignments(&mut world);
    assert_eq!((told.len(), told[0].addresses.len()), (1, 0));
}

/// SESSION-12: only its own name tells a client that its sessions share their addresses.
#[test]
fn a_server_goes_by_our_name_only_where_it_repeats_it() {
    let extensions = |client| Extensions {
        client,
        checksum: Some(CHECKSUM_CONTEXT_ID),
        ..Extensions::default()
    };
    for (repeated, expected) in [
        (None, false),
        (Some(ClientId([2; 16])), false),
        (Some(ClientId([1; 16])), true),
    ] {
        let (mut world, stream) = world();
        accept(&mut world, stream, &extensions(repeated));
        say_capsule(&mut world, stream, &addresses(&["10.99.0.7/32"]));
        assert_eq!(assignments(&mut world)[0].is_by_name, expected, "{repeated:?}");
    }
}

#[test]
fn a_session_is_not_asked_for_twice() {
    let (mut world, stream) = world();
    let server = world.server;
    for _ in 0..2 {
        let now = world.now();
        world.client().engine.ask_for_ip(now);
        world.run(SECOND);
        assert_eq!(world.foreign(server).requests_taken().len(), 2);
        accept(&mut world, stream, &Extensions::default());
    }
}
