//! What every contestant of `bench peers` does, whatever carries it.
//!
//! The same files are compiled into bench, for Gramway's peers, and into the program of the rivals
//! (`crates/bench/rivals`), so that all of them send the same, with the same bounds, by the same kind of calls.
//! [`contestant`] says what a contestant must be able to do, [`load`] what is sent.
//!
//! A trial is two processes. Each has its options as one JSON argument. The server says where it is reached, the client
//! when all its connections exist, one line of JSON each; from then on they answer each line of stdin with a
//! [`counts::Snapshot`], and end when stdin ends.

pub(crate) mod contestant;
pub(crate) mod counts;
mod load;

use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::runtime::Builder;
use tokio::sync::mpsc;

use contestant::{Outcome, Transport, failed};
use counts::Counts;

/// What one process of a trial does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Options {
    pub(crate) role: Role,
    pub(crate) load: Load,
    /// Where sockets are bound; port 0.
    pub(crate) address: SocketAddr,
    pub(crate) bounds: Bounds,
}

/// Which end it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Role {
    Server,
    Client(Contact),
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Contact {
    pub(crate) address: SocketAddr,
    /// By what it is recognised; each contestant has its own form.
    pub(crate) identity: String,
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Load {
    /// Reliable messages of so many bytes, from the client to the server.
    Messages { bytes: usize },
    /// Messages that are sent once.
    Unreliable { bytes: usize },
    /// One stream.
    Bulk,
    /// A message there and one back, one after the other, with pauses.
    RoundTrips { bytes: usize, beside_bulk: bool },
    /// Reliable messages of clients with an endpoint each.
    Fan {
        clients: usize,
        bytes: usize,
        direction: Direction,
    },
    /// A new connection, a message from the server, the end; so many at a time.
    Connections { parallel: usize },
    /// Connections without any traffic.
    Idle { connections: usize },
}

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Direction {
    /// The clients.
    In,
    /// The server.
    Out,
    /// All.
    Both,
}

/// What may be under way on a connection, the same for all contestants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bounds {
    pub(crate) messages: usize,
    /// Of messages together, and of a stream.
    pub(crate) bytes: usize,
}

/// Runs one process of a trial, with Gramway's peers or a rival as `T`, until stdin ends.
///
/// # Errors
/// What the client could not do. A server outlives its clients.
pub(crate) fn run<T: Transport>(options: &Options) -> Outcome<()> {
    let runtime = Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(failed("start a runtime"))?;
    let counts = Arc::new(Counts::default());
    let (end, mut ended) = mpsc::unbounded_channel();
    let outcome = runtime.block_on(async {
        match &options.role {
            Role::Server => {
                let transport = T::bind(options.address, options.bounds).await?;
                say(&transport.contact()?)?;
                tokio::spawn(load::serve(transport, options.load, Arc::clone(&counts)));
            }
            Role::Client(contact) => {
                load::call::<T>(options, contact, &counts, &end).await?;
                say(&())?;
            }
        }
        std::thread::spawn(move || {
            let mut lines = std::io::stdin().lock().lines().map_while(Result::ok);
            let answered = lines.try_for_each(|_| say(&counts.snapshot()));
            // Nobody listens where a load has failed before.
            let _ = end.send(answered);
        });
        ended.recv().await.unwrap_or(Ok(()))
    });
    runtime.shutdown_background();
    outcome
}

/// One line of JSON for the benchmark.
fn say(report: &impl Serialize) -> Outcome<()> {
    let line = serde_json::to_string(report).map_err(failed("write a report"))?;
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}")
        .and_then(|()| stdout.flush())
        .map_err(failed("write a report"))
}
