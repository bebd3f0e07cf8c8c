//! `gramway bench forward`: the matrix of loads, each over three paths in the same run: direct, through a plaintext
//! two-hop relay, and through the tunnel.
//!
//! The paths alternate within a case, so that a change of the machine's mood meets all three; the run with the
//! median receiver rate stands for its path, with all its counters. Every case has a fresh tunnel and relay.

mod cases;
mod measure;
mod report;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::error::During;
use crate::machine::Machine;
use crate::median::median_index;
use crate::{Error, Programs, iperf};
use cases::{Case, Generator};
use measure::{Measurement, PATHS, Rig};

/// Runs per path and case, of which the median counts.
const RUNS: usize = 5;

/// Seconds per run when none are given.
const SECONDS: u32 = 2;

/// What a run costs beside its traffic: starting generator and sink, connecting, draining.
const RUN_OVERHEAD: Duration = Duration::from_millis(700);

/// What a case costs once: starting tunnel and relay, path MTU discovery.
const CASE_OVERHEAD: Duration = Duration::from_secs(2);

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// What to start.
    pub programs: Programs,
    /// Results as JSON go into this file, rewritten after each case.
    pub json: Option<PathBuf>,
    /// One run per path instead of the median of five.
    pub quick: bool,
    /// `--max-udp-payload` of both ends.
    pub max_udp_payload: Option<u16>,
    /// `--profile` of both ends.
    pub profile: Option<String>,
    /// `--connections` of both ends.
    pub connections: Option<u8>,
    /// Seconds per run; `None` is 2.
    pub seconds: Option<u32>,
    /// Only cases whose name contains one of these; empty is all.
    pub only: Vec<String>,
    /// Print the counters of clean cases too.
    pub details: bool,
}

/// One case with the median run of each path.
#[derive(Clone, Debug, Serialize)]
struct Row {
    case: Case,
    /// Bytes per datagram as sent, where the case says "largest".
    payload_bytes: Option<usize>,
    direct: Measurement,
    relay: Measurement,
    gramway: Measurement,
    /// Receiver rates of all runs, per path, in bits per second.
    receiver_rates: [Vec<f64>; 3],
    limit: String,
}

#[derive(Serialize)]
struct Results<'a> {
    machine: &'a Machine,
    runs: usize,
    seconds: u32,
    max_udp_payload: Option<u16>,
    profile: Option<&'a str>,
    connections: Option<u8>,
    rows: &'a [Row],
}

/// Runs the matrix and prints one line per case to `output` as soon as it is measured.
///
/// # Errors
/// When no case is chosen, some could not be measured (the others are), or results can't be written.
pub fn run(options: &Options, output: &mut dyn Write) -> Result<(), Error> {
    let cases: Vec<Case> = cases::all()
        .into_iter()
        .filter(|case| case.is_chosen(&options.only))
        .collect();
    if cases.is_empty() {
        let names: Vec<String> = cases::all().into_iter().map(|case| case.name).collect();
        return Err(Error::Usage(format!(
            "--only matches no case; there are: {}",
            names.join(" ")
        )));
    }
    if cases
        .iter()
        .any(|case| case.load.generator() == Some(Generator::Iperf))
    {
        iperf::check_installed()?;
    }
    let seconds = options.seconds.unwrap_or(SECONDS).max(1);
    let runs = if options.quick { 1 } else { RUNS };
    let machine = Machine::describe();
    let print = |output: &mut dyn Write, line: &str| {
        writeln!(output, "{line}")
            .and_then(|()| output.flush())
            .during(|| "print the table".to_owned())
    };
    print(output, &machine.to_string())?;
    print(output, &estimate(cases.len(), runs, seconds))?;
    print(output, &report::header())?;
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    for case in cases {
        let name = case.name.clone();
        let row = match measure_case(options, case, runs, seconds) {
            Ok(row) => row,
            Err(error) => {
                print(output, &format!("{name:<23}  FAILED: {error}"))?;
                failed.push(name);
                continue;
            }
        };
        for line in report::lines(&row, options.details) {
            print(output, &line)?;
        }
        rows.push(row);
        if let Some(path) = &options.json {
            let (max_udp_payload, profile) = (options.max_udp_payload, options.profile.as_deref());
            let results = Results {
                machine: &machine,
                runs,
                seconds,
                max_udp_payload,
                profile,
                connections: options.connections,
                rows: &rows,
            };
            write_json(path, &results)?;
        }
    }
    print(output, report::LEGEND)?;
    if failed.is_empty() {
        Ok(())
    } else {
        Err(Error::Cases(failed.join(", ")))
    }
}

/// Writes `results` as one JSON document.
pub(crate) fn write_json(path: &std::path::Path, results: &impl Serialize) -> Result<(), Error> {
    let failed = |source| Error::Results {
        path: path.to_owned(),
        source,
    };
    let text = serde_json::to_string_pretty(results).map_err(|source| failed(source.into()))?;
    std::fs::write(path, text + "\n").map_err(failed)
}

fn estimate(cases: usize, runs: usize, seconds: u32) -> String {
    let run = Duration::from_secs(u64::from(seconds)) + RUN_OVERHEAD;
    let all = (run * (runs * PATHS.len()) as u32 + CASE_OVERHEAD) * cases as u32;
    let minutes = all.as_secs().div_ceil(60);
    format!("{cases} cases, 3 paths, {runs} run(s) of {seconds} s each: about {minutes} minute(s)")
}

fn measure_case(options: &Options, case: Case, runs: usize, seconds: u32) -> Result<Row, Error> {
    let mut rig = Rig::start(options, &case, seconds)?;
    let mut measured: [Vec<Measurement>; 3] = Default::default();
    for _ in 0..runs {
        for (path, results) in PATHS.into_iter().zip(&mut measured) {
            results.push(rig.run(path)?);
        }
    }
    let merit = |run: &Measurement| run.echo.map_or(run.receiver_bits_per_second, |echo| echo.p50_us);
    let receiver_rates = measured
        .each_ref()
        .map(|runs| runs.iter().map(|run| run.receiver_bits_per_second).collect());
    let [direct, relay, gramway] = measured.map(|runs| {
        let merits: Vec<f64> = runs.iter().map(merit).collect();
        let index = median_index(&merits).expect("each path ran at least once");
        runs.into_iter().nth(index).expect("the index is from this list")
    });
    let payload_bytes = rig.payload_bytes();
    let limit = report::limit(&case, &gramway);
    Ok(Row {
        case,
        payload_bytes,
        direct,
        relay,
        gramway,
        receiver_rates,
        limit,
    })
}
