//! What an honest client's speed is beside a thousand strangers that cost memory: one TCP stream through a forward, at
//! a rate that leaves the machine room and as fast as it goes, in turns without them and beside them.
//!
//! The strangers' own side runs on the same processors, which strangers elsewhere would not take. A stream at a fixed
//! rate hardly minds; one that fills the processors is judged by what that side leaves of them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use system_tests::tunnel::pin_of;
use system_tests::{require_program, require_root};
use testbed::iperf::{self, IperfRun, IperfServer};
use testbed::usage::{reset_peak, usage};
use testbed::wait::holds_within;

use super::report::Report;
use super::strangers::{Attack, Kind, Strangers};
use super::{FORGOTTEN_LIMIT, STRANGERS_BYTES_MAX};
use crate::scene::{LISTEN, Scene, load};

/// Strangers at once: each has ten seconds for its token, so a hundred come a second, and somewhat more where some
/// fail.
const STRANGERS: u32 = 1_000;
const STRANGERS_PER_SECOND: u32 = 110;
const THREADS: usize = 8;

/// Until all of them are there.
const GATHERED: Duration = Duration::from_secs(10);

/// Runs of each sort, in turns, and how long each goes.
const ROUNDS: usize = 3;
const SECONDS: u32 = 5;

/// The rate that leaves room, in bits per second: about a third of what two processors carry.
const RATE: u64 = 2_000_000_000;

/// Part of its speed that the client keeps.
const SPEED_PART_MIN: f64 = 0.9;

const FORWARD: &str = "tcp:5202=127.0.0.1:5202";

/// One run of the client.
struct Run {
    /// None where iperf3 fails.
    bits_per_second: f64,
    /// Of the server's process and of the strangers' side, which is this process: processors that each used.
    processors: [f64; 2],
}

impl Run {
    fn new(scene: &mut Scene, address: SocketAddr, rate: Option<u64>) -> Self {
        let run = IperfRun {
            tcp_rate_max: rate,
            ..IperfRun::tcp(address, SECONDS)
        };
        let pids = [scene.server.process().id(), std::process::id()];
        let busy = || pids.map(|pid| usage(pid).cpu_seconds);
        let (start, before) = (Instant::now(), busy());
        let result = iperf::run(&scene.pair.client.place(), &run);
        let (elapsed, after) = (start.elapsed().as_secs_f64(), busy());
        Self {
            bits_per_second: result.map_or(0.0, |result| result.receiver_bits_per_second),
            processors: [0, 1].map(|index| (after[index] - before[index]) / elapsed),
        }
    }
}

/// The runs of one load, without strangers and beside them.
struct Compared {
    name: &'static str,
    rate: Option<u64>,
    alone: Vec<Run>,
    beside: Vec<Run>,
}

impl Compared {
    fn new(name: &'static str, rate: Option<u64>) -> Self {
        let (alone, beside) = (Vec::new(), Vec::new());
        Self {
            name,
            rate,
            alone,
            beside,
        }
    }

    fn check(&self, report: &mut Report) {
        let of = |runs: &[Run], what: fn(&Run) -> f64| median(runs.iter().map(what).collect());
        let rates = [&self.alone, &self.beside].map(|runs| of(runs, |run| run.bits_per_second));
        let server = [&self.alone, &self.beside].map(|runs| of(runs, |run| run.processors[0]));
        let strangers = of(&self.beside, |run| run.processors[1]);
        report.tell(
            format!("{}, alone and beside", self.name),
            format!("{:.2} and {:.2} Gbit/s", rates[0] / 1e9, rates[1] / 1e9),
        );
        report.tell(
            "processors of the server, and of the strangers' side",
            format!("{:.2} and {:.2}, {strangers:.2}", server[0], server[1]),
        );
        let machine = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
        let left = if self.rate.is_some() {
            1.0
        } else {
            1.0 - strangers / machine
        };
        let (part, must) = (rates[1] / rates[0], SPEED_PART_MIN * left);
        report.check(
            "part of its speed",
            format!("{part:.2}"),
            format!("≥ {must:.2}"),
            part >= must,
        );
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn connections(scene: &Scene) -> u64 {
    scene.server.status()["connections"]["open"].as_u64().unwrap_or(0)
}

#[test]
#[ignore = "measures: `cargo xtask hostile` runs it"]
fn an_honest_client_keeps_its_speed_beside_a_thousand_strangers_behind_gaps() {
    require_root!();
    require_program!("iperf3");
    let _load = load();
    let mut scene = Scene::new(&[FORWARD]);
    let address: SocketAddr = "127.0.0.1:5202".parse().unwrap();
    let _sink = IperfServer::start(&scene.pair.server.place(), address).unwrap();
    let own = connections(&scene);
    let attack = Attack {
        kind: Kind::Gaps,
        server: LISTEN.parse().unwrap(),
        pin: pin_of(&scene.server.link()),
        sources: scene.pair.add_stranger_networks(),
        per_second: STRANGERS_PER_SECOND,
        threads: THREADS,
    };
    let mut report = Report::new("one TCP stream beside strangers whose bytes wait behind gaps");
    let mut loads = [
        Compared::new("one stream of 2 Gbit/s", Some(RATE)),
        Compared::new("one stream, as fast as it goes", None),
    ];
    let (mut grown, mut is_forgotten) = (0, true);
    for _ in 0..ROUNDS {
        reset_peak(scene.server.process().id());
        for load in &mut loads {
            load.alone.push(Run::new(&mut scene, address, load.rate));
        }
        let before = scene.server.process().usage().peak_bytes;
        let strangers = Strangers::start(&scene.pair.client, &attack);
        std::thread::sleep(GATHERED);
        let there = connections(&scene) - own;
        for load in &mut loads {
            load.beside.push(Run::new(&mut scene, address, load.rate));
        }
        grown = grown.max(scene.server.process().usage().peak_bytes.saturating_sub(before));
        let rate = strangers.end();
        report.tell(
            "strangers",
            format!("{rate:.0} a second, {there} at once, of {STRANGERS}"),
        );
        is_forgotten &= holds_within(FORGOTTEN_LIMIT, || connections(&scene) == own);
    }
    report.check("all strangers are forgotten", is_forgotten, true, is_forgotten);
    for load in &loads {
        load.check(&mut report);
    }
    let must = format!("≤ {} MiB", STRANGERS_BYTES_MAX >> 20);
    let holds = grown <= STRANGERS_BYTES_MAX;
    report.check("memory of strangers", format!("{} MiB", grown >> 20), must, holds);
    report.finish();
}
