//! Repository tasks: `cargo xtask setup`, `cargo xtask test`, `cargo xtask tidy`, `cargo xtask sweep`,
//! `cargo xtask fuzz`, `cargo xtask asan`, `cargo xtask hostile`, `cargo xtask probe`, `cargo xtask dist`, `cargo xtask
//! arm64`.

mod arm64;
mod asan;
mod background;
mod dist;
mod fuzz;
mod hostile;
mod nightly;
mod packages;
mod probe;
mod repository;
mod rivals;
mod setup;
mod skips;
mod steps;
mod sweep;
mod test_programs;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use repository::Repository;
use setup::Extent;

/// Set-up, tests and tidiness of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install every tool that the tests need, skipping what is present.
    Setup {
        /// Also install what `bench peers` and `bench files` measure Gramway against, which takes minutes.
        #[arg(long)]
        rivals: bool,
    },
    /// Set up, then format check, tidy, lints, build, tests, documentation and dependency checks.
    Test {
        /// Leave out the system tests and the tools that only they need.
        #[arg(long)]
        quick: bool,
    },
    /// Check the rules that neither compiler nor clippy knows.
    Tidy,
    /// Run the simulated paths of congestion control with many seeds; the tests run each with one.
    Sweep {
        /// Seeds of each path; there are 108 of them.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
        seeds: u32,
    },
    /// Feed what reads bytes from outside with hostile input; needs a nightly toolchain.
    Fuzz {
        /// How long each target runs.
        #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
        seconds: u32,
        /// One target, by the name of its program in fuzz/; without it all run, one after the other.
        target: Option<String>,
    },
    /// Run the unsafe code and the program under AddressSanitizer; needs a nightly toolchain, and root for the program.
    Asan,
    /// Attack a server in every way at once beside an honest client's 500 Mbit/s; needs root.
    Hostile {
        /// How long.
        #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
        seconds: u32,
    },
    /// Compare a server with the cover that it stands in front of: the same probes to both; fails where answers differ.
    Probe(probe::Arguments),
    /// Build the program as one static file for x86-64, into target/dist; as root also try it.
    Dist,
    /// Build for Linux on arm64 with Debian's compiler; start the program and run unit tests under emulation.
    Arm64,
}

fn main() -> ExitCode {
    let result = Repository::find().and_then(|repository| match Arguments::parse().task {
        Task::Setup { rivals } => setup::run(&repository, Extent::Everything).and_then(|()| {
            if rivals {
                rivals::build(&repository)
            } else {
                Ok(())
            }
        }),
        Task::Test { quick } => steps::run(
            &repository,
            if quick {
                Extent::WithoutSystemTests
            } else {
                Extent::Everything
            },
        ),
        Task::Tidy => tidy::run(&repository),
        Task::Sweep { seeds } => sweep::run(&repository, seeds),
        Task::Dist => dist::run(&repository),
        Task::Arm64 => arm64::run(&repository),
        Task::Asan => asan::run(&repository),
        Task::Hostile { seconds } => hostile::run(&repository, seconds),
        Task::Probe(arguments) => probe::run(&repository, &arguments),
        Task::Fuzz { seconds, target } => fuzz::run(&repository, seconds, target.as_deref()),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
