//! `gramway demo` and `gramway bench`: flags and exit codes around crate `bench`.

use std::io::{self, IsTerminal};

use bench::{Programs, hidden};

use crate::cli::BenchCommand;
use crate::exit::{Code, Problem};
use crate::startup;

/// What `gramway bench` offers.
const BENCHMARKS: &str = "forward, l3 and floor";

/// What only the benchmarks' own program has.
const OF_BENCH_ALONE: [&str; 3] = ["paths", "rpc", "scale"];

/// Runs `gramway demo`.
pub(crate) fn demo() -> Result<(), Problem> {
    startup::raise_file_limit();
    let mut output = io::stdout();
    let is_terminal = output.is_terminal();
    bench::demo::run(&Programs::of_gramway()?, &mut output, is_terminal)?;
    Ok(())
}

/// Runs `gramway bench`.
pub(crate) fn run(command: BenchCommand) -> Result<(), Problem> {
    startup::raise_file_limit();
    match command {
        BenchCommand::Benchmark(command) => command.run(&Programs::of_gramway()?, &[], &mut io::stdout())?,
        BenchCommand::Load(arguments) => match arguments.first() {
            Some(name) if hidden::is_hidden(name) => hidden::run(&arguments)?,
            Some(name) => {
                let mut text = format!("there is no benchmark \"{name}\" here; there are {BENCHMARKS}");
                if OF_BENCH_ALONE.contains(&name.as_str()) {
                    text += "; it is in the benchmarks' own program: `cargo build --release -p bench`";
                }
                return Err(Problem::usage(text));
            }
            None => return Err(Problem::usage(format!("name a benchmark: {BENCHMARKS}"))),
        },
    }
    Ok(())
}

impl From<bench::Error> for Problem {
    fn from(error: bench::Error) -> Self {
        let code = match &error {
            bench::Error::Usage(_) => Code::Usage,
            bench::Error::NotPermitted(_) => Code::Permission,
            bench::Error::Json { .. } | bench::Error::Setup(_) => Code::Bug,
            _ => Code::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}
