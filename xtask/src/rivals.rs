//! What the benchmarks measure Gramway against, built or installed below `target/rivals`: nothing of it is needed to
//! build or to test, and all of it takes minutes. Versions are pinned; programs of crates come with their own lock
//! files.

use std::process::Command;

use anyhow::Result;

use crate::repository::Repository;
use crate::setup::{self, install};

/// A rival of `bench files`, by Go's module proxy.
const CROC: &str = "github.com/schollz/croc/v10@v10.7.0";

/// Rivals of `bench files` that are crates, by name and version.
const CRATES: [(&str, &str); 2] = [("sendme", "0.37.1"), ("qcp", "0.9.1")];

/// Installs all of them; croc only where there is Go.
pub(crate) fn build(repository: &Repository) -> Result<()> {
    let root = repository.target().join("rivals");
    let mut go = repository.command("go");
    let has_go = go.arg("version").output();
    if has_go.is_ok_and(|output| output.status.success()) {
        let mut build = repository.command("go");
        build.args(["install", CROC]).env("GOBIN", root.join("bin"));
        install(&mut build)?;
    }
    setup::install_python(
        repository,
        &repository.root().join("crates/bench/rivals/requirements.txt"),
        &root.join("python"),
        "",
    )?;
    for (name, version) in CRATES {
        if !setup::is_installed(&root, name, version, name) {
            // As its users have it: with all optimization.
            let mut build = repository.cargo(&["install", "--locked", "--quiet", "--root"]);
            build.arg(&root).arg(format!("{name}@{version}"));
            install(&mut build)?;
        }
    }
    let mut build = repository.cargo(&["build", "--release", "--locked", "--manifest-path"]);
    build.arg("crates/bench/rivals/Cargo.toml");
    build.arg("--target-dir").arg(&root);
    install(&mut build)
}

/// Fails where the lock file of the rivals' program does not fit its manifest. To compile the hundreds of crates that
/// iroh brings would take minutes of CI.
pub(crate) fn check(repository: &Repository) -> Command {
    repository.cargo(&[
        "update",
        "--quiet",
        "--workspace",
        "--locked",
        "--manifest-path",
        "crates/bench/rivals/Cargo.toml",
    ])
}
