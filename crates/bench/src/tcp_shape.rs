//! `bench tcp`: UDP in packets that look like TCP. A pair of `gramway relay` beside the same wire without anything, the
//! plaintext relay, and phantun; and the tunnel with this carrier beside the one with UDP.
//!
//! Each contestant has two network namespaces of its own, joined by a cable (veth, MTU 1,500), because phantun needs
//! them to track and translate connections, which the others shall not pay for. In a case they take turns; the median
//! run represents its contestant. Each case says what it must reach.

mod cases;
mod connections;
mod contestant;
mod measure;
mod report;

use std::collections::BTreeMap;
use std::io::Write;

use rustix::process::{Resource, getrlimit, setrlimit};
use serde::Serialize;
use testbed::programs;

use crate::check::Check;
use crate::machine::Machine;
use crate::matrix::{self, MatrixOptions, Measured, print};
use crate::median::median_index;
use crate::rivals::phantun;
use crate::sweeper::Sweeper;
use crate::{Error, Programs};
use cases::Case;
use contestant::Contestant;
use measure::{Measurement, Rig};
use report::Report;

/// Seconds per run when none are given.
const SECONDS: u32 = 2;

/// What every case needs of the system: program and Debian package.
const NEEDED: [(&str, &str); 3] = [("ip", "iproute2"), ("nft", "nftables"), ("iperf3", "iperf3")];

/// One case with the median run of each contestant.
#[derive(Clone, Debug, Serialize)]
struct Row {
    case: Case,
    results: BTreeMap<Contestant, Measurement>,
    /// What [`Measurement::merit`] was in each run.
    runs: BTreeMap<Contestant, Vec<f64>>,
    checks: Vec<Check>,
    /// Who did not start, or did not finish a run, and why.
    failures: Vec<(Contestant, String)>,
}

#[derive(Serialize)]
struct Results<'a> {
    machine: &'a Machine,
    phantun: Option<&'a str>,
    gramway: &'a str,
    seconds: u32,
    rows: &'a [Row],
}

/// Runs the cases and prints each as soon as it is measured.
///
/// # Errors
/// Without root, when a program of the system is missing or no case is chosen, when one of Gramway's contestants could
/// not be measured somewhere (the other cases are), or when results can't be written.
pub fn run(programs: &Programs, options: &MatrixOptions, output: &mut dyn Write) -> Result<(), Error> {
    programs.check()?;
    let chosen = options.choose(cases::all())?;
    matrix::check_system(&NEEDED)?;
    // Each of phantun's connections has a socket for each core.
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    let _sweeper = Sweeper::start(programs)?;
    let machine = Machine::describe();
    print(output, &machine.to_string())?;
    let version = programs::said(programs.gramway().arg("--version"));
    let rival = phantun::find();
    match &rival {
        Some(found) => print(output, &format!("{version}; {}", found.version))?,
        None => print(output, &format!("{version}; {}", phantun::HOW_TO_GET))?,
    }
    let (with_carrier, without): (Vec<Case>, Vec<Case>) =
        chosen.into_iter().partition(|case| case.load.needs_carrier());
    let mut cases = without;
    if contestant::has_carrier(programs) {
        cases.extend(with_carrier);
    } else if !with_carrier.is_empty() {
        print(output, "carrier-*: left out, this gramway has no `up --tcp`")?;
    }
    let seconds = options.seconds.unwrap_or(SECONDS);
    let report = Report::new();
    print(output, &report.header())?;
    let measure = |case: Case| {
        let row = measure_case(programs, rival.as_ref(), &case, options.runs(), seconds)?;
        let ours = case.load.contestants().iter().filter(|one| one.is_ours());
        Ok(Measured {
            lines: report.lines(&row),
            is_whole: ours.into_iter().all(|one| row.results.contains_key(one)),
            row,
        })
    };
    let save = |rows: &[Row]| {
        options.save(&Results {
            machine: &machine,
            phantun: rival.as_ref().map(|found| found.version.as_str()),
            gramway: &version,
            seconds,
            rows,
        })
    };
    let measured = matrix::go_through(cases, output, measure, save);
    print(output, report::LEGEND)?;
    measured
}

fn measure_case(
    programs: &Programs,
    rival: Option<&phantun::Installed>,
    case: &Case,
    runs: usize,
    seconds: u32,
) -> Result<Row, Error> {
    let (mut rigs, mut failures) = (Vec::new(), Vec::new());
    for contestant in case.load.contestants() {
        if *contestant == Contestant::Phantun && rival.is_none() {
            continue;
        }
        match Rig::start(programs, *contestant, rival) {
            Ok(rig) => rigs.push(rig),
            Err(error) => failures.push((*contestant, error.to_string())),
        }
    }
    let mut measured: BTreeMap<Contestant, Vec<Measurement>> = BTreeMap::new();
    for _ in 0..case.load.runs(runs) {
        for rig in &rigs {
            match rig.run(programs, case.load, seconds) {
                Ok(run) => measured.entry(rig.contestant()).or_default().push(run),
                Err(error) => failures.push((rig.contestant(), error.to_string())),
            }
        }
    }
    let merits = |runs: &Vec<Measurement>| runs.iter().map(Measurement::merit).collect::<Vec<_>>();
    let runs = measured
        .iter()
        .map(|(contestant, runs)| (*contestant, merits(runs)));
    let runs: BTreeMap<_, _> = runs.collect();
    let results: BTreeMap<_, _> = measured
        .into_iter()
        .filter_map(|(contestant, all)| {
            let index = median_index(&runs[&contestant])?;
            Some((contestant, all.into_iter().nth(index)?))
        })
        .collect();
    Ok(Row {
        checks: case.checks(&results),
        case: case.clone(),
        results,
        runs,
        failures,
    })
}
