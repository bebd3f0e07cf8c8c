//! `bench files`: files from one machine to another by `gramway send` and `receive`, beside croc, scp and rsync; `cp`
//! is the floor.
//!
//! Both machines are network namespaces joined by a cable (veth, MTU 1,500), the files are in the page cache, and their
//! file system is that of the system's temporary directory. In a case the contestants take turns; the median run
//! represents its contestant. A run's time is that of the receiving command from its start to its end; its processor
//! time is that of all processes at both ends.

mod cases;
mod contestant;

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;
use testbed::directory::Directory;
use testbed::programs;

use crate::check::{Bound, Check};
use crate::machine::Machine;
use crate::matrix::{self, MatrixOptions, Measured, print};
use crate::median::median_index;
use crate::network::Network;
use crate::sweeper::Sweeper;
use crate::table::{Align, Table, mebibytes};
use crate::{Error, Programs};
use cases::Case;
use contestant::{Contestant, Run};

/// How to read the table.
const LEGEND: &str = "time and CPU: median run, in seconds; CPU of both ends; memory: the larger peak of Gramway's two processes";

/// Rivals that are not run here, and why.
const LEFT_OUT: &str = "not run: sendme (it finds its peer by servers in the Internet), magic-wormhole (it needs a mailbox server), \
    qcp (it begins by ssh and needs its program at both ends)";

/// One case with the median run of each contestant.
#[derive(Clone, Debug, Serialize)]
struct Row {
    case: &'static str,
    results: BTreeMap<Contestant, Run>,
    /// Seconds of each run.
    runs: BTreeMap<Contestant, Vec<f64>>,
    checks: Vec<Check>,
    /// Who did not start, or did not finish a run, and why.
    failures: Vec<(Contestant, String)>,
}

#[derive(Serialize)]
struct Results<'a> {
    machine: &'a Machine,
    gramway: &'a str,
    rivals: &'a BTreeMap<Contestant, String>,
    rows: &'a [Row],
}

/// Runs the cases and prints each as soon as it is measured.
///
/// # Errors
/// Without root, when no case is chosen, when Gramway could not be measured somewhere (the other cases are), or when
/// results can't be written.
pub fn run(programs: &Programs, options: &MatrixOptions, output: &mut dyn Write) -> Result<(), Error> {
    programs.check()?;
    let chosen = options.choose(cases::all(options.quick))?;
    matrix::check_system(&[("ip", "iproute2")])?;
    let _sweeper = Sweeper::start(programs)?;
    let machine = Machine::describe();
    print(output, &machine.to_string())?;
    let version = programs::said(programs.gramway().arg("--version"));
    print(output, &version)?;
    let mut rivals = BTreeMap::new();
    for contestant in Contestant::ALL {
        match contestant.version() {
            Ok(Some(version)) => {
                print(output, &version)?;
                rivals.insert(contestant, version);
            }
            Ok(None) => {}
            Err(how_to_get) => print(output, &how_to_get)?,
        }
    }
    print(output, LEFT_OUT)?;
    let table = Table::new(&[
        ("case", 12, Align::Left),
        ("contestant", 10, Align::Left),
        ("time", 8, Align::Right),
        ("MiB/s", 8, Align::Right),
        ("CPU", 8, Align::Right),
        ("memory", 8, Align::Right),
    ]);
    print(output, &table.header())?;
    let measure = |case: Case| {
        let row = measure_case(programs, &case, options.runs())?;
        let mut lines: Vec<String> = row
            .results
            .iter()
            .map(|(contestant, run)| {
                table.row(&[
                    case.name.to_owned(),
                    contestant.name().to_owned(),
                    format!("{:.2}", run.seconds),
                    format!("{:.0}", case.bytes() as f64 / run.seconds / f64::from(1 << 20)),
                    format!("{:.2}", run.cpu_seconds),
                    run.peak_bytes.map_or_else(String::new, mebibytes),
                ])
            })
            .collect();
        lines.extend(row.checks.iter().map(|check| format!("  {check}")));
        lines.extend(
            row.failures
                .iter()
                .map(|(contestant, why)| format!("  {}: {why}", contestant.name())),
        );
        Ok(Measured {
            lines,
            is_whole: row.results.contains_key(&Contestant::Gramway),
            row,
        })
    };
    let save = |rows: &[Row]| {
        options.save(&Results {
            machine: &machine,
            gramway: &version,
            rivals: &rivals,
            rows,
        })
    };
    let measured = matrix::go_through(chosen, output, measure, save);
    print(output, LEGEND)?;
    measured
}

fn measure_case(programs: &Programs, case: &Case, runs: usize) -> Result<Row, Error> {
    let directory = Directory::create()?;
    let source = case.make(directory.path())?;
    let network = Network::build(programs, None)?;
    let mut measured: BTreeMap<Contestant, Vec<Run>> = BTreeMap::new();
    let mut failures = Vec::new();
    for number in 0..runs {
        for contestant in Contestant::ALL {
            let has_failed = failures.iter().any(|(failed, _)| *failed == contestant);
            if has_failed || contestant.version().is_err() {
                continue;
            }
            let to = directory.join(&format!("{}-{number}", contestant.name()));
            let run = contestant.run(programs, &network, &source, &to, directory.path());
            let checked = run.and_then(|run| case.check(&source, &to).map(|()| run));
            match checked {
                Ok(run) => measured.entry(contestant).or_default().push(run),
                Err(error) => failures.push((contestant, error.to_string())),
            }
            let _ = std::fs::remove_dir_all(&to);
        }
    }
    let seconds = |runs: &[Run]| runs.iter().map(|run| run.seconds).collect::<Vec<_>>();
    let results: BTreeMap<Contestant, Run> = measured
        .iter()
        .filter_map(|(contestant, runs)| Some((*contestant, runs[median_index(&seconds(runs))?])))
        .collect();
    Ok(Row {
        case: case.name,
        checks: checks(case, &results),
        runs: measured
            .iter()
            .map(|(contestant, runs)| (*contestant, seconds(runs)))
            .collect(),
        results,
        failures,
    })
}

/// What the case must reach, beside whoever was there.
fn checks(case: &Case, results: &BTreeMap<Contestant, Run>) -> Vec<Check> {
    let Some(ours) = results.get(&Contestant::Gramway) else {
        return Vec::new();
    };
    let faster = |rival: Contestant, least: f64| {
        let run = results.get(&rival)?;
        let what = format!("times as fast as {}", rival.name());
        Some(Check::new(
            what,
            run.seconds / ours.seconds,
            Bound::AtLeast(least),
        ))
    };
    let mut checks: Vec<Check> = case
        .faster_than
        .iter()
        .filter_map(|(rival, least)| faster(*rival, *least))
        .collect();
    if let Some(scp) = results.get(&Contestant::Scp).filter(|_| case.judges_cpu) {
        let share = ours.cpu_seconds / scp.cpu_seconds;
        checks.push(Check::new("CPU of scp's", share, Bound::AtMost(0.6)));
    }
    if let Some(peak) = ours.peak_bytes {
        checks.push(Check::new(
            "MiB at most",
            peak as f64 / f64::from(1 << 20),
            Bound::AtMost(128.0),
        ));
    }
    checks
}
