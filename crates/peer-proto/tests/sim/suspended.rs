//! A program that is stopped for a while, as a machine that sleeps: what its connections become, and that it connects
//! again.

use std::time::Duration;

use peer_proto::{CloseReason, Delivery, Outcome};
use sim::LinkConfig;

use crate::world::{World, parameters};

/// The timeout of one end; the other one has that of everybody, and the less counts.
const IDLE: Duration = Duration::from_secs(3);

fn link() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(10),
        ..LinkConfig::default()
    }
}

/// End 0 has connected.
fn world(hasty: usize) -> World {
    let mut ends = [parameters(1), parameters(2)];
    ends[hasty].idle_timeout = IDLE;
    let mut world = World::connected_as(link(), 1, ends);
    world.drive(Duration::from_secs(1));
    world
}

#[test]
fn a_connection_keeps_itself_alive_whichever_end_is_the_hasty_one() {
    for hasty in [0, 1] {
        let mut world = world(hasty);
        world.drive(4 * IDLE);
        assert!(world.ends.iter().all(|end| end.closed.is_empty()), "end {hasty}");
    }
}

#[test]
fn a_short_sleep_ends_no_connection_and_loses_no_message() {
    let mut world = world(0);
    world.ends[1].is_suspended = true;
    let ticket = world.send(0, "while you slept", Delivery::ordered(1)).unwrap();
    world.drive(IDLE * 2 / 3);
    assert!(world.ends[0].ended.is_empty());
    world.ends[1].is_suspended = false;
    world.drive_until(|world| world.ends[0].ended.get(&ticket) == Some(&Outcome::Acked));
    assert_eq!(world.ends[1].received.len(), 1);
    assert!(world.ends.iter().all(|end| end.closed.is_empty()));
}

#[test]
fn after_a_long_sleep_of_one_end_or_both_the_connection_has_ended_and_another_one_is_made() {
    for both in [false, true] {
        let mut world = world(0);
        world.ends[1].is_suspended = true;
        world.ends[0].is_suspended = both;
        world.drive(Duration::from_secs(600));
        if !both {
            assert_eq!(world.ends[0].closed, [CloseReason::TimedOut]);
        }
        for end in &mut world.ends {
            end.is_suspended = false;
        }
        world.drive_until(|world| world.ends.iter().all(|end| !end.closed.is_empty()));
        let is_clear = |reason: &CloseReason| matches!(reason, CloseReason::TimedOut | CloseReason::Reset);
        assert!(world.ends.iter().all(|end| end.closed.iter().all(is_clear)));
        world.connect();
        world.drive_until(|world| world.ends.iter().all(|end| end.connected.len() == 2));
        world.send(0, "good morning", Delivery::ordered(1)).unwrap();
        world.drive_until(|world| world.ends[1].received.len() == 1);
    }
}

/// Acknowledgements wait in the socket.
#[test]
fn a_stop_of_the_program_is_no_round_trip() {
    for stopped in [
        Duration::from_millis(1_500),
        Duration::from_secs(3),
        Duration::from_secs(20),
    ] {
        let mut world = World::connected(link(), 1);
        world.drive(Duration::from_secs(1));
        for _ in 0..8 {
            world.send(0, "are you there?", Delivery::unordered()).unwrap();
            world.drive(Duration::from_millis(2));
        }
        world.ends[0].is_suspended = true;
        world.drive(stopped);
        assert!(world.ends[0].ended.is_empty(), "no answer was read");
        world.ends[0].is_suspended = false;
        world.drive_until(|world| world.ends[0].ended.len() == 8);
        let peer = world.ends[0].peer();
        let round_trip = world.ends[0].peers.path_stats(peer).unwrap().round_trip;
        assert!(
            round_trip < Duration::from_millis(400),
            "{stopped:?}: {round_trip:?}"
        );
    }
}
