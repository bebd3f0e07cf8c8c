//! `bench front-door`: what a server's front door (specs/qr1.md) costs and bears, on two machines with one cable.
//!
//! Three questions: how many handshakes a second a core makes with and without it, by the processor time of the server's
//! process; how much longer a stranger waits for the first byte of the web site through the relay; and what an honest
//! client loses of 1 Gbit/s of UDP beside ten thousand spoofed handshakes a second. What is compared takes turns, and
//! medians count. The site and the spoofed packets' sender would be elsewhere: both have the lowest priority.

mod cases;
mod handshakes;
mod scene;
mod site;
mod spoofing;

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;

use crate::check::Check;
use crate::hidden::{parse, say, stop_at_end_of_input};
use crate::machine::Machine;
use crate::matrix::{self, MatrixOptions, Measured, print};
use crate::median::median;
use crate::sweeper::Sweeper;
use crate::table::{Align, Table};
use crate::{Error, Programs};
use cases::Case;
use spoofing::Spoofing;

/// Seconds per run when none are given.
const SECONDS: u32 = 3;

/// What every case needs of the system: program and Debian package.
const NEEDED: [(&str, &str); 2] = [("ip", "iproute2"), ("nice", "coreutils")];

/// Subcommands of the benchmark's own processes.
const SPOOF: &str = "_spoof";
const SITE: &str = "_site";
const VISIT: &str = "_visit";
const HANDSHAKES: &str = "_handshakes";

/// One of the things that a case compares, measured once.
#[derive(Clone, Debug, Serialize)]
struct Run {
    contestant: &'static str,
    value: f64,
    /// What else was counted.
    details: BTreeMap<&'static str, f64>,
}

/// One case with all its runs.
#[derive(Clone, Debug, Serialize)]
struct Row {
    case: Case,
    /// Of all values.
    unit: &'static str,
    medians: BTreeMap<&'static str, f64>,
    runs: Vec<Run>,
    checks: Vec<Check>,
}

#[derive(Serialize)]
struct Results<'a> {
    machine: &'a Machine,
    seconds: u32,
    rows: &'a [Row],
}

/// Whether `name` is a hidden command of this benchmark's own processes.
#[must_use]
pub fn is_hidden(name: &str) -> bool {
    [SPOOF, SITE, VISIT, HANDSHAKES].contains(&name)
}

/// Runs the hidden command; `arguments` are its name and its options as JSON.
///
/// # Errors
/// When the options are unknown, or the load can't run.
pub fn run_hidden(arguments: &[String]) -> Result<(), Error> {
    let [name, options] = arguments else {
        return Err(Error::Usage(
            "hidden load commands take their options as one JSON argument".to_owned(),
        ));
    };
    match name.as_str() {
        SPOOF => {
            let spoofing = Spoofing::prepare(parse(options)?)?;
            say(&())?;
            say(&spoofing.run(&stop_at_end_of_input())?)
        }
        SITE => site::serve(parse(options)?),
        VISIT => say(&site::visit(&parse(options)?)?),
        _ => say(&handshakes::run(&parse(options)?)?),
    }
}

/// Runs the cases and prints each as soon as it is measured. What misses its bound is told, and is no error.
///
/// # Errors
/// Without root, when no case is chosen, a program is missing or a case cannot be measured, or when results can't be
/// written.
pub fn run(programs: &Programs, options: &MatrixOptions, output: &mut dyn Write) -> Result<(), Error> {
    programs.check()?;
    let cases = options.choose(Case::ALL.to_vec())?;
    matrix::check_system(&NEEDED)?;
    let _sweeper = Sweeper::start(programs)?;
    let seconds = options.seconds.unwrap_or(SECONDS);
    let machine = Machine::describe();
    print(output, &machine.to_string())?;
    let table = Table::new(&[
        ("case", 11, Align::Left),
        ("contestant", 10, Align::Left),
        ("median", 9, Align::Right),
        ("unit", 22, Align::Left),
        ("runs, and the last one's details", 0, Align::Left),
    ]);
    print(output, &table.header())?;
    let measure = |case: Case| {
        let runs = case.measure(programs, options.runs(), seconds)?;
        let row = Row::new(case, runs);
        Ok(Measured {
            lines: row.lines(&table),
            row,
            is_whole: true,
        })
    };
    let save = |rows: &[Row]| {
        options.save(&Results {
            machine: &machine,
            seconds,
            rows,
        })
    };
    matrix::go_through(cases, output, measure, save)
}

impl Row {
    fn new(case: Case, runs: Vec<Run>) -> Self {
        let medians: BTreeMap<_, _> = case
            .contestants()
            .into_iter()
            .map(|contestant| (contestant, median(&values(&runs, contestant))))
            .collect();
        Self {
            case,
            unit: case.unit(),
            checks: case.checks(&medians),
            medians,
            runs,
        }
    }

    fn lines(&self, table: &Table) -> Vec<String> {
        let of = |contestant| {
            let all: Vec<String> = values(&self.runs, contestant)
                .iter()
                .map(|value| format!("{value:.2}"))
                .collect();
            let last = self.runs.iter().rfind(|run| run.contestant == contestant);
            let details = last.into_iter().flat_map(|run| &run.details);
            let details: Vec<String> = details
                .map(|(name, value)| format!("{name} {value:.1}"))
                .collect();
            table.row(&[
                self.case.to_string(),
                contestant.to_owned(),
                format!("{:.2}", self.medians[contestant]),
                self.unit.to_owned(),
                format!("{}; {}", all.join(" "), details.join(", ")),
            ])
        };
        let mut lines: Vec<String> = self.case.contestants().into_iter().map(of).collect();
        lines.extend(self.checks.iter().map(|check| format!("  {check}")));
        lines
    }
}

fn values(runs: &[Run], contestant: &str) -> Vec<f64> {
    let own = runs.iter().filter(|run| run.contestant == contestant);
    own.map(|run| run.value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_median_of_each_contestant_and_says_what_misses_its_bound() {
        let run = |contestant, value| Run {
            contestant,
            value,
            details: BTreeMap::new(),
        };
        let [calm, flooded] = Case::Flood.contestants();
        let runs = [0.1, 0.0, 0.2]
            .into_iter()
            .flat_map(|loss| [run(calm, loss), run(flooded, 5.0 + loss)]);
        let row = Row::new(Case::Flood, runs.collect());
        assert_eq!((row.medians[calm], row.medians[flooded]), (0.1, 5.1));
        let table = Table::new(&[("", 0, Align::Left); 5]);
        let lines = row.lines(&table);
        assert_eq!(lines.len(), 3);
        assert!(lines[2].ends_with("MISSED"), "{lines:?}");
    }
}
