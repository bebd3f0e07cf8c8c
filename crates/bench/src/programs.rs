//! Which programs a benchmark starts: the one under test, the one that runs loads in processes of their own, and
//! others that happen to be installed.

use std::path::PathBuf;
use std::process::Command;

use serde::Serialize;

use crate::Error;
use crate::error::During;
use crate::namespace::run;

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

/// The first program of these names, in the order of the names, in PATH or where cargo and go install.
pub(crate) fn find_program(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let directories: Vec<PathBuf> = std::env::split_paths(&path)
        .chain([
            home.join(".cargo/bin"),
            home.join("go/bin"),
            "/usr/sbin".into(),
            "/sbin".into(),
        ])
        .collect();
    names.iter().find_map(|name| {
        let files = directories.iter().map(|directory| directory.join(name));
        files.into_iter().find(|file| file.is_file())
    })
}

/// The first line that a command prints; empty where it fails.
pub(crate) fn said(command: &mut Command) -> String {
    let output = run(command).unwrap_or_default();
    output.lines().next().unwrap_or_default().trim().to_owned()
}
