//! Why a benchmark could not be run. A slow or lossy result is not an error.

use std::io;
use std::path::PathBuf;

/// Why a benchmark could not be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused something.
    #[error("{action}: {source}")]
    Io {
        /// What was tried, on what.
        action: String,
        /// The system's reason.
        source: io::Error,
    },
    /// iperf3 is not there.
    #[error("iperf3 is not installed; install it (Debian, Ubuntu: apt-get install iperf3) or use --only own")]
    IperfMissing,
    /// Programs of the system are not there.
    #[error("not installed: {programs}; install it (Debian, Ubuntu: apt-get install {packages})")]
    Missing {
        /// Their names.
        programs: String,
        /// What has them.
        packages: String,
    },
    /// Something that a benchmark needs failed: a namespace, a program, iperf3.
    #[error(transparent)]
    Testbed(#[from] testbed::Error),
    /// A program did not start.
    #[error("{program} did not become ready: {reason}")]
    NotReady {
        /// Program and role.
        program: String,
        /// Its last words.
        reason: String,
    },
    /// A program ended early or said something that can't be read.
    #[error("{program} failed: {reason}")]
    Child {
        /// Program and role.
        program: String,
        /// Its last words.
        reason: String,
    },
    /// The user may not do what it needs.
    #[error("{0}")]
    NotPermitted(String),
    /// The options make no sense together.
    #[error("{0}")]
    Usage(String),
    /// Some cases of a matrix could not be measured.
    #[error("not measured, for the reasons in the table: {0}")]
    Cases(String),
    /// Results could not be written.
    #[error("cannot write results to {}: {source}; the table above is complete", path.display())]
    Results {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Counters or results are not the JSON that was expected.
    #[error("unexpected JSON from {from}: {source}")]
    Json {
        /// Who wrote it.
        from: String,
        /// Where it breaks.
        source: serde_json::Error,
    },
    /// A cryptographic or QUIC library refused a benchmark's set-up.
    #[error("{0}")]
    Setup(String),
}

/// Names what was tried when an I/O error happened.
pub(crate) trait During<T> {
    /// Attaches `action` ("bind 127.0.0.1:5000") to the error.
    fn during(self, action: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T> During<T> for io::Result<T> {
    fn during(self, action: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| Error::Io {
            action: action(),
            source,
        })
    }
}
