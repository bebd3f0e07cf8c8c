//! `cargo xtask hostile`: all kinds of strangers at once, by a foreign QUIC stack, beside an honest client's traffic.
//!
//! Server, client and strangers are in network namespaces of their own, so it needs root. The system test
//! `attackers::an_honest_client_hardly_notices_all_attackers_at_once` judges loss, memory and what is left.

use anyhow::Result;

use crate::repository::{Repository, run_to_success};
use crate::setup::{self, Extent};
use crate::steps;

/// Tells the system test how long the strangers attack.
const SECONDS_VARIABLE: &str = "GRAMWAY_HOSTILE_SECONDS";

/// Attacks the release build for so many seconds.
pub(crate) fn run(repository: &Repository, seconds: u32) -> Result<()> {
    setup::run(repository, Extent::Everything)?;
    run_to_success(&mut repository.cargo(&["build", "--release", "--package", "gramway"]))?;
    let program = repository.target().join("release/gramway");
    let mut test = repository.cargo(&["test", "--package", "system-tests", "--test", "system"]);
    steps::describe_system_tests(repository, &program, &mut test)?;
    test.env(SECONDS_VARIABLE, seconds.to_string());
    test.args(["attackers", "--", "--ignored", "--nocapture"]);
    run_to_success(&mut test)?;
    println!("an honest client hardly noticed {seconds} s of all attackers");
    Ok(())
}
