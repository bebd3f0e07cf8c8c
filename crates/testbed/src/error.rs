//! Why something that a benchmark or a test rests on failed.

use std::fmt;
use std::io;
use std::time::Duration;

/// Why something that a benchmark or a test rests on failed. `Debug` is the sentence too.
#[derive(thiserror::Error)]
pub enum Error {
    /// The system refused something.
    #[error("{action}: {source}")]
    Io {
        /// What was tried, on what.
        action: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A program failed or ended early.
    #[error("{program} failed: {reason}")]
    Program {
        /// The program, or its whole command.
        program: String,
        /// Its last words.
        reason: String,
    },
    /// A program did not do something in time.
    #[error("waited {limit:?} for {what}, in vain; {reason}")]
    TimedOut {
        /// What was waited for.
        what: String,
        /// How long.
        limit: Duration,
        /// The program's last words.
        reason: String,
    },
    /// iperf3 ran and said no.
    #[error("iperf3 failed: {0}")]
    Iperf(String),
}

impl Error {
    /// For `map_err`: names what was tried.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::Io { action, source }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}
