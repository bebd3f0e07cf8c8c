//! What needs a set-up of its own: fairness beside a direct flow and between two clients, the delay that a stream adds,
//! and the first second of a stream.

use std::net::SocketAddr;
use std::time::Duration;

use testbed::iperf::RateStep;

use super::cases::{Load, Scene};
use super::cell::Cell;
use super::contestant::{Contestant, Installed, Running, targets};
use super::measure::{Rig, Stream, WARM_UP_ROUND_TRIPS};
use super::{Inner, rate};
use crate::check::{Bound, Check};
use crate::emulator::LinkReport;
use crate::flow::FlowPlan;
use crate::median::median;
use crate::{Error, Programs};

/// Links of the fairness scenes: a full and a short queue.
const FAIR_CELLS: [Cell; 2] = [
    Cell::new(100.0, 50.0, 0.0, 1.0),
    Cell::new(100.0, 50.0, 0.0, 0.25),
];

/// Seconds of one of them: CUBIC takes five to come back from one loss.
const FAIR_SECONDS: u32 = 30;

/// Gramway's share of the link beside one other flow.
const FAIR_SHARE: Bound = Bound::Within(0.3, 0.7);

/// Link and length of the scene of two clients.
const JAIN_CELL: Cell = Cell::new(100.0, 50.0, 0.0, 1.0);
const JAIN_SECONDS: u32 = 30;
const JAIN_MIN: f64 = 0.95;

/// Link and length of the scene of delay: its queue holds four round trips.
const DELAY_CELL: Cell = Cell::new(100.0, 100.0, 0.0, 4.0);
const DELAY_SECONDS: u32 = 10;

/// What the queue of the link holds at its 95th percentile, in round trips.
const QUEUE_ROUND_TRIPS_MAX: f64 = 0.5;

/// How much later than on an empty link datagrams arrive beside a stream, at the 99th percentile, in milliseconds.
const EXTRA_DELAY_MS_MAX: f64 = 30.0;

/// Datagrams per second beside the stream, and their bytes: a call.
const CALL_PER_SECOND: f64 = 100.0;
const CALL_BYTES: usize = 200;

/// Link, length and rounds of the scene of the first second.
const FIRST_CELL: Cell = Cell::new(100.0, 100.0, 0.0, 1.0);
const FIRST_SECONDS: u32 = 2;

/// What a scene gave: values with their bounds, and the link's report for those that explain a miss.
pub(super) type Outcome = (Vec<Check>, Vec<(String, LinkReport)>);

/// How long a scene takes, roughly.
pub(super) fn estimate(scene: Scene, rounds: u32) -> Duration {
    let seconds = match scene {
        Scene::FairCubic | Scene::FairBbr => 2 * rounds * (FAIR_SECONDS + 1) + 4,
        Scene::Jain => rounds * (JAIN_SECONDS + 2) + 3,
        Scene::Delay => DELAY_SECONDS + 7,
        Scene::FirstSecond => rounds * 3 * (FIRST_SECONDS + 2) + 5,
    };
    Duration::from_secs(seconds.into())
}

/// Runs a scene.
///
/// # Errors
/// When Gramway or a load could not run.
pub(super) fn run(
    scene: Scene,
    programs: &Programs,
    installed: &[Installed],
    inner: Inner,
    rounds: u32,
) -> Result<Outcome, Error> {
    match scene {
        Scene::FairCubic => fair(programs, installed, inner, Inner::Cubic, rounds),
        Scene::FairBbr => fair(programs, installed, inner, Inner::Bbr, rounds),
        Scene::Jain => jain(programs, inner, rounds),
        Scene::Delay => delay(programs, installed, inner),
        Scene::FirstSecond => first_second(programs, installed, inner, rounds),
    }
}

fn fair(
    programs: &Programs,
    installed: &[Installed],
    inner: Inner,
    beside: Inner,
    rounds: u32,
) -> Result<Outcome, Error> {
    let (mut checks, mut links) = (Vec::new(), Vec::new());
    for cell in FAIR_CELLS {
        let mut rig = rig(programs, cell, inner, installed, &[Contestant::Gramway])?;
        let (mut shares, mut used) = (Vec::new(), Vec::new());
        let queue = cell.queue_products;
        for round in 1..=rounds {
            rig.reconnect(Contestant::Gramway)?;
            let entrance = rig.forward(Contestant::Gramway)?.entrances[0];
            let target = targets()[1];
            let ours = upwards([entrance, targets()[0]], inner, FAIR_SECONDS);
            let theirs = upwards([target, target], beside, FAIR_SECONDS);
            let [ours, theirs] = together(&rig, [ours, theirs])?;
            shares.push(ours / (ours + theirs).max(1.0));
            used.push((ours + theirs) / cell.rate_bits_per_second());
            links.push((format!("queue {queue}, round {round}"), rig.link_report()?[0]));
        }
        let what = format!("of the link beside {}, queue {queue}", beside.name());
        checks.push(Check::new(what, median(&shares), FAIR_SHARE));
        checks.push(Check::new("used by both", median(&used), Bound::Free));
    }
    Ok((checks, links))
}

fn jain(programs: &Programs, inner: Inner, rounds: u32) -> Result<Outcome, Error> {
    let mut rig = Rig::build(programs, JAIN_CELL, inner)?;
    let mut both = Running::two_of_gramway(programs, &rig.network)?;
    let (mut indices, mut used, mut links) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=rounds {
        for client in &mut both {
            client.reconnect(&rig.network)?;
        }
        rig.wait_until_idle()?;
        let stream = |number: usize| {
            let ends = [both[number].entrances[number], targets()[number]];
            upwards(ends, inner, JAIN_SECONDS)
        };
        let rates = together(&rig, [stream(0), stream(1)])?;
        indices.push(jain_index(&rates));
        used.push(rates.iter().sum::<f64>() / JAIN_CELL.rate_bits_per_second());
        links.push((format!("two clients, round {round}"), rig.link_report()?[0]));
    }
    let checks = vec![
        Check::new("Jain's index", median(&indices), Bound::AtLeast(JAIN_MIN)),
        Check::new("used by both", median(&used), Bound::Free),
    ];
    Ok((checks, links))
}

/// One where all have the same, one divided by their number where one has all.
fn jain_index(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    sum * sum / (rates.len() as f64 * squares).max(1.0)
}

fn delay(programs: &Programs, installed: &[Installed], inner: Inner) -> Result<Outcome, Error> {
    let mut rig = rig(programs, DELAY_CELL, inner, installed, &[Contestant::Gramway])?;
    rig.wait_until_idle()?;
    let entrance = rig.forward(Contestant::Gramway)?.entrances[0];
    let round_trip = DELAY_CELL.round_trip();
    let warm_up = round_trip * WARM_UP_ROUND_TRIPS;
    let plan = FlowPlan {
        is_up: true,
        payload_bytes: CALL_BYTES,
        per_second: CALL_PER_SECOND,
        warm_up,
        duration: Duration::from_secs(DELAY_SECONDS.into()),
        round_trip,
    };
    let seconds = DELAY_SECONDS + warm_up.as_secs() as u32;
    let stream = upwards([entrance, targets()[0]], inner, seconds);
    let (stream, call) = std::thread::scope(|scope| {
        let machines = rig.machines();
        let stream = scope.spawn(move || stream.run(machines));
        let call = rig.flow(Contestant::Gramway, &plan);
        (joined(stream.join()), call)
    });
    let (rate, call) = (stream?.0, call?);
    let link = rig.link_report()?[0];
    let queue = link.queue.p95_ms / DELAY_CELL.round_trip_ms;
    let extra = |time: f64| time - DELAY_CELL.round_trip_ms / 2.0;
    let checks = vec![
        Check::new(
            "round trips of queue p95",
            queue,
            Bound::AtMost(QUEUE_ROUND_TRIPS_MAX),
        ),
        Check::new(
            "ms later p99",
            extra(call.p99_ms),
            Bound::AtMost(EXTRA_DELAY_MS_MAX),
        ),
        Check::new("ms later p50", extra(call.p50_ms), Bound::Free),
        Check::new("points lost", call.loss * 100.0, Bound::Free),
        Check::new("of link", rate / DELAY_CELL.rate_bits_per_second(), Bound::Free),
    ];
    Ok((checks, vec![("queue 4".to_owned(), link)]))
}

fn first_second(
    programs: &Programs,
    installed: &[Installed],
    inner: Inner,
    rounds: u32,
) -> Result<Outcome, Error> {
    let who = [Contestant::Gramway, Contestant::Hysteria2, Contestant::Direct];
    let mut rig = rig(programs, FIRST_CELL, inner, installed, &who)?;
    let mut checks = Vec::new();
    let contestants = rig.contestants();
    let mut measured = vec![Vec::new(); contestants.len()];
    for _ in 0..rounds {
        for (contestant, runs) in contestants.iter().zip(&mut measured) {
            let mut run = rig.run(*contestant, Load::TcpUp, FIRST_SECONDS)?;
            run.bits_per_second = in_first_second(&run.steps);
            runs.push(run);
        }
    }
    for (contestant, runs) in contestants.iter().zip(&measured) {
        let megabits = rate(runs) / 1e6;
        checks.push(Check::new(
            format!("Mbit {}", contestant.name()),
            megabits,
            Bound::Free,
        ));
    }
    Ok((checks, Vec::new()))
}

/// Bits that arrived in the first second.
fn in_first_second(steps: &[RateStep]) -> f64 {
    let mut before = 0.0;
    let mut bits = 0.0;
    for step in steps.iter().take_while(|step| step.seconds < 1.05) {
        bits += step.bits_per_second * (step.seconds - before);
        before = step.seconds;
    }
    bits
}

/// A stream from client to server between an entrance and a target.
fn upwards([address, target]: [SocketAddr; 2], congestion: Inner, seconds: u32) -> Stream {
    Stream {
        address,
        target,
        congestion,
        is_up: true,
        seconds,
    }
}

/// Runs two streams at the same time; gives their bits per second.
fn together(rig: &Rig, [first, second]: [Stream; 2]) -> Result<[f64; 2], Error> {
    let machines = rig.machines();
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(move || first.run(machines));
        let second = second.run(machines);
        (joined(first.join()), second)
    });
    Ok([first?.0, second?.0])
}

fn joined<T>(result: std::thread::Result<T>) -> T {
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// A link with some of the contestants.
fn rig(
    programs: &Programs,
    cell: Cell,
    inner: Inner,
    installed: &[Installed],
    who: &[Contestant],
) -> Result<Rig, Error> {
    let mut rig = Rig::build(programs, cell, inner)?;
    let chosen = installed.iter().filter(|found| who.contains(&found.contestant));
    let failed = rig.start(&chosen.cloned().collect::<Vec<_>>());
    let reason = |(contestant, reason): (Contestant, String)| Error::Child {
        program: contestant.name().to_owned(),
        reason,
    };
    failed
        .into_iter()
        .next()
        .map_or(Ok(rig), |failure| Err(reason(failure)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_of_jain_is_one_for_equals_and_a_half_where_one_of_two_has_all() {
        assert_eq!(jain_index(&[4e7, 4e7]), 1.0);
        assert_eq!(jain_index(&[8e7, 0.0]), 0.5);
        assert_eq!(jain_index(&[0.0, 0.0]), 0.0);
    }

    #[test]
    fn the_first_second_is_ten_steps() {
        let step = |number: u32| RateStep {
            seconds: f64::from(number) / 10.0,
            bits_per_second: f64::from(number) * 1e6,
        };
        let steps: Vec<RateStep> = (1..=20).map(step).collect();
        assert!((in_first_second(&steps) - 5.5e6).abs() < 1.0);
    }
}
