//! The time that files of a package bear: that of the last commit, so that the same commit gives the same files.

use anyhow::{Context, Result, bail};

use crate::repository::Repository;

/// The variable by which tools take that time (reproducible-builds.org).
pub(super) const VARIABLE: &str = "SOURCE_DATE_EPOCH";

/// Seconds of Unix time: those of the environment, else those of the last commit.
pub(super) fn of(repository: &Repository) -> Result<String> {
    let seconds = match std::env::var(VARIABLE) {
        Ok(seconds) => seconds,
        Err(_) => {
            let mut git = repository.command("git");
            let output = git.args(["log", "-1", "--format=%ct"]).output();
            let output = output.context("git cannot be started, which knows the time of the last commit")?;
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
    };
    if seconds.is_empty() || !seconds.bytes().all(|byte| byte.is_ascii_digit()) {
        bail!("no time for the files of the package: set {VARIABLE} to seconds of Unix time");
    }
    Ok(seconds)
}
