//! `bench peers`: messages and streams between two programs, by Gramway's peers, by iroh without relays and discovery,
//! and by quinn.
//!
//! Each trial starts a server and a client as processes of their own, and counts at whoever receives. All contestants
//! run the same code (`trial`) with the same bounds on what is under way. They take turns, and the median of each
//! figure counts. Each figure says what the ratio to the better rival must be, and what is aimed at.

mod cases;
mod contestant;
mod measure;
mod ours;
mod report;
pub(crate) mod trial;

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;

use crate::check::Check;
use crate::machine::Machine;
use crate::matrix::{self, MatrixOptions, Measured, print};
use crate::median::median;
use crate::rivals::libraries;
use crate::sweeper::Sweeper;
use crate::{Error, Programs, hidden};
use cases::{Case, Figure, Wire};
use contestant::Contestant;
use measure::{Measurement, Rig};
use trial::Load;

/// Seconds per run when none are given.
const SECONDS: u32 = 2;

/// Seconds of a run over the long path at least: a hundred of its round trips.
const LOSSY_SECONDS_MIN: u32 = 10;

/// Seconds of a run of round trips at least: some thousand, so that a percentile is not that of a few waits.
const ROUND_TRIPS_SECONDS_MIN: u32 = 5;

/// Name of the hidden command that runs one end of Gramway's trial.
const COMMAND: &str = "_peers";

/// The same for endpoints with threads of their own.
const COMMAND_OF_THREADS: &str = "_peers-threads";

/// One case with the medians of each contestant.
#[derive(Clone, Debug, Serialize)]
struct Row {
    case: Case,
    medians: BTreeMap<Contestant, BTreeMap<Figure, f64>>,
    runs: BTreeMap<Contestant, Vec<Measurement>>,
    checks: Vec<Check>,
    /// Who did not finish a run, and why.
    failures: Vec<(Contestant, String)>,
}

#[derive(Serialize)]
struct Results<'a> {
    machine: &'a Machine,
    seconds: u32,
    rows: &'a [Row],
}

/// Whether `name` is the hidden command of this benchmark's own processes.
#[must_use]
pub fn is_hidden(name: &str) -> bool {
    [COMMAND, COMMAND_OF_THREADS].contains(&name)
}

/// Runs the hidden command; `arguments` are its name and its options as JSON.
///
/// # Errors
/// When the options are unknown, or the client cannot go on.
pub fn run_hidden(arguments: &[String]) -> Result<(), Error> {
    let options = hidden::options(arguments)?;
    let has_threads = arguments.first().is_some_and(|name| name == COMMAND_OF_THREADS);
    let run = match has_threads {
        true => trial::run::<ours::OnThread>,
        false => trial::run::<peer::Endpoint>,
    };
    run(&options).map_err(Error::Setup)
}

/// Runs the cases and prints each as soon as it is measured.
///
/// # Errors
/// When no case is chosen, when a case needs root or programs of the system that are missing, when Gramway could not be
/// measured somewhere (the other cases are), or when results can't be written.
pub fn run(programs: &Programs, options: &MatrixOptions, output: &mut dyn Write) -> Result<(), Error> {
    let chosen = options.choose(cases::all())?;
    let needs_wire = chosen.iter().any(|case| case.wire == Wire::Lossy);
    if needs_wire {
        matrix::check_system(&[("ip", "iproute2")])?;
    }
    let _sweeper = needs_wire.then(|| Sweeper::start(programs)).transpose()?;
    let machine = Machine::describe();
    print(output, &machine.to_string())?;
    let rivals = libraries::find();
    if rivals.is_none() {
        print(output, libraries::HOW_TO_GET)?;
    }
    let rig = Rig {
        programs,
        rivals: rivals.as_deref(),
    };
    let seconds = options.seconds.unwrap_or(SECONDS);
    print(output, &report::header())?;
    let measure = |case: Case| {
        let row = measure_case(&rig, &case, options.runs(), seconds);
        Ok(Measured {
            lines: report::lines(&row),
            is_whole: row.medians.contains_key(&Contestant::Gramway),
            row,
        })
    };
    let save = |rows: &[Row]| {
        options.save(&Results {
            machine: &machine,
            seconds,
            rows,
        })
    };
    let measured = matrix::go_through(chosen, output, measure, save);
    print(output, report::LEGEND)?;
    measured
}

/// All runs of one case. A contestant that fails once is not asked again.
fn measure_case(rig: &Rig<'_>, case: &Case, runs: usize, seconds: u32) -> Row {
    let mut measured: BTreeMap<Contestant, Vec<Measurement>> = BTreeMap::new();
    let mut failures: Vec<(Contestant, String)> = Vec::new();
    let seconds = seconds.max(match (case.wire, case.load) {
        (Wire::Lossy, _) => LOSSY_SECONDS_MIN,
        (Wire::Loopback, Load::RoundTrips { .. }) => ROUND_TRIPS_SECONDS_MIN,
        (Wire::Loopback, _) => 0,
    });
    for _ in 0..runs {
        for contestant in rig.contestants() {
            if failures.iter().any(|(failed, _)| *failed == contestant) {
                continue;
            }
            match rig.run(contestant, case, seconds) {
                Ok(run) => measured.entry(contestant).or_default().push(run),
                Err(error) => failures.push((contestant, error.to_string())),
            }
        }
    }
    let medians: BTreeMap<_, _> = measured
        .iter()
        .map(|(contestant, runs)| {
            let of = |figure: Figure| {
                let values: Vec<f64> = runs.iter().map(|run| run.figures[&figure]).collect();
                (figure, median(&values))
            };
            let figures = case.demands.iter().map(|demand| of(demand.figure)).collect();
            (*contestant, figures)
        })
        .collect();
    Row {
        checks: case.checks(&medians),
        case: case.clone(),
        medians,
        runs: measured,
        failures,
    }
}
