//! UDP sessions over paths that lose, reorder, double, delay and damage packets.

use sim::{LinkConfig, for_each_seed};
use tunnel_proto::DropReason;

use crate::support::{DELAY, Damage, MILLISECOND, SECOND, Setup, Way, World};

/// Three sessions, each with `count` pairs of payloads of mixed sizes, one pair every five milliseconds.
fn exchange(world: &mut World, count: usize) -> Vec<u32> {
    let sessions: Vec<u32> = (0..3).map(|_| world.book.session()).collect();
    for index in 0..count {
        for session in &sessions {
            let size = [64, 1_150, 1_400, 3_000][(index + *session as usize) % 4];
            world.send("echo", *session, &[size, 200]);
        }
        world.run(5 * MILLISECOND);
    }
    world.run(3 * SECOND);
    sessions
}

/// At rest nothing waits, and what has arrived is what was sent, less what the path lost.
fn assert_at_rest(world: &mut World, is_lossless: bool) {
    let [server, client] = [world.server, world.client].map(|end| {
        let end = world.tunnel(end);
        assert_eq!(end.waiting(), (0, 0));
        end.ledger()
    });
    for (from, to) in [(client, server), (server, client)] {
        assert!(to.egress.accepted <= from.ingress.sent);
        if is_lossless {
            assert_eq!(to.egress.accepted, from.ingress.sent);
            assert_eq!(
                to.egress.dropped_total(),
                to.egress.dropped(DropReason::ReassemblyExpired)
            );
        }
    }
}

#[test]
fn a_clean_path_loses_nothing() {
    let mut world = World::connected(Setup::default());
    for session in exchange(&mut world, 200) {
        assert_eq!(world.book.count(session, Way::Up), 400);
        assert_eq!(world.book.count(session, Way::Down), 400);
    }
    assert_at_rest(&mut world, true);
    for end in [world.server, world.client] {
        let ledger = world.tunnel(end).ledger();
        assert_eq!(
            (ledger.ingress.dropped_total(), ledger.egress.dropped_total()),
            (0, 0)
        );
    }
}

/// Exchanges over a path that becomes bad once the tunnel is up; how many of 1,200 payloads came up and back.
fn exchange_over(link: LinkConfig, damage: Damage, seed: u64) -> (World, [u64; 2]) {
    let mut world = World::connected(Setup {
        seed,
        ..Setup::default()
    });
    world.set_link(link);
    world.damage = damage;
    exchange(&mut world, 200);
    let is_lossless = link.loss + damage.corrupt + damage.truncate == 0.0;
    assert_at_rest(&mut world, is_lossless);
    let arrived = [Way::Up, Way::Down].map(|way| world.book.total(way));
    (world, arrived)
}

#[test]
fn jitter_doubling_and_reordering_cost_nothing_under_way() {
    let link = LinkConfig {
        delay: DELAY,
        jitter: 5 * MILLISECOND,
        duplicate: 0.05,
        reorder: 0.05,
        ..LinkConfig::default()
    };
    for_each_seed(8, |seed| {
        // Reordering is taken for congestion, and what waits too long for the window is dropped before it leaves.
        let (_, [up, down]) = exchange_over(link, Damage::default(), seed);
        assert!(up > 250 && down > 100, "{up} arrived, {down} came back");
    });
}

#[test]
fn loss_costs_what_was_lost_and_every_datagram_is_accounted_for() {
    let link = LinkConfig {
        delay: DELAY,
        loss: 0.05,
        ..LinkConfig::default()
    };
    for_each_seed(8, |seed| {
        let (mut world, [up, down]) = exchange_over(link, Damage::default(), seed);
        assert!((200..1_200).contains(&up), "{up} arrived");
        assert!((50..up).contains(&down), "{down} came back");
        assert!(world.client().engine.quic_totals().packets_lost > 0);
    });
}

#[test]
fn damaged_packets_are_never_delivered() {
    let damage = Damage {
        corrupt: 0.02,
        truncate: 0.02,
    };
    let link = LinkConfig {
        delay: DELAY,
        reorder: 0.02,
        duplicate: 0.02,
        ..LinkConfig::default()
    };
    for_each_seed(8, |seed| {
        let (_, [up, down]) = exchange_over(link, damage, seed);
        assert!(
            up < 1_200 && down < up && down > 50,
            "{up} arrived, {down} came back"
        );
    });
}

#[test]
fn a_handshake_survives_a_bad_path() {
    let link = LinkConfig {
        delay: DELAY,
        jitter: 5 * MILLISECOND,
        loss: 0.2,
        duplicate: 0.1,
        reorder: 0.1,
        ..LinkConfig::default()
    };
    for_each_seed(10, |seed| {
        let mut world = World::new(Setup {
            seed,
            ..Setup::on(link)
        });
        world.damage.corrupt = 0.05;
        let client = world.client;
        world.run_until(60 * SECOND, |world| world.client_at(client).data.is_up());
    });
}

#[test]
fn equal_seeds_give_equal_runs() {
    let link = LinkConfig {
        delay: DELAY,
        loss: 0.03,
        reorder: 0.03,
        ..LinkConfig::default()
    };
    let run = || {
        let (mut world, arrived) = exchange_over(link, Damage::default(), 11);
        let ledgers = [world.server, world.client].map(|end| world.tunnel(end).ledger());
        (arrived, ledgers)
    };
    assert_eq!(run(), run());
}
