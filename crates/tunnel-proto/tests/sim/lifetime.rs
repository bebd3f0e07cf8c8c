//! How long tunnels and sessions live: restarts, idle expiry, tables with many sessions and full ones.

use std::net::IpAddr;
use std::time::Duration;

use quic::CloseReason;
use sim::LinkConfig;
use tunnel_proto::{ClientAction, DropReason, Ending, ServerAction, Target, limits};

use crate::support::{End, MILLISECOND, RESET_KEY, SECOND, Script, Setup, Way, World, user};

/// When the client lost its connection, and why.
fn losses(world: &mut World) -> Vec<(Duration, CloseReason)> {
    let start = world.network.clock().elapsed();
    let now = world.now();
    let losses = world.client().actions().filter_map(|(at, action)| match action {
        ClientAction::Lost { reason, .. } => Some((start - (now - at), reason.clone())),
        _ => None,
    });
    losses.collect()
}

fn opened(world: &mut World) -> usize {
    world
        .server()
        .count(|action| matches!(action, ServerAction::Open { .. }))
}

fn sessions(world: &mut World) -> Vec<u64> {
    let ends = [world.server, world.client];
    ends.map(|end| world.tunnel(end).sessions_open()).to_vec()
}

#[test]
fn a_server_that_restarts_with_its_keys_is_back_at_once() {
    let mut world = World::connected(Setup::default());
    let sessions: Vec<u32> = (0..5).map(|_| world.book.session()).collect();
    for session in &sessions {
        world.send("echo", *session, &[100]);
    }
    world.run(SECOND);
    world.start_server(RESET_KEY);
    let restart = world.network.clock().elapsed();
    for _ in 0..300 {
        for session in &sessions {
            world.send("echo", *session, &[100]);
        }
        world.run(10 * MILLISECOND);
    }
    world.run(SECOND);
    let losses = losses(&mut world);
    assert_eq!(losses.len(), 1);
    assert_eq!(losses[0].1, CloseReason::Reset);
    assert!(losses[0].0 - restart < 50 * MILLISECOND, "{losses:?}");
    assert_eq!(opened(&mut world), 5);
    for session in &sessions {
        let missing = 301 - world.book.count(*session, Way::Down);
        assert!(missing <= 20, "{missing} lost over a restart");
    }
}

#[test]
fn a_server_that_restarts_without_its_keys_is_given_up_after_the_idle_timeout() {
    let mut world = World::connected(Setup::default());
    let session = world.book.session();
    world.send("echo", session, &[100]);
    world.run(SECOND);
    world.start_server([8; 64]);
    let restart = world.network.clock().elapsed();
    world.run(60 * SECOND);
    let losses = losses(&mut world);
    assert_eq!(losses.len(), 1);
    assert_eq!(losses[0].1, CloseReason::TimedOut);
    assert!(losses[0].0 - restart > 15 * SECOND, "{losses:?}");
    assert!(world.client().data.is_up());
    world.send("echo", session, &[100]);
    world.run(SECOND);
    assert_eq!(world.book.count(session, Way::Down), 2);
}

#[test]
fn a_client_that_vanished_is_forgotten_after_the_idle_timeout() {
    let mut world = World::connected(Setup::default());
    let session = world.book.session();
    world.send("slow", session, &[100, 3_000]);
    world.run(SECOND);
    let connection = world.open_tcp(Script::listening(), Script::sending(1_000));
    world.run(SECOND);
    world.set_link(LinkConfig {
        loss: 1.0,
        ..world.setup.link
    });
    world.answer(session, &[100; 50]);
    world.run(45 * SECOND);
    assert_eq!(
        world.server().endings(),
        [&Ending::ConnectionLost, &Ending::ConnectionLost]
    );
    assert_eq!(world.server().request_of(connection), None);
    assert_eq!(world.server().engine.gauges().map(|(open, _)| open), [0, 0]);
}

#[test]
fn what_came_during_an_outage_is_sent_with_the_new_connection() {
    let mut world = World::connected(Setup::default());
    let session = world.book.session();
    world.send("echo", session, &[100]);
    world.run(SECOND);
    world.start_server(RESET_KEY);
    world.send("echo", session, &[100]);
    world.run_until(SECOND, |world| !world.client().data.is_up());
    world.send("echo", session, &[100; 10]);
    world.run(SECOND);
    assert_eq!(world.book.count(session, Way::Down), 11);
}

#[test]
fn an_idle_session_expires_at_both_ends_after_two_minutes() {
    let mut world = World::connected(Setup::default());
    let session = world.book.session();
    world.send("echo", session, &[100]);
    world.run(119 * SECOND);
    assert_eq!(sessions(&mut world), [1, 1]);
    world.run(4 * SECOND);
    assert_eq!(sessions(&mut world), [0, 0]);
    assert!(world.client().data.is_up());
    world.send("echo", session, &[100]);
    world.run(SECOND);
    assert_eq!(world.book.count(session, Way::Down), 2);
    assert_eq!(opened(&mut world), 2);
}

#[test]
fn traffic_of_either_side_keeps_a_session() {
    let mut world = World::connected(Setup::default());
    let [asking, answering] = [0; 2].map(|_| world.book.session());
    for session in [asking, answering] {
        world.send("sink", session, &[100]);
    }
    world.run(SECOND);
    for _ in 0..5 {
        world.send("sink", asking, &[100]);
        world.answer(answering, &[100]);
        world.run(60 * SECOND);
    }
    assert_eq!(sessions(&mut world), [2, 2]);
    assert_eq!(opened(&mut world), 2);
}

#[test]
fn a_thousand_sessions_share_one_connection() {
    let mut world = World::connected(Setup::default());
    let sessions: Vec<u32> = (0..1_000).map(|_| world.book.session()).collect();
    for round in 0..3 {
        for some in sessions.chunks(20) {
            for session in some {
                world.send("echo", *session, &[60 + round, 300]);
            }
            world.run(10 * MILLISECOND);
        }
    }
    world.run(SECOND);
    for session in &sessions {
        assert_eq!(world.book.count(*session, Way::Up), 6);
        assert_eq!(world.book.count(*session, Way::Down), 6);
    }
    assert_eq!(opened(&mut world), 1_000);
    world.start_server(RESET_KEY);
    world.send("echo", sessions[0], &[100]);
    world.run(SECOND);
    let lost = |ending: &&Ending| **ending == Ending::ConnectionLost;
    assert_eq!(world.client().endings().into_iter().filter(lost).count(), 1_000);
}

#[test]
fn a_full_table_gives_up_its_idlest_session_at_the_client() {
    let mut world = World::with_server(Setup::default());
    world.client = world.add_client(&user());
    let first = world.book.session();
    world.send("echo", first, &[100]);
    world.run(MILLISECOND);
    for _ in 1..=limits::UDP_SESSIONS_MAX {
        let session = world.book.session();
        world.send("echo", session, &[]);
    }
    world.run(MILLISECOND);
    assert_eq!(world.client().endings(), [&Ending::Idle]);
    assert_eq!(world.client().request_of(first), None);
    assert_eq!(world.client().ingress_drops(DropReason::SessionClosed), 1);
    assert_eq!(sessions(&mut world)[1], limits::UDP_SESSIONS_MAX as u64);
}

#[test]
fn a_machine_with_ever_new_targets_takes_no_session_of_another_one_at_the_client() {
    let mut world = World::with_server(Setup::default());
    world.client = world.add_client(&user());
    let [quiet, greedy] = [1, 2].map(|last| IpAddr::from([192, 168, 0, last]));
    let open = |world: &mut World, machine, port| {
        let (now, target) = (world.now(), Target::new("203.0.113.9", port).expect("a target"));
        world.client().engine.open_session(now, machine, target)
    };
    let kept = open(&mut world, quiet, 1);
    world.run(MILLISECOND);
    for number in 0..2 * limits::UDP_SESSIONS_MAX {
        let opened = open(&mut world, greedy, 1 + number as u16);
        assert_ne!(opened, kept, "its place is not taken");
        if number % 1_024 == 0 {
            world.run(MILLISECOND);
        }
    }
    world.run(MILLISECOND);
    assert!(world.client().engine.last_active(kept).is_some());
    let taken = limits::UDP_SESSIONS_MAX + 1;
    assert_eq!(world.client().endings(), vec![&Ending::Idle; taken]);
    assert_eq!(sessions(&mut world)[1], limits::UDP_SESSIONS_MAX as u64);
}

#[test]
fn a_full_table_gives_up_its_idlest_session_at_the_server() {
    let mut world = World::connected(Setup::default());
    let idlest = world.book.session();
    world.send("echo", idlest, &[100]);
    world.run(SECOND);
    let other = world.add_client(&user());
    world.wait_until_up(other);
    for index in 0..limits::UDP_SESSIONS_MAX {
        let session = world.book.session();
        let client = if index % 2 == 0 { world.client } else { other };
        world.send_from(client, "echo", session, &[50]);
        if index % 64 == 0 {
            world.run(10 * MILLISECOND);
        }
    }
    world.run(SECOND);
    assert_eq!(sessions(&mut world)[0], limits::UDP_SESSIONS_MAX as u64);
    assert_eq!(world.server().request_of(idlest), None);
    assert_eq!(world.client().request_of(idlest), None);
    assert_eq!(world.server().endings(), [&Ending::Idle]);
    assert_eq!(world.book.total(Way::Down), limits::UDP_SESSIONS_MAX as u64 + 1);
}
