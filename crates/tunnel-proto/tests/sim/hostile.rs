//! Peers that break rules, and packets that are none.

use std::net::SocketAddr;

use masque::request;
use packet::Ecn;
use quic::{CloseReason, Direction};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sim::{LinkConfig, for_each_seed};
use tunnel_proto::{DropReason, Target};

use crate::support::{MILLISECOND, SECOND, Setup, Way, World, user};

/// H3_DATAGRAM_ERROR (RFC 9297 section 5.2).
const H3_DATAGRAM_ERROR: u64 = 0x33;

/// A foreign user with a session whose split context is 2; its Quarter Stream ID is 0.
fn foreign_user(world: &mut World) -> (SocketAddr, u32) {
    let foreign = world.add_foreign_client();
    world.run(SECOND);
    let session = world.book.session();
    let target = Target::new(&format!("sink-{session}"), 7).expect("a well-formed target");
    let list = request::connect_udp("server.test:443", &target, &user().reveal(), Some(2));
    let stream = world.foreign(foreign).request(&list);
    assert_eq!(u64::from(stream), 0);
    world.run(SECOND);
    (foreign, session)
}

#[test]
fn a_datagram_without_a_quarter_stream_id_ends_the_connection() {
    let beyond_the_last = [0xd0, 0, 0, 0, 0, 0, 0, 0, 0];
    for bytes in [&[][..], &[0x40], &[0xc0, 0, 0], &beyond_the_last] {
        let mut world = World::with_server(Setup::default());
        let (foreign, _) = foreign_user(&mut world);
        world.foreign(foreign).datagram(bytes.to_vec());
        world.run(SECOND);
        let Some(CloseReason::ApplicationClosed { code, .. }) = &world.foreign(foreign).closed else {
            panic!("{bytes:?} was taken: {:?}", world.foreign(foreign).closed)
        };
        assert_eq!(*code, H3_DATAGRAM_ERROR);
        assert_eq!(world.server().egress_drops(DropReason::Malformed), 1);
        assert_eq!(world.server().engine.gauges()[1].0, 0);
    }
}

/// SPLIT-9: broken fragments among them.
#[test]
fn datagrams_that_only_their_session_can_not_use_cost_only_themselves() {
    let cases: [(&[u8], DropReason); 7] = [
        (&[0], DropReason::Malformed),
        (&[0, 0x40], DropReason::Malformed),
        (&[0, 1, 9], DropReason::UnknownContext),
        (&[0, 4, 9], DropReason::UnknownContext),
        (&[0, 2], DropReason::Malformed),
        (&[0, 2, 0, 0, 0, 0, 5, 4, 1], DropReason::Malformed),
        (&[0, 2, 0, 0, 0, 0, 0, 1], DropReason::Malformed),
    ];
    let mut world = World::with_server(Setup::default());
    let (foreign, session) = foreign_user(&mut world);
    for (bytes, reason) in cases {
        let before = world.server().egress_drops(reason);
        world.foreign(foreign).datagram(bytes.to_vec());
        world.run(100 * MILLISECOND);
        assert_eq!(world.server().egress_drops(reason) - before, 1, "{bytes:?}");
    }
    let payload = world.book.payload(session, 100);
    world.foreign(foreign).datagram([&[0, 0][..], &payload].concat());
    world.run(SECOND);
    assert_eq!(world.book.count(session, Way::Up), 1);
    assert_eq!(world.foreign(foreign).closed, None);
}

#[test]
fn a_joined_payload_beyond_what_udp_carries_is_not_delivered() {
    let mut world = World::with_server(Setup::default());
    let (foreign, session) = foreign_user(&mut world);
    let (pieces, last) = (65_520_usize.div_ceil(1_000), 65_u8);
    for index in 0..pieces {
        let mut bytes = vec![0, 2, 0, 0, 0, 0, index as u8, last];
        bytes.resize(8 + if index + 1 == pieces { 520 } else { 1_000 }, 0);
        world.foreign(foreign).datagram(bytes);
        world.run(5 * MILLISECOND);
    }
    world.run(SECOND);
    assert_eq!(world.server().egress_drops(DropReason::TargetTooLarge), 1);
    assert_eq!(world.book.count(session, Way::Up), 0);
    assert_eq!(world.foreign(foreign).closed, None);
}

#[test]
fn a_datagram_may_come_in_a_capsule() {
    let mut world = World::with_server(Setup::default());
    let (foreign, session) = foreign_user(&mut world);
    // DATAGRAM capsule (RFC 9297 section 3.5) of 61 bytes, in two DATA frames.
    let payload = world.book.payload(session, 60);
    let capsule = [&[0, 61, 0][..], &payload].concat();
    for part in [&capsule[..10], &capsule[10..]] {
        let (header, used) = masque::data_frame_header(part.len() as u64);
        let stream = world.foreign(foreign).requests()[0];
        world
            .foreign(foreign)
            .write(stream, &[&header[..used], part].concat());
        world.run(100 * MILLISECOND);
    }
    assert_eq!(world.book.count(session, Way::Up), 1);
}

#[test]
fn fragments_without_their_rest_are_forgotten() {
    let mut world = World::with_server(Setup::default());
    let (foreign, _) = foreign_user(&mut world);
    for message in 0..100 {
        world
            .foreign(foreign)
            .datagram(vec![0, 2, 0, 0, 0, message, 0, 1, 7]);
        world.run(MILLISECOND);
    }
    world.run(10 * MILLISECOND);
    assert_eq!(
        world.server().engine.egress_waiting(),
        masque::limits::REASSEMBLY_SLOTS as u64
    );
    world.run(2 * SECOND);
    assert_eq!(world.server().engine.egress_waiting(), 0);
    assert_eq!(world.server().egress_drops(DropReason::ReassemblyExpired), 100);
}

#[test]
fn garbage_on_streams_and_in_datagrams_harms_nobody_else() {
    for_each_seed(30, |seed| {
        let mut world = World::connected(Setup {
            seed,
            ..Setup::default()
        });
        let mut random = StdRng::seed_from_u64(seed);
        let session = world.book.session();
        let (foreign, hostile) = foreign_user(&mut world);
        world.book.is_hostile(hostile);
        for _ in 0..30 {
            world.send("echo", session, &[100]);
            if world.foreign(foreign).closed.is_none() {
                let mut bytes = vec![0; random.random_range(0..600)];
                random.fill(&mut bytes[..]);
                // Often enough something that begins well.
                if let (Some(first), true) = (bytes.first_mut(), random.random_bool(0.7)) {
                    *first %= 4;
                }
                if random.random_bool(0.5) {
                    world.foreign(foreign).datagram(bytes);
                } else {
                    let dir = if random.random_bool(0.7) {
                        Direction::Bidirectional
                    } else {
                        Direction::Unidirectional
                    };
                    if let Some(stream) = world.foreign(foreign).open(dir) {
                        world.foreign(foreign).write(stream, &bytes);
                    }
                }
            }
            world.run(10 * MILLISECOND);
        }
        world.run(SECOND);
        assert_eq!(world.book.count(session, Way::Down), 30);
    });
}

#[test]
fn a_connection_that_its_first_packet_closes_is_forgotten() {
    let mut world = World::connected(Setup::default());
    let foreign = world.add_foreign_client();
    world.set_link(LinkConfig {
        loss: 1.0,
        ..world.setup.link
    });
    world.run(MILLISECOND);
    world.set_link(world.setup.link);
    let now = world.now();
    world.foreign(foreign).close(now, 0x100);
    // Longer than a stranger may stay; an end that works without rest is noticed by the world.
    world.run(60 * SECOND);
    let session = world.book.session();
    world.send("echo", session, &[100]);
    world.run(SECOND);
    assert_eq!(world.book.count(session, Way::Down), 1);
}

#[test]
fn packets_that_are_not_quic_are_ignored() {
    let mut world = World::connected(Setup::default());
    let session = world.book.session();
    let mut random = StdRng::seed_from_u64(1);
    for index in 0..5_000 {
        let mut bytes = vec![0; random.random_range(0..1_452)];
        random.fill(&mut bytes[..]);
        let (client, server) = (world.client, world.server);
        let (from, to) = if index % 2 == 0 {
            (client, server)
        } else {
            (server, client)
        };
        world.network.send(from, to, bytes, Ecn::NotEct);
        if index % 100 == 0 {
            world.send("echo", session, &[100]);
            world.run(10 * MILLISECOND);
        }
    }
    world.run(SECOND);
    assert_eq!(world.book.count(session, Way::Down), 50);
}
