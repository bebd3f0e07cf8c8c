//! What peers are told of their path while it changes.

use std::time::Duration;

use bytes::Bytes;
use peer_proto::{Congestion, Delivery, Direction, Event, LimitedBy};
use sim::LinkConfig;

use crate::world::World;

fn link(rate_bits_per_second: u64) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(10),
        rate_bits_per_second: Some(rate_bits_per_second),
        queue_bytes: 200_000,
        ..LinkConfig::default()
    }
}

/// What was told of congestion at the first end since the last question.
fn congestion(world: &mut World) -> Vec<Congestion> {
    let news = std::mem::take(&mut world.ends[0].news);
    let congestion = news.into_iter().filter_map(|event| match event {
        Event::Congestion { congestion, .. } => Some(congestion),
        _ => None,
    });
    congestion.collect()
}

#[test]
fn the_path_limits_a_bulk_stream_until_it_is_sent_and_its_rate_is_told() {
    let mut world = World::connected(link(40_000_000), 1);
    let peer = world.ends[0].peer();
    for number in 0..50 {
        world.send(0, vec![number; 500], Delivery::unordered()).unwrap();
        world.drive(Duration::from_millis(20));
    }
    assert_eq!(
        congestion(&mut world),
        [],
        "small messages are limited by nothing"
    );
    let stream = world.ends[0]
        .peers
        .open_stream(peer, Direction::Unidirectional, 0);
    let mut data = Bytes::from(vec![0; 10 << 20]);
    // There is more credit once some of the first is used.
    while !data.is_empty() {
        let peers = &mut world.ends[0].peers;
        peers.write(peer, stream.unwrap(), &mut data).unwrap();
        world.drive(Duration::from_millis(20));
    }
    let reads = |world: &mut World| {
        let reader = world.ends[1].peer();
        for stream in world.ends[1].opened.clone() {
            while let Ok(peer_proto::Read::Data(_)) = world.ends[1].peers.read(reader, stream, usize::MAX) {}
        }
    };
    for _ in 0..100 {
        world.drive(Duration::from_millis(20));
        reads(&mut world);
    }
    let told = congestion(&mut world);
    assert!(
        told.iter().all(|told| told.limited_by == LimitedBy::Path),
        "{told:?}"
    );
    let rate = told.last().unwrap().bytes_per_second * 8;
    assert!((20_000_000..44_000_000).contains(&rate), "{rate}");
    let stats = world.ends[0].peers.path_stats(peer).unwrap();
    let rate = stats.delivery_bytes_per_second.unwrap() * 8;
    assert!((20_000_000..44_000_000).contains(&rate), "{rate}");
    // A path that becomes slower by far is told while the stream lasts, and its end without another packet.
    world.set_link(link(8_000_000));
    for _ in 0..25 {
        world.drive(Duration::from_millis(20));
        reads(&mut world);
    }
    let told = congestion(&mut world);
    let rate = told.last().expect("the path is slower").bytes_per_second * 8;
    assert!((4_000_000..16_000_000).contains(&rate), "{told:?}");
    for _ in 0..200 {
        world.drive(Duration::from_millis(50));
        reads(&mut world);
    }
    let told = congestion(&mut world);
    assert_eq!(told.last().unwrap().limited_by, LimitedBy::Program);
    assert!(told.len() <= 4, "{told:?}");
}

#[test]
fn a_longer_path_mtu_is_told() {
    let mut world = World::connected(link(40_000_000), 1);
    world.drive(Duration::from_secs(2));
    let mtus = world.ends[1].news.iter().map(|event| match event {
        Event::PathMtuChanged { path_mtu, .. } => *path_mtu,
        other => panic!("{other:?}"),
    });
    let mtus: Vec<u16> = mtus.collect();
    assert!(mtus.is_sorted() && mtus.last() == Some(&1_452), "{mtus:?}");
}

#[test]
fn the_statistics_tell_round_trips_losses_and_what_waits() {
    let lossy = LinkConfig {
        loss: 0.02,
        ..link(40_000_000)
    };
    let mut world = World::connected(lossy, 1);
    world.ends[1].reads = false;
    let body = vec![7; 1_000];
    for _ in 0..2_000 {
        world.send(0, body.clone(), Delivery::unordered()).unwrap();
    }
    let peer = world.ends[0].peer();
    let stats = |world: &mut World, end: usize| {
        let peer = world.ends[end].peer();
        world.ends[end].peers.path_stats(peer).unwrap()
    };
    assert!(stats(&mut world, 0).waiting_bytes > 2_000_000);
    assert_eq!(
        world.ends[0].peers.waiting_bytes(peer),
        stats(&mut world, 0).waiting_bytes
    );
    world.drive(Duration::from_secs(5));
    let sender = stats(&mut world, 0);
    let millisecond = Duration::from_millis(1);
    assert!(
        sender.round_trip_min >= 20 * millisecond && sender.round_trip_min < 23 * millisecond,
        "{sender:?}"
    );
    assert!(sender.round_trip_latest >= sender.round_trip_min, "{sender:?}");
    assert!(sender.round_trip_variation > Duration::ZERO && sender.round_trip_variation < sender.round_trip);
    let lost = sender.counters.packets_lost;
    assert!(
        lost > 20 && sender.bytes_lost > lost * 500 && sender.bytes_lost < lost * 1_452,
        "{sender:?}"
    );
    assert!(
        sender.sent.repeated > 0 && sender.waiting_bytes == 0,
        "{sender:?}"
    );
    assert_eq!(
        stats(&mut world, 1).unread_bytes,
        world.ends[1].peers.unread_bytes()
    );
    assert!(stats(&mut world, 1).unread_bytes > 2_000_000);
}
