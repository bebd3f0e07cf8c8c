//! `cargo xtask arm64`: builds the whole program for Linux on arm64, starts it, and runs the unit tests of the pure
//! crates and of `packet-io`, all of it under emulation. Mistakes of alignment, of layouts and of the sign of `char`
//! die there.
//!
//! Compiler and standard library are Debian's, because packages bring both; cargo is the usual one. Programs are
//! static, so the emulator needs no libraries of that architecture. It hands system calls to this machine's kernel, but
//! not all: Debian 12's refuses `SO_RXQ_OVFL`, without which no UDP socket opens. So the program carries no traffic.

use std::process::Command;

use anyhow::Result;

use crate::dist;
use crate::packages::{self, Package, Sign};
use crate::repository::{Repository, run_to_success};
use crate::tidy::PURE_CRATES;

const TARGET: &str = "aarch64-unknown-linux-gnu";
/// Debian's name of the architecture.
const ARCHITECTURE: &str = "arm64";
const COMPILER: &str = "/usr/bin/rustc";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64-static";

/// `rustc-web` is the compiler that Debian keeps new enough for browsers, and so for this workspace.
const PACKAGES: [Package; 5] = [
    ("rustc-web", Sign::Path(COMPILER)),
    (
        "libstd-rust-web-dev:arm64",
        Sign::Path("/usr/lib/rustlib/aarch64-unknown-linux-gnu/lib"),
    ),
    ("gcc-aarch64-linux-gnu", Sign::Program(LINKER)),
    (
        "libc6-dev-arm64-cross",
        Sign::Path("/usr/aarch64-linux-gnu/lib/libc.a"),
    ),
    ("qemu-user-static", Sign::Program(EMULATOR)),
];

/// Tests that need what the emulator lacks.
const LEFT_OUT: [&str; 1] = [
    // SO_NETNS_COOKIE
    "network::tests::one_network_has_one_number",
];

/// Installs what is missing, builds, starts, tests.
pub(crate) fn run(repository: &Repository) -> Result<()> {
    packages::install(repository, &PACKAGES, Some(ARCHITECTURE))?;
    println!("==> build");
    run_to_success(cargo(repository, "build").args(["--package", "gramway"]))?;
    println!("==> start");
    run_to_success(cargo(repository, "run").args(["--package", "gramway", "--", "--version"]))?;
    println!("==> unit tests");
    let mut tests = cargo(repository, "test");
    tests.args(["--lib", "--package", "packet-io"]);
    for name in PURE_CRATES {
        tests.args(["--package", name]);
    }
    // With several threads tests stood still under emulation.
    tests.args(["--", "--test-threads", "1", "--exact"]);
    for name in LEFT_OUT {
        tests.args(["--skip", name]);
    }
    run_to_success(&mut tests)
}

/// Cargo with Debian's compiler, in a directory of its own: the products of two compilers do not mix.
fn cargo(repository: &Repository, task: &str) -> Command {
    let mut command = repository.cargo(&[task, "--quiet", "--locked", "--target", TARGET, "--target-dir"]);
    command
        .arg(repository.target().join(ARCHITECTURE))
        .env("RUSTC", COMPILER)
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env("RUSTFLAGS", dist::FLAGS)
        .env("CC_aarch64_unknown_linux_gnu", LINKER)
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER)
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", EMULATOR);
    command
}
