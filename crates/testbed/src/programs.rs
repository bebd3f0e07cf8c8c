//! Programs of the system: where they are, and one run of them to its end.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::Error;
use crate::process::people_read_the_log_of;

/// The first program of these names, in the order of the names, in PATH, where cargo and go install, or in the system's
/// directories.
#[must_use]
pub fn find(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let installed = home.map(|home| [home.join(".cargo/bin"), home.join("go/bin")]);
    let directories: Vec<PathBuf> = std::env::split_paths(&path)
        .chain(installed.into_iter().flatten())
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .collect();
    names.iter().find_map(|name| {
        let files = directories.iter().map(|directory| directory.join(name));
        files.into_iter().find(|file| file.is_file())
    })
}

/// Runs a command to its end, without input, and gives what it printed to standard output.
///
/// # Errors
/// When it is missing or does not exit with 0, with its own words.
pub fn run(command: &mut Command) -> Result<String, Error> {
    let name = words(command);
    people_read_the_log_of(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(Error::io(format!("start {name}")))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let said = text(&output.stdout) + &text(&output.stderr);
    Err(Error::Program {
        program: name,
        reason: format!("{}: {}", output.status, said.trim()),
    })
}

/// The first line that a command prints; empty where it fails.
#[must_use]
pub fn said(command: &mut Command) -> String {
    let output = run(command).unwrap_or_default();
    output.lines().next().unwrap_or_default().trim().to_owned()
}

fn words(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_command_says_what_it_was_and_why() {
        let error = run(Command::new("sh").args(["-c", "echo no such thing >&2; exit 2"])).unwrap_err();
        let text = format!("{error:?}");
        assert!(text.contains("sh -c") && text.contains("no such thing"), "{text}");
    }

    #[test]
    fn a_program_is_found_by_the_first_of_its_names() {
        assert!(find(&["no-such-program", "sh"]).is_some_and(|path| path.ends_with("sh")));
        assert_eq!(find(&["no-such-program"]), None);
    }
}
