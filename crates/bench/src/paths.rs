//! `bench paths`: long and lossy paths, with nobody's tunnel, with Gramway, and with Hysteria2 and TUIC as sing-box
//! runs them, in the same run.
//!
//! A cell is a link of the emulator. Contestants take turns over it, so that a change of the machine's mood meets all;
//! the median of the rounds counts. A result that misses its bound is printed with the state of the link.

mod cases;
mod cell;
mod contestant;
mod heat_map;
mod measure;
mod rates;
mod report;
mod scenes;
mod setting;
mod verdict;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::check::Check;
use crate::emulator::LinkReport;
use crate::machine::Machine;
use crate::matrix::{self, Measured, print, write_json};
use crate::median::median_index;
use crate::sweeper::Sweeper;
use crate::{Error, Programs};
use cases::{Case, Load};
use cell::Cell;
use contestant::{Contestant, Installed};
use measure::Run;
use setting::Setting;

/// Seconds per run when none are given.
const SECONDS: u32 = 10;

/// Rounds when none are given.
const ROUNDS: u32 = 3;

/// Flags of `bench paths`.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    /// Only these: cells RATExRTTxLOSSxQUEUE in Mbit/s, ms, % each way and bandwidth-delay products, listed or not
    /// (100x100x1x1), a load of one (100x100x1x1:tcp-up), loads (tcp, udp, l3), scenes (fair-cubic, fair-bbr, jain,
    /// delay, first-second); separated by commas, {0,1} abbreviates
    #[arg(long, value_name = "CASES")]
    pub only: Vec<String>,
    /// All 108 cells instead of ten
    #[arg(long)]
    pub all: bool,
    /// Duration of each run in seconds; UDP takes a quarter [default: 10]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub seconds: Option<u32>,
    /// Runs of each contestant, of which the median counts; UDP and TUIC run once, and of the headlines all but tcp-up
    /// [default: 3]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: Option<u32>,
    /// Only these contestants, separated by commas
    #[arg(long, value_name = "NAMES", value_enum, value_delimiter = ',')]
    contestants: Vec<Contestant>,
    /// Congestion control of TCP at the ends, with and without a tunnel
    #[arg(long, value_enum, default_value_t)]
    pub inner: Inner,
    /// Also write the results as JSON, updated after each case
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Draw what share of each link TCP reached
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Write the rate of every tenth of a second of each TCP run
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
}

/// TCP's congestion control, by its name on Linux.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Inner {
    /// BBR: sends on through losses, so what a tunnel takes away shows
    #[default]
    Bbr,
    /// CUBIC, the default of Linux
    Cubic,
}

impl Inner {
    /// Its name on Linux.
    fn name(self) -> &'static str {
        match self {
            Self::Bbr => "bbr",
            Self::Cubic => "cubic",
        }
    }
}

/// One load over one link.
#[derive(Clone, Debug, Serialize)]
struct Row {
    cell: Cell,
    load: Load,
    /// Seconds per run.
    seconds: u32,
    /// All runs, in their order.
    runs: BTreeMap<Contestant, Vec<Run>>,
    checks: Vec<Check>,
}

/// A case with all that was measured.
#[derive(Clone, Debug, Default, Serialize)]
struct CaseResults {
    name: String,
    /// The loads of a cell.
    rows: Vec<Row>,
    /// What a scene gave.
    checks: Vec<Check>,
    /// What the links of a scene did, client to server.
    links: Vec<(String, LinkReport)>,
    /// Who did not start, or did not finish a run, and why.
    failures: Vec<(Contestant, String)>,
}

#[derive(Serialize)]
struct Results<'a> {
    machine: &'a Machine,
    contestants: &'a [Installed],
    inner: Inner,
    rounds: u32,
    cases: &'a [CaseResults],
}

/// Runs the cases and prints each as soon as it is measured. A rival that is missing or fails is a dash and a reason.
///
/// # Errors
/// Without root or iperf3, when a selector names nothing, when gramway or the link itself could not be measured
/// somewhere (the other cases are), or when results can't be written.
pub fn run(programs: &Programs, options: &Options, output: &mut dyn Write) -> Result<(), Error> {
    programs.check()?;
    let cases = cases::choose(&options.only, options.all)?;
    matrix::check_root()?;
    matrix::check_iperf()?;
    check_congestion_control(options.inner)?;
    let _sweeper = Sweeper::start(programs)?;
    let machine = Machine::describe();
    print(output, &machine.to_string())?;
    let mut installed = Vec::new();
    let is_wanted =
        |contestant: &Contestant| options.contestants.is_empty() || options.contestants.contains(contestant);
    for contestant in contestant::ALL.into_iter().filter(is_wanted) {
        match contestant.find(programs) {
            Ok(found) => installed.push(found),
            Err(how_to_get) => print(output, &how_to_get)?,
        }
    }
    let setting = Setting {
        programs,
        installed,
        inner: options.inner,
        rounds: options.rounds.unwrap_or(ROUNDS),
        seconds: options.seconds.unwrap_or(SECONDS),
        is_brief: options.only.is_empty() && !options.all,
    };
    print(output, &setting.introduction(&cases))?;
    print(output, &report::header())?;
    let measure = |case: Case| {
        let results = setting.measure(&case)?;
        Ok(Measured {
            lines: report::lines(&results),
            is_whole: setting.is_whole(&results),
            row: results,
        })
    };
    let save = |cases: &[CaseResults]| {
        let results = Results {
            machine: &machine,
            contestants: &setting.installed,
            inner: setting.inner,
            rounds: setting.rounds,
            cases,
        };
        if let Some(path) = &options.json {
            write_json(path, &results)?;
        }
        write(options.svg.as_ref(), || heat_map::svg(cases))?;
        write(options.csv.as_ref(), || rates::csv(cases))
    };
    let measured = matrix::go_through(cases, output, measure, save);
    print(output, report::LEGEND)?;
    measured
}

fn write(path: Option<&PathBuf>, text: impl FnOnce() -> String) -> Result<(), Error> {
    let Some(path) = path else {
        return Ok(());
    };
    std::fs::write(path, text()).map_err(|source| Error::Results {
        path: path.clone(),
        source,
    })
}

/// Connections inside a namespace take what the kernel has; it is asked before anything is built.
fn check_congestion_control(inner: Inner) -> Result<(), Error> {
    let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let available = std::fs::read_to_string(path).unwrap_or_default();
    let name = inner.name();
    if available.split_ascii_whitespace().any(|one| one == name) {
        return Ok(());
    }
    Err(Error::Setup(format!(
        "this kernel has no TCP congestion control \"{name}\" loaded (it has: {}); try: modprobe tcp_{name}",
        available.trim()
    )))
}

/// The median rate in bits per second.
fn rate(runs: &[Run]) -> f64 {
    median_run(runs).map_or(0.0, |run| run.bits_per_second)
}

/// The run with the median rate.
fn median_run(runs: &[Run]) -> Option<&Run> {
    let rates: Vec<f64> = runs.iter().map(|run| run.bits_per_second).collect();
    median_index(&rates).map(|index| &runs[index])
}
