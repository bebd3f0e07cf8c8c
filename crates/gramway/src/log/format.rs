//! How the log is written: for people, as JSON, or to the system's journal.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::str::FromStr;

use rustix::fs::fstat;

/// What the user asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// What suits standard error: lines for people on a terminal, fields where it leads to the journal, else JSON.
    #[default]
    Auto,
    /// Lines for people.
    Human,
    /// One JSON object a line.
    Json,
    /// Fields, by the journal's own protocol.
    Journald,
}

/// Where records go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    Human,
    Json,
    Journald,
}

impl FromStr for LogFormat {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "human" => Ok(Self::Human),
            "json" => Ok(Self::Json),
            "journald" => Ok(Self::Journald),
            _ => Err("none of auto, human, json, journald"),
        }
    }
}

impl LogFormat {
    /// The outputs to try, the preferred one first.
    pub(super) fn outputs(self) -> &'static [Output] {
        match self {
            Self::Human => &[Output::Human],
            Self::Json => &[Output::Json],
            Self::Journald => &[Output::Journald],
            Self::Auto if io::stderr().is_terminal() => &[Output::Human],
            // A service whose journal takes nothing still has its standard error.
            Self::Auto if leads_to_journal() => &[Output::Journald, Output::Json],
            Self::Auto => &[Output::Json],
        }
    }
}

/// Whether standard error leads to the system's journal, which adds the time to what it gets.
pub(super) fn leads_to_journal() -> bool {
    std::env::var("JOURNAL_STREAM").is_ok_and(|stream| is_stream(&stream, io::stderr()))
}

/// Whether this descriptor is the stream `DEVICE:INODE` (systemd.exec(5), `JOURNAL_STREAM`): children inherit the
/// variable even if their standard error leads elsewhere.
fn is_stream(stream: &str, descriptor: impl AsFd) -> bool {
    fstat(descriptor).is_ok_and(|found| stream == format!("{}:{}", found.st_dev, found.st_ino))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn only_the_stream_that_the_variable_names_is_the_journals() {
        let [journal, other] = [(); 2].map(|()| tempfile::tempfile().unwrap());
        let metadata = journal.metadata().unwrap();
        let stream = format!("{}:{}", metadata.dev(), metadata.ino());
        assert!(is_stream(&stream, &journal));
        assert!(!is_stream(&stream, &other));
        assert!(!is_stream("", &journal));
    }

    #[test]
    fn an_unknown_format_is_refused() {
        assert_eq!("json".parse(), Ok(LogFormat::Json));
        assert!("xml".parse::<LogFormat>().is_err());
    }
}
