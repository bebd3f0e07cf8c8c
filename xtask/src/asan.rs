//! `cargo xtask asan`: AddressSanitizer, on the nightly toolchain, over the crate with unsafe code, the one whose
//! sockets other programs of the machine reach, and the program in the system tests of restarts and of hostile peers.
//!
//! Only what Rust compiles is instrumented. The program is larger and slower than without, so its memory is not judged.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::repository::{Repository, is_root, run_to_success};
use crate::setup::{self, Extent};
use crate::{nightly, steps};

/// The sanitizer needs a target of its own name, so that build scripts and procedural macros go without it.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Crates whose tests run under it.
const CRATES: [&str; 4] = ["--package", "packet-io", "--package", "irpc-uds"];

/// System tests that run with the program under it, by the beginnings of their names.
const SYSTEM_TESTS: [&str; 2] = ["restarts::", "hostile::"];

/// Tests that judge memory, which is more than without it, and one whose calls of 16 MiB, serialized byte by byte, take
/// longer than tests wait for on a busy machine.
const LEFT_OUT: [&str; 6] = [
    "--skip",
    "memory::",
    "--skip",
    "costs_little_memory",
    "--skip",
    "payloads_of_every_size",
];

/// Leaks are not judged: an endpoint of noq lives in tasks that the end of a test's runtime forgets.
const OPTIONS: (&str, &str) = ("ASAN_OPTIONS", "detect_leaks=0");

/// Tells the system tests that the program's memory is not judged.
const SANITIZED_VARIABLE: &str = "GRAMWAY_TEST_SANITIZED";

/// Builds and runs all of it; the system tests as root only.
pub(crate) fn run(repository: &Repository) -> Result<()> {
    nightly::require(repository)?;
    let build = repository.target().join("asan");
    let mut crates = sanitized(repository, &build, "test");
    crates.args(CRATES).args(["--lib", "--tests", "--"]);
    run_to_success(crates.args(LEFT_OUT))?;
    if !is_root() {
        println!("the system tests are left out: they need root");
        return Ok(());
    }
    setup::run(repository, Extent::Everything)?;
    run_to_success(sanitized(repository, &build, "build").args(["--package", "gramway"]))?;
    let program = build.join(TARGET).join("debug/gramway");
    for tests in SYSTEM_TESTS {
        let mut test = repository.cargo(&["test", "--package", "system-tests", "--test", "system"]);
        steps::describe_system_tests(repository, &program, &mut test)?;
        test.env(SANITIZED_VARIABLE, "1").env(OPTIONS.0, OPTIONS.1);
        run_to_success(test.arg(tests))?;
    }
    Ok(())
}

/// A command of the nightly cargo with the sanitizer, in a directory of its own.
fn sanitized(repository: &Repository, build: &Path, task: &str) -> Command {
    let mut command = nightly::command(repository, "cargo");
    command
        .args([task, "--target", TARGET, "--target-dir"])
        .arg(build);
    command
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env("RUSTFLAGS", "-Zsanitizer=address")
        .env(OPTIONS.0, OPTIONS.1);
    command
}
