//! Jobs that run behind everything else on this machine: as many at a time as there are cores, each under the kernel's
//! idle policy (`chrt --idle`, sched(7)), so that they take only what processor time others leave. Programs that are
//! held to times, as the system tests are, run beside them as on a machine that has nothing else to do.
//!
//! What a job says goes into a file of its own, which is shown whole where the job fails. A failure ends no other job:
//! whoever repairs one wants to know of all.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::repository::{find_program, shown, succeeded};

/// One command.
pub(crate) struct Job {
    /// Names it to people.
    pub(crate) name: String,
    pub(crate) command: Command,
    /// The command line that runs it alone.
    pub(crate) again: String,
}

impl Job {
    /// A command that is repeated as it is.
    pub(crate) fn new(name: &str, command: Command) -> Self {
        Self {
            name: name.to_owned(),
            again: shown(&command),
            command,
        }
    }
}

/// Jobs that run.
pub(crate) struct Background {
    /// Each returns the names of its jobs that failed.
    workers: Vec<JoinHandle<Vec<String>>>,
}

impl Background {
    /// Starts `jobs` in this order; what they say goes into the directory `outputs`.
    pub(crate) fn start(jobs: Vec<Job>, outputs: &Path) -> Result<Self> {
        fs::create_dir_all(outputs).with_context(|| format!("{} cannot be made", outputs.display()))?;
        let waiting = Arc::new(Mutex::new(VecDeque::from(jobs)));
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let worker = |_| {
            let waiting = waiting.clone();
            let outputs = outputs.to_owned();
            thread::spawn(move || {
                let next = || waiting.lock().expect("no worker panics with it").pop_front();
                std::iter::from_fn(next)
                    .filter_map(|job| run(&job, &outputs).err().map(|()| job.name))
                    .collect()
            })
        };
        Ok(Self {
            workers: (0..cores).map(worker).collect(),
        })
    }

    /// Waits for all of them.
    pub(crate) fn finish(self) -> Result<()> {
        let mut failed = Vec::new();
        for worker in self.workers {
            failed.extend(worker.join().expect("it does not panic"));
        }
        if !failed.is_empty() {
            bail!("{} failed; what they said is above", failed.join(", "));
        }
        Ok(())
    }
}

/// Tells people how it went.
fn run(job: &Job, outputs: &Path) -> Result<(), ()> {
    let path = output_path(outputs, &job.name);
    let started = Instant::now();
    let result = run_into(&job.command, &path);
    let seconds = started.elapsed().as_secs_f64();
    match result {
        Ok(()) => {
            println!("    {}: passed in {seconds:.1} s", job.name);
            Ok(())
        }
        Err(error) => {
            let said = fs::read(&path).unwrap_or_default();
            println!(
                "==> {name} FAILED after {seconds:.1} s: {error:#}\n{}\n==> end of what {name} said, which is also in {}; \
                 to run it alone:\n    {}",
                String::from_utf8_lossy(&said),
                path.display(),
                job.again,
                name = job.name,
            );
            Err(())
        }
    }
}

/// A file takes the output, not a pipe: whoever outlives the job and holds its end would keep a reader waiting.
fn run_into(command: &Command, path: &Path) -> Result<()> {
    let not_made = || format!("{} cannot be written", path.display());
    let output = File::create(path).with_context(not_made)?;
    let mut command = patient(command);
    command
        .stdin(Stdio::null())
        .stdout(output.try_clone().with_context(not_made)?)
        .stderr(output);
    succeeded(command.status(), &command)
}

/// The command, behind everybody else on this machine.
fn patient(command: &Command) -> Command {
    let (program, arguments) = match find_program("chrt") {
        Some(chrt) => (chrt, ["--idle", "0"]),
        None => (PathBuf::from("nice"), ["-n", "19"]),
    };
    let mut patient = Command::new(program);
    patient
        .args(arguments)
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

fn output_path(outputs: &Path, name: &str) -> PathBuf {
    let words: Vec<&str> = name
        .split(|character: char| !character.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    outputs.join(words.join("-")).with_extension("log")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn every_job_runs_although_one_fails_and_its_name_is_told() {
        let outputs = std::env::temp_dir().join(format!("xtask-background-{}", std::process::id()));
        let jobs = vec![
            Job::new("the first", shell("echo why; echo not >&2; exit 3")),
            Job::new("the second", shell("test \"$PWD\" = /")),
            Job::new("the third", shell("echo done")),
        ];
        let jobs = jobs.into_iter().map(|mut job| {
            job.command.current_dir("/");
            job
        });
        let running = Background::start(jobs.collect(), &outputs).unwrap();
        let error = running.finish().unwrap_err().to_string();
        assert!(error.starts_with("the first failed"), "{error}");
        let said = |name| fs::read_to_string(output_path(&outputs, name)).unwrap();
        assert_eq!(said("the first"), "why\nnot\n");
        assert_eq!(said("the third"), "done\n");
        fs::remove_dir_all(&outputs).unwrap();
    }

    #[test]
    fn a_file_bears_the_name_of_its_job() {
        let path = output_path(Path::new("out"), "unit tests of quic (--test paths)");
        assert_eq!(path, Path::new("out/unit-tests-of-quic-test-paths.log"));
    }
}
