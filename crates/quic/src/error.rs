//! What can fail in a connection's life, one error for each operation: setting up, connecting, streams, the end.

use std::fmt;
use std::net::SocketAddr;

/// Settings that TLS or QUIC refuses.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// The certificate or its key cannot be used.
    #[error("the server's certificate and key cannot be used: {0}")]
    Certificate(String),
    /// The certificate cannot be read.
    #[error("the certificate is not a readable X.509 certificate: {0}")]
    Unreadable(String),
    /// A server cannot look like this cover.
    #[error("the cover cannot be matched: {0}")]
    Cover(String),
}

/// Why a connection cannot be begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The name is neither a host name nor an address.
    #[error("invalid server name: {0}")]
    ServerName(String),
    /// The link's keys of the front door, or this machine, give no hello.
    #[error("cannot begin at the server's front door: {0}")]
    FrontDoor(String),
    /// Without connection IDs there can be one connection to each address.
    #[error("there is a connection to {0} already")]
    AlreadyConnected(SocketAddr),
    /// Nothing can be sent there, e.g. to port 0.
    #[error("invalid remote address: {0}")]
    RemoteAddress(SocketAddr),
    /// The endpoint has as many connections as it has connection IDs for.
    #[error("too many connections")]
    TooManyConnections,
}

/// Why a new connection cannot be accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AcceptError {
    /// It was decided on already, or not in time.
    #[error(
        "the new connection waits no longer: it was decided on already, or not within {:?}",
        crate::limits::UNDECIDED_TIME_MAX
    )]
    Gone,
    /// The endpoint is covered, and the identity for another one's client, or for nobody's.
    #[error("behind a front door a connection is accepted with the identity that was made for its client")]
    Unrecognised,
    /// Its first packet is damaged, or asks for what this server does not offer; the peer is told where QUIC says so.
    #[error("the new connection's first packet cannot be used: {0}")]
    FirstPacket(CloseReason),
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// Nothing was heard for the idle timeout, or the handshake was not answered.
    #[error("no answer")]
    TimedOut,
    /// The peer has lost its state, e.g. restarted (stateless reset).
    #[error("the peer restarted")]
    Reset,
    /// The peer's application closed the connection.
    #[error("closed by the peer{} (code {code:#x})", Told(.reason))]
    ApplicationClosed {
        /// Application error code.
        code: u64,
        /// The peer's words, without characters that would change a terminal, and cut where they are too long.
        reason: String,
    },
    /// The server's public key is not the one that the link names.
    #[error("the server is not the one that the link names (its public key does not match the pin)")]
    WrongPin,
    /// The end at that address has another key than the peer that was asked for.
    #[error("another peer is at this address (its public key is not the one that was asked for)")]
    WrongPeer,
    /// The server has no certificate for its name that the authorities of the web vouch for, or not at this time.
    #[error("the server's certificate is not valid: {0}")]
    Untrusted(String),
    /// Behind the front door stands neither the server that the link names nor a site with a valid certificate.
    #[error("the server is not the one that the link names, and its certificate is not valid for the name")]
    WrongServer,
    /// The peer's QUIC or TLS found an error and closed the connection (CONNECTION_CLOSE of type 0x1c, RFC 9000 section
    /// 19.19).
    #[error("aborted by peer: {description}")]
    Aborted {
        /// Transport error code (RFC 9000 section 20.1).
        code: u64,
        /// The code's meaning and the peer's words, likewise.
        description: String,
    },
    /// The peer broke the rules of QUIC, TLS or HTTP, or lacks what we need of them; the text is for people.
    #[error("{0}")]
    Protocol(String),
    /// Closed by ourselves.
    #[error("closed here")]
    LocallyClosed,
    /// No complete handshake within [`crate::limits::HANDSHAKE_TIME_MAX`], or no valid token within
    /// [`crate::limits::AUTHENTICATION_DEADLINE`].
    #[error("no valid token in time")]
    Unauthenticated,
    /// It had shown no valid token when a newcomer needed its place ([`crate::limits::STRANGERS_MAX`]).
    #[error("pushed out by newcomers before its token came")]
    PushedOut,
    /// It sent more than a little, and as many that connected here do so as may.
    #[error("no room here: as many of those that connected send much as may")]
    Crowded,
    /// The server that was to relay to this address does not, or not any more.
    #[error("the server does not relay there: the peer has left it, or it has no room")]
    NotRelayed,
}

/// The peer's words behind a colon, where it said any.
struct Told<'a>(&'a str);

impl fmt::Display for Told<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "" => Ok(()),
            words => write!(formatter, ": {words}"),
        }
    }
}

/// Why a stream cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The peer abandoned its side (RESET_STREAM) or does not want ours (STOP_SENDING).
    #[error("the peer gave the stream up with code {0:#x}")]
    Reset(u64),
    /// The stream or its connection is no longer there.
    #[error("the stream is closed")]
    Closed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_closes_without_a_word_is_not_quoted() {
        let closed = |reason: &str| CloseReason::ApplicationClosed {
            code: 0x10,
            reason: reason.to_owned(),
        };
        assert_eq!(closed("").to_string(), "closed by the peer (code 0x10)");
        assert_eq!(closed("bye").to_string(), "closed by the peer: bye (code 0x10)");
    }
}
