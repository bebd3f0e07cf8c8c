//! Which programs a benchmark starts: the one under test, and the one that runs loads in processes of their own.

use std::path::PathBuf;
use std::process::Command;

use serde::Serialize;

use crate::Error;
use crate::error::During;

/// The program under test and the program with the hidden load commands. Often the same file.
#[derive(Clone, Debug)]
pub struct Programs {
    gramway: PathBuf,
    load: PathBuf,
    load_prefix: Vec<String>,
}

impl Programs {
    /// Everything is the running `gramway` program: loads are `gramway bench _sink …`.
    ///
    /// # Errors
    /// When the system does not say which file is running.
    pub fn of_gramway() -> Result<Self, Error> {
        let gramway = running_program()?;
        Ok(Self {
            load: gramway.clone(),
            gramway,
            load_prefix: vec!["bench".to_owned()],
        })
    }

    /// The running program is `bench` itself and measures this `gramway`, or the one beside itself: loads are
    /// `bench _sink …`.
    ///
    /// # Errors
    /// When the system does not say which file is running.
    pub fn of_bench(gramway: Option<PathBuf>) -> Result<Self, Error> {
        let load = running_program()?;
        Ok(Self {
            gramway: gramway.unwrap_or_else(|| load.with_file_name("gramway")),
            load,
            load_prefix: Vec::new(),
        })
    }

    /// Looks for the program under test before anything is measured.
    ///
    /// # Errors
    /// It is not there.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.gramway.is_file() {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "{} is missing: build it with `cargo build --release`, or name another with --gramway",
            self.gramway.display()
        )))
    }

    /// A command of the program under test. Settings from the environment do not reach it.
    pub(crate) fn gramway(&self) -> Command {
        let mut command = Command::new(&self.gramway);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("GRAMWAY_") {
                command.env_remove(name);
            }
        }
        command
    }

    /// A hidden load command.
    pub(crate) fn load(&self, subcommand: &str, options: &str) -> Command {
        let mut command = Command::new(&self.load);
        command.args(&self.load_prefix).args([subcommand, options]);
        command
    }

    /// A hidden load command with its options as JSON.
    ///
    /// # Errors
    /// When the options can't be written as JSON.
    pub(crate) fn load_with(&self, subcommand: &str, options: &impl Serialize) -> Result<Command, Error> {
        let options = serde_json::to_string(options).map_err(|source| Error::Json {
            from: subcommand.to_owned(),
            source,
        })?;
        Ok(self.load(subcommand, &options))
    }
}

fn running_program() -> Result<PathBuf, Error> {
    std::env::current_exe().during(|| "find the running program".to_owned())
}
