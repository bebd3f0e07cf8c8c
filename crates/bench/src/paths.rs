//! `gramway bench paths`: long and lossy paths, with nobody's tunnel, with Gramway, and with Hysteria2 and TUIC as sing-box
//! runs them, in the same run.
//!
//! A cell is a link of the emulator. Contestants take turns over it, so that a change of the machine's mood meets all;
//! the median of the rounds counts. What misses its bound is told with what the link did meanwhile.

mod cases;
mod cell;
mod contestant;
mod flow;
mod heat_map;
mod measure;
mod rates;
mod report;
mod scenes;
mod verdict;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::emulator::LinkReport;
use crate::machine::Machine;
use crate::matrix::{self, Measured, print, write_json};
use crate::median::{median, median_index};
use crate::namespace::Sweeper;
use crate::{Error, Programs, iperf};
use cases::{Case, Load};
use cell::Cell;
use contestant::{Contestant, Installed};
use measure::{Rig, Run, WARM_UP_ROUND_TRIPS};
use verdict::{Check, Figures};

/// Seconds per run when none are given.
const SECONDS: u32 = 10;

/// Rounds when none are given.
const ROUNDS: u32 = 3;

/// A run takes at least so many round trips of its link, or it would measure little but its beginning.
const ROUND_TRIPS_MIN: f64 = 30.0;

/// Round trips that a run takes beside its traffic: connecting, parameters, results.
const RUN_ROUND_TRIPS: u32 = 8;

/// What a run costs beside its traffic and round trips: starting iperf3, waiting for an idle link.
const RUN_OVERHEAD: Duration = Duration::from_millis(500);

/// What a cell costs once: namespaces, starting the contestants.
const CELL_OVERHEAD: Duration = Duration::from_secs(3);

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
    /// Seconds of each run; UDP takes half [default: 10]
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
    /// Write the results as JSON too, anew after each case
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

/// How it is measured.
struct Setting<'a> {
    programs: &'a Programs,
    installed: Vec<Installed>,
    inner: Inner,
    rounds: u32,
    seconds: u32,
    /// Whether the headlines are measured, whole.
    is_brief: bool,
}

/// Runs the cases and prints each as soon as it is measured. A rival that is missing or fails is a dash and a reason.
///
/// # Errors
/// Without root or iperf3, when a selector names nothing, when gramway or the link itself could not be measured
/// somewhere (the other cases are), or when results can't be written.
pub fn run(programs: &Programs, options: &Options, output: &mut dyn Write) -> Result<(), Error> {
    let cases = cases::choose(&options.only, options.all)?;
    if !rustix::process::geteuid().is_root() {
        return Err(Error::NotPermitted(
            "this benchmark makes network namespaces and devices, which only root may: sudo gramway bench paths"
                .to_owned(),
        ));
    }
    iperf::check_installed()?;
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

impl Setting<'_> {
    fn introduction(&self, cases: &[Case]) -> String {
        let versions = self
            .installed
            .iter()
            .filter(|found| !found.version.is_empty())
            .map(|found| format!("{}: {}", found.contestant.name(), found.version));
        let versions = versions.collect::<Vec<_>>().join("; ");
        let minutes = cases
            .iter()
            .map(|case| self.estimate(case))
            .sum::<Duration>()
            .as_secs()
            .div_ceil(60);
        format!(
            "{versions}; TCP at the ends: {}\n{} case(s), {} round(s): about {minutes} minute(s)",
            self.inner.name(),
            cases.len(),
            self.rounds
        )
    }

    /// Seconds of a run. Datagrams are many, and tell what they tell in half of the time.
    fn seconds(&self, cell: &Cell, load: Load) -> u32 {
        if load.is_udp() {
            return self.seconds.div_ceil(2);
        }
        let least = cell.round_trip().as_secs_f64() * ROUND_TRIPS_MIN;
        self.seconds.max(least.ceil() as u32)
    }

    fn estimate(&self, case: &Case) -> Duration {
        match case {
            Case::Cell { cell, loads, .. } => {
                let overhead = cell.round_trip() * RUN_ROUND_TRIPS + RUN_OVERHEAD;
                let warm_up = cell.round_trip() * WARM_UP_ROUND_TRIPS;
                let of_load = |load: Load| {
                    let who = self.installed.iter().map(|found| found.contestant);
                    let rounds = who.filter(|who| runs_in(*who, load, loads));
                    let rounds: u32 = rounds.map(|who| self.rounds_of(who, load, cell)).sum();
                    let before = if load.is_udp() { warm_up } else { Duration::ZERO };
                    (Duration::from_secs(self.seconds(cell, load).into()) + before + overhead) * rounds
                };
                loads.iter().map(|load| of_load(*load)).sum::<Duration>() + CELL_OVERHEAD
            }
            Case::Scene(scene) => scenes::estimate(*scene, self.rounds),
        }
    }

    /// Rounds of a contestant. Datagrams are counted one by one and need no median, and who decides no verdict runs
    /// once. The headlines have to fit into half an hour: only one direction has all rounds there.
    fn rounds_of(&self, contestant: Contestant, load: Load, cell: &Cell) -> u32 {
        let decides = contestant.decides();
        if self.is_brief {
            return match load {
                Load::TcpUp if decides => self.rounds,
                Load::TcpUp => u32::from(cases::is_detailed(cell)),
                Load::UdpUp | Load::UdpDown => u32::from(decides && contestant != Contestant::Direct),
                Load::TcpDown | Load::L3Up | Load::L3Down => u32::from(decides),
            };
        }
        if decides && !load.is_udp() { self.rounds } else { 1 }
    }

    fn measure(&self, case: &Case) -> Result<CaseResults, Error> {
        match case {
            Case::Cell { cell, loads, name } => self.measure_cell(*cell, loads, name),
            Case::Scene(scene) => {
                let (programs, installed) = (self.programs, &self.installed);
                let (checks, links) = scenes::run(*scene, programs, installed, self.inner, self.rounds)?;
                Ok(CaseResults {
                    name: scene.name().to_owned(),
                    checks,
                    links,
                    ..CaseResults::default()
                })
            }
        }
    }

    fn measure_cell(&self, cell: Cell, loads: &[Load], name: &str) -> Result<CaseResults, Error> {
        let mut rig = Rig::build(self.programs, cell, self.inner)?;
        let mut failures = rig.start(&self.installed);
        let has_gramway = rig.contestants().contains(&Contestant::Gramway);
        if has_gramway
            && loads.iter().any(|load| load.is_layer3())
            && let Err(error) = rig.start_layer3()
        {
            failures.push((Contestant::Gramway, error.to_string()));
        }
        let mut measured: BTreeMap<Load, BTreeMap<Contestant, Vec<Run>>> = BTreeMap::new();
        for round in 0..self.rounds {
            for load in loads.iter().copied() {
                for contestant in rig.contestants() {
                    let rounds = self.rounds_of(contestant, load, &cell);
                    if round >= rounds || !runs_in(contestant, load, loads) {
                        continue;
                    }
                    match rig.run(contestant, load, self.seconds(&cell, load)) {
                        Ok(run) => {
                            let of_load = measured.entry(load).or_default();
                            of_load.entry(contestant).or_default().push(run);
                        }
                        Err(error) => failures.push((contestant, format!("{}: {error}", load.name()))),
                    }
                }
            }
        }
        share_direct(&mut measured);
        let row = |(load, runs)| row(cell, load, self.seconds(&cell, load), runs);
        Ok(CaseResults {
            name: name.to_owned(),
            rows: measured.into_iter().map(row).collect(),
            failures,
            ..CaseResults::default()
        })
    }

    /// Whether no run of Gramway or over the link itself failed.
    fn is_whole(&self, results: &CaseResults) -> bool {
        let needed = [Contestant::Direct, Contestant::Gramway];
        let failed = |one: Contestant| results.failures.iter().any(|(failed, _)| *failed == one);
        !(results.rows.is_empty() && results.checks.is_empty()) && !needed.into_iter().any(failed)
    }
}

/// The TCP load that is the same as an IP one where there is no tunnel.
fn without_tunnel(load: Load) -> Option<Load> {
    match load {
        Load::L3Up => Some(Load::TcpUp),
        Load::L3Down => Some(Load::TcpDown),
        _ => None,
    }
}

/// Rivals carry no IP packets here, and the link need not run the same load twice.
fn runs_in(contestant: Contestant, load: Load, loads: &[Load]) -> bool {
    match contestant {
        Contestant::Gramway => true,
        Contestant::Direct => without_tunnel(load).is_none_or(|same| !loads.contains(&same)),
        _ => !load.is_layer3(),
    }
}

/// Runs over the bare link stand for both loads where they ran for one.
fn share_direct(measured: &mut BTreeMap<Load, BTreeMap<Contestant, Vec<Run>>>) {
    for load in [Load::L3Up, Load::L3Down] {
        let same =
            without_tunnel(load).and_then(|same| measured.get(&same)?.get(&Contestant::Direct).cloned());
        if let (Some(runs), Some(of_load)) = (same, measured.get_mut(&load)) {
            of_load.entry(Contestant::Direct).or_insert(runs);
        }
    }
}

fn row(cell: Cell, load: Load, seconds: u32, runs: BTreeMap<Contestant, Vec<Run>>) -> Row {
    let rate = |who| Some(rate(runs.get(&who)?));
    let beyond = |runs: &Vec<Run>| {
        let losses: Vec<f64> = runs.iter().filter_map(Run::loss_beyond).collect();
        median(&losses)
    };
    let figures = Figures {
        gramway: rate(Contestant::Gramway),
        direct: rate(Contestant::Direct),
        hysteria2: rate(Contestant::Hysteria2),
        loss_beyond: runs
            .get(&Contestant::Gramway)
            .filter(|_| load.is_udp())
            .map(beyond),
    };
    let checks = verdict::checks(&cell, load, &figures);
    Row {
        cell,
        load,
        seconds,
        runs,
        checks,
    }
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
