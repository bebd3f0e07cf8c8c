//! Key updates in mid-transfer, by either end and by both at once (RFC 9001 section 6).

use std::net::SocketAddr;

use sim::{LinkConfig, for_each_seed};

use crate::storm::CALM;
use crate::support::{DELAY, MILLISECOND, SECOND, Script, Setup, Way, World, user};

const MEBIBYTE: u64 = 1 << 20;

/// Who begins an update.
#[derive(Clone, Copy, Debug)]
enum By {
    Client,
    Server,
    Both,
}

fn update(world: &mut World, by: By) {
    if matches!(by, By::Client | By::Both) {
        world.client().engine.update_keys();
    }
    if matches!(by, By::Server | By::Both) {
        let server = world.server;
        for shard in world.shards(server) {
            shard.engine.update_keys();
        }
    }
}

/// Datagrams every ten milliseconds in both directions, and an update in the middle of every second; how many left.
fn converse(world: &mut World, session: u32, updates: u32) -> u64 {
    let mut sent = 0;
    for round in 0..updates * 100 {
        // One alone in its packet.
        world.send("echo", session, &[1_000]);
        sent += 1;
        if round % 100 == 50 {
            let by = [By::Client, By::Server, By::Both][(round / 100) as usize % 3];
            update(world, by);
        }
        world.run(10 * MILLISECOND);
    }
    world.run(SECOND);
    sent
}

fn lost(world: &World, from: SocketAddr, to: SocketAddr) -> u64 {
    let (counts, _) = world.network.counts(from, to).expect("they are joined");
    counts.lost
}

fn lines(link: LinkConfig, seed: u64) -> Setup {
    Setup {
        seed,
        ..Setup::on(LinkConfig {
            delay: DELAY,
            rate_bits_per_second: Some(20_000_000),
            queue_bytes: 256 << 10,
            ..link
        })
    }
}

#[test]
fn no_datagram_is_lost_by_a_key_update_among_reordered_packets() {
    for_each_seed(4, |seed| {
        let link = LinkConfig {
            reorder: 0.05,
            ..LinkConfig::default()
        };
        let mut world = World::connected(lines(link, seed));
        let session = world.book.session();
        let sent = converse(&mut world, session, 12);
        assert_eq!(world.book.count(session, Way::Up), sent);
        assert_eq!(world.book.count(session, Way::Down), sent);
        assert_eq!(world.connections_opened(world.client), 1);
    });
}

#[test]
fn under_loss_nothing_more_is_lost_than_on_the_line_and_streams_arrive_whole() {
    for_each_seed(4, |seed| {
        let link = LinkConfig {
            loss: 0.03,
            reorder: 0.02,
            ..LinkConfig::default()
        };
        let mut world = World::connected(lines(link, seed));
        let session = world.book.session();
        let tcp = world.open_tcp(Script::sending(4 * MEBIBYTE), Script::sending(4 * MEBIBYTE));
        let (client, server) = (world.client, world.server);
        let before = [lost(&world, client, server), lost(&world, server, client)];
        let sent = converse(&mut world, session, 12);
        let after = [lost(&world, client, server), lost(&world, server, client)];
        let [up, down] = [Way::Up, Way::Down].map(|way| world.book.count(session, way));
        // Whatever is not lost goes on, but for what waits too long beside the streams.
        let given_up = [client, server].map(|end| world.tunnel(end).ledger().ingress.dropped_total());
        assert!(up + given_up[0] + after[0] - before[0] >= sent, "{up} of {sent}");
        assert!(down + given_up[1] + after[1] - before[1] >= up, "{down} of {up}");
        assert!(up >= sent * 9 / 10, "{up} of {sent}");
        world.run(60 * SECOND);
        for end in [client, server] {
            let tcp = world.tunnel(end).tcp(tcp);
            assert_eq!((tcp.read, tcp.read_end), (4 * MEBIBYTE, true));
        }
        assert_eq!(world.connections_opened(world.client), 1);
    });
}

/// The segments come in at the other shard, which hands them over under every key.
#[test]
fn a_connection_stays_on_its_shard_through_key_updates() {
    let mut world = World::with_server(Setup::on(CALM));
    let server = world.server;
    world.start_shards(server, 2);
    world.client = world.add_client(&user());
    let client = world.client;
    world.wait_until_up(client);
    world.run(2 * SECOND);
    let session = world.book.session();
    let mut sent = 0;
    for port in [50_001, 50_002, 50_001] {
        let outside = SocketAddr::from(([203, 0, 113, 9], port));
        world.network.rebind(client, outside);
        sent += converse(&mut world, session, 4);
        assert_eq!(world.book.count(session, Way::Up), sent);
        assert_eq!(world.book.count(session, Way::Down), sent);
    }
    assert_eq!(world.connections_opened(world.client), 1);
    assert_eq!(world.sessions_opened(server), [0, 1]);
}
