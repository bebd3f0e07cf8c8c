//! Who is compared.

use std::path::Path;
use std::process::Command;

use serde::Serialize;

use super::trial::Options;
use super::{COMMAND, COMMAND_OF_THREADS};
use crate::{Error, Programs};

/// Who is compared, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Contestant {
    /// Crate `peer`, driven by the program's runtime.
    Gramway,
    /// The same with a thread of its own for each endpoint.
    Threads,
    /// iroh.
    Iroh,
    /// quinn.
    Quinn,
}

impl Contestant {
    /// All, in the order of the table.
    pub(super) const ALL: [Self; 4] = [Self::Gramway, Self::Threads, Self::Iroh, Self::Quinn];

    /// Whether bench has it itself.
    pub(super) fn is_own(self) -> bool {
        matches!(self, Self::Gramway | Self::Threads)
    }

    /// Its name in the table, and the one by which the rivals' program knows it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gramway => "gramway",
            Self::Threads => "threads",
            Self::Iroh => "iroh",
            Self::Quinn => "quinn",
        }
    }

    /// What starts one end; `rivals` is the rivals' program.
    ///
    /// # Errors
    /// When the options can't be written as JSON.
    pub(super) fn command(
        self,
        programs: &Programs,
        rivals: Option<&Path>,
        options: &Options,
    ) -> Result<Command, Error> {
        let Some(program) = rivals.filter(|_| !self.is_own()) else {
            let command = match self {
                Self::Threads => COMMAND_OF_THREADS,
                _ => COMMAND,
            };
            return programs.load_with(command, options);
        };
        let options = serde_json::to_string(options).map_err(|source| Error::Json {
            from: self.name().to_owned(),
            source,
        })?;
        let mut command = Command::new(program);
        command.args([self.name(), &options]);
        Ok(command)
    }
}
