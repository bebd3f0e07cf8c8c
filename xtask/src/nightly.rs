//! The nightly toolchain, for what the pinned one lacks: fuzzing and sanitizers.

use std::process::Command;

use anyhow::{Result, bail};

use crate::repository::Repository;

/// Fails where there is none.
pub(crate) fn require(repository: &Repository) -> Result<()> {
    let is_there = command(repository, "rustc")
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success());
    if !is_there {
        bail!(
            "this needs a nightly toolchain; install it with `rustup toolchain install nightly --profile minimal`"
        );
    }
    Ok(())
}

/// A program on the nightly toolchain, although this task was started by the pinned one.
pub(crate) fn command(repository: &Repository, program: &str) -> Command {
    let mut command = repository.command("rustup");
    command.args(["run", "nightly", program]);
    for variable in ["CARGO", "RUSTUP_TOOLCHAIN", "RUSTC", "RUSTDOC"] {
        command.env_remove(variable);
    }
    command
}
