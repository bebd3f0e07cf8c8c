//! Paths that others use as well.

use std::time::Duration;

use quic::Profile;
use sim::LinkConfig;

use crate::bbr::Bbr;
use crate::cell::Cell;
use crate::cubic::Cubic;
use crate::party::{Datagrams, Gramway, Load, Steady};
use crate::trace;
use crate::world::{Way, World};

fn cell(round_trip_ms: u64, queue: f64) -> Cell {
    Cell {
        megabits: 100,
        round_trip_ms,
        loss: 0.0,
        queue,
    }
}

fn add_gramway(world: &mut World, load: Load, after: u64, seed: u64) {
    let load = Load {
        after: Duration::from_secs(after),
        ..load
    };
    let index = world.parties.len();
    let party = Gramway::new(
        index,
        world.start,
        world.loaded,
        Profile::Throughput,
        load,
        seed + index as u64,
    );
    world.parties.push(Box::new(party));
}

const BULK: Load = Load {
    bulk: true,
    steady: None,
    after: Duration::ZERO,
    until: None,
};

/// Datagrams of a call.
const CALL: Steady = Steady {
    interval: Duration::from_millis(10),
    bytes: 200,
};

/// Bytes that each party got in `seconds`, after `from` seconds.
fn race(world: &mut World, from: u64, seconds: u64) -> Vec<f64> {
    world.drive(Duration::from_secs(from));
    let before: Vec<u64> = world.parties.iter().map(|party| party.delivered()).collect();
    world.drive(Duration::from_secs(seconds));
    let after = world.parties.iter().map(|party| party.delivered());
    after
        .zip(before)
        .map(|(after, before)| (after - before) as f64)
        .collect()
}

/// Gramway's part of what it and one CUBIC flow get; one of them comes five seconds later.
fn share_beside_cubic(cell: Cell, seed: u64, gramway_is_first: bool) -> f64 {
    let mut world = cell.world(seed, Way::Up);
    let (ours, theirs) = if gramway_is_first { (1, 6) } else { (6, 1) };
    add_gramway(&mut world, BULK, ours, seed);
    let cubic = Cubic::new(1, world.start, Way::Up, Duration::from_secs(theirs));
    world.parties.push(Box::new(cubic));
    let bytes = race(&mut world, 10, 40);
    bytes[0] / (bytes[0] + bytes[1])
}

#[test]
fn beside_cubic_neither_starves() {
    for (queue, most) in [(1.0, 0.7), (0.25, 0.84)] {
        for round_trip_ms in [20, 50, 100] {
            for is_first in [true, false] {
                let cell = cell(round_trip_ms, queue);
                let share = share_beside_cubic(cell, 1, is_first);
                println!("{cell} first {is_first}: {share:.2}");
                assert!(
                    (0.2..=most).contains(&share),
                    "{cell} first {is_first}: {share:.2}"
                );
            }
        }
    }
}

#[test]
fn beside_bbr_nobody_starves() {
    // A short queue is full of BBR's own packets, and what is lost of ours is a fifth: we get little more than those leave.
    for (round_trip_ms, queue, least) in [(20, 0.25, 0.2), (20, 1.0, 0.3), (50, 0.25, 0.12), (50, 1.0, 0.22)]
    {
        let cell = cell(round_trip_ms, queue);
        let mut world = cell.world(1, Way::Up);
        add_gramway(&mut world, BULK, 1, 1);
        let bbr = Bbr::new(1, world.start, Way::Up, Duration::from_secs(6));
        world.parties.push(Box::new(bbr));
        let bytes = race(&mut world, 10, 30);
        let share = bytes[0] / (bytes[0] + bytes[1]);
        println!("{cell} beside BBR: {share:.2}");
        assert!((least..0.7).contains(&share), "{cell}: {share:.2}");
    }
}

/// Jain's index of two clients, of which the second comes `after` seconds: one where both get the same.
fn jain_index(cell: Cell, seed: u64, after: u64) -> f64 {
    let mut world = cell.world(seed, Way::Up);
    add_gramway(&mut world, BULK, 1, seed);
    add_gramway(&mut world, BULK, after, seed);
    let bytes = race(&mut world, 8, 30);
    let (sum, squares) = (bytes[0] + bytes[1], bytes[0].powi(2) + bytes[1].powi(2));
    sum * sum / (2.0 * squares)
}

fn assert_two_clients_share_evenly(queue: f64) {
    for round_trip_ms in [20, 50, 100] {
        let cell = cell(round_trip_ms, queue);
        // Who probes when decides over half a minute, so one start says little.
        let indices = [3, 4, 5, 6].map(|after| jain_index(cell, after, after));
        let mean = indices.iter().sum::<f64>() / indices.len() as f64;
        println!("{cell}: Jain's index {mean:.3}, {indices:.3?}");
        assert!(mean >= 0.9, "{cell}: {indices:.3?}");
        assert!(
            indices.iter().all(|index| *index >= 0.75),
            "{cell}: {indices:.3?}"
        );
    }
}

// One test for each queue, so that every core has one.

#[test]
fn two_clients_share_a_path_with_a_short_queue_evenly() {
    assert_two_clients_share_evenly(0.25);
}

#[test]
fn two_clients_share_a_path_with_a_queue_of_a_round_trip_evenly() {
    assert_two_clients_share_evenly(1.0);
}

#[test]
fn two_clients_share_a_path_with_a_long_queue_evenly() {
    assert_two_clients_share_evenly(4.0);
}

#[test]
fn datagrams_beside_a_stream_of_another_client_are_hardly_delayed() {
    for round_trip_ms in [20, 100] {
        let cell = cell(round_trip_ms, 4.0);
        let mut world = cell.world(1, Way::Up);
        add_gramway(&mut world, BULK, 1, 1);
        let load = Load {
            steady: Some(CALL),
            until: Some(Duration::from_secs(20)),
            ..Load::default()
        };
        add_gramway(&mut world, load, 5, 1);
        world.drive(Duration::from_secs(21));
        assert_hardly_delayed(cell, world.parties[1].datagrams().unwrap());
    }
}

#[test]
fn datagrams_beside_a_stream_of_their_own_client_are_hardly_delayed() {
    for round_trip_ms in [20, 100] {
        let cell = cell(round_trip_ms, 4.0);
        let mut world = cell.world(1, Way::Up);
        let load = Load {
            steady: Some(CALL),
            until: Some(Duration::from_secs(25)),
            ..BULK
        };
        add_gramway(&mut world, load, 1, 1);
        // Acknowledgements come early and late, as they do where the ends wait for a processor.
        let jitter = Duration::from_millis(8);
        world.down.set_config(LinkConfig {
            jitter,
            ..cell.link()
        });
        trace::drive(&mut world, Duration::from_secs(26));
        assert_hardly_delayed(cell, world.parties[0].datagrams().unwrap());
    }
}

fn assert_hardly_delayed(cell: Cell, datagrams: Datagrams) {
    println!("{cell}: {datagrams:?}");
    assert!(
        datagrams.delivered + 1 >= datagrams.offered,
        "{cell}: {datagrams:?}"
    );
    let extra = datagrams.delay_p99 - cell.round_trip() / 2;
    assert!(extra <= Duration::from_millis(30), "{cell}: {extra:?}");
}
