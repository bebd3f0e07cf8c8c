//! `cargo xtask sweep`: the simulated paths of congestion control, with many seeds and optimization.
//!
//! `cargo xtask test` runs each path with one seed. A seed that fails is printed with the variable that replays it.

use anyhow::Result;

use crate::repository::{Repository, run_to_success};

/// How many seeds each path gets, for the tests.
const SEEDS_VARIABLE: &str = "GRAMWAY_SIM_SEEDS";

/// Runs every path with `seeds` seeds.
pub(crate) fn run(repository: &Repository, seeds: u32) -> Result<()> {
    let mut command = repository.cargo(&["test", "--release", "-p", "quic", "--test", "paths", "matrix"]);
    command.env(SEEDS_VARIABLE, seeds.to_string());
    run_to_success(&mut command)?;
    println!("every path held its bounds with {seeds} seeds");
    Ok(())
}
