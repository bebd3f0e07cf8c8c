//! The hidden command behind every run: a server, the clients, or both in one process.
//!
//! A server says where it listens and answers each line with its usage so far. Clients connect, make a fifth of the
//! load to warm up, say that they are ready, and at the next line make the load and report. What happens before that
//! line is not measured.

use std::io::BufRead;
use std::path::PathBuf;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};

use super::cases::{Contestant, Load};
use super::client::{Address, Clients, Server};
use super::outcome::failed;
use super::usage::Usage;
use crate::Error;
use crate::hidden::{options, say};

/// Name of the hidden command.
pub(super) const COMMAND: &str = "_rpc";

/// The part of the span that warms up.
const WARM_UP_SHARE: u32 = 5;

/// What a child is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Role {
    /// The server.
    Server,
    /// All clients, with the server at this address.
    Clients(Address),
    /// Server and clients.
    Both,
}

/// Options of the hidden command.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ChildOptions {
    pub(super) role: Role,
    pub(super) contestant: Contestant,
    pub(super) load: Load,
    /// Where a server makes its socket file.
    pub(super) path: PathBuf,
    /// How long the load lasts.
    pub(super) span: Duration,
}

/// What clients report.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) calls: u64,
    pub(super) seconds: f64,
    /// p50, p99, p99.9 in microseconds.
    pub(super) percentiles: Option<[f64; 3]>,
    /// Datagrams in both directions.
    pub(super) datagrams: Option<u64>,
    /// Of this process, from the first call to the last answer.
    pub(super) usage: Usage,
}

/// Runs the hidden command; `arguments` are its name and its options as JSON.
pub(super) fn run(arguments: &[String]) -> Result<(), Error> {
    let options: ChildOptions = options(arguments)?;
    match options.role {
        Role::Server => stay_on_processor(0),
        Role::Clients(_) => stay_on_processor(1),
        Role::Both => {}
    }
    let mut builder = match options.role {
        Role::Both => Builder::new_multi_thread(),
        Role::Server | Role::Clients(_) => Builder::new_current_thread(),
    };
    let runtime = builder.enable_all().build().map_err(failed("start a runtime"))?;
    match &options.role {
        Role::Server => serve(&runtime, &options),
        Role::Clients(address) => runtime.block_on(async {
            let clients = Clients::connect(options.contestant, options.load, address).await?;
            call(&clients, &options).await
        }),
        Role::Both => runtime.block_on(async {
            let server = Server::start(options.contestant, options.load, &options.path)?;
            let clients = server.connect(options.contestant, options.load).await?;
            call(&clients, &options).await
        }),
    }
}

/// Keeps this process, and the threads it will start, on the processor of this number among those it may use.
///
/// A round trip within one processor takes a fraction of one between two, and which it is would be the scheduler's mood.
/// Without a second processor nothing changes.
fn stay_on_processor(number: usize) {
    let Ok(allowed) = sched_getaffinity(None) else {
        return;
    };
    let mut processors = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor));
    if allowed.count() < 2 {
        return;
    }
    if let Some(processor) = processors.nth(number) {
        let mut only = CpuSet::new();
        only.set(processor);
        // Where it is refused, the scheduler decides as it does for everybody.
        let _ = sched_setaffinity(None, &only);
    }
}

/// Serves until stdin ends.
fn serve(runtime: &Runtime, options: &ChildOptions) -> Result<(), Error> {
    let server =
        runtime.block_on(async { Server::start(options.contestant, options.load, &options.path) })?;
    say(&server.address)?;
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let answered = std::io::stdin()
            .lock()
            .lines()
            .map_while(Result::ok)
            .try_for_each(|_| say(&Usage::of_this_process()));
        // The runtime may have ended by itself.
        let _ = ended.send(answered);
    });
    runtime.block_on(end).map_err(failed("wait for the end"))?
}

async fn call(clients: &Clients, options: &ChildOptions) -> Result<(), Error> {
    let ChildOptions { load, span, .. } = *options;
    clients.run(load, span / WARM_UP_SHARE).await?;
    say(&())?;
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    if read.map_err(failed("wait for the start"))? == 0 {
        return Ok(());
    }
    let (usage, datagrams) = (Usage::of_this_process(), clients.datagrams());
    let mut sample = clients.run(load, span).await?;
    let mut usage = Usage::of_this_process().since(usage);
    usage.sleeps += sample.sleeps;
    say(&Report {
        calls: sample.calls,
        seconds: sample.elapsed.as_secs_f64(),
        percentiles: sample.percentiles(),
        datagrams: clients
            .datagrams()
            .zip(datagrams)
            .map(|(after, before)| after - before),
        usage,
    })
}
