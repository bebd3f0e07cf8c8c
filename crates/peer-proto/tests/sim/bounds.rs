//! What an endpoint keeps for programs that do not accept or do not read: bounded for all peers together, and nothing
//! is lost.

use std::time::Duration;

use peer_proto::limits::RECEIVE_BYTES_RESERVED;
use peer_proto::{Delivery, Outcome, Parameters, PeerKey};
use sim::LinkConfig;

use crate::world::{ENDINGS, Ending, World, parameters};

/// What one peer keeps in its reserve at most: messages to read, incomplete ones, and a step beyond each.
const RESERVE_BYTES: usize = 4 * RECEIVE_BYTES_RESERVED;

/// Connections whose messages nobody reads.
const PEERS: usize = 6;

fn link() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(1),
        rate_bits_per_second: Some(1_000_000_000),
        queue_bytes: 2_000_000,
        ..LinkConfig::default()
    }
}

/// Sends short and long messages from each connection of the first end; how many.
fn send_much(world: &mut World) -> usize {
    let now = world.now();
    let peers: Vec<PeerKey> = world.ends[0].connected.iter().map(|(peer, ..)| *peer).collect();
    for peer in &peers {
        let from = &mut world.ends[0].peers;
        for number in 0..1_000 {
            let length = if number % 100 == 0 { 100_000 } else { 1_000 };
            let delivery = Delivery::ordered(number % 2);
            from.send(now, *peer, vec![1; length].into(), delivery).unwrap();
        }
    }
    peers.len() * 1_000
}

fn read_all(world: &mut World, count: usize) {
    world.ends[1].reads = true;
    let peers: Vec<PeerKey> = world.ends[1].connected.iter().map(|(peer, ..)| *peer).collect();
    for peer in peers {
        let now = world.now();
        world.ends[1].read_messages(now, peer);
    }
    world.drive_until(|world| world.ends[1].received.len() == count);
}

#[test]
fn a_peer_that_is_not_accepted_yet_keeps_little_and_loses_nothing() {
    let mut world = World::new(link(), 1, [parameters(1), parameters(2)]);
    (world.ends[1].accepts, world.ends[1].reads) = (false, false);
    world.connect();
    world.drive_until(|world| world.ends.iter().all(|end| !end.connected.is_empty()));
    let count = send_much(&mut world);
    world.drive(Duration::from_secs(5));
    let kept = world.ends[1].peers.unread_bytes();
    assert!(kept <= RESERVE_BYTES, "{kept} bytes");
    let peer = world.ends[1].peer();
    world.ends[1].peers.accept(peer);
    read_all(&mut world, count);
    assert_eq!(world.ends[1].peers.unread_bytes(), 0);
}

#[test]
fn peers_whose_messages_nobody_reads_share_the_room_of_the_endpoint() {
    let small = Parameters {
        receive_bytes_max: 1 << 20,
        ..parameters(2)
    };
    let mut world = World::new(link(), 1, [parameters(1), small]);
    world.ends[1].reads = false;
    for _ in 0..PEERS {
        world.connect();
    }
    world.drive_until(|world| world.ends.iter().all(|end| end.connected.len() == PEERS));
    let count = send_much(&mut world);
    world.drive(Duration::from_secs(5));
    let kept = world.ends[1].peers.unread_bytes();
    let reserves = PEERS * RESERVE_BYTES;
    assert!(kept > 1 << 19 && kept <= (1 << 20) + reserves, "{kept} bytes");
    read_all(&mut world, count);
    assert_eq!(world.ends[1].peers.unread_bytes(), 0);
}

#[test]
fn what_is_acknowledged_and_waits_for_room_is_read_after_the_end_of_the_connection() {
    for ending in ENDINGS {
        check_what_waits(ending);
    }
}

fn check_what_waits(ending: Ending) {
    let small = Parameters {
        receive_bytes_max: 1 << 20,
        ..parameters(2)
    };
    let mut world = World::connected_as(link(), 1, [parameters(1), small]);
    world.ends[1].reads = false;
    let messages = 40;
    for number in 0..messages {
        world
            .send(0, vec![number; 100_000], Delivery::ordered(1))
            .unwrap();
    }
    world.drive_until(|world| world.ends[0].ended.len() == messages as usize);
    assert!(
        world.ends[0]
            .ended
            .values()
            .all(|outcome| *outcome == Outcome::Acked)
    );
    let kept = world.ends[1].peers.unread_bytes();
    assert!(kept < 2 << 20, "the rest waits in QUIC: {kept} bytes");
    world.end_by(ending);
    let (now, peer) = (world.now(), world.ends[1].peer());
    world.ends[1].read_messages(now, peer);
    let received = world.ends[1].received.iter();
    let numbers: Vec<u8> = received.map(|received| received.body[0]).collect();
    assert_eq!(numbers, (0..messages).collect::<Vec<u8>>(), "{ending:?}");
    assert_eq!(world.ends[1].peers.unread_bytes(), 0);
}
