//! `bench relayed`: a pair of peers that a server relays, beside the same pair where the server's kernel forwards its
//! packets and where they pass the UDP forward of a client.
//!
//! Three network namespaces in a row, with cables or with a slow line before the callee. Ways take turns, and the median
//! of each figure counts. What the server does for a gigabyte of what arrives is its processor time.

mod cases;
mod ends;
mod scene;

use std::collections::BTreeMap;
use std::io::Write;
use std::thread::sleep;
use std::time::Duration;

use serde::Serialize;

use crate::machine::Machine;
use crate::matrix::{self, MatrixOptions, Measured, print};
use crate::median::{median, percentile};
use crate::peers::trial::Load;
use crate::peers::trial::counts::Snapshot;
use crate::sweeper::Sweeper;
use crate::table::{Align, Table, count};
use crate::{Error, Programs, hidden};
use cases::{Case, Line, Way};
use scene::Scene;

/// Seconds per run when none are given.
const SECONDS: u32 = 2;

/// Before a run counts: path MTU and congestion window grow.
const WARM_UP: Duration = Duration::from_millis(1_500);

/// Name of the hidden command that runs one end of a pair.
const COMMAND: &str = "_relayed";

const LEGEND: &str = "\
direct: the server's kernel forwards; forwarded: gramway connect -L udp; relayed: by the rendezvous, without any other path
Mbit/s, messages/s: what arrives; p50, p99: 64 bytes there and back beside a bulk stream, in ms; s/GB: processor time of the
server for a gigabyte that arrives; dropped: payloads that the server gave up, of those that came; slow: 20 Mbit/s, 20 ms, a
queue of 250 ms before the callee";

/// What one run gave.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Figures {
    megabits: f64,
    messages: f64,
    median_ms: f64,
    tail_ms: f64,
    server_seconds_per_gigabyte: f64,
    dropped: f64,
}

impl Figures {
    fn medians(runs: &[Self]) -> Self {
        let of = |value: fn(&Self) -> f64| median(&runs.iter().map(value).collect::<Vec<_>>());
        Self {
            megabits: of(|run| run.megabits),
            messages: of(|run| run.messages),
            median_ms: of(|run| run.median_ms),
            tail_ms: of(|run| run.tail_ms),
            server_seconds_per_gigabyte: of(|run| run.server_seconds_per_gigabyte),
            dropped: of(|run| run.dropped),
        }
    }
}

/// One case with the medians of each way.
#[derive(Clone, Debug, Serialize)]
struct Row {
    case: Case,
    medians: BTreeMap<Way, Figures>,
    runs: BTreeMap<Way, Vec<Figures>>,
    failures: Vec<(Way, String)>,
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
    name == COMMAND
}

/// Runs the hidden command; `arguments` are its name and its options as JSON.
///
/// # Errors
/// When the options are unknown, or the end cannot go on.
pub fn run_hidden(arguments: &[String]) -> Result<(), Error> {
    ends::run(hidden::options(arguments)?).map_err(Error::Setup)
}

/// Runs the cases and prints each as soon as it is measured.
///
/// # Errors
/// Without root, when a program is missing or no case is chosen, when a way could not be measured somewhere (the others
/// are), or when results can't be written.
pub fn run(programs: &Programs, options: &MatrixOptions, output: &mut dyn Write) -> Result<(), Error> {
    programs.check()?;
    let chosen = options.choose(cases::all())?;
    matrix::check_system(&[("ip", "iproute2")])?;
    let _sweeper = Sweeper::start(programs)?;
    let machine = Machine::describe();
    print(output, &machine.to_string())?;
    let seconds = options.seconds.unwrap_or(SECONDS);
    print(output, &table().header())?;
    let measure = |case: Case| {
        let row = measure_case(programs, case, options.runs(), seconds);
        Ok(Measured {
            lines: lines(&row),
            is_whole: row.failures.is_empty(),
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
    print(output, LEGEND)?;
    measured
}

/// All runs of one case. A way that fails once is not gone again.
fn measure_case(programs: &Programs, case: Case, runs: usize, seconds: u32) -> Row {
    let mut measured: BTreeMap<Way, Vec<Figures>> = BTreeMap::new();
    let mut failures: Vec<(Way, String)> = Vec::new();
    for _ in 0..runs {
        for way in Way::ALL {
            if failures.iter().any(|(failed, _)| *failed == way) {
                continue;
            }
            match run_once(programs, &case, way, seconds) {
                Ok(figures) => measured.entry(way).or_default().push(figures),
                Err(error) => failures.push((way, error.to_string())),
            }
        }
    }
    let medians = measured
        .iter()
        .map(|(way, runs)| (*way, Figures::medians(runs)))
        .collect();
    Row {
        case,
        medians,
        runs: measured,
        failures,
    }
}

fn run_once(programs: &Programs, case: &Case, way: Way, seconds: u32) -> Result<Figures, Error> {
    let mut scene = Scene::start(programs, case, way)?;
    let [mut caller, mut callee] = scene.join(case)?;
    sleep(WARM_UP);
    let mut moment = || -> Result<_, Error> {
        let said: [Snapshot; 2] = [caller.ask(Duration::ZERO)?, callee.ask(Duration::ZERO)?];
        Ok((said, scene.server()))
    };
    let ([_, before], server_before) = moment()?;
    sleep(Duration::from_secs(seconds.into()));
    let ([caller_after, after], server_after) = moment()?;
    let elapsed = (after.seconds - before.seconds).max(1e-9);
    let bytes = (after.bytes - before.bytes) as f64;
    let round_trips = caller_after.round_trips.iter();
    let mut round_trips: Vec<f64> = round_trips.map(|nanoseconds| *nanoseconds as f64 / 1e6).collect();
    let mut figures = Figures {
        megabits: bytes * 8.0 / 1e6 / elapsed,
        messages: (after.messages - before.messages) as f64 / elapsed,
        median_ms: percentile(&mut round_trips, 0.5),
        tail_ms: percentile(&mut round_trips, 0.99),
        ..Figures::default()
    };
    if let (Some((cpu_before, counted_before)), Some((cpu, counted))) = (server_before, server_after) {
        figures.server_seconds_per_gigabyte = (cpu - cpu_before) / (bytes / 1e9).max(1e-9);
        figures.dropped = counted.since(&counted_before).share_given_up();
    }
    Ok(figures)
}

fn table() -> Table {
    Table::new(&[
        ("case", 17, Align::Left),
        ("way", 10, Align::Left),
        ("Mbit/s", 8, Align::Right),
        ("messages/s", 10, Align::Right),
        ("p50 ms", 8, Align::Right),
        ("p99 ms", 8, Align::Right),
        ("s/GB", 6, Align::Right),
        ("dropped %", 9, Align::Right),
    ])
}

fn lines(row: &Row) -> Vec<String> {
    let dash = || "-".to_owned();
    let of_way = |(way, figures): (&Way, &Figures)| {
        let is_shown = |is: bool, value: String| if is { value } else { dash() };
        let round_trips = matches!(row.case.load, Load::RoundTrips { .. });
        let has_server = *way != Way::Direct;
        table().row(&[
            row.case.name.to_owned(),
            way.name().to_owned(),
            count(figures.megabits.round() as u64),
            is_shown(
                matches!(row.case.load, Load::Unreliable { .. }),
                count(figures.messages.round() as u64),
            ),
            is_shown(round_trips, format!("{:.2}", figures.median_ms)),
            is_shown(round_trips, format!("{:.2}", figures.tail_ms)),
            is_shown(
                has_server && row.case.line == Line::Cable,
                format!("{:.2}", figures.server_seconds_per_gigabyte),
            ),
            is_shown(has_server, format!("{:.2}", 100.0 * figures.dropped)),
        ])
    };
    let mut lines: Vec<String> = row.medians.iter().map(of_way).collect();
    let failures = row.failures.iter();
    lines.extend(failures.map(|(way, reason)| format!("    {}: {reason}", way.name())));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_has_a_line_and_one_that_failed_its_reason() {
        let case = cases::all().into_iter().find(|case| case.name == "bulk");
        let figures = Figures {
            megabits: 1_234.4,
            server_seconds_per_gigabyte: 3.456,
            dropped: 0.012,
            ..Figures::default()
        };
        let row = Row {
            case: case.unwrap(),
            medians: BTreeMap::from([(Way::Direct, figures), (Way::Relayed, figures)]),
            runs: BTreeMap::new(),
            failures: vec![(Way::Forwarded, "it said no".to_owned())],
        };
        let lines = lines(&row);
        let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            cells(&lines[0]),
            ["bulk", "direct", "1234", "-", "-", "-", "-", "-"]
        );
        assert_eq!(
            cells(&lines[1]),
            ["bulk", "relayed", "1234", "-", "-", "-", "3.46", "1.20"]
        );
        assert_eq!(lines[2], "    forwarded: it said no");
    }
}
