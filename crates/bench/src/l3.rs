//! `bench l3`: IP packets through the tunnel, beside the same wire without one and beside the rivals that the caller
//! names, in the same run.
//!
//! A case builds two network namespaces with one wire, starts every contestant on it, and lets them take turns, so
//! that a change of the machine's speed affects all; the run with the median rate represents its contestant. The wire is
//! a cable (veth, MTU 1,500) or the emulator, a link with delay, loss and rate.

mod calls;
mod cases;
mod contestant;
mod measure;
mod ping;
mod report;

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use serde::Serialize;

use crate::emulator::EmulatorReport;
use crate::machine::Machine;
use crate::matrix::{self, MatrixOptions, Measured, print};
use crate::median::median_index;
use crate::sweeper::Sweeper;
use crate::{Error, Programs};
use cases::{Case, Load};
pub use contestant::Rival;
#[cfg(feature = "rivals")]
pub(crate) use contestant::Running;
pub(crate) use contestant::{Contestant, Installed};
use measure::{Measurement, Rig};
use report::Report;

/// Seconds per run when none are given. Cases that need longer runs take them.
const SECONDS: u32 = 3;

/// What a run costs beside its traffic: starting iperf3, connecting, draining.
const RUN_OVERHEAD: Duration = Duration::from_millis(800);

/// What a case costs once: namespaces, starting the contestants.
const CASE_OVERHEAD: Duration = Duration::from_secs(5);

/// One case with the median run of each contestant.
#[derive(Clone, Debug, Serialize)]
struct Row {
    case: Case,
    /// Seconds per run.
    seconds: u32,
    results: BTreeMap<Contestant, Measurement>,
    /// Receiver rates of all runs, in bits per second.
    receiver_rates: BTreeMap<Contestant, Vec<f64>>,
    /// Who did not start, or did not finish a run, and why.
    failures: Vec<(Contestant, String)>,
    /// What the emulated link did, all runs of all contestants together.
    link: Option<EmulatorReport>,
}

#[derive(Serialize)]
struct Results<'a> {
    machine: &'a Machine,
    contestants: &'a [Installed],
    runs: usize,
    rows: &'a [Row],
}

/// What every row needs of the system: program and Debian package.
const NEEDED: [(&str, &str); 3] = [("ip", "iproute2"), ("ping", "iputils-ping"), ("iperf3", "iperf3")];

/// Runs the cases and prints each as soon as it is measured. A rival that is missing or fails is a dash and a reason.
///
/// # Errors
/// Without root, when no case is chosen, when gramway or the wire itself could not be measured somewhere (the other
/// cases are), or when results can't be written.
pub fn run(
    programs: &Programs,
    options: &MatrixOptions,
    rivals: &[Rival],
    output: &mut dyn Write,
) -> Result<(), Error> {
    programs.check()?;
    let cases = options.choose(cases::all())?;
    matrix::check_system(&NEEDED)?;
    let _sweeper = Sweeper::start(programs)?;
    let wanted = options.seconds.unwrap_or(SECONDS);
    let runs = options.runs();
    let machine = Machine::describe();
    print(output, &machine.to_string())?;
    let (mut installed, mut missing) = (vec![Installed::direct()], Vec::new());
    for rival in rivals {
        match rival.installed() {
            Ok(found) => installed.push(found),
            Err(how_to_get) => missing.push(how_to_get),
        }
    }
    installed.push(Installed::gramway(programs));
    let report = Report::new(rivals);
    print(output, &versions(&installed))?;
    for line in missing {
        print(output, &line)?;
    }
    print(output, &estimate(&cases, installed.len(), runs, wanted))?;
    print(output, &report.header())?;
    let measure = |case| {
        let row = measure_case(programs, case, &installed, runs, wanted)?;
        let needed = [Contestant::DIRECT, Contestant::GRAMWAY];
        Ok(Measured {
            lines: report.lines(&row),
            is_whole: needed.iter().all(|needed| row.results.contains_key(needed)),
            row,
        })
    };
    let save = |rows: &[Row]| {
        options.save(&Results {
            machine: &machine,
            contestants: &installed,
            runs,
            rows,
        })
    };
    let measured = matrix::go_through(cases, output, measure, save);
    print(output, &report.legend())?;
    measured
}

fn versions(installed: &[Installed]) -> String {
    let told = installed
        .iter()
        .filter(|found| found.contestant != Contestant::DIRECT)
        .map(|found| format!("{}: {}", found.contestant.name(), found.version));
    told.collect::<Vec<_>>().join("; ")
}

fn estimate(cases: &[Case], contestants: usize, runs: usize, wanted: u32) -> String {
    let case = |case: &Case| {
        // Pings run twice, alone and beside the load.
        let passes = if matches!(case.load, Load::Ping) { 2 } else { 1 };
        let run = Duration::from_secs(u64::from(case.seconds(wanted) * passes)) + RUN_OVERHEAD;
        run * u32::try_from(runs * contestants).unwrap_or(u32::MAX) + CASE_OVERHEAD
    };
    let minutes = cases.iter().map(case).sum::<Duration>().as_secs().div_ceil(60);
    format!(
        "{} case(s), {contestants} contestants, {runs} run(s) each: about {minutes} minute(s)",
        cases.len()
    )
}

fn measure_case(
    programs: &Programs,
    case: Case,
    installed: &[Installed],
    runs: usize,
    wanted: u32,
) -> Result<Row, Error> {
    let seconds = case.seconds(wanted);
    let (rig, failed) = Rig::start(programs, &case, seconds, installed)?;
    let mut failures: Vec<(Contestant, String)> = failed
        .into_iter()
        .map(|(contestant, error)| (contestant, error.to_string()))
        .collect();
    let mut measured: BTreeMap<Contestant, Vec<Measurement>> = BTreeMap::new();
    for _ in 0..runs {
        for contestant in rig.contestants() {
            match rig.run(contestant) {
                Ok(run) => measured.entry(contestant).or_default().push(run),
                Err(error) => failures.push((contestant, error.to_string())),
            }
        }
    }
    let link = rig.finish()?;
    let rates = |runs: &Vec<Measurement>| runs.iter().map(|run| run.receiver_bits_per_second).collect();
    let receiver_rates = measured
        .iter()
        .map(|(contestant, runs)| (*contestant, rates(runs)))
        .collect();
    let merit = |run: &Measurement| {
        let ping = run.pings.map(|[_, beside]| beside.p99_ms);
        ping.or(run.worst_call.map(|call| call.p99_ms))
            .unwrap_or(run.receiver_bits_per_second)
    };
    let median = |(contestant, runs): (Contestant, Vec<Measurement>)| {
        let merits: Vec<f64> = runs.iter().map(merit).collect();
        let index = median_index(&merits).expect("a contestant is listed with its first run");
        Some((contestant, runs.into_iter().nth(index)?))
    };
    let results = measured.into_iter().filter_map(median).collect();
    Ok(Row {
        case,
        seconds,
        results,
        receiver_rates,
        failures,
        link,
    })
}
