//! Somebody on the path repeats what he has recorded.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::BytesMut;
use packet::{Ecn, Path};
use peer_proto::Delivery;
use sim::LinkConfig;

use crate::world::{World, parameters};

fn talk(world: &mut World, from: u32, to: u32) {
    for number in from..to {
        let mut body = number.to_be_bytes().to_vec();
        // Every tenth has a stream of its own.
        body.resize(if number.is_multiple_of(10) { 5_000 } else { 100 }, 0);
        world.send(0, body, Delivery::ordered(number % 3)).unwrap();
        world.drive(Duration::from_millis(3));
    }
    world.drive_until(|world| world.ends[1].received.len() == to as usize);
}

#[test]
fn packets_that_are_repeated_from_anywhere_deliver_nothing_and_move_nothing() {
    let link = LinkConfig {
        delay: Duration::from_millis(5),
        ..LinkConfig::default()
    };
    let mut world = World::new(link, 1, [parameters(1), parameters(2)]);
    world.record = Some(Vec::new());
    world.connect();
    world.drive_until(|world| world.ends.iter().all(|end| !end.connected.is_empty()));
    talk(&mut world, 0, 60);
    let record = world.record.take().unwrap();
    assert!(record.len() > 60);
    let places = [world.ends[0].address, "203.0.113.66:6".parse().unwrap()];
    for remote in places {
        for bytes in record.iter().chain(record.iter().rev()) {
            let now = world.now();
            let end = &mut world.ends[1];
            let (path, bytes) = (Path { remote, local: None }, BytesMut::from(&bytes[..]));
            end.peers
                .handle_received(now, path, Ecn::NotEct, bytes, 0, &mut end.outbox);
            world.drive(Duration::from_micros(100));
        }
    }
    world.drive(Duration::from_secs(5));
    let peer = world.ends[1].peer();
    let stats = world.ends[1].peers.path_stats(peer).unwrap();
    assert_eq!(
        (stats.remote, stats.received.received),
        (world.ends[0].address, 60)
    );
    assert_eq!(
        (stats.received.duplicates, stats.unread_bytes),
        (0, 0),
        "QUIC opens no packet twice"
    );
    assert_eq!((world.ends[1].connected.len(), world.ends[1].taken.len()), (1, 0));
    talk(&mut world, 60, 120);
    let numbers = world.ends[1]
        .received
        .iter()
        .map(|received| received.body[..4].to_vec());
    assert_eq!(numbers.collect::<BTreeSet<_>>().len(), 120);
    assert!(world.ends.iter().all(|end| end.closed.is_empty()));
}
