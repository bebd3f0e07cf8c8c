//! Everything at once: random traffic and random trouble. The laws hold all the time, and afterwards everything works
//! again.

use std::net::SocketAddr;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sim::{LinkConfig, for_each_seed};

use crate::support::{DELAY, MILLISECOND, RESET_KEY, SECOND, Script, Setup, Way, World};

pub(crate) const CALM: LinkConfig = LinkConfig {
    delay: DELAY,
    jitter: MILLISECOND,
    loss: 0.0,
    duplicate: 0.0,
    reorder: 0.0,
    mtu: usize::MAX,
    rate_bits_per_second: Some(50_000_000),
    queue_bytes: 100_000,
    policer: None,
};

fn some_link(random: &mut StdRng) -> LinkConfig {
    let sometimes = |random: &mut StdRng, most: f64| {
        if random.random_bool(0.3) {
            random.random_range(0.0..most)
        } else {
            0.0
        }
    };
    LinkConfig {
        loss: if random.random_bool(0.1) {
            1.0
        } else {
            sometimes(random, 0.2)
        },
        duplicate: sometimes(random, 0.2),
        reorder: sometimes(random, 0.2),
        mtu: [usize::MAX, 1_400, 1_232][random.random_range(0..3)],
        rate_bits_per_second: Some(random.random_range(2_000_000..100_000_000)),
        ..CALM
    }
}

fn trouble(world: &mut World, random: &mut StdRng, ports: &mut u16) {
    match random.random_range(0..8) {
        0..4 => {
            let link = some_link(random);
            world.set_link(link);
        }
        4 => world.damage.corrupt = random.random_range(0.0..0.05),
        5 => world.start_server(RESET_KEY),
        6 => {
            *ports += 1;
            world
                .network
                .rebind(world.client, SocketAddr::from(([203, 0, 113, 9], *ports)));
        }
        _ => {
            let script = Script::sending(random.random_range(0..300_000));
            world.open_tcp(script, Script::answering(random.random_range(0..300_000)));
        }
    }
}

#[test]
fn the_laws_hold_through_random_trouble_and_it_passes() {
    for_each_seed(20, |seed| {
        let mut world = World::connected(Setup {
            seed,
            ..Setup::on(CALM)
        });
        let mut random = StdRng::seed_from_u64(seed);
        let mut ports = 50_000;
        let sessions: Vec<u32> = (0..10).map(|_| world.book.session()).collect();
        for turn in 0..2_000 {
            let session = sessions[random.random_range(0..sessions.len())];
            let kind = ["echo", "sink", "slow", "echo"][session as usize % 4];
            let size = [0, 5, 100, 1_150, 1_400, 5_000, 65_507][random.random_range(0..7)];
            let burst = random.random_range(1..5);
            world.send(kind, session, &[size; 4][..burst]);
            if turn % 50 == 0 {
                trouble(&mut world, &mut random, &mut ports);
            }
            world.run(random.random_range(1..10) * MILLISECOND);
        }
        world.set_link(CALM);
        world.damage.corrupt = 0.0;
        // Longer than the idle timeout of QUIC: whatever is dead has been found so.
        world.run(60 * SECOND);
        assert!(world.client().data.is_up());
        for session in sessions.into_iter().filter(|session| session % 4 == 0) {
            let before = world.book.count(session, Way::Down);
            world.send("echo", session, &[1_400; 5]);
            world.run(SECOND);
            assert_eq!(world.book.count(session, Way::Down) - before, 5);
        }
        for end in [world.server, world.client] {
            assert_eq!(world.tunnel(end).waiting(), (0, 0));
        }
    });
}
