//! Paths that change under a running tunnel: MTU, blackouts, addresses.

use std::net::SocketAddr;

use packet::Histogram;
use quic::CloseReason;
use sim::LinkConfig;
use tunnel_proto::{ClientAction, DropReason, ServerAction, limits};

use crate::support::{DELAY, MILLISECOND, SECOND, Setup, Way, World, user};

/// UDP payload that a path of 1,280 bytes over IPv6 carries (RFC 8200 section 5).
const SMALL_MTU: usize = 1_232;

fn link() -> LinkConfig {
    LinkConfig {
        delay: DELAY,
        rate_bits_per_second: Some(100_000_000),
        queue_bytes: 200_000,
        ..LinkConfig::default()
    }
}

fn lost(world: &mut World) -> usize {
    world
        .client()
        .count(|action| matches!(action, ClientAction::Lost { .. }))
}

/// Sends a payload every two milliseconds.
fn stream(world: &mut World, session: u32, size: usize, count: usize) {
    for _ in 0..count {
        world.send("echo", session, &[size]);
        world.run(2 * MILLISECOND);
    }
}

#[test]
fn handshakes_round_trips_and_a_queue_that_stands_are_timed() {
    let mut world = World::connected(Setup::on(link()));
    let session = world.book.session();
    let round_trip = u64::try_from((2 * DELAY).as_micros()).unwrap();
    let count = |histogram: Histogram<{ limits::TIME_BUCKETS }>| {
        histogram.buckets().map(|(_, count)| count).sum::<u64>()
    };
    let looks = |world: &mut World| {
        [world.client().engine.times(), world.server().engine.times()].map(|times| count(times.round_trips))
    };
    let before = looks(&mut world);
    world.run(5 * SECOND);
    assert_eq!(looks(&mut world), before.map(|looks| looks + 5));
    for times in [world.client().engine.times(), world.server().engine.times()] {
        let mean = times.round_trips.sum() / count(times.round_trips);
        for time in [times.handshakes.sum(), mean] {
            assert!((round_trip..3 * round_trip).contains(&time), "{times:?}");
        }
        assert_eq!(count(times.handshakes), 1, "{times:?}");
        assert_eq!(count(times.queue_waits), count(times.round_trips), "{times:?}");
        assert_eq!(times.queue_waits.sum(), 0, "{times:?}");
    }
    // Twice what the path carries.
    for _ in 0..400 {
        world.send("echo", session, &[1_150; 100]);
        world.run(5 * MILLISECOND);
    }
    assert!(world.client().engine.times().queue_waits.sum() > 0);
}

#[test]
fn payloads_go_on_in_fragments_after_the_mtu_fell() {
    let mut world = World::connected(Setup::on(link()));
    let session = world.book.session();
    stream(&mut world, session, 1_380, 100);
    world.run(SECOND);
    assert_eq!(world.book.count(session, Way::Down), 100);
    assert_eq!(world.client().engine.ledger().ingress.split, 0);
    world.set_link(LinkConfig {
        mtu: SMALL_MTU,
        ..link()
    });
    stream(&mut world, session, 1_380, 2_000);
    world.run(SECOND);
    let unsplit = world.client().engine.peers()[0].payload_unsplit;
    assert!(unsplit < SMALL_MTU, "{unsplit}");
    let before = world.book.count(session, Way::Down);
    stream(&mut world, session, 1_380, 100);
    world.run(SECOND);
    assert_eq!(world.book.count(session, Way::Down) - before, 100);
    assert!(world.client().engine.ledger().ingress.split >= 100);
    assert!(world.client().ingress_drops(DropReason::PathChanged) > 0);
    assert!(world.client().engine.quic_totals().black_holes > 0);
    assert_eq!(lost(&mut world), 0);
}

#[test]
fn a_path_of_1280_bytes_carries_everything() {
    let mut world = World::connected(Setup::on(LinkConfig {
        mtu: SMALL_MTU,
        ..link()
    }));
    let session = world.book.session();
    stream(&mut world, session, 1_380, 100);
    stream(&mut world, session, 20_000, 10);
    world.run(SECOND);
    assert_eq!(world.book.count(session, Way::Down), 110);
}

#[test]
fn sessions_outlive_a_blackout_shorter_than_the_idle_timeout() {
    let mut world = World::connected(Setup::on(link()));
    let session = world.book.session();
    stream(&mut world, session, 1_150, 50);
    world.set_link(LinkConfig { loss: 1.0, ..link() });
    stream(&mut world, session, 1_150, 10_000);
    world.set_link(link());
    world.run(10 * SECOND);
    // The window has shrunk to nothing and grows only while it is used.
    stream(&mut world, session, 1_150, 500);
    world.run(SECOND);
    let before = world.book.count(session, Way::Down);
    stream(&mut world, session, 1_150, 50);
    world.run(SECOND);
    assert_eq!(world.book.count(session, Way::Down) - before, 50);
    assert_eq!(lost(&mut world), 0);
    assert!(world.client().ingress_drops(DropReason::QueueExpired) > 0);
}

#[test]
fn sessions_move_with_their_client_to_another_address() {
    let mut world = World::connected(Setup::on(link()));
    let session = world.book.session();
    stream(&mut world, session, 1_150, 50);
    let outside = SocketAddr::from(([203, 0, 113, 9], 61_000));
    world.network.rebind(world.client, outside);
    stream(&mut world, session, 1_150, 200);
    world.run(SECOND);
    let lost_on_the_way = 250 - world.book.count(session, Way::Down);
    assert!(lost_on_the_way <= 20, "{lost_on_the_way} lost");
    assert_eq!(world.server().engine.peers()[0].remote, outside);
    assert_eq!(lost(&mut world), 0);
    let opened = |action: &ServerAction| matches!(action, ServerAction::Open { .. });
    assert_eq!(world.server().count(opened), 1);
}

#[test]
fn a_server_behind_a_long_path_is_reached_at_the_first_attempt_beside_a_black_hole() {
    let round_trip = 600 * MILLISECOND;
    let mut world = World::with_server(Setup::on(LinkConfig {
        delay: round_trip / 2,
        ..link()
    }));
    let (server, start) = (world.server, world.now());
    let black_hole = "[2001:db8::1]:443".parse().unwrap();
    let servers = [("hole.test", black_hole), ("server.test", server)];
    let client = world.add_stripes(&user(), &servers, 1)[0];
    world.wait_until_up(client);
    // The handshake, then SETTINGS and the token check, and a few milliseconds that packets take onto the line.
    let limit = limits::ATTEMPT_DELAY + 3 * round_trip + 10 * MILLISECOND;
    let took = world.now() - start;
    assert!(took <= limit, "{took:?}");
    assert_eq!(world.connections_opened(client), 1);
    // Both attempts went on beside each other, and the black hole's was closed by the winner.
    let lost = world
        .client_at(client)
        .actions()
        .filter_map(|(_, action)| match action {
            ClientAction::Lost { reason, .. } => Some(reason.clone()),
            _ => None,
        });
    assert_eq!(lost.collect::<Vec<_>>(), [CloseReason::LocallyClosed]);
}
