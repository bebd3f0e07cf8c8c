//! `gramway bench forward`: the matrix of loads, each over three paths in the same run: direct, through a plaintext
//! two-hop relay, and through the tunnel.
//!
//! The paths alternate within a case, so that a change of the machine's mood meets all three; the run with the
//! median receiver rate stands for its path, with all its counters. Every case has a fresh tunnel and relay.

mod cases;
mod measure;
mod report;

use std::io::Write;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::machine::Machine;
use crate::matrix::{self, MatrixOptions, Measured, print};
use crate::median::median_index;
use crate::tunnel::TunnelOptions;
use crate::{Error, Programs};
use cases::{Case, Generator};
use measure::{Measurement, PATHS, Rig};

/// Seconds per run when none are given.
const SECONDS: u32 = 2;

/// What a run costs beside its traffic: starting generator and sink, connecting, draining.
const RUN_OVERHEAD: Duration = Duration::from_millis(700);

/// What a case costs once: starting tunnel and relay, path MTU discovery.
const CASE_OVERHEAD: Duration = Duration::from_secs(2);

/// Flags of `bench forward`.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    /// Which cases, how often and how long.
    #[command(flatten)]
    pub matrix: MatrixOptions,
    /// How both ends are set.
    #[command(flatten)]
    pub tunnel: TunnelOptions,
    /// Counters of clean cases too
    #[arg(long)]
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
    #[serde(flatten)]
    tunnel: &'a TunnelOptions,
    rows: &'a [Row],
}

/// Runs the matrix and prints one line per case to `output` as soon as it is measured.
///
/// # Errors
/// When no case is chosen, some could not be measured (the others are), or results can't be written.
pub fn run(programs: &Programs, options: &Options, output: &mut dyn Write) -> Result<(), Error> {
    programs.check()?;
    let cases = options.matrix.choose(cases::all())?;
    if cases
        .iter()
        .any(|case| case.load.generator() == Some(Generator::Iperf))
    {
        matrix::check_iperf()?;
    }
    let seconds = options.matrix.seconds.unwrap_or(SECONDS);
    let runs = options.matrix.runs();
    let machine = Machine::describe();
    print(output, &machine.to_string())?;
    print(output, &estimate(cases.len(), runs, seconds))?;
    print(output, &report::header())?;
    let measure = |case| {
        let row = measure_case(programs, options, case, runs, seconds)?;
        Ok(Measured {
            lines: report::lines(&row, options.details),
            row,
            is_whole: true,
        })
    };
    let save = |rows: &[Row]| {
        options.matrix.save(&Results {
            machine: &machine,
            runs,
            seconds,
            tunnel: &options.tunnel,
            rows,
        })
    };
    let measured = matrix::go_through(cases, output, measure, save);
    print(output, report::LEGEND)?;
    measured
}

fn estimate(cases: usize, runs: usize, seconds: u32) -> String {
    let run = Duration::from_secs(u64::from(seconds)) + RUN_OVERHEAD;
    let all = (run * (runs * PATHS.len()) as u32 + CASE_OVERHEAD) * cases as u32;
    let minutes = all.as_secs().div_ceil(60);
    format!("{cases} cases, 3 paths, {runs} run(s) of {seconds} s each: about {minutes} minute(s)")
}

fn measure_case(
    programs: &Programs,
    options: &Options,
    case: Case,
    runs: usize,
    seconds: u32,
) -> Result<Row, Error> {
    let mut rig = Rig::start(programs, options, &case, seconds)?;
    let mut measured: [Vec<Measurement>; 3] = Default::default();
    for _ in 0..runs {
        for (path, results) in PATHS.into_iter().zip(&mut measured) {
            results.push(rig.run(path)?);
        }
    }
    let merit = |run: &Measurement| match (run.echo, run.worst_call) {
        (Some(echo), _) => echo.p50_us,
        (None, Some(call)) => call.p99_ms,
        (None, None) => run.receiver_bits_per_second,
    };
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
