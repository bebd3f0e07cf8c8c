//! Clients with several stripes at servers with several shards, as `Reconnection` and `Stripes` direct them: how they
//! spread, what a lost stripe means for flows, several servers in a link, restarts, moves to another shard.

use std::net::SocketAddr;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sim::{LinkConfig, for_each_seed};
use tunnel_proto::{ClientAction, ServerShard, StripeNews};

use crate::storm::CALM;
use crate::support::{MILLISECOND, SECOND, Setup, Way, World, user};

const CUT: LinkConfig = LinkConfig { loss: 1.0, ..CALM };

/// Longer than the idle timeout of QUIC: what is dead has been found so.
const LONG: std::time::Duration = std::time::Duration::from_secs(45);

/// A server with so many shards, and a client whose stripes are all up.
fn connected(seed: u64, stripes: usize, shards: u8) -> (World, Vec<SocketAddr>) {
    let mut world = World::with_server(Setup {
        seed,
        ..Setup::on(CALM)
    });
    let server = world.server;
    world.start_shards(server, shards);
    let stripes = world.add_stripes(&user(), &[("server.test", server)], stripes);
    wait_until_all_are_up(&mut world, &stripes);
    world.run(2 * SECOND);
    (world, stripes)
}

fn wait_until_all_are_up(world: &mut World, stripes: &[SocketAddr]) {
    world.run_until(LONG, |world| {
        stripes.iter().all(|stripe| world.client_at(*stripe).data.is_up())
    });
}

fn sessions(world: &mut World, count: usize) -> Vec<u32> {
    (0..count).map(|_| world.book.session()).collect()
}

/// Every session asks every 20 ms, and the targets answer.
fn converse(world: &mut World, stripes: &[SocketAddr], sessions: &[u32], rounds: u32) {
    for _ in 0..rounds {
        for session in sessions {
            world.send_over(stripes, "echo", *session, &[400]);
        }
        world.run(20 * MILLISECOND);
    }
}

/// Answers that a conversation of so many rounds brings to each session.
fn answers(world: &mut World, stripes: &[SocketAddr], sessions: &[u32], rounds: u32) -> Vec<u64> {
    let count = |world: &World| -> Vec<u64> {
        let counts = sessions
            .iter()
            .map(|session| world.book.count(*session, Way::Down));
        counts.collect()
    };
    // What is still under way belongs to an earlier conversation.
    world.run(SECOND);
    let before = count(world);
    converse(world, stripes, sessions, rounds);
    world.run(SECOND);
    let after = count(world);
    after
        .iter()
        .zip(before)
        .map(|(after, before)| after - before)
        .collect()
}

fn news(world: &mut World, stripe: SocketAddr) -> Vec<StripeNews> {
    std::mem::take(&mut world.client_at(stripe).data.shared.borrow_mut().news)
}

fn server_of(world: &mut World, stripe: SocketAddr) -> SocketAddr {
    let address = world.client_at(stripe).data.reconnection.address();
    address.expect("the stripe has tried an address")
}

/// SESSION-11: both come to the first shard, and the second goes on to the free one.
#[test]
fn stripes_spread_over_the_shards_of_the_server() {
    let (mut world, stripes) = connected(1, 2, 2);
    let shard = |world: &mut World, stripe: SocketAddr| {
        let shard = world.client_at(stripe).data.server_shard;
        shard.expect("the server tells its shard").index
    };
    let mut shards = [0, 1].map(|index| shard(&mut world, stripes[index]));
    shards.sort_unstable();
    assert_eq!(shards, [0, 1]);
    let server = world.server;
    for shard in world.shards(server) {
        assert_eq!(shard.engine.peers().len(), 1);
    }
    let told = news(&mut world, stripes[0]);
    assert!(matches!(told[0], StripeNews::Connected { .. }), "{told:?}");
    assert_eq!(told.len(), 1, "{told:?}");
}

#[test]
fn the_flows_of_a_lost_stripe_move_and_come_back_and_the_others_stay() {
    let (mut world, stripes) = connected(2, 2, 2);
    let sessions = sessions(&mut world, 10);
    assert_eq!(answers(&mut world, &stripes, &sessions, 50), [50; 10]);
    news(&mut world, stripes[0]);
    let lost = |action: &ClientAction| matches!(action, ClientAction::Lost { .. });
    let before = world.client_at(stripes[0]).count(lost);
    world.set_link_of(stripes[1], CUT);
    converse(&mut world, &stripes, &sessions, 45 * 50);
    assert!(matches!(
        news(&mut world, stripes[0])[..],
        [StripeNews::Lost { up: 1, of: 2, .. }]
    ));
    let moved = answers(&mut world, &stripes, &sessions, 50);
    assert_eq!(moved, [50; 10], "all over the stripe that is left");
    world.set_link_of(stripes[1], CALM);
    wait_until_all_are_up(&mut world, &stripes);
    assert_eq!(
        news(&mut world, stripes[0]),
        [StripeNews::Joined { up: 2, of: 2 }]
    );
    assert_eq!(answers(&mut world, &stripes, &sessions, 50), [50; 10]);
    assert_eq!(world.client_at(stripes[0]).count(lost), before);
    let stayed = sessions.iter().filter(|session| **session % 2 == 0);
    for session in stayed {
        let asked = 50 * 3 + 45 * 50;
        assert_eq!(world.book.count(*session, Way::Down), asked, "nothing was lost");
    }
}

#[test]
fn the_next_server_of_a_link_is_used_while_the_first_is_gone() {
    let mut world = World::with_server(Setup::on(CALM));
    let [first, second] = [world.server, SocketAddr::from(([198, 51, 100, 2], 443))];
    world.kill_server(first);
    world.start_shards(second, 2);
    let servers = [("first.test", first), ("second.test", second)];
    let stripes = world.add_stripes(&user(), &servers, 2);
    wait_until_all_are_up(&mut world, &stripes);
    let sessions = sessions(&mut world, 4);
    assert_eq!(answers(&mut world, &stripes, &sessions, 20), [20; 4]);
    for stripe in &stripes {
        assert_eq!(server_of(&mut world, *stripe), second);
    }
    world.start_shards(first, 2);
    world.kill_server(second);
    converse(&mut world, &stripes, &sessions, 45 * 50);
    wait_until_all_are_up(&mut world, &stripes);
    for stripe in &stripes {
        assert_eq!(server_of(&mut world, *stripe), first);
    }
    assert_eq!(answers(&mut world, &stripes, &sessions, 20), [20; 4]);
}

#[test]
fn a_server_may_come_back_with_any_number_of_shards() {
    let (mut world, stripes) = connected(3, 2, 2);
    let (server, sessions) = (world.server, sessions(&mut world, 8));
    for shards in [1, 3, 2] {
        converse(&mut world, &stripes, &sessions, 10);
        world.start_shards(server, shards);
        // Whoever asks is told by a reset that the server has forgotten him.
        converse(&mut world, &stripes, &sessions, 25);
        wait_until_all_are_up(&mut world, &stripes);
        let told = stripes
            .iter()
            .map(|stripe| world.client_at(*stripe).data.server_shard);
        let told: Vec<_> = told.flatten().collect();
        let fits = |shard: &ServerShard| shard.count == shards && shard.index < shards;
        assert!(told.iter().all(fits), "{told:?} of {shards}");
        assert!(shards == 1 || told[0].index != told[1].index, "{told:?}");
        assert_eq!(answers(&mut world, &stripes, &sessions, 50), [50; 8]);
    }
}

/// A NAT gives the connection another port, whose packets the kernel leads to the other shard.
#[test]
fn a_connection_stays_on_its_shard_wherever_its_packets_come_in() {
    let (mut world, stripes) = connected(4, 1, 2);
    let (stripe, sessions) = (stripes[0], sessions(&mut world, 3));
    assert_eq!(answers(&mut world, &stripes, &sessions, 20), [20; 3]);
    for port in [50_001, 50_002] {
        world
            .network
            .rebind(stripe, SocketAddr::from(([203, 0, 113, 9], port)));
        // The server finds the new port with the first packet from it.
        assert_eq!(answers(&mut world, &stripes, &sessions, 20), [20; 3]);
    }
    assert_eq!(world.connections_opened(stripe), 1);
    let server = world.server;
    assert_eq!(world.sessions_opened(server), [0, 3]);
}

#[test]
fn stripes_come_back_after_random_trouble() {
    for_each_seed(8, |seed| {
        let (mut world, stripes) = connected(seed, 3, 2);
        let mut random = StdRng::seed_from_u64(seed);
        let (server, sessions) = (world.server, sessions(&mut world, 9));
        let mut port = 50_000;
        for _ in 0..12 {
            let stripe = stripes[random.random_range(0..stripes.len())];
            match random.random_range(0..5) {
                0 => world.set_link_of(stripe, CUT),
                1 => world.set_link_of(stripe, CALM),
                2 => world.start_shards(server, random.random_range(1..4)),
                3 => world.kill_server(server),
                _ => {
                    port += 1;
                    let outside = SocketAddr::from(([203, 0, 113, 9], port));
                    world.network.rebind(stripe, outside);
                }
            }
            converse(&mut world, &stripes, &sessions, random.random_range(10..200));
        }
        world.set_link(CALM);
        world.start_shards(server, 2);
        converse(&mut world, &stripes, &sessions, 45 * 50);
        wait_until_all_are_up(&mut world, &stripes);
        assert_eq!(answers(&mut world, &stripes, &sessions, 20), [20; 9]);
    });
}
