//! What can fail, one error for each operation.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use peer_proto::{CloseReason, Failure};

/// Why an endpoint cannot be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The socket, or what waits for it, cannot be made.
    #[error("cannot bind an endpoint to {address}: {error}")]
    Socket {
        /// Where.
        address: SocketAddr,
        /// The system's words.
        error: io::Error,
    },
    /// The system gives no random bytes.
    #[error("the system gives no random bytes")]
    NoRandomness,
    /// A certificate of those that are to be trusted for the rendezvous is none.
    #[error("the rendezvous cannot be used: {0}")]
    Rendezvous(String),
}

/// Why no connection came about.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The addresses cannot be used.
    #[error(transparent)]
    Addresses(#[from] peer_proto::ConnectError),
    /// No address led to the peer.
    #[error("the peer was not reached{}", list(.0))]
    Unreachable(Vec<Failure>),
    /// The endpoint was closed meanwhile.
    #[error("the endpoint is closed")]
    EndpointClosed,
}

fn list(failures: &[Failure]) -> String {
    if failures.is_empty() {
        return ": no address of it is known; is it registered at the same rendezvous?".to_owned();
    }
    let each: Vec<String> = failures.iter().map(Failure::to_string).collect();
    format!(" at any address: {}", each.join("; "))
}

/// Why there is no number for a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InviteError {
    /// The endpoint is not registered at a rendezvous, or no longer.
    #[error("the endpoint is not registered at a rendezvous; wait until it is")]
    NotRegistered,
    /// The rendezvous lets no guests in, or not so many.
    #[error("the rendezvous gives no number: it takes no guests, or has enough of them; try again later")]
    Refused,
}

/// The connection has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection has ended: {0}")]
pub struct Closed(pub CloseReason);

/// Why a key cannot be read or made.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file cannot be read or written.
    #[error("key file {path}: {error}")]
    File {
        /// Which.
        path: PathBuf,
        /// The system's words.
        error: io::Error,
    },
    /// Others may read it.
    #[error("key file {path} can be read by other users: run chmod 600 on it, or make a new key")]
    Exposed {
        /// Which.
        path: PathBuf,
    },
    /// It is no key.
    #[error("key file {path} does not hold 64 hexadecimal digits")]
    Malformed {
        /// Which.
        path: PathBuf,
    },
    /// The system gives no random bytes.
    #[error("the system gives no random bytes")]
    NoRandomness,
}
