//! `gramway completions` and `gramway man`: files about the command line, from its definition. The program itself makes
//! them, so that they are about this very version.

use std::path::Path;

use crate::exit::Problem;
use crate::{cli, output};

const NAME: &str = "gramway";

/// Prints the completions of a shell.
pub(crate) fn completions(shell: clap_complete::Shell) -> Result<(), Problem> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut cli::definition(), NAME, &mut text);
    output::data(&String::from_utf8_lossy(&text))
}

/// Writes the man pages into a directory: gramway.1, gramway-up.1 and so on.
pub(crate) fn man_pages(directory: &Path) -> Result<(), Problem> {
    clap_mangen::generate_to(cli::definition(), directory)
        .map_err(|error| Problem::file("write man pages into", directory, &error))
}
