//! What can go wrong before there is a connection: who is wrong, on which path, and what to do.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::limits::PATH_BYTES_MAX;

/// Why a server could not be set up.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BindError {
    /// The path does not fit a socket address.
    #[error(
        "{path}: a socket's path may have {PATH_BYTES_MAX} bytes, this one has {bytes}; choose a shorter one"
    )]
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length.
        bytes: usize,
    },
    /// Another server of this crate is alive there.
    #[error("{path}: another server is running there (process {owner}); stop it or choose another path")]
    InUse {
        /// The path.
        path: PathBuf,
        /// The process that holds the lock, as it noted it.
        owner: String,
    },
    /// There is something that this crate did not make.
    #[error(
        "{path}: there is {what}, which this library did not make and will not delete; remove it or choose another path"
    )]
    Foreign {
        /// The path.
        path: PathBuf,
        /// What is there.
        what: &'static str,
    },
    /// An abstract socket has no permission bits, so it needs a policy.
    #[error("@{name}: anyone may connect to an abstract socket; set a policy with `allow`")]
    NoPolicy {
        /// The name.
        name: String,
    },
    /// The system refused a step.
    #[error("{path}: could not {step}: {source}")]
    Io {
        /// The path.
        path: PathBuf,
        /// What was being done.
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// Why a client could not connect.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The path does not fit a socket address.
    #[error("{path}: a socket's path may have {PATH_BYTES_MAX} bytes, this one has {bytes}")]
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length.
        bytes: usize,
    },
    /// There is nothing at the path.
    #[error("{path}: there is no socket; is the server running, and is this its path?")]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// There is a socket that nobody listens on.
    #[error("{path}: nobody listens on this socket; its server has ended without removing it")]
    Stale {
        /// The path.
        path: PathBuf,
    },
    /// The permissions of the socket or of a directory above it forbid it.
    #[error(
        "{path}: permission denied; connecting needs write permission on the socket and search permission on its directories"
    )]
    Denied {
        /// The path.
        path: PathBuf,
    },
    /// There is a file or a socket of another kind.
    #[error("{path}: there is no socket of this library, but something else")]
    Foreign {
        /// The path.
        path: PathBuf,
    },
    /// The server's policy or bounds refused this process.
    #[error("{path}: the server refused the connection: {reason}")]
    Refused {
        /// The path.
        path: PathBuf,
        /// What the server said.
        reason: String,
    },
    /// The server did not answer in time.
    #[error("{path}: no connection after {timeout:?}; the server accepts too slowly or hangs")]
    TimedOut {
        /// The path.
        path: PathBuf,
        /// How long it was tried.
        timeout: Duration,
    },
    /// The handshake failed.
    #[error("{path}: the handshake failed: {source}")]
    Handshake {
        /// The path.
        path: PathBuf,
        /// What QUIC said.
        source: noq::ConnectionError,
    },
    /// The system refused a step.
    #[error("{path}: could not {step}: {source}")]
    Io {
        /// The path.
        path: PathBuf,
        /// What was being done.
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

macro_rules! into_io {
    ($error:ident, $this:ident => $kind:expr) => {
        impl From<$error> for io::Error {
            fn from($this: $error) -> Self {
                Self::new($kind, $this)
            }
        }
    };
}

into_io!(BindError, error => match &error {
    BindError::PathTooLong { .. } | BindError::NoPolicy { .. } => io::ErrorKind::InvalidInput,
    BindError::InUse { .. } | BindError::Foreign { .. } => io::ErrorKind::AddrInUse,
    BindError::Io { source, .. } => source.kind(),
});

into_io!(ConnectError, error => match &error {
    ConnectError::PathTooLong { .. } => io::ErrorKind::InvalidInput,
    ConnectError::Missing { .. } => io::ErrorKind::NotFound,
    ConnectError::Stale { .. } | ConnectError::Foreign { .. } => io::ErrorKind::ConnectionRefused,
    ConnectError::Denied { .. } | ConnectError::Refused { .. } => io::ErrorKind::PermissionDenied,
    ConnectError::TimedOut { .. } => io::ErrorKind::TimedOut,
    ConnectError::Handshake { .. } => io::ErrorKind::ConnectionAborted,
    ConnectError::Io { source, .. } => source.kind(),
});
