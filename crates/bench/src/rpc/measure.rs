//! One run of one contestant: its processes, and what they and the kernel say about it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::cases::{Contestant, Load, Place};
use super::child::{COMMAND, ChildOptions, Report, Role};
use super::client::Address;
use super::syscalls::SystemCalls;
use super::usage::Usage;
use crate::children::Load as Child;
use crate::{Error, Programs};

/// What one run showed. "Per call" is per message where messages are sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Measurement {
    /// Calls answered per second.
    pub(super) rate: f64,
    /// p50, p99 and p99.9 of the calls in microseconds; none for messages.
    pub(super) latency_us: Option<[f64; 3]>,
    /// Processor time of client and server per call, in microseconds.
    pub(super) cpu_us: f64,
    /// Datagrams per call, both directions; none where there are none.
    pub(super) datagrams: Option<f64>,
    /// System calls of client and server per call; none where the kernel does not tell.
    pub(super) system_calls: Option<f64>,
    /// How often a thread of client or server went to sleep, per call.
    pub(super) sleeps: f64,
    /// Largest resident size of the larger process, in bytes.
    pub(super) peak_bytes: u64,
}

impl Measurement {
    fn new(report: &Report, usage: Usage, system_calls: Option<u64>) -> Self {
        let calls = report.calls.max(1) as f64;
        let per_call = |count: u64| count as f64 / calls;
        Self {
            rate: report.calls as f64 / report.seconds,
            latency_us: report.percentiles,
            cpu_us: usage.cpu_seconds * 1e6 / calls,
            datagrams: report.datagrams.map(per_call),
            system_calls: system_calls.map(per_call),
            sleeps: per_call(usage.sleeps),
            peak_bytes: usage.peak_bytes,
        }
    }
}

/// What starts runs, each with a socket file of its own.
pub(super) struct Rig<'a> {
    pub(super) programs: &'a Programs,
    pub(super) directory: &'a Path,
    pub(super) runs: u32,
}

impl Rig<'_> {
    /// Runs `load` for `span`, counting system calls if `counting`, which slows each of them a little.
    pub(super) fn run(
        &mut self,
        contestant: Contestant,
        load: Load,
        place: Place,
        span: Duration,
        counting: bool,
    ) -> Result<Measurement, Error> {
        self.runs += 1;
        let path = self.directory.join(self.runs.to_string());
        let child = |role| ChildOptions {
            role,
            contestant,
            load,
            path: path.clone(),
            span,
        };
        match place {
            Place::OneProcess => {
                let (mut both, ()) = self.start(&child(Role::Both))?;
                let report: Report = both.ask(span)?;
                Ok(Measurement::new(&report, report.usage, None))
            }
            Place::TwoProcesses => {
                let (mut server, address) = self.start::<Address>(&child(Role::Server))?;
                let (mut clients, ()) = self.start(&child(Role::Clients(address)))?;
                let mut counter = counting
                    .then(|| SystemCalls::attach(&[server.pid(), clients.pid()]))
                    .flatten();
                let before: Usage = server.ask(Duration::ZERO)?;
                let counts = counter.as_mut().is_some_and(|counter| counter.start().is_some());
                let report: Report = clients.ask(span)?;
                let system_calls = counter.filter(|_| counts).and_then(SystemCalls::finish);
                let after: Usage = server.ask(Duration::ZERO)?;
                let usage = report.usage.and(after.since(before));
                Ok(Measurement::new(&report, usage, system_calls))
            }
        }
    }

    fn start<T: serde::de::DeserializeOwned>(&self, options: &ChildOptions) -> Result<(Child, T), Error> {
        Child::launch(COMMAND, self.programs.load_with(COMMAND, options)?)
    }
}

/// The socket files' directory, removed with everything in it when dropped.
pub(super) fn directory() -> Result<tempfile::TempDir, Error> {
    use crate::error::During;
    let parent: PathBuf = std::env::temp_dir();
    tempfile::Builder::new()
        .prefix("gramway-rpc-")
        .tempdir_in(&parent)
        .during(|| format!("make a directory in {}", parent.display()))
}
