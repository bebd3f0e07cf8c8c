//! `cargo xtask test`: everything that CI checks, stopping at the first failure. One step comes after the other;
//! checking tools are installed beside the unit tests.
//!
//! Cargo compiles a crate anew for each set of features, and the packages that a command selects decide on these. So
//! lints, unit tests and system tests select the whole workspace, which is compiled once; alone, as a user builds them,
//! the two programs are checked. The programs under system test come with the unit tests, because their packages have
//! integration tests, for which cargo builds them; environment variables tell the system tests where both are. What
//! they do is what the shipped program does, with its assertions checked; how fast it is the benchmarks measure.

use std::io::Read;
use std::num::NonZero;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::repository::{Repository, has_sudo, is_root, run_to_success, shown, succeeded};
use crate::setup::{self, Extent};
use crate::{rivals, skips, tidy};

/// Tells the system tests which program to test.
const PROGRAM_VARIABLE: &str = "GRAMWAY_TEST_PROGRAM";
/// Tells the system tests where the benchmarks' own program is.
const BENCH_VARIABLE: &str = "GRAMWAY_TEST_BENCH";
/// Tells the system tests where skips are recorded.
const SKIP_LOG_VARIABLE: &str = "GRAMWAY_SKIP_LOG";
/// Tells the tests how many of them run at a time.
const THREADS_VARIABLE: &str = "RUST_TEST_THREADS";
/// System tests mostly wait, for timeouts of protocols and for programs: so many run at a time on each core.
const SYSTEM_TESTS_PER_CORE: usize = 3;
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
    let alone = |package| repository.cargo(&["check", "--quiet", "--package", package]);
    run.command("program alone", alone("gramway"))?;
    if extent == Extent::Everything {
        run.command("benchmarks alone", alone("bench"))?;
        run.command("rivals' lock file", rivals::check(repository))?;
    }
    run.command(
        "build of the tests",
        repository.cargo(&["test", "--quiet", "--workspace", "--no-run"]),
    )?;
    let unit_tests = ["test", "--quiet", "--workspace", "--exclude", "system-tests"];
    let unit_tests = |run: &mut Run| run.command("unit tests", repository.cargo(&unit_tests));
    match setup::missing_cargo_tools(repository) {
        // Those do not use both processors all the time.
        Some(install) => run.beside("tools", patient(&install), unit_tests)?,
        None => unit_tests(&mut run)?,
    }
    if extent == Extent::Everything {
        run.system_tests(repository, strict)?;
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

/// Tells system tests by environment variables what they test, and has them run as root where this may become root.
pub(crate) fn describe_system_tests(
    repository: &Repository,
    program: &Path,
    tests: &mut Command,
) -> Result<()> {
    tests
        .env(PROGRAM_VARIABLE, program)
        .env(BENCH_VARIABLE, repository.target().join("debug/bench"))
        .env(
            PYTHON_VARIABLE,
            repository.python_environment().join("bin/python"),
        );
    if !is_root() && has_sudo() {
        // Namespaces need root; building as root would leave files that the user cannot remove.
        tests.env(runner_variable(repository)?, "sudo -n -E");
    }
    Ok(())
}

/// Reads to the end, on a thread of its own, so that nobody waits for a full pipe.
fn collect(mut from: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What cannot be read was not said.
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// The command, behind everybody else on this machine.
fn patient(command: &Command) -> Command {
    let mut patient = Command::new("nice");
    patient
        .args(["-n", "19"])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => patient.env(name, value),
            None => patient.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        patient.current_dir(directory);
    }
    patient
}

struct Run {
    started: Instant,
    passed: u32,
}

impl Run {
    /// Beside nothing else: they hold programs to times of protocols.
    fn system_tests(&mut self, repository: &Repository, strict: bool) -> Result<()> {
        let log = repository.target().join("skips.log");
        // Skips of an earlier run would count for this one; a missing file means none.
        let _ = std::fs::remove_file(&log);
        let mut tests = repository.cargo(&["test", "--workspace", "--test", "system"]);
        let program = repository.target().join("debug/gramway");
        describe_system_tests(repository, &program, &mut tests)?;
        tests.env(SKIP_LOG_VARIABLE, &log);
        if std::env::var_os(THREADS_VARIABLE).is_none() {
            let cores = thread::available_parallelism().map_or(1, NonZero::get);
            tests.env(THREADS_VARIABLE, (SYSTEM_TESTS_PER_CORE * cores).to_string());
        }
        self.command("system tests", tests)?;
        self.step("skips", || skips::report(repository, &log, strict))
    }

    fn command(&mut self, name: &str, mut command: Command) -> Result<()> {
        self.step(name, || run_to_success(&mut command))
    }

    /// Runs a command and, at the same time, other steps; what it says comes at its end. If one of these fails, the
    /// command is ended.
    fn beside(
        &mut self,
        name: &str,
        mut command: Command,
        others: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("`{}` cannot be started", shown(&command)))?;
        let output = collect(child.stdout.take().expect("it is piped"));
        let errors = collect(child.stderr.take().expect("it is piped"));
        if let Err(error) = others(self) {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        self.step(name, || {
            let result = succeeded(child.wait(), &command);
            let said = [output, errors].map(|reader| reader.join().expect("it does not panic"));
            for text in &said {
                print!("{text}");
            }
            result
        })
    }

    fn step(&mut self, name: &str, action: impl FnOnce() -> Result<()>) -> Result<()> {
        println!("==> {name}");
        let started = Instant::now();
        action().with_context(|| format!("step \"{name}\""))?;
        self.passed += 1;
        println!("    {name}: passed in {:.1} s", started.elapsed().as_secs_f64());
        Ok(())
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
