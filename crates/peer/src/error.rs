//! What can fail, one error for each operation.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use peer_proto::{CloseReason, Failure};

use crate::limits::FINDS_MAX;

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
    /// There is no tokio runtime here that could drive the endpoint.
    #[error("the endpoint is to be driven by a tokio runtime, and is bound outside of one")]
    NoRuntime,
    /// A certificate of those that are to be trusted for the rendezvous is none.
    #[error("the rendezvous cannot be used: {0}")]
    Rendezvous(String),
}

/// Why no connection came about.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The addresses cannot be used.
    #[error(transparent)]
    Addresses(#[from] crate::AddressError),
    /// No address led to the peer.
    #[error("{0}")]
    Unreachable(Unreached),
    /// The endpoint was closed meanwhile.
    #[error("the endpoint is closed")]
    EndpointClosed,
}

/// A peer that was not reached, and who was asked where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unreached {
    /// What became of each address that was tried; empty where none became known.
    pub failures: Vec<Failure>,
    /// Whether the rendezvous could be asked at the end.
    pub rendezvous: AskedRendezvous,
    /// The local network was asked ([`crate::Builder::find_on_lan`]).
    pub asked_lan: bool,
}

/// Whether a rendezvous could be asked where a peer is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AskedRendezvous {
    /// The endpoint has none ([`crate::Builder::rendezvous`]).
    NotUsed,
    /// The endpoint is registered there.
    Registered,
    /// The endpoint is not registered there at the end, so that it could not ask, or not any more; and why, as far as
    /// something went wrong.
    NotRegistered(Option<RendezvousProblem>),
}

impl fmt::Display for Unreached {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the peer was not reached")?;
        let unregistered = match &self.rendezvous {
            AskedRendezvous::NotRegistered(Some(problem)) => Some(problem.to_string()),
            AskedRendezvous::NotRegistered(None) => Some("it has not answered yet".to_owned()),
            AskedRendezvous::NotUsed | AskedRendezvous::Registered => None,
        };
        if !self.failures.is_empty() {
            let each: Vec<String> = self.failures.iter().map(Failure::to_string).collect();
            write!(formatter, " at any address: {}", each.join("; "))?;
            return unregistered.map_or(Ok(()), |why| {
                write!(
                    formatter,
                    "; this endpoint is not registered at the rendezvous at present: {why}"
                )
            });
        }
        let nobody_on_lan = match self.asked_lan {
            true => "nobody on the local network says where it is, and ",
            false => "",
        };
        match (unregistered, &self.rendezvous) {
            (Some(why), _) => write!(
                formatter,
                ": {nobody_on_lan}this endpoint is not registered at the rendezvous at present: {why}"
            ),
            (None, AskedRendezvous::Registered) => write!(
                formatter,
                ": {nobody_on_lan}the rendezvous knows no address of it; is it registered at the same rendezvous?"
            ),
            (None, _) if self.asked_lan => formatter.write_str(
                ": nobody on the local network says where it is; does it run there and announce itself? Elsewhere, give \
                 an address, or use a rendezvous",
            ),
            (None, _) => formatter.write_str(": no address of it is known; give one, or use a rendezvous"),
        }
    }
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

/// Why the rendezvous does not tell whose a number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InviterError {
    /// The endpoint is not registered at a rendezvous, or no longer.
    #[error("the endpoint is not registered at a rendezvous; wait until it is")]
    NotRegistered,
    /// As many questions as may be open wait for their answers ([`crate::limits::FINDS_MAX`]).
    #[error(
        "the rendezvous has not answered {} questions whose a number is; wait for the answers",
        FINDS_MAX
    )]
    TooMany,
}

/// Why an endpoint is not registered at its rendezvous at present. Where it may pass, it is tried again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RendezvousProblem {
    /// The server is not reached, or was lost: in the words of what failed.
    #[error("{0}")]
    Unreachable(String),
    /// The server takes neither the link's token nor the guest's number. That is final.
    #[error("the rendezvous takes neither the link's token nor the guest's number ({status})")]
    TokenRefused {
        /// Its HTTP status.
        status: u16,
    },
    /// The server lets this peer register no more: a guest's number was used by another one (RDV-15), or the
    /// registration does not prove the key.
    #[error("the server refuses the registration (HTTP status 403)")]
    Forbidden,
    /// There is no rendezvous at this server.
    #[error(
        "the server lets no peers find each other: it is switched off there (rendezvous), or the server is older"
    )]
    NotOffered,
    /// It has as many peers as it takes.
    #[error("the server has no room for more peers; it is tried again")]
    NoRoom,
    /// It refuses the registration by another status.
    #[error("the server refuses the registration (HTTP status {status})")]
    Refused {
        /// Its HTTP status.
        status: u16,
    },
    /// The registration was ended by the server.
    #[error(
        "the registration was taken over, or ended by the server: does another program use the same key?"
    )]
    Replaced,
}

/// Why a rendezvous where an endpoint is registered relays nothing for it at present. It is asked again, after
/// [`Self::NotOffered`] with the next registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RelayProblem {
    /// It relays for nobody, as long as it runs.
    #[error("it does not relay between peers")]
    NotOffered,
    /// It has no room, or this user has as many sessions as it may.
    #[error("it has no room, or its user has as many sessions as may be")]
    NoRoom,
    /// It refuses by another status.
    #[error("it refuses that (HTTP status {status})")]
    Refused {
        /// Its HTTP status.
        status: u16,
    },
    /// It did, and has ended that.
    #[error("it has ended that")]
    Ended,
}

impl RelayProblem {
    /// A name that stays.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::NotOffered => "not_offered",
            Self::NoRoom => "no_room",
            Self::Refused { .. } => "refused",
            Self::Ended => "ended",
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_is_not_reached_is_told_with_who_was_asked_and_what_hindered_that() {
        let failure = Failure {
            address: "192.0.2.1:9".parse().unwrap(),
            reason: CloseReason::TimedOut,
        };
        let told = |failures: &[&Failure], rendezvous, asked_lan| {
            let failures = failures.iter().map(|failure| (*failure).clone()).collect();
            let unreached = Unreached {
                failures,
                rendezvous,
                asked_lan,
            };
            ConnectError::Unreachable(unreached).to_string()
        };
        let no_room = || AskedRendezvous::NotRegistered(Some(RendezvousProblem::NoRoom));
        for (text, expected, wrong) in [
            (
                told(&[], AskedRendezvous::NotUsed, true),
                "local network",
                "same rendezvous",
            ),
            (
                told(&[], AskedRendezvous::Registered, false),
                "same rendezvous",
                "local",
            ),
            (told(&[], no_room(), true), "has no room", "same rendezvous"),
            (
                told(&[], AskedRendezvous::NotRegistered(None), false),
                "has not answered",
                "local network",
            ),
            (
                told(&[&failure], no_room(), false),
                "has no room",
                "local network",
            ),
            (
                told(&[&failure], AskedRendezvous::Registered, true),
                "192.0.2.1:9",
                "rendezvous",
            ),
        ] {
            assert!(text.contains(expected) && !text.contains(wrong), "{text}");
        }
    }
}
