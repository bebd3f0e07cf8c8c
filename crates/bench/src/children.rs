//! Load processes: started by a hidden subcommand, they tell when they are ready and report at the end.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use testbed::process::Process;

use crate::{Error, Programs, limits};

/// A running load process.
#[derive(Debug)]
pub(crate) struct Load {
    name: &'static str,
    process: Process,
}

impl Load {
    /// Starts a hidden subcommand and waits for its address.
    ///
    /// # Errors
    /// When it does not start, with its own reason.
    pub(crate) fn start(
        programs: &Programs,
        name: &'static str,
        options: &impl Serialize,
    ) -> Result<(Self, SocketAddr), Error> {
        Self::launch(name, programs.load_with(name, options)?)
    }

    /// Starts a command of [`Programs::load`] and waits for its first line.
    ///
    /// # Errors
    /// When it does not start, with its own reason.
    pub(crate) fn launch<T: DeserializeOwned>(
        name: &'static str,
        command: Command,
    ) -> Result<(Self, T), Error> {
        let load = Self::spawn(name, command)?;
        let line = load.line(limits::READY_TIMEOUT)?;
        let ready = serde_json::from_str(&line).map_err(|source| Error::Json {
            from: name.to_owned(),
            source,
        })?;
        Ok((load, ready))
    }

    fn spawn(name: &'static str, command: Command) -> Result<Self, Error> {
        let process = Process::start(command, name)?;
        Ok(Self { name, process })
    }

    /// Process ID.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Gives a load that answers lines an empty one, and reads its answer; `expected` is how long it takes.
    ///
    /// # Errors
    /// When it ends without an answer.
    #[cfg(feature = "rivals")]
    pub(crate) fn ask<T: DeserializeOwned>(&mut self, expected: Duration) -> Result<T, Error> {
        // Where it has ended, its own last words are the better reason.
        let _ = self.process.tell("");
        self.answer(expected)
    }

    /// Waits until a load that ends by itself has ended; `expected` is how long it runs.
    ///
    /// # Errors
    /// When it ends without a report.
    pub(crate) fn report<T: DeserializeOwned>(self, expected: Duration) -> Result<T, Error> {
        self.answer(expected)
    }

    /// Runs a load that takes so long, and has nothing to say before its report.
    ///
    /// # Errors
    /// When it does not start, or ends without a report.
    #[cfg(feature = "rivals")]
    pub(crate) fn run<T: DeserializeOwned>(
        name: &'static str,
        command: Command,
        expected: Duration,
    ) -> Result<T, Error> {
        Self::spawn(name, command)?.report(expected)
    }

    fn answer<T: DeserializeOwned>(&self, expected: Duration) -> Result<T, Error> {
        let line = self.line(expected + limits::END_TIMEOUT)?;
        serde_json::from_str(&line).map_err(|source| Error::Json {
            from: self.name.to_owned(),
            source,
        })
    }

    /// Asks a load to end and waits for its report.
    ///
    /// # Errors
    /// When it ends without a report.
    pub(crate) fn finish<T: DeserializeOwned>(mut self) -> Result<T, Error> {
        self.process.close_stdin();
        self.report(Duration::ZERO)
    }

    fn line(&self, timeout: Duration) -> Result<String, Error> {
        let failed = || Error::Child {
            program: format!("load {}", self.name),
            reason: self.process.last_words(),
        };
        self.process.next_line(timeout).ok_or_else(failed)
    }
}
