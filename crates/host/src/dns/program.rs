//! Programs of the system that are asked to keep name servers: found in fixed places only, run with no environment but
//! a fixed path, and ended when they hang.

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use super::NamesWay;
use crate::limits::{NAMES_PROGRAM_POLL, NAMES_PROGRAM_TIME_MAX};

/// Where they may be; the last one is NixOS's.
const DIRECTORIES: [&str; 5] = [
    "/usr/bin",
    "/bin",
    "/usr/sbin",
    "/sbin",
    "/run/current-system/sw/bin",
];

/// What scripts among them look their own programs up in.
const SEARCH_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin:/run/current-system/sw/bin";

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    Resolvectl,
    Resolvconf,
}

impl Program {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Resolvectl => "resolvectl",
            Self::Resolvconf => "resolvconf",
        }
    }

    /// Who is told by it.
    pub(super) fn way(self) -> NamesWay {
        match self {
            Self::Resolvectl => NamesWay::Resolved,
            Self::Resolvconf => NamesWay::Resolvconf,
        }
    }

    /// Where it is.
    pub(super) fn find(self) -> Option<PathBuf> {
        let places = DIRECTORIES
            .iter()
            .map(|directory| Path::new(directory).join(self.name()));
        places.into_iter().find(|path| path.is_file())
    }

    /// Runs it to its end with this input. An error holds the first line that it complained with.
    pub(super) fn run(self, arguments: &[&str], input: &str) -> io::Result<()> {
        let program = self.find().ok_or_else(|| {
            let text = format!("there is no {} in {}", self.name(), DIRECTORIES.join(", "));
            io::Error::new(io::ErrorKind::NotFound, text)
        })?;
        run(Command::new(program).args(arguments), input)
    }
}

fn run(command: &mut Command, input: &str) -> io::Result<()> {
    let mut child = command
        .env_clear()
        .env("PATH", SEARCH_PATH)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut pipe) = child.stdin.take() {
        // A few lines, which fit the pipe; one that reads none of them says why by its status.
        let _ = pipe.write_all(input.as_bytes());
    }
    let deadline = Instant::now() + NAMES_PROGRAM_TIME_MAX;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(NAMES_PROGRAM_POLL);
    };
    if status.success() {
        return Ok(());
    }
    let complaint = child.stderr.take().map(BufReader::new);
    let line = complaint.and_then(|lines| lines.lines().next()?.ok());
    Err(io::Error::other(line.unwrap_or_else(|| status.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, input: &str) -> io::Result<()> {
        run(Command::new("/bin/sh").args(["-c", script]), input)
    }

    #[test]
    fn a_command_that_fails_or_is_missing_is_seen() {
        assert!(shell("true", "").is_ok());
        assert!(
            shell("false", "")
                .unwrap_err()
                .to_string()
                .contains("exit status: 1")
        );
        assert_eq!(
            shell("echo no bus >&2; false", "").unwrap_err().to_string(),
            "no bus"
        );
        assert!(run(&mut Command::new("no-such-program-here"), "").is_err());
    }

    #[test]
    fn it_gets_its_input_and_nothing_of_our_environment() {
        assert!(
            shell(
                "read line && test \"$line\" = 'nameserver 10.9.0.1'",
                "nameserver 10.9.0.1\n"
            )
            .is_ok()
        );
        // Cargo sets it for every test.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        assert!(shell("test -z \"$CARGO_MANIFEST_DIR\" -a -n \"$PATH\"", "").is_ok());
    }
}
