//! `bench rpc`: typed calls between programs of one machine, over irpc-uds and over what else there is, in the same run.
//!
//! Every run starts processes of its own: a server, and one with all clients; or one process with both. Contestants take
//! turns, so that a change of the machine's mood meets all; where a case has several rounds, the one with the median
//! rate counts. The contestants come with libraries that the shipped program has no use for, so this module exists only
//! with the feature `rivals`.

mod cases;
mod child;
mod client;
mod measure;
mod outcome;
mod overgrpc;
mod overirpc;
mod overtarpc;
mod raw;
mod report;
mod sample;
mod service;
mod syscalls;
mod usage;

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::error::During;
use crate::machine::Machine;
use crate::matrix::write_json;
use crate::median::median_index;
use crate::{Error, Programs, limits};
use cases::{Case, Contestant, Place};
use measure::{Measurement, Rig};
pub(crate) use outcome::failed;

/// How long a run lasts: with all of them the benchmark stays below five minutes.
const SPAN: Duration = Duration::from_millis(550);

/// How long a quick run lasts.
const QUICK_SPAN: Duration = Duration::from_millis(100);

/// How long a run lasts in which system calls are counted: their number per call hardly varies.
const COUNTING_SPAN: Duration = Duration::from_millis(100);

/// Rounds of headline cases, of which the median counts.
const ROUNDS: usize = 3;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// What to start.
    pub programs: Programs,
    /// Results as JSON go into this file, rewritten after each case.
    pub json: Option<PathBuf>,
    /// One short round of everything.
    pub quick: bool,
    /// Only what contains one of these in `case/contestant`; empty is all.
    pub only: Vec<String>,
}

/// A contestant's result in a case and place.
#[derive(Clone, Debug, Serialize)]
struct Row {
    case: Case,
    contestant: Contestant,
    place: Place,
    /// The median round.
    result: Option<Measurement>,
    /// Calls per second of all rounds.
    rates: Vec<f64>,
    /// Why a round could not be measured; none if all were.
    failure: Option<String>,
}

impl Row {
    /// Whether the whole run fails with it: what this benchmark is about, and what that is compared with, must answer;
    /// a rival that cannot do a case loses it.
    fn is_fatal(&self) -> bool {
        self.failure.is_some() && !self.contestant.is_rival()
    }
}

#[derive(Serialize)]
struct Results<'a> {
    machine: &'a Machine,
    rows: &'a [Row],
}

/// Whether `name` is the hidden command of this benchmark's own processes.
#[must_use]
pub fn is_hidden(name: &str) -> bool {
    name == child::COMMAND
}

/// Runs the hidden command; `arguments` are its name and its options as JSON.
///
/// # Errors
/// When the options are unknown, or a call fails or is answered wrongly.
pub fn run_hidden(arguments: &[String]) -> Result<(), Error> {
    child::run(arguments)
}

/// Runs the cases and prints each as soon as it is measured.
///
/// # Errors
/// When nothing is chosen, when irpc-uds or the raw floor could not be measured (the rest is), or when results can't be
/// written. A rival that fails is a line of the table with its reason.
pub fn run(options: &Options, output: &mut dyn Write) -> Result<(), Error> {
    let chosen = |case: &Case| -> Vec<(Contestant, Place)> {
        let places = [Place::TwoProcesses, Place::OneProcess];
        let pairs = places
            .into_iter()
            .flat_map(|place| cases::ALL.map(|contestant| (contestant, place)));
        pairs
            .filter(|(contestant, place)| {
                contestant.can(case.load, *place) && case.is_chosen(*contestant, &options.only)
            })
            .collect()
    };
    let cases: Vec<Case> = cases::all()
        .into_iter()
        .filter(|case| !chosen(case).is_empty())
        .collect();
    if cases.is_empty() {
        return Err(Error::Usage(no_such_case()));
    }
    let mut print = |line: &str| {
        writeln!(output, "{line}")
            .and_then(|()| output.flush())
            .during(|| "print the table".to_owned())
    };
    let machine = Machine::describe();
    print(&machine.to_string())?;
    print(&report::header())?;
    let directory = measure::directory()?;
    let mut rig = Rig {
        programs: &options.programs,
        directory: directory.path(),
        runs: 0,
    };
    let mut rows = Vec::new();
    for case in &cases {
        rows.extend(measure_case(&mut rig, *case, &chosen(case), options.quick));
        for line in report::lines(case, &rows) {
            print(&line)?;
        }
        if let Some(path) = &options.json {
            let results = Results {
                machine: &machine,
                rows: &rows,
            };
            write_json(path, &results)?;
        }
    }
    for line in report::beside_the_sketch(&rows) {
        print(&line)?;
    }
    print(report::LEGEND)?;
    verdict(&rows)
}

/// An error that names what had to be measured and was not.
fn verdict(rows: &[Row]) -> Result<(), Error> {
    let failed: Vec<String> = rows
        .iter()
        .filter(|row| row.is_fatal())
        .map(|row| format!("{}/{}", row.case.name, row.contestant.name()))
        .collect();
    if failed.is_empty() {
        Ok(())
    } else {
        Err(Error::Cases(failed.join(", ")))
    }
}

/// All rounds of one case. A contestant that fails once is not asked again.
fn measure_case(rig: &mut Rig<'_>, case: Case, chosen: &[(Contestant, Place)], quick: bool) -> Vec<Row> {
    let span = if quick { QUICK_SPAN } else { SPAN };
    let rounds = if case.headline && !quick { ROUNDS } else { 1 };
    let mut results: Vec<(Vec<Measurement>, Option<String>)> = vec![(Vec::new(), None); chosen.len()];
    for _ in 0..rounds {
        for ((contestant, place), (measured, failure)) in chosen.iter().zip(&mut results) {
            if failure.is_some() {
                continue;
            }
            let start = Instant::now();
            match rig.run(*contestant, case.load, *place, span, false) {
                Ok(measurement) => measured.push(measurement),
                Err(error) => *failure = Some(reason(&error, start.elapsed())),
            }
        }
    }
    let rows = chosen.iter().zip(results);
    rows.map(|((contestant, place), (measured, failure))| {
        let rates: Vec<f64> = measured.iter().map(|measurement| measurement.rate).collect();
        let mut result = median_index(&rates).map(|index| measured[index].clone());
        if let Some(result) = &mut result
            && *place == Place::TwoProcesses
            && let Ok(counted) = rig.run(*contestant, case.load, *place, COUNTING_SPAN, true)
        {
            result.system_calls = counted.system_calls;
        }
        Row {
            case,
            contestant: *contestant,
            place: *place,
            result,
            rates,
            failure,
        }
    })
    .collect()
}

/// Why a run failed that took `elapsed`. One that came to no end has no last words of its own.
fn reason(error: &Error, elapsed: Duration) -> String {
    if elapsed < limits::READY_TIMEOUT {
        error.to_string()
    } else {
        format!("no answer, given up after {} s: {error}", elapsed.as_secs())
    }
}

fn no_such_case() -> String {
    let cases: Vec<&str> = cases::all().iter().map(|case| case.name).collect();
    let contestants = cases::ALL.map(Contestant::name);
    format!(
        "--only matches nothing; it is looked for in CASE/CONTESTANT with the cases {} and the contestants {}",
        cases.join(" "),
        contestants.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(contestant: Contestant) -> Row {
        Row {
            case: cases::all()[0],
            contestant,
            place: Place::TwoProcesses,
            result: None,
            rates: Vec::new(),
            failure: Some("it said no".to_owned()),
        }
    }

    #[test]
    fn a_rival_that_fails_loses_its_case_and_only_ours_and_the_floor_fail_the_run() {
        use Contestant::{InProcess, Quic, Seqpacket, Stream, Tarpc, Tonic, Unix, UnixSpin};
        let mut rows: Vec<Row> = [InProcess, Quic, Tonic, Tarpc].map(failed).into();
        verdict(&rows).expect("rivals only");
        rows.extend([Unix, UnixSpin, Seqpacket, Stream].map(failed));
        let error = verdict(&rows).expect_err("ours, and the floor").to_string();
        let named = "sequential/unix, sequential/unix-spin, sequential/raw-seqpacket, sequential/raw-stream";
        assert!(error.ends_with(named), "{error}");
    }

    #[test]
    fn a_run_without_an_end_says_how_long_it_was_waited_for() {
        let error = Error::Setup("it said nothing".to_owned());
        assert!(!reason(&error, Duration::from_secs(2)).contains("given up"));
        let given_up = reason(&error, Duration::from_millis(16_900));
        assert!(given_up.contains("given up after 16 s") && given_up.contains("it said nothing"));
    }
}
