//! `cargo xtask hostile`: strangers beside honest clients: all kinds at once by a foreign QUIC stack, a thousand that
//! cost memory, masses of handshakes among which somebody new connects, and a flood of SYNs beside a relay.
//!
//! Server, client and strangers are in network namespaces of their own, so it needs root. The ignored system tests of
//! `attackers` judge; each makes all of its checks and ends with a table of them.

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
    println!("honest clients hardly noticed the strangers");
    Ok(())
}
