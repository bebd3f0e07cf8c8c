//! The programs under test, `gramway` and `bench`, in the development profile: no test depends on their speed.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use testbed::programs::run;

/// Exit codes of `gramway`, as README lists them: something needed is missing or in use.
pub const UNAVAILABLE: i32 = 69;

/// Its exit code where the command line is wrong.
pub const USAGE: i32 = 64;

/// The same: refused, by the system or by the server.
pub const PERMISSION: i32 = 77;

/// Exit code of settings outside the command line that are wrong.
pub const CONFIGURATION: i32 = 78;

/// Whether the program's memory is judged: not where `cargo xtask asan` has built it with what costs memory.
#[must_use]
pub fn memory_is_judged() -> bool {
    std::env::var_os("GRAMWAY_TEST_SANITIZED").is_none()
}

static GRAMWAY: OnceLock<PathBuf> = OnceLock::new();
static BENCH: OnceLock<PathBuf> = OnceLock::new();

/// Where it is. `cargo xtask test` has built it and says so in GRAMWAY_TEST_PROGRAM; otherwise it is built here, once,
/// so that no test ever meets a stale program.
///
/// # Panics
/// When it cannot be built.
#[must_use]
pub fn gramway_binary() -> PathBuf {
    GRAMWAY
        .get_or_init(|| find_or_build("GRAMWAY_TEST_PROGRAM", &["--package", "gramway"], "debug/gramway"))
        .clone()
}

/// The same for the benchmarks' own program and GRAMWAY_TEST_BENCH.
///
/// # Panics
/// When it cannot be built.
#[must_use]
pub fn bench_binary() -> PathBuf {
    BENCH
        .get_or_init(|| find_or_build("GRAMWAY_TEST_BENCH", &["--package", "bench"], "debug/bench"))
        .clone()
}

fn find_or_build(variable: &str, build: &[&str], place: &str) -> PathBuf {
    if let Some(path) = std::env::var_os(variable).map(PathBuf::from) {
        assert!(
            path.is_file(),
            "{variable} names {}, which is no file",
            path.display()
        );
        return path;
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    run(Command::new(cargo).args(["build", "--quiet"]).args(build)).unwrap();
    // This test program is TARGET/PROFILE/deps/NAME.
    let own = std::env::current_exe().expect("a running program has a path");
    let target = own
        .ancestors()
        .nth(3)
        .expect("cargo puts test programs three levels below its target directory");
    let program = target.join(place);
    assert!(
        program.is_file(),
        "{} is missing after its build",
        program.display()
    );
    program
}

/// The Python that has the interop packages, if `cargo xtask setup` has made it.
#[must_use]
pub fn interop_python() -> Option<PathBuf> {
    let told = std::env::var_os("GRAMWAY_TEST_PYTHON").map(PathBuf::from);
    let own = std::env::current_exe().ok();
    let beside = own.and_then(|own| {
        own.ancestors()
            .nth(3)
            .map(|target| target.join("interop-venv/bin/python"))
    });
    told.or(beside).filter(|path| path.is_file())
}

/// Where the programs `client` and `server` of phantun are, if `cargo xtask setup` has installed them;
/// GRAMWAY_TEST_PHANTUN says so where tests are elsewhere than their target directory.
#[must_use]
pub fn phantun() -> Option<PathBuf> {
    let told = std::env::var_os("GRAMWAY_TEST_PHANTUN").map(PathBuf::from);
    let own = std::env::current_exe().ok();
    let beside = own.and_then(|own| own.ancestors().nth(3).map(|target| target.join("phantun/bin")));
    told.or(beside)
        .filter(|directory| directory.join("client").is_file())
}
