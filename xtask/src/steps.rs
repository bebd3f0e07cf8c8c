//! `cargo xtask test`: everything that CI checks. Steps come one after the other and stop at the first failure. The
//! system tests mostly wait; what is held to no time runs behind them ([`crate::background`]): unit tests, checks of
//! the programs, each alone, and the build of the checking tools.
//!
//! Cargo compiles a crate anew for each set of features, and the packages that a command selects decide on these. So
//! lints, unit tests and system tests select the whole workspace, which is compiled once; alone, as a user builds them,
//! the two programs are checked. The programs under system test come with the unit tests, because their packages have
//! integration tests, for which cargo builds them; environment variables tell the system tests where both are. What
//! they do is what the shipped program does, with its assertions checked; how fast it is the benchmarks measure.

use std::num::NonZero;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::background::{Background, Job};
use crate::repository::{Repository, has_sudo, is_root, run_to_success};
use crate::setup::{self, Extent};
use crate::test_programs::{self, TestProgram};
use crate::{rivals, skips, tidy};

/// Tells the system tests which program to test.
const PROGRAM_VARIABLE: &str = "GRAMWAY_TEST_PROGRAM";
/// Tells the system tests where the benchmarks' own program is.
const BENCH_VARIABLE: &str = "GRAMWAY_TEST_BENCH";
/// Tells the system tests where skips are recorded.
const SKIP_LOG_VARIABLE: &str = "GRAMWAY_SKIP_LOG";
/// Tells the tests how many of them run at a time.
const THREADS_VARIABLE: &str = "RUST_TEST_THREADS";
/// System tests mostly wait, for timeouts of protocols and for programs: so many run at a time on each core. What they
/// leave of it the unit tests take.
const SYSTEM_TESTS_PER_CORE: usize = 2;
/// So many unit tests of one program run at a time, and as many programs as there are cores.
const UNIT_TESTS_PER_PROGRAM: &str = "2";
/// Begun before others, because they take longest, so that none of them is left alone at the end.
const LONG_PROGRAMS: [(&str, &str); 5] = [
    ("quic", "--test paths"),
    ("tunnel-proto", "--test sim"),
    ("peer-proto", "--test sim"),
    ("quic", "--test behaviour"),
    ("bench", "--test rpc"),
];
/// The package of the system tests.
const SYSTEM_TESTS: &str = "system-tests";
/// Tells the system tests where the Python of the interop tests is.
const PYTHON_VARIABLE: &str = "GRAMWAY_TEST_PYTHON";

/// Runs all steps.
pub(crate) fn run(repository: &Repository, extent: Extent) -> Result<()> {
    // CI systems agree on this variable.
    let strict = std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false");
    let locked: &[&str] = if strict { &["--locked"] } else { &[] };
    let mut run = Run {
        started: Instant::now(),
        passed: 0,
    };

    run.step("setup", || setup::run(repository, extent))?;
    run.command("format", repository.cargo(&["fmt", "--all", "--check"]))?;
    run.step("tidy", || tidy::run(repository))?;
    let mut clippy = repository.cargo(&["clippy", "--quiet", "--workspace", "--all-targets"]);
    clippy.args(locked).args(["--", "-D", "warnings"]);
    run.command("lints", clippy)?;
    let mut documentation = repository.cargo(&["doc", "--quiet", "--workspace", "--no-deps"]);
    documentation.env("RUSTDOCFLAGS", "-D warnings");
    run.command("documentation", documentation)?;
    if extent == Extent::Everything {
        run.command("rivals' lock file", rivals::check(repository))?;
    }
    let programs = run.step("build of the tests", || test_programs::build(repository, locked))?;
    let (system_tests, unit_tests): (Vec<_>, Vec<_>) = programs
        .iter()
        .partition(|program| program.package == SYSTEM_TESTS && program.selection.starts_with("--test"));
    let jobs = background_jobs(repository, extent, unit_tests);
    let behind = Background::start(jobs, &repository.target().join("background"))?;
    let system_tests = match extent {
        Extent::Everything => run.system_tests(repository, &system_tests, strict),
        Extent::WithoutSystemTests => Ok(()),
    };
    let behind = run.step("unit tests and checks behind them", || behind.finish());
    // All that fails is told, of both.
    match (system_tests, behind) {
        (Err(system_tests), Err(behind)) => bail!("{system_tests:#}\nand {behind:#}"),
        (system_tests, behind) => system_tests.and(behind)?,
    }
    let tools = repository.tools().join("bin");
    let mut deny = repository.command(tools.join("cargo-deny"));
    deny.args([
        "--workspace",
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ]);
    run.command("dependency policy", deny)?;
    let mut machete = repository.command(tools.join("cargo-machete"));
    // With this variable it takes itself for a cargo subcommand and expects its own name as an argument.
    machete.env_remove("CARGO");
    run.command("unused dependencies", machete)?;

    println!(
        "all {} steps passed in {} s",
        run.passed,
        run.started.elapsed().as_secs()
    );
    Ok(())
}

/// Tells system tests, which cargo runs, what they test, and has them run as root where this may become root.
pub(crate) fn describe_system_tests(
    repository: &Repository,
    program: &Path,
    cargo_test: &mut Command,
) -> Result<()> {
    name_what_is_tested(repository, program, cargo_test);
    if needs_sudo() {
        // Building as root would leave files that the user cannot remove.
        cargo_test.env(runner_variable(repository)?, "sudo -n -E");
    }
    Ok(())
}

/// By environment variables.
fn name_what_is_tested(repository: &Repository, program: &Path, system_tests: &mut Command) {
    system_tests
        .env(PROGRAM_VARIABLE, program)
        .env(BENCH_VARIABLE, repository.target().join("debug/bench"))
        .env(
            PYTHON_VARIABLE,
            repository.python_environment().join("bin/python"),
        );
}

/// Namespaces need root.
fn needs_sudo() -> bool {
    !is_root() && has_sudo()
}

/// What runs behind the system tests: unit tests, and cargo's commands.
fn background_jobs(repository: &Repository, extent: Extent, mut unit_tests: Vec<&TestProgram>) -> Vec<Job> {
    unit_tests.sort_by_key(|program| {
        let name = (program.package.as_str(), program.selection.as_str());
        let place = LONG_PROGRAMS.iter().position(|long| *long == name);
        place.unwrap_or(LONG_PROGRAMS.len())
    });
    let unit_test = |program: &TestProgram| {
        let mut command = program.command(repository, false);
        if std::env::var_os(THREADS_VARIABLE).is_none() {
            command.env(THREADS_VARIABLE, UNIT_TESTS_PER_PROGRAM);
        }
        Job {
            name: format!("unit tests of {} ({})", program.package, program.selection),
            command,
            again: format!("cargo test --package {} {}", program.package, program.selection),
        }
    };
    let alone =
        |package| repository.cargo(&["clippy", "--quiet", "--package", package, "--", "-D", "warnings"]);
    let examples = ["test", "--workspace", "--exclude", SYSTEM_TESTS, "--doc"];

    let mut jobs: Vec<Job> = unit_tests.into_iter().map(unit_test).collect();
    jobs.push(Job::new("examples in documentation", repository.cargo(&examples)));
    jobs.push(Job::new("program alone", alone("gramway")));
    if extent == Extent::Everything {
        jobs.push(Job::new("benchmarks alone", alone("bench")));
    }
    if let Some(install) = setup::missing_cargo_tools(repository) {
        jobs.insert(0, Job::new("tools", install));
    }
    jobs
}

struct Run {
    started: Instant,
    passed: u32,
}

impl Run {
    fn system_tests(
        &mut self,
        repository: &Repository,
        programs: &[&TestProgram],
        strict: bool,
    ) -> Result<()> {
        ensure!(!programs.is_empty(), "cargo names no program of system tests");
        let log = repository.target().join("skips.log");
        // Skips of an earlier run would count for this one; a missing file means none.
        let _ = std::fs::remove_file(&log);
        for program in programs {
            let mut tests = program.command(repository, needs_sudo());
            name_what_is_tested(repository, &repository.target().join("debug/gramway"), &mut tests);
            tests.env(SKIP_LOG_VARIABLE, &log);
            if std::env::var_os(THREADS_VARIABLE).is_none() {
                let cores = thread::available_parallelism().map_or(1, NonZero::get);
                tests.env(THREADS_VARIABLE, (SYSTEM_TESTS_PER_CORE * cores).to_string());
            }
            self.command("system tests", tests)?;
        }
        self.step("skips", || skips::report(repository, &log, strict))
    }

    fn command(&mut self, name: &str, mut command: Command) -> Result<()> {
        self.step(name, || run_to_success(&mut command))
    }

    fn step<T>(&mut self, name: &str, action: impl FnOnce() -> Result<T>) -> Result<T> {
        println!("==> {name}");
        let started = Instant::now();
        let result = action().with_context(|| format!("step \"{name}\""))?;
        self.passed += 1;
        println!("    {name}: passed in {:.1} s", started.elapsed().as_secs_f64());
        Ok(result)
    }
}

/// The variable that makes cargo start test programs through another program, e.g. `CARGO_TARGET_X86_64_…_RUNNER`.
fn runner_variable(repository: &Repository) -> Result<String> {
    let output = repository
        .command("rustc")
        .arg("-vV")
        .output()
        .context("`rustc -vV` cannot be started")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .context("`rustc -vV` does not tell the host; is the toolchain complete?")?;
    Ok(format!(
        "CARGO_TARGET_{}_RUNNER",
        host.to_uppercase().replace(['-', '.'], "_")
    ))
}
