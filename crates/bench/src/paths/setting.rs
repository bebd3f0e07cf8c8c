//! How cases are measured: how often and how long each contestant runs, in which order, and how long all takes.

use std::collections::BTreeMap;
use std::time::Duration;

use super::cases::{self, Case, Load};
use super::cell::Cell;
use super::contestant::{Contestant, Installed};
use super::measure::{Rig, Run, WARM_UP_ROUND_TRIPS};
use super::verdict::{self, Figures};
use super::{CaseResults, Inner, Row, rate, scenes};
use crate::median::median;
use crate::{Error, Programs};

/// A run takes at least so many round trips of its link, or it would measure little but its beginning.
const ROUND_TRIPS_MIN: f64 = 30.0;

/// Round trips that a run takes beside its traffic: connecting, parameters, results.
const RUN_ROUND_TRIPS: u32 = 8;

/// What a run costs beside its traffic and round trips: connecting the tunnel anew, starting iperf3, waiting for
/// an idle link.
const RUN_OVERHEAD: Duration = Duration::from_millis(700);

/// What a cell costs once: namespaces, starting the contestants.
const CELL_OVERHEAD: Duration = Duration::from_secs(3);

/// How it is measured.
pub(super) struct Setting<'a> {
    pub(super) programs: &'a Programs,
    pub(super) installed: Vec<Installed>,
    pub(super) inner: Inner,
    pub(super) rounds: u32,
    pub(super) seconds: u32,
    /// Whether the headlines are measured, whole.
    pub(super) is_brief: bool,
}

impl Setting<'_> {
    /// What is measured, and how long it takes.
    pub(super) fn introduction(&self, cases: &[Case]) -> String {
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

    /// Seconds of a run. Datagrams are many, and tell what they tell in a quarter of the time.
    fn seconds(&self, cell: &Cell, load: Load) -> u32 {
        if load.is_udp() {
            return self.seconds.div_ceil(4);
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
    /// once. The headlines have to fit into half an hour: only one direction has all rounds there, and who runs where
    /// is limited.
    fn rounds_of(&self, contestant: Contestant, load: Load, cell: &Cell) -> u32 {
        let decides = contestant.decides();
        if self.is_brief {
            let is_detailed = cases::is_detailed(cell);
            return match load {
                Load::TcpUp if decides => self.rounds,
                Load::TcpUp => u32::from(is_detailed),
                Load::UdpUp | Load::UdpDown => {
                    u32::from(contestant == Contestant::Gramway || decides && is_detailed)
                }
                Load::TcpDown | Load::L3Up | Load::L3Down => u32::from(decides),
            };
        }
        if decides && !load.is_udp() { self.rounds } else { 1 }
    }

    /// Measures a case.
    ///
    /// # Errors
    /// When there is no link, or a scene could not run.
    pub(super) fn measure(&self, case: &Case) -> Result<CaseResults, Error> {
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
    pub(super) fn is_whole(&self, results: &CaseResults) -> bool {
        let needed = [Contestant::Direct, Contestant::Gramway];
        let failed = |one: Contestant| results.failures.iter().any(|(failed, _)| *failed == one);
        let has_results = !results.rows.is_empty() || !results.checks.is_empty();
        has_results && !needed.into_iter().any(failed)
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

/// A row with its verdicts.
pub(super) fn row(cell: Cell, load: Load, seconds: u32, runs: BTreeMap<Contestant, Vec<Run>>) -> Row {
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
