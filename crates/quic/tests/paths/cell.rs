//! One cell of the matrix: a line, a round trip, a loss and a queue.

use std::time::Duration;

use quic::Profile;
use sim::LinkConfig;

use crate::party::{Gramway, Load, Steady};
use crate::trace::drive;
use crate::world::{Way, World};

/// The line counts UDP payloads; headers of IP and UDP are left out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) megabits: u64,
    pub(crate) round_trip_ms: u64,
    /// Percent.
    pub(crate) loss: f64,
    /// Bandwidth-delay products.
    pub(crate) queue: f64,
}

impl Cell {
    pub(crate) fn link(self) -> LinkConfig {
        let product = self.megabits * 1_000_000 / 8 * self.round_trip_ms / 1_000;
        LinkConfig {
            delay: Duration::from_micros(self.round_trip_ms * 500),
            loss: self.loss / 100.0,
            rate_bits_per_second: Some(self.megabits * 1_000_000),
            queue_bytes: (product as f64 * self.queue) as usize,
            ..LinkConfig::default()
        }
    }

    pub(crate) fn round_trip(self) -> Duration {
        Duration::from_millis(self.round_trip_ms)
    }

    pub(crate) fn world(self, seed: u64, way: Way) -> World {
        World::new(self.link(), seed, way)
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            megabits,
            round_trip_ms,
            loss,
            queue,
        } = self;
        write!(out, "{megabits}x{round_trip_ms}x{loss}x{queue}")
    }
}

/// What a bulk stream made of a cell once it had started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bulk {
    /// Part of the line, 0 to 1.
    pub(crate) share: f64,
    /// 95th percentile of the queueing delay.
    pub(crate) queue_p95: Duration,
}

/// A stream for eight seconds, after a start of thirty round trips.
pub(crate) fn bulk(cell: Cell, seed: u64, way: Way) -> Bulk {
    let mut world = cell.world(seed, way);
    let load = Load {
        bulk: true,
        after: Duration::from_secs(1),
        ..Load::default()
    };
    let party = Gramway::new(0, world.start, way, Profile::Throughput, load, seed);
    world.parties.push(Box::new(party));
    drive(&mut world, Duration::from_secs(1) + 30 * cell.round_trip());
    let (from, before) = (world.now, world.parties[0].delivered());
    let seconds = 8;
    drive(&mut world, Duration::from_secs(seconds));
    let bytes = world.parties[0].delivered() - before;
    Bulk {
        share: bytes as f64 * 8.0 / (cell.megabits * 1_000_000 * seconds) as f64,
        queue_p95: world.delay_quantile(from, 0.95),
    }
}

/// Parts of all datagrams that were lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost {
    pub(crate) beyond_the_link: f64,
    /// By the sender, because they waited too long.
    pub(crate) by_the_sender: f64,
}

/// Datagrams at 30 % of the line for eight seconds, from the first moment.
pub(crate) fn datagrams(cell: Cell, seed: u64, way: Way) -> Lost {
    let mut world = cell.world(seed, way);
    let load = Load {
        steady: Some(Steady::of(cell.megabits * 300_000)),
        after: Duration::from_secs(1),
        until: Some(Duration::from_secs(9)),
        ..Load::default()
    };
    let party = Gramway::new(0, world.start, way, Profile::Throughput, load, seed);
    world.parties.push(Box::new(party));
    // What is under way at the end still arrives.
    world.drive(Duration::from_secs(10));
    let counts = world.counts();
    let link = counts.lost as f64 / (counts.sent - counts.queue_full) as f64;
    let datagrams = world.parties[0].datagrams().unwrap();
    Lost {
        beyond_the_link: 1.0 - datagrams.delivered as f64 / datagrams.offered as f64 - link,
        by_the_sender: datagrams.expired as f64 / datagrams.offered as f64,
    }
}
