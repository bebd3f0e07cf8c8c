//! `bench files`: files from one machine to another by `gramway send` and `receive`, beside croc, sendme,
//! magic-wormhole, qcp, scp and rsync; `cp` is the floor.
//!
//! Both machines are network namespaces, joined by a cable (veth, MTU 1,500) or by a link of the emulator. The files are
//! on the disk and in the page cache before the first run; before each, what the one before has left is removed (many
//! small files after the last run only), the disk is idle, and free memory has been touched (`memory`). Their file
//! system is that of the system's temporary directory, but a large file also goes from memory to memory, so that no disk
//! decides. In a case the contestants take turns; the median run represents its contestant. `trial` says what is
//! counted, the same for all. A copy that is not the source, byte by byte, does not count.

mod cases;
mod content;
mod contestant;
mod memory;
mod report;
mod resume;
mod trial;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use clap::Args;
use serde::Serialize;
use testbed::programs;

use crate::check::Check;
use crate::emulator::LinkSettings;
use crate::error::During;
use crate::machine::Machine;
use crate::matrix::{self, MatrixOptions, Measured, print};
use crate::median::median_index;
use crate::network::Network;
use crate::sweeper::Sweeper;
use crate::{Error, Programs};
use cases::Case;
use content::Made;
use contestant::Contestant;
use trial::{Run, Trial};

/// Flags of `bench files`.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    #[command(flatten)]
    matrix: MatrixOptions,
    /// Only these beside gramway, separated by commas; what is judged beside others is named
    #[arg(long, value_name = "NAMES", value_enum, value_delimiter = ',')]
    contestants: Vec<Contestant>,
}

impl Options {
    /// Whether this one takes part.
    fn wants(&self, contestant: Contestant) -> bool {
        let is_named = self.contestants.is_empty() || self.contestants.contains(&contestant);
        is_named || contestant == Contestant::Gramway
    }
}

/// One case with the median run of each contestant.
#[derive(Clone, Debug, Serialize)]
struct Row {
    case: String,
    bytes: u64,
    link: Option<LinkSettings>,
    results: BTreeMap<Contestant, Run>,
    /// All of each, in their order.
    runs: BTreeMap<Contestant, Vec<Run>>,
    checks: Vec<Check>,
    /// Demands for which a rival is missing.
    not_judged: Vec<String>,
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
pub fn run(programs: &Programs, options: &Options, output: &mut dyn Write) -> Result<(), Error> {
    programs.check()?;
    let asked = &options.matrix;
    let chosen = asked.choose(cases::all(asked.quick))?;
    matrix::check_system(&[("ip", "iproute2")])?;
    let _sweeper = Sweeper::start(programs)?;
    let machine = Machine::describe();
    print(output, &machine.to_string())?;
    let version = programs::said(programs.gramway().arg("--version"));
    print(output, &version)?;
    let mut rivals = BTreeMap::new();
    for contestant in Contestant::ALL
        .into_iter()
        .filter(|contestant| options.wants(*contestant))
    {
        match contestant.version() {
            Ok(Some(version)) => {
                print(output, &version)?;
                rivals.insert(contestant, version);
            }
            Ok(None) => {}
            Err(how_to_get) => print(output, &format!("not run: {how_to_get}"))?,
        }
    }
    print(output, &report::header())?;
    let measure = |case: Case| {
        let row = measure_case(programs, &case, options)?;
        Ok(Measured {
            lines: report::lines(&row),
            is_whole: row.results.contains_key(&Contestant::Gramway),
            row,
        })
    };
    let save = |rows: &[Row]| {
        asked.save(&Results {
            machine: &machine,
            gramway: &version,
            rivals: &rivals,
            rows,
        })
    };
    let measured = matrix::go_through(chosen, output, measure, save);
    print(output, report::LEGEND)?;
    measured
}

/// All runs of one case. A contestant that fails once is not asked again.
fn measure_case(programs: &Programs, case: &Case, options: &Options) -> Result<Row, Error> {
    let directory = case.directory()?;
    let source = case.content().make(directory.path());
    let source = source.during(|| format!("make files in {}", directory.path().display()))?;
    let network = Network::build(programs, case.link())?;
    let mut runs: BTreeMap<Contestant, Vec<Run>> = BTreeMap::new();
    let mut failures: Vec<(Contestant, String)> = Vec::new();
    for round in 0..case.rounds().min(options.matrix.runs()) {
        for contestant in case
            .contestants()
            .iter()
            .copied()
            .filter(|contestant| options.wants(*contestant))
        {
            let has_failed = failures.iter().any(|(failed, _)| *failed == contestant);
            let has_all = round > 0 && !case.decides(contestant);
            if has_failed || has_all || contestant.version().is_err() {
                continue;
            }
            let number = runs.values().map(Vec::len).sum::<usize>() + failures.len();
            let to = directory.path().join(format!("received-{number}"));
            match measure(programs, &network, case, &source, &to, contestant) {
                Ok(run) => runs.entry(contestant).or_default().push(run),
                Err(error) => failures.push((contestant, report::shortened(&error.to_string()))),
            }
        }
    }
    let median = |runs: &Vec<Run>| {
        let rates: Vec<f64> = runs.iter().map(|run| run.seconds / run.bytes as f64).collect();
        median_index(&rates).map(|index| runs[index])
    };
    let results = runs
        .iter()
        .filter_map(|(contestant, runs)| Some((*contestant, median(runs)?)))
        .collect();
    let (checks, not_judged) = case.judge(&results);
    Ok(Row {
        case: matrix::Case::name(case).to_owned(),
        bytes: source.bytes,
        link: case.link(),
        results,
        runs,
        checks,
        not_judged,
        failures,
    })
}

/// One run, into the directory `to`, which is made, and gone from the disk afterwards unless the case keeps it.
fn measure(
    programs: &Programs,
    network: &Network,
    case: &Case,
    source: &Made,
    to: &Path,
    contestant: Contestant,
) -> Result<Run, Error> {
    let place = to.with_file_name("states");
    let run = || {
        std::fs::create_dir(&place).during(|| format!("make {}", place.display()))?;
        let limit = Case::time_max(contestant);
        let trial = Trial::prepare(programs, network, (case, source), (to, &place), limit)?;
        memory::warm(source.bytes);
        let run = match case.is_resumed() {
            true => resume::run(contestant, &trial)?,
            false => contestant.run(&trial)?,
        };
        if !run.is_whole && contestant == Contestant::Gramway {
            return Err(Error::Setup(format!("not done after {} s", limit.as_secs())));
        }
        if run.is_whole && contestant != Contestant::Tcp {
            let name = source.path.file_name().expect("the source has a name");
            content::compare(&source.path, &to.join(name)).map_err(Error::Setup)?;
        }
        Ok(run)
    };
    let done = run();
    let left = (!case.keeps_copies()).then_some(to);
    for path in left.into_iter().chain([place.as_path()]) {
        // Of a run that failed early there may be nothing.
        let _ = std::fs::remove_dir_all(path);
    }
    rustix::fs::sync();
    done
}
