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

#[cfg(test)]
mod tests {
    use clap_complete::Shell;

    use super::*;
    use crate::config::{CommandWithSettings, Connect, Up, long_flags};

    /// Flags of settings, by command.
    fn flags() -> [(&'static str, Vec<String>); 2] {
        [
            ("up", long_flags(Up::reads)),
            ("connect", long_flags(Connect::reads)),
        ]
    }

    #[test]
    fn every_setting_with_a_flag_is_in_the_man_page_of_its_command_and_no_hidden_command_has_one() {
        let directory = tempfile::tempdir().unwrap();
        man_pages(directory.path()).unwrap();
        for (command, flags) in flags() {
            let page = directory.path().join(format!("gramway-{command}.1"));
            let page = std::fs::read_to_string(page).unwrap();
            for flag in flags {
                let shown = format!("\\-\\-{}", flag.replace('-', "\\-"));
                assert!(page.contains(&shown), "{command} --{flag}");
            }
        }
        let pages = std::fs::read_dir(directory.path()).unwrap();
        let names: Vec<_> = pages
            .map(|page| page.unwrap().file_name().into_string().unwrap())
            .collect();
        for command in cli::definition().get_subcommands() {
            let name = format!("gramway-{}.1", command.get_name());
            assert_eq!(names.contains(&name), !command.is_hide_set(), "{name}");
        }
    }

    #[test]
    fn every_shell_completes_every_setting_with_a_flag() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut cli::definition(), NAME, &mut text);
            let text = String::from_utf8(text).unwrap();
            for (command, flags) in flags() {
                for flag in flags {
                    let shown = match shell {
                        Shell::Fish => format!("-l {flag}"),
                        _ => format!("--{flag}"),
                    };
                    assert!(text.contains(&shown), "{shell} {command} --{flag}");
                }
            }
        }
    }
}
