//! What ends the program early: one sentence for people and one exit code for programs.
//!
//! The codes are a small part of BSD's `sysexits.h`; README lists them, so a code never changes its meaning.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process;

use signal_hook::low_level::emulate_default_handler;
use tunnel::handle::Failure;

/// Exit codes other than 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// The command line is wrong (`EX_USAGE`).
    Usage = 64,
    /// Something needed is missing or in use: an occupied port, no running process (`EX_UNAVAILABLE`).
    Unavailable = 69,
    /// A bug of ours (`EX_SOFTWARE`).
    Bug = 70,
    /// Refused: file permissions, a privileged port, a refused token, the wrong server (`EX_NOPERM`).
    Permission = 77,
    /// Settings outside the command line are wrong: files, environment, state directory (`EX_CONFIG`).
    Configuration = 78,
}

/// Why the program ends: a sentence that says what failed, on what, and what to do.
#[derive(Debug)]
pub(crate) struct Problem {
    code: Code,
    message: String,
    /// The signal by which the user ended it.
    signal: Option<i32>,
}

impl Problem {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            signal: None,
        }
    }

    /// The same, because the user ended the program by this signal, if there was one: then it dies of it.
    pub(crate) fn by_signal(self, signal: Option<i32>) -> Self {
        Self { signal, ..self }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::Usage, message)
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Code::Unavailable, message)
    }

    pub(crate) fn permission(message: impl Into<String>) -> Self {
        Self::new(Code::Permission, message)
    }

    pub(crate) fn configuration(message: impl Into<String>) -> Self {
        Self::new(Code::Configuration, message)
    }

    pub(crate) fn bug(message: impl Into<String>) -> Self {
        Self::new(Code::Bug, message)
    }

    /// A failed file operation: `action` completes "cannot …", e.g. `read`.
    pub(crate) fn file(action: &str, path: &Path, error: &io::Error) -> Self {
        let code = match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Code::Permission,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Code::Unavailable,
            _ => Code::Configuration,
        };
        Self::new(
            code,
            format!("cannot {action} {}: {}", path.display(), sentence(error)),
        )
    }

    /// All of these as one, a line each, with the first one's code; nothing if there are none.
    pub(crate) fn all(problems: Vec<Self>) -> Result<(), Self> {
        let Some(code) = problems.first().map(Self::code) else {
            return Ok(());
        };
        let lines: Vec<_> = problems.into_iter().map(|problem| problem.message).collect();
        Err(Self::new(code, lines.join("\n")))
    }

    pub(crate) fn code(&self) -> Code {
        self.code
    }

    /// Ends the program by a signal, where the user did: a shell ends the loop around a program that dies of Ctrl-C,
    /// and goes on after one that exits, whatever its code. Otherwise the exit code.
    pub(crate) fn end(&self) -> u8 {
        let Some(signal) = self.signal else {
            return self.code as u8;
        };
        let _ = io::stdout().flush();
        // The first process of a container cannot die so.
        if process::id() != 1 {
            let _ = emulate_default_handler(signal);
        }
        // As shells tell it.
        u8::try_from(128 + signal).unwrap_or(self.code as u8)
    }
}

/// The error without Rust's "(os error 2)", which does not help people.
pub(crate) fn sentence(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

/// Why something has failed for good, of what said so for each try.
pub(crate) fn last_word(reason: &str) -> &str {
    reason.strip_suffix(", retrying").unwrap_or(reason)
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        let code = match &failure {
            Failure::Refused(_) | Failure::Permission(_) => Code::Permission,
            Failure::Unavailable(_) => Code::Unavailable,
            Failure::Configuration(_) => Code::Configuration,
            Failure::Bug(_) => Code::Bug,
        };
        Self::new(code, failure.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_problem_names_the_file_and_the_cause_without_error_numbers() {
        let error = io::Error::from_raw_os_error(13);
        let problem = Problem::file("read", Path::new("/state/owner.token"), &error);
        assert_eq!(
            problem.to_string(),
            "cannot read /state/owner.token: permission denied"
        );
        assert_eq!(problem.code(), Code::Permission);
    }

    #[test]
    fn what_is_over_does_not_say_that_it_is_tried_again() {
        let reason = "cannot reach 192.0.2.1 (UDP 443, refused)";
        assert_eq!(last_word(&format!("{reason}, retrying")), reason);
        assert_eq!(last_word(reason), reason);
    }

    #[test]
    fn a_refused_token_and_a_missing_permission_share_their_exit_code() {
        assert_eq!(Problem::from(Failure::Refused("r".into())).code() as u8, 77);
        assert_eq!(Problem::from(Failure::Permission("p".into())).code() as u8, 77);
        assert_eq!(Problem::from(Failure::Unavailable("u".into())).code() as u8, 69);
        assert_eq!(Problem::from(Failure::Configuration("c".into())).code() as u8, 78);
        assert_eq!(Problem::from(Failure::Bug("b".into())).code() as u8, 70);
    }
}
