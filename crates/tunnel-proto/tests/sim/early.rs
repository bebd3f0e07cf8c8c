//! Datagrams ahead of what they belong to: their request, their target, the tunnel itself.

use masque::{datagram, request};
use quic::{Direction, StreamId};
use sim::{LinkConfig, for_each_seed};
use tunnel_proto::{DropReason, Target, limits};

use crate::support::{DELAY, MILLISECOND, SECOND, SLOW_OPENING, Setup, Way, World, user};

/// Bookkeeping of a datagram that waits, in bytes.
const ENTRY_BYTES: usize = 64;

/// A foreign client whose token was taken, and a stream on which it has not asked yet.
fn authenticated(world: &mut World) -> (std::net::SocketAddr, StreamId) {
    let foreign = world.add_foreign_client();
    world.run(SECOND);
    let session = world.book.session();
    let list = asking(session);
    let first = world.foreign(foreign).request(&list);
    world.run(100 * MILLISECOND);
    assert_eq!(world.foreign(foreign).status(first), Some(200));
    let stream = world
        .foreign(foreign)
        .open(Direction::Bidirectional)
        .expect("a user may open streams");
    (foreign, stream)
}

fn asking(session: u32) -> masque::HeaderList {
    let target = Target::new(&format!("sink-{session}"), 7).expect("a well-formed target");
    request::connect_udp("server.test:443", &target, &user().reveal(), None)
}

/// Sends a payload of `session` for the request on `stream`.
fn send(world: &mut World, foreign: std::net::SocketAddr, stream: StreamId, session: u32, size: usize) {
    let (prefix, used) = datagram::prefix(u64::from(stream) / 4, 0);
    let bytes = [&prefix[..used], &world.book.payload(session, size)].concat();
    world.foreign(foreign).datagram(bytes);
}

#[test]
fn datagrams_that_overtake_their_request_wait_for_it() {
    let mut world = World::with_server(Setup::default());
    let (foreign, stream) = authenticated(&mut world);
    let session = world.book.session();
    for _ in 0..5 {
        send(&mut world, foreign, stream, session, 100);
    }
    world.run(3 * DELAY);
    assert_eq!(world.server().engine.egress_waiting(), 5);
    let frame = masque::headers_frame(&asking(session));
    world.foreign(foreign).write(stream, &frame);
    world.run(3 * DELAY);
    assert_eq!(world.book.count(session, Way::Up), 5);
    assert_eq!(world.server().engine.egress_waiting(), 0);
}

#[test]
fn datagrams_without_a_request_are_forgotten_and_bounded() {
    let mut world = World::with_server(Setup::default());
    let (foreign, stream) = authenticated(&mut world);
    let session = world.book.session();
    let room = limits::EARLY_BYTES_MAX / (1_002 + ENTRY_BYTES);
    for _ in 0..200 {
        send(&mut world, foreign, stream, session, 1_000);
    }
    let is_full = |world: &mut World| world.server().engine.egress_waiting() == room as u64;
    world.run_until(SECOND, is_full);
    for _ in 0..100 {
        world.run(MILLISECOND);
        assert!(world.server().engine.egress_waiting() <= room as u64);
    }
    world.run(3 * SECOND);
    assert_eq!(world.server().engine.egress_waiting(), 0);
    assert_eq!(world.server().egress_drops(DropReason::UnknownSession), 200);
    let frame = masque::headers_frame(&asking(session));
    world.foreign(foreign).write(stream, &frame);
    world.run(SECOND);
    assert_eq!(world.book.count(session, Way::Up), 0);
}

#[test]
fn reordering_costs_no_first_datagram() {
    let link = LinkConfig {
        delay: DELAY,
        reorder: 0.3,
        ..LinkConfig::default()
    };
    // So far apart that the window, small on such a path, takes all of them.
    for_each_seed(6, |seed| {
        let mut world = World::connected(Setup {
            seed,
            ..Setup::on(link)
        });
        for _ in 0..100 {
            let session = world.book.session();
            world.send("echo", session, &[100; 4]);
            world.run(20 * MILLISECOND);
        }
        world.run(2 * SECOND);
        assert_eq!(world.book.total(Way::Down), 400);
        assert_eq!(world.server().egress_drops(DropReason::UnknownSession), 0);
    });
}

#[test]
fn a_lost_request_costs_no_datagram() {
    let mut world = World::connected(Setup::default());
    let blackout = LinkConfig {
        loss: 1.0,
        ..world.setup.link
    };
    let session = world.book.session();
    world.set_link(blackout);
    world.send("echo", session, &[100]);
    world.run(MILLISECOND);
    world.set_link(world.setup.link);
    world.send("echo", session, &[100; 5]);
    world.run(SECOND);
    assert_eq!(world.book.count(session, Way::Down), 5);
}

#[test]
fn datagrams_wait_for_a_slow_target() {
    let mut world = World::connected(Setup::default());
    let session = world.book.session();
    for _ in 0..10 {
        world.send("slow", session, &[100]);
        world.run(10 * MILLISECOND);
    }
    assert_eq!(world.book.count(session, Way::Up), 0);
    world.run(SLOW_OPENING);
    assert_eq!(world.book.count(session, Way::Up), 10);
    world.run(SECOND);
    assert_eq!(world.book.count(session, Way::Down), 10);
}

#[test]
fn datagrams_before_the_tunnel_is_up_leave_with_it() {
    let mut world = World::new(Setup::default());
    let sessions: Vec<u32> = (0..20).map(|_| world.book.session()).collect();
    for session in &sessions {
        world.send("echo", *session, &[100, 1_400]);
    }
    world.run(SECOND);
    for session in sessions {
        assert_eq!(world.book.count(session, Way::Down), 2);
    }
}

#[test]
fn datagrams_without_settings_wait_bounded_and_then_count_as_no_tunnel() {
    let mut world = World::with_server(Setup::default());
    world.replace_server_by_a_silent_one();
    world.client = world.add_client(&user());
    world.run(200 * MILLISECOND);
    assert!(world.foreign(world.server).is_connected);
    let session = world.book.session();
    let room = limits::WAITING_BYTES_MAX / (1_000 + ENTRY_BYTES);
    world.send("echo", session, &[1_000; 2_000]);
    assert_eq!(world.client().engine.ingress_waiting(), room as u64);
    assert_eq!(
        world.client().ingress_drops(DropReason::NoTunnel),
        2_000 - room as u64
    );
    world.run(limits::WAITING_TIME_MAX - 100 * MILLISECOND);
    assert_eq!(world.client().engine.ingress_waiting(), room as u64);
    world.run(2 * limits::SWEEP_INTERVAL);
    assert_eq!(world.client().engine.ingress_waiting(), 0);
    assert_eq!(world.client().ingress_drops(DropReason::NoTunnel), 2_000);
    assert!(world.foreign(world.server).datagrams().is_empty());
}
