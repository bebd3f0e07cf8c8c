//! `cargo xtask probe`: sends what strangers send to two addresses and compares the answers, by a foreign QUIC stack.
//!
//! The prober is a program of the interop tests (`crates/system-tests/interop/prober`) and runs in their Python
//! environment. It is bounded in what it sends: some 160 probes of a few datagrams, each some ten times.

use anyhow::Result;

use crate::repository::{Repository, run_to_success};
use crate::setup;

/// What to compare.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The server that is to look like the cover, HOST:PORT
    host: String,
    /// The cover itself, HOST:PORT
    cover: String,
    /// The name that the cover has a certificate for
    #[arg(long)]
    name: String,
    /// Do not measure delays: on a busy machine they say nothing
    #[arg(long)]
    ignore_timing: bool,
    /// Only probes whose name contains this; may be repeated
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
}

/// Prints a verdict for each probe; an error where the two answer differently.
pub(crate) fn run(repository: &Repository, arguments: &Arguments) -> Result<()> {
    setup::install_python_packages(repository)?;
    let mut command = repository.command(repository.python_environment().join("bin/python"));
    command
        .arg("crates/system-tests/interop/prober")
        .args([&arguments.host, &arguments.cover])
        .args(["--name", &arguments.name])
        .args(arguments.only.iter().map(|part| format!("--only={part}")))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    if arguments.ignore_timing {
        command.arg("--ignore-timing");
    }
    run_to_success(&mut command)
}
