//! Queues towards QUIC that overflow: by policy, by flow, by time.

use sim::LinkConfig;
use tunnel_proto::{DropReason, EngineConfig, QueuePolicy, limits};

use crate::ip::world_with;
use crate::support::packets::{tcp, udp};
use crate::support::{DELAY, End, MILLISECOND, SECOND, Setup, Way, World, user};

/// Bytes of a payload of 1,000 with its prefix for one of the first sessions.
const QUEUED_BYTES: usize = 1_002;

/// Payloads that one flow alone may have waiting, and all flows together.
const FLOW: usize = limits::QUEUE_BYTES_MAX * limits::FLOW_SHARES_OF_FREE_ROOM
    / (limits::FLOW_SHARES_OF_FREE_ROOM + 1)
    / QUEUED_BYTES;
const ALL: usize = limits::QUEUE_BYTES_MAX / QUEUED_BYTES;

fn narrow(policy: QueuePolicy) -> World {
    let link = LinkConfig {
        delay: DELAY,
        rate_bits_per_second: Some(20_000_000),
        queue_bytes: 60_000,
        ..LinkConfig::default()
    };
    let client = EngineConfig {
        queue_policy: policy,
        ..EngineConfig::default()
    };
    World::connected(Setup {
        client,
        ..Setup::on(link)
    })
}

/// Two open sessions.
fn two_sessions(world: &mut World) -> [u32; 2] {
    let sessions = [0; 2].map(|_| world.book.session());
    for session in sessions {
        world.send("sink", session, &[100]);
    }
    world.run(SECOND);
    sessions
}

fn drops(world: &mut World) -> [usize; 3] {
    [
        DropReason::FlowQuota,
        DropReason::QueueFull,
        DropReason::QueueExpired,
    ]
    .map(|reason| world.client().ingress_drops(reason) as usize)
}

#[test]
fn one_flow_leaves_a_quarter_of_the_queue_to_others() {
    let mut world = narrow(QueuePolicy::DropNewest);
    let [greedy, other] = two_sessions(&mut world);
    world.send("sink", greedy, &[1_000; ALL]);
    assert_eq!(drops(&mut world), [ALL - FLOW, 0, 0]);
    world.send("sink", other, &[1_000; 100]);
    assert_eq!(drops(&mut world), [ALL - FLOW, 0, 0]);
    world.run(SECOND);
    let [_, _, expired] = drops(&mut world);
    let arrived = world.book.count(greedy, Way::Up) + world.book.count(other, Way::Up) - 2;
    assert!(arrived > 20 && expired > 0);
    let lost = world.client().engine.quic_totals().packets_lost as usize;
    assert!(
        arrived as usize + expired + lost >= FLOW + 100,
        "{arrived} arrived, {expired} expired"
    );
}

#[test]
fn a_flow_beyond_its_share_loses_its_newest() {
    let mut world = narrow(QueuePolicy::DropNewest);
    let [first, second] = two_sessions(&mut world);
    world.send("sink", first, &[1_000; FLOW]);
    world.send("sink", second, &[1_000; FLOW]);
    let [over_share, ..] = drops(&mut world);
    let waiting = world.client().engine.ingress_waiting() as usize;
    assert_eq!(waiting + over_share, 2 * FLOW);
    assert!(waiting > FLOW + (ALL - FLOW) / 2 && waiting < ALL, "{waiting}");
    world.run(SECOND);
    assert!(world.book.numbers(first, Way::Up).contains(&1));
    assert!(world.book.numbers(second, Way::Up).contains(&1));
}

#[test]
fn a_flow_beyond_its_share_loses_its_oldest_where_it_is_told_to() {
    let mut world = narrow(QueuePolicy::DropOldest);
    let [first, second] = two_sessions(&mut world);
    world.send("sink", first, &[1_000; FLOW]);
    world.send("sink", second, &[1_000; FLOW]);
    let [_, evicted, _] = drops(&mut world);
    assert_eq!(
        world.client().engine.ingress_waiting() as usize,
        2 * FLOW - evicted
    );
    world.run(SECOND);
    let oldest_left = |session| {
        let numbers = world.book.numbers(session, Way::Up);
        numbers.iter().copied().find(|number| *number > 0)
    };
    assert_eq!(oldest_left(first), Some(1));
    assert_eq!(oldest_left(second), Some(evicted as u32 + 1));
}

#[test]
fn a_small_flow_gets_through_beside_a_saturating_one() {
    for policy in [QueuePolicy::DropNewest, QueuePolicy::DropOldest] {
        let mut world = narrow(policy);
        let [greedy, small] = two_sessions(&mut world);
        for _ in 0..1_000 {
            // 40 Mbit/s into a path of 20.
            world.send("sink", greedy, &[1_000; 10]);
            world.send("sink", small, &[100]);
            world.run(2 * MILLISECOND);
        }
        world.run(SECOND);
        let (greedy, small) = (
            world.book.count(greedy, Way::Up),
            world.book.count(small, Way::Up),
        );
        assert!(
            small > 980,
            "{small} of 1,000 beside {greedy} of 10,000, {policy:?}"
        );
    }
}

#[test]
fn what_waited_too_long_is_not_sent() {
    let mut world = narrow(QueuePolicy::DropNewest);
    let [session, _] = two_sessions(&mut world);
    world.send("sink", session, &[1_000; FLOW]);
    let sent = world.now();
    world.run_until(SECOND, |world| world.client().engine.ingress_waiting() == 0);
    let waited = world.now() - sent;
    assert!(waited <= limits::QUEUE_TIME_MAX + 100 * MILLISECOND, "{waited:?}");
}

/// Packets of `make` that waited too long in a client that gets half a second's worth of its link at once.
fn expired_after_a_burst(make: fn(&str, &str, usize) -> Vec<u8>) -> u64 {
    let mut world = world_with(Setup::on(LinkConfig {
        delay: DELAY,
        rate_bits_per_second: Some(20_000_000),
        queue_bytes: 60_000,
        ..LinkConfig::default()
    }));
    let (client, packet) = (world.client, make("10.9.0.2", "198.51.100.9", 1_000));
    for _ in 0..500 {
        (0..5).for_each(|_| world.send_packet(client, &packet));
        world.run(2 * MILLISECOND);
    }
    (0..1200).for_each(|_| world.send_packet(client, &packet));
    world.run(SECOND);
    world.client().ingress_drops(DropReason::QueueExpired)
}

#[test]
fn packets_wait_longer_where_their_sender_would_only_repeat_them() {
    assert_eq!(expired_after_a_burst(tcp), 0);
    assert!(expired_after_a_burst(udp) > 0);
}

#[test]
fn a_long_queue_of_one_client_is_no_reason_to_leave_datagrams_for_another() {
    let mut world = narrow(QueuePolicy::DropNewest);
    let other = world.add_client(&user());
    world.wait_until_up(other);
    let [slow, quick] = [world.client, other].map(|client| {
        let session = world.book.session();
        world.send_from(client, "sink", session, &[100]);
        session
    });
    world.run(SECOND);
    let is_long = |world: &mut World, session| {
        let server = world.server();
        let id = server.request_of(session).expect("the session is open");
        (server.engine.queue_of_is_long(id), server.engine.queue_is_long())
    };
    world.answer(slow, &[1_000; FLOW]);
    assert_eq!(is_long(&mut world, slow), (true, true));
    assert_eq!(is_long(&mut world, quick), (false, true));
    world.answer(quick, &[100]);
    assert_eq!(is_long(&mut world, slow), (true, false));
    world.run(SECOND);
    assert_eq!(is_long(&mut world, slow), (false, false));
}
