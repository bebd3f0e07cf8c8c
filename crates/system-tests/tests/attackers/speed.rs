//! What an honest client's speed is beside a thousand strangers that cost memory: one TCP stream through a forward, as
//! fast as it goes, in turns without them and beside them.

use std::net::SocketAddr;
use std::time::Duration;

use system_tests::tunnel::pin_of;
use system_tests::{require_program, require_root};
use testbed::iperf::{self, IperfRun, IperfServer};
use testbed::usage::reset_peak;
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

/// Part of its speed that the client keeps.
const SPEED_PART_MIN: f64 = 0.9;

const FORWARD: &str = "tcp:5202=127.0.0.1:5202";

/// Bits per second of one run; none where iperf3 fails.
fn speed(scene: &Scene, address: SocketAddr) -> f64 {
    let run = IperfRun::tcp(address, SECONDS);
    let result = iperf::run(&scene.pair.client.place(), &run);
    result.map_or(0.0, |result| result.receiver_bits_per_second)
}

fn median(mut speeds: Vec<f64>) -> f64 {
    speeds.sort_by(f64::total_cmp);
    speeds[speeds.len() / 2]
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
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    let (mut grown, mut is_forgotten) = (0, true);
    for _ in 0..ROUNDS {
        reset_peak(scene.server.process().id());
        alone.push(speed(&scene, address));
        let before = scene.server.process().usage().peak_bytes;
        let strangers = Strangers::start(&scene.pair.client, &attack);
        std::thread::sleep(GATHERED);
        let there = connections(&scene) - own;
        beside.push(speed(&scene, address));
        grown = grown.max(scene.server.process().usage().peak_bytes.saturating_sub(before));
        let rate = strangers.end();
        report.tell(
            "strangers",
            format!("{rate:.0} a second, {there} at once, of {STRANGERS}"),
        );
        is_forgotten &= holds_within(FORGOTTEN_LIMIT, || connections(&scene) == own);
    }
    report.check("all strangers are forgotten", is_forgotten, true, is_forgotten);
    let (alone, beside) = (median(alone), median(beside));
    report.tell("alone", format!("{:.2} Gbit/s", alone / 1e9));
    report.tell("beside strangers", format!("{:.2} Gbit/s", beside / 1e9));
    let part = beside / alone;
    let must = format!("≥ {SPEED_PART_MIN}");
    report.check(
        "part of its speed",
        format!("{part:.2}"),
        must,
        part >= SPEED_PART_MIN,
    );
    let must = format!("≤ {} MiB", STRANGERS_BYTES_MAX >> 20);
    let holds = grown <= STRANGERS_BYTES_MAX;
    report.check("memory of strangers", format!("{} MiB", grown >> 20), must, holds);
    report.finish();
}
