//! `bench scale`: whether the cost of a datagram grows with what is idle, and what an idle connection or flow occupies.
//!
//! A server's engine and its clients run in one thread, in virtual time, without sockets. Only the processor time of
//! the server's calls counts. A round trip is 200 us and brings one burst of a client, which is echoed. So batches are
//! equally long whatever the number of clients and flows, and what differs is the state that is looked up. A client
//! among many is silent between its bursts, so the one that many are compared with pauses, too. Cases take turns, and the
//! median of the rounds counts. Memory is the growth of this process, with its ordinary allocator, while one short-lived
//! client after the other leaves its connection behind.

mod client;
mod end;
mod members;
mod memory;
mod report;
mod server;
mod world;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::check::{Bound, Check};
use crate::floor::identity::Identity;
use crate::machine::Machine;
use crate::matrix::{print, write_json};
use crate::median::median;
use crate::{Error, limits};
use end::Setting;
use memory::Occupied;
use world::World;

/// The cost among many may be so many times that among few.
const COST_RATIO_MAX: f64 = 1.3;

/// Memory of an idle authenticated connection at the server, in KiB.
const CONNECTION_KIB_MAX: f64 = 64.0;

/// Flags of `bench scale`.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    /// Also write the results as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Fewer and shorter rounds, and memory of fewer connections and flows
    #[arg(long)]
    pub quick: bool,
}

/// How long and how often, and how much of it for memory.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// Processor time of the server per round.
    span: Duration,
    /// Rounds, of which the median counts.
    rounds: usize,
    /// Connections whose memory is measured.
    connections: usize,
    /// Flows whose memory is measured.
    flows: usize,
}

impl Effort {
    const FULL: Self = Self {
        span: Duration::from_millis(400),
        rounds: 9,
        connections: limits::SCALE_CLIENTS_MAX,
        flows: limits::SCALE_FLOWS_MAX,
    };
    const QUICK: Self = Self {
        span: Duration::from_millis(50),
        rounds: 3,
        connections: 500,
        flows: 2_000,
    };
}

/// Clients and flows, and who of them sends.
#[derive(Clone, Debug, Serialize)]
struct Case {
    name: &'static str,
    /// Connected clients.
    clients: usize,
    /// Flows of each of them.
    flows: usize,
    /// Clients that send in turn; the others are idle.
    senders: usize,
    /// Datagrams in a burst, each of the client's next flow.
    burst: usize,
    /// Time passes between bursts.
    pauses: bool,
    /// The case that it is compared with, and whether the ratio is bounded.
    beside: Option<(&'static str, bool)>,
}

impl Case {
    const fn flows(name: &'static str, flows: usize) -> Self {
        Self {
            name,
            clients: 1,
            flows,
            senders: 1,
            burst: limits::SCALE_BURST,
            pauses: false,
            beside: None,
        }
    }

    const fn clients(name: &'static str, clients: usize) -> Self {
        Self {
            clients,
            senders: clients,
            ..Self::flows(name, 1)
        }
    }

    const fn beside(mut self, other: &'static str, is_bounded: bool) -> Self {
        self.beside = Some((other, is_bounded));
        self
    }

    const fn pausing(mut self) -> Self {
        self.pauses = true;
        self
    }

    /// Every burst is a single datagram: nothing is shared by a batch.
    const fn single(mut self) -> Self {
        self.burst = 1;
        self
    }
}

const ALONE: &str = "1 client, 1 flow";
const PAUSING: &str = "1 client that pauses";
const SINGLE: &str = "1 client, single datagrams";

fn cases() -> [Case; 9] {
    let many = limits::SCALE_CLIENTS_MAX;
    [
        Case::flows(ALONE, 1),
        Case::flows("100 flows", 100).beside(ALONE, false),
        Case::flows("10,000 flows", limits::SCALE_FLOWS_MAX).beside("100 flows", true),
        Case::clients(PAUSING, 1).pausing().beside(ALONE, false),
        Case::clients("100 clients", 100).beside(PAUSING, false),
        Case::clients("2,000 clients", many).beside(PAUSING, true),
        Case {
            senders: 1,
            ..Case::clients("2,000 clients, one sends", many).beside(ALONE, true)
        },
        Case::clients(SINGLE, 1).single().pausing(),
        Case::clients("2,000 clients, single datagrams", many)
            .single()
            .beside(SINGLE, false),
    ]
}

/// What a datagram costs the server in a case.
#[derive(Clone, Debug, Serialize)]
struct Cost {
    case: Case,
    /// Nanoseconds per datagram, received or sent: the median of the rounds.
    ns: f64,
    rounds_ns: Vec<f64>,
    /// Datagrams received or sent.
    datagrams: u64,
    /// Datagrams that did not arrive, of both directions.
    lost: u64,
    /// Messages that carried the datagrams, and acknowledgements.
    messages: u64,
    check: Option<Check>,
}

#[derive(Debug, Serialize)]
struct Results {
    machine: Machine,
    quick: bool,
    memory: Vec<Occupied>,
    costs: Vec<Cost>,
    missed: Vec<String>,
}

/// Measures memory and cost, and says which bounds are met. A missed one is no error.
///
/// # Errors
/// When the ends cannot be set up, a connection ends, datagrams get stuck, or results can't be written.
pub fn run(options: &Options, output: &mut dyn Write) -> Result<(), Error> {
    let effort = if options.quick {
        Effort::QUICK
    } else {
        Effort::FULL
    };
    let setting = Setting::new(&Identity::new()?)?;
    let machine = Machine::describe();
    print(output, &machine.to_string())?;
    // Memory first: what later worlds free would be used again, and not seen.
    print(output, &report::memory_header())?;
    let memory = memory::measure(&setting, effort.connections, effort.flows)?;
    for occupied in &memory {
        print(output, &report::memory_line(occupied))?;
    }
    print(output, &report::cost_header())?;
    let costs = costs(&setting, effort)?;
    for cost in &costs {
        print(output, &report::cost_line(cost))?;
    }
    print(output, report::LEGEND)?;
    let checks = memory.iter().map(|occupied| (occupied.what, &occupied.check));
    let checks = checks.chain(costs.iter().map(|cost| (cost.case.name, &cost.check)));
    let mut missed = Vec::new();
    for (name, check) in checks {
        let Some(check) = check.as_ref().filter(|check| check.must != Bound::Free) else {
            continue;
        };
        print(output, &report::verdict(name, check))?;
        if !check.holds() {
            missed.push(format!("{name}: {check}"));
        }
    }
    let results = Results {
        machine,
        quick: options.quick,
        memory,
        costs,
        missed,
    };
    options
        .json
        .as_deref()
        .map_or(Ok(()), |path| write_json(path, &results))
}

/// All cases, in turns.
fn costs(setting: &Setting, effort: Effort) -> Result<Vec<Cost>, Error> {
    let cases = cases();
    // Cases with the same clients and flows share a world.
    let mut worlds: Vec<((usize, usize), World)> = Vec::new();
    for case in &cases {
        let size = (case.clients, case.flows);
        if worlds.iter().all(|(other, _)| *other != size) {
            worlds.push((size, World::with(setting, case.clients, case.flows)?));
        }
    }
    let mut costs: Vec<Cost> = cases
        .into_iter()
        .map(|case| Cost {
            case,
            ns: 0.0,
            rounds_ns: Vec::new(),
            datagrams: 0,
            lost: 0,
            messages: 0,
            check: None,
        })
        .collect();
    for _ in 0..effort.rounds {
        for cost in &mut costs {
            let size = (cost.case.clients, cost.case.flows);
            let (_, world) = worlds
                .iter_mut()
                .find(|(other, _)| *other == size)
                .expect("every case has its world");
            let load = world.load(cost.case.senders, cost.case.burst, cost.case.pauses, effort.span)?;
            let arrived = load.up + load.down;
            cost.rounds_ns
                .push(load.busy.as_nanos() as f64 / arrived.max(1) as f64);
            cost.datagrams += arrived;
            cost.lost += load.lost;
            cost.messages += load.messages;
        }
    }
    compare(&mut costs);
    Ok(costs)
}

/// Takes the medians, and holds each case against the one beside it.
fn compare(costs: &mut [Cost]) {
    for cost in &mut *costs {
        cost.ns = median(&cost.rounds_ns);
    }
    for index in 0..costs.len() {
        let Some((other, is_bounded)) = costs[index].case.beside else {
            continue;
        };
        let beside = costs.iter().find(|cost| cost.case.name == other);
        let ratio = beside.map_or(f64::NAN, |beside| costs[index].ns / beside.ns);
        let must = if is_bounded {
            Bound::AtMost(COST_RATIO_MAX)
        } else {
            Bound::Free
        };
        costs[index].check = Some(Check::new(format!("of \"{other}\""), ratio, must));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_compared_with_one_that_exists_and_fits_the_bounds() {
        let cases = cases();
        for case in &cases {
            assert!(case.senders <= case.clients && case.clients <= limits::SCALE_CLIENTS_MAX);
            assert!(case.flows <= limits::SCALE_FLOWS_MAX && case.burst <= limits::SCALE_BURST);
            if let Some((other, _)) = case.beside {
                assert!(cases.iter().any(|case| case.name == other), "{other}");
            }
        }
    }

    #[test]
    fn a_ratio_above_the_bound_is_missed_and_one_without_bound_is_told() {
        let cost = |case: Case, rounds_ns: &[f64]| Cost {
            case,
            ns: 0.0,
            rounds_ns: rounds_ns.to_vec(),
            datagrams: 1,
            lost: 0,
            messages: 1,
            check: None,
        };
        let mut costs = [
            cost(Case::flows("few", 1), &[90.0, 100.0, 500.0]),
            cost(Case::flows("many", 2).beside("few", true), &[131.0]),
            cost(Case::flows("more", 3).beside("few", false), &[200.0]),
        ];
        compare(&mut costs);
        assert_eq!(costs[0].ns, 100.0);
        let told = costs.each_ref().map(|cost| {
            let check = cost.check.as_ref();
            check.map(|check| (check.to_string(), check.holds()))
        });
        assert_eq!(
            told,
            [
                None,
                Some(("1.31 of \"few\" (must: <= 1.3) MISSED".to_owned(), false)),
                Some(("2.00 of \"few\"".to_owned(), true)),
            ]
        );
    }
}
