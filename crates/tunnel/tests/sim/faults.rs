//! UDP sessions over paths that lose, reorder, double, delay and damage packets.

use sim::{LinkConfig, for_each_seed};

use crate::support::{DELAY, Damage, MILLISECOND, SECOND, Setup, Way, World};

/// Three sessions, each with `count` payloads of mixed sizes, one every two milliseconds.
fn exchange(world: &mut World, count: usize) -> Vec<u32> {
    let sessions: Vec<u32> = (0..3).map(|_| world.book.session()).collect();
    for index in 0..count {
        for session in &sessions {
            let size = [64, 1_150, 1_400, 3_000][(index + *session as usize) % 4];
            world.send("echo", *session, &[size, 200]);
        }
        world.run(2 * MILLISECOND);
    }
    world.run(3 * SECOND);
    sessions
}

/// At rest nothing waits, and no end knows of an error.
fn assert_at_rest(world: &mut World) {
    for end in [world.server, world.client] {
        let engine = &mut world.tunnel(end).engine;
        assert_eq!((engine.ingress_waiting(), engine.egress_waiting()), (0, 0));
    }
}

#[test]
fn a_clean_path_loses_nothing() {
    let mut world = World::connected(Setup::default());
    for session in exchange(&mut world, 200) {
        assert_eq!(world.book.count(session, Way::Up), 400);
        assert_eq!(world.book.count(session, Way::Down), 400);
    }
    assert_at_rest(&mut world);
    for end in [world.server, world.client] {
        let ledger = *world.tunnel(end).engine.ledger();
        assert_eq!((ledger.ingress.dropped_total(), ledger.egress.dropped_total()), (0, 0));
    }
}
