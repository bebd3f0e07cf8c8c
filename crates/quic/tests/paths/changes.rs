//! Paths that change, and paths with a policer.

use std::time::Duration;

use quic::Profile;
use sim::{LinkConfig, Policer};

use crate::cell::Cell;
use crate::party::{Gramway, Load};
use crate::trace::drive;
use crate::world::{Way, World};

const LINE: Cell = Cell {
    megabits: 100,
    round_trip_ms: 100,
    loss: 0.0,
    queue: 1.0,
};

/// A world with one bulk stream that has filled `config` for five seconds.
fn filled(config: LinkConfig, profile: Profile) -> World {
    let mut world = World::new(config, 1, Way::Up);
    let load = Load {
        bulk: true,
        after: Duration::from_secs(1),
        ..Load::default()
    };
    let party = Gramway::new(0, world.start, Way::Up, profile, load, 1);
    world.parties.push(Box::new(party));
    drive(&mut world, Duration::from_secs(6));
    world
}

/// Megabits per second that arrive in `span`.
fn rate(world: &mut World, span: Duration) -> f64 {
    let before = world.parties[0].delivered();
    drive(world, span);
    (world.parties[0].delivered() - before) as f64 * 8e-6 / span.as_secs_f64()
}

/// Megabits per second that the controller sends at.
fn pace(world: &mut World) -> f64 {
    let report = world.parties[0].report().unwrap();
    report.path.bandwidth_bytes_per_second as f64 * 8e-6
}

#[test]
fn a_line_that_becomes_slow_is_known_within_three_round_trips() {
    let mut world = filled(LINE.link(), Profile::Throughput);
    assert!(pace(&mut world) > 90.0);
    world.set_config(LinkConfig {
        rate_bits_per_second: Some(5_000_000),
        ..LINE.link()
    });
    // The queue holds two seconds of the new line.
    drive(&mut world, 3 * LINE.round_trip());
    let known = pace(&mut world);
    assert!(known < 7.5, "{known:.1} Mbit/s of 5");
    // What fills the queue has to leave it first: a window of the old line takes two seconds.
    drive(&mut world, Duration::from_secs(4));
    let delay = world.up.queueing_delay(world.now);
    assert!(delay < Duration::from_millis(150), "{delay:?}");
    let steady = rate(&mut world, Duration::from_secs(4));
    assert!(steady > 4.3, "{steady:.1} Mbit/s of 5");
}

#[test]
fn ends_that_wait_for_a_processor_again_and_again_are_no_slower_path() {
    for millis in [50, 150, 300] {
        let mut world = filled(LINE.link(), Profile::Throughput);
        let before = world.parties[0].delivered();
        let from = world.now;
        for _ in 0..10 {
            world.now += Duration::from_millis(millis);
            drive(&mut world, Duration::from_secs(1));
        }
        let bytes = world.parties[0].delivered() - before;
        let rate = bytes as f64 * 8e-6 / (world.now - from).as_secs_f64();
        println!("{millis} ms: {rate:.1} Mbit/s");
        let possible = 100.0 * 1_000.0 / (1_000 + millis) as f64;
        assert!(
            rate > 0.9 * possible,
            "{rate:.1} Mbit/s of {possible:.0}, stopped for {millis} ms each second"
        );
    }
}

#[test]
fn a_line_that_becomes_fast_is_filled_within_ten_round_trips() {
    let slow = LinkConfig {
        rate_bits_per_second: Some(5_000_000),
        ..LINE.link()
    };
    for seconds in [6, 9, 13] {
        let mut world = filled(LINE.link(), Profile::Throughput);
        world.set_config(slow);
        drive(&mut world, Duration::from_secs(seconds));
        world.set_config(LINE.link());
        drive(&mut world, 10 * LINE.round_trip());
        let rate = rate(&mut world, 10 * LINE.round_trip());
        assert!(rate > 85.0, "{rate:.1} Mbit/s of 100, after {seconds} s of 5");
    }
}

#[test]
fn a_path_that_becomes_longer_is_filled_within_ten_round_trips() {
    let short = Cell {
        round_trip_ms: 20,
        ..LINE
    };
    let long = Cell {
        round_trip_ms: 200,
        ..LINE
    };
    let mut world = filled(short.link(), Profile::Throughput);
    world.set_config(long.link());
    drive(&mut world, 10 * long.round_trip());
    let base = world.parties[0].report().unwrap().path.base_round_trip;
    assert!(base >= long.round_trip(), "{base:?} is known of 200 ms");
    let there = rate(&mut world, 10 * long.round_trip());
    assert!(there > 85.0, "{there:.1} Mbit/s of 100");
    world.set_config(short.link());
    drive(&mut world, 10 * short.round_trip());
    let back = rate(&mut world, Duration::from_secs(1));
    assert!(back > 85.0, "{back:.1} Mbit/s of 100");
}

#[test]
fn the_rate_of_a_policer_is_kept_and_little_is_lost_to_it() {
    for burst_bytes in [50_000, 250_000] {
        let mut world = filled(
            LinkConfig {
                policer: Some(Policer {
                    bits_per_second: 20_000_000,
                    burst_bytes,
                }),
                ..LINE.link()
            },
            Profile::Throughput,
        );
        let before = world.up.counts();
        let rate = rate(&mut world, Duration::from_secs(20));
        let after = world.up.counts();
        let policed = (after.policed - before.policed) as f64 / (after.sent - before.sent) as f64;
        println!("burst {burst_bytes}: {rate:.1} Mbit/s, {policed:.3} policed");
        assert!(rate > 17.5, "{rate:.1} Mbit/s of 20");
        assert!(policed < 0.1, "{policed:.3} policed, burst {burst_bytes}");
    }
}

/// Within a building trains go as one, and are larger than what the policer saves up.
#[test]
fn behind_a_policer_of_a_local_path_streams_go_on() {
    let fast = LinkConfig {
        delay: Duration::from_micros(100),
        rate_bits_per_second: Some(200_000_000),
        queue_bytes: 4 << 20,
        mtu: 1_472,
        ..LinkConfig::default()
    };
    for (kilobits, wait_ms) in [(1_000, 0), (1_000, 40), (200, 0), (200, 7), (20_000, 0)] {
        let mut world = filled(fast, Profile::Throughput);
        world.keeps_trains = true;
        world.set_config(LinkConfig {
            policer: Some(Policer {
                bits_per_second: kilobits * 1_000,
                burst_bytes: 32_768,
            }),
            ..fast
        });
        let (start, before) = (world.now, world.parties[0].delivered());
        while world.now < start + Duration::from_secs(30) {
            // The ends wait for a processor.
            world.now += Duration::from_millis(wait_ms);
            drive(&mut world, Duration::from_millis(20));
        }
        let bytes = world.parties[0].delivered() - before;
        let rate = bytes as f64 * 8e-3 / (world.now - start).as_secs_f64();
        println!("waits of {wait_ms} ms: {rate:.0} kbit/s of {kilobits}");
        assert!(
            rate > 0.6 * kilobits as f64,
            "waits of {wait_ms} ms: {rate:.0} kbit/s of {kilobits}"
        );
    }
}

#[test]
fn the_latency_profile_keeps_the_queue_at_two_milliseconds() {
    for round_trip_ms in [20, 100] {
        let cell = Cell {
            round_trip_ms,
            queue: 4.0,
            ..LINE
        };
        let mut world = filled(cell.link(), Profile::Latency);
        let from = world.now;
        let rate = rate(&mut world, Duration::from_secs(10));
        let median = world.delay_quantile(from, 0.5);
        println!(
            "{cell}: {rate:.1} Mbit/s, queue {median:?} {:?}",
            world.delay_quantile(from, 0.95)
        );
        assert!(rate > 70.0, "{cell}: {rate:.1} Mbit/s");
        assert!(median <= Duration::from_millis(2), "{cell}: {median:?}");
    }
}

#[test]
fn a_pause_forgets_nothing() {
    let mut world = filled(LINE.link(), Profile::Throughput);
    world.parties[0].pause(true);
    drive(&mut world, Duration::from_secs(20));
    world.parties[0].pause(false);
    drive(&mut world, 3 * LINE.round_trip());
    let rate = rate(&mut world, 5 * LINE.round_trip());
    assert!(
        rate > 85.0,
        "{rate:.1} Mbit/s of 100, three round trips after a pause"
    );
}
