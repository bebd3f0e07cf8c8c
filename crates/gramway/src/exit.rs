//! What ends the program early: one sentence for people and one exit code for programs.
//!
//! The codes are a small part of BSD's `sysexits.h`; README lists them, so a code never changes its meaning.

use std::fmt;
use std::io;
use std::path::Path;

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
}

impl Problem {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
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
}

/// The error without Rust's "(os error 2)", which does not help people.
pub(crate) fn sentence(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
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
    fn a_refused_token_and_a_missing_permission_share_their_exit_code() {
        assert_eq!(Problem::from(Failure::Refused("r".into())).code() as u8, 77);
        assert_eq!(Problem::from(Failure::Permission("p".into())).code() as u8, 77);
        assert_eq!(Problem::from(Failure::Unavailable("u".into())).code() as u8, 69);
        assert_eq!(Problem::from(Failure::Configuration("c".into())).code() as u8, 78);
        assert_eq!(Problem::from(Failure::Bug("b".into())).code() as u8, 70);
    }
}
