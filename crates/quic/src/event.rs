//! What a shard's QUIC tells its caller.

use bytes::Bytes;
use quinn_proto::{ConnectionError, Dir, StreamId};

/// Names one living connection of an endpoint; free for reuse after [`Event::Closed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionKey(pub(crate) usize);

impl ConnectionKey {
    /// A small number for tables indexed by connection.
    #[must_use]
    pub fn index(self) -> usize {
        self.0
    }
}

/// Something happened on a connection.
#[derive(Debug, PartialEq)]
pub enum Event {
    /// The handshake is complete.
    Connected {
        /// Which.
        connection: ConnectionKey,
    },
    /// The connection has ended; its key may be used again for another one.
    Closed {
        /// Which.
        connection: ConnectionKey,
        /// Why.
        reason: CloseReason,
    },
    /// Datagrams that quinn-proto had taken will not be sent: the path MTU fell, or the connection ended.
    DatagramsDropped {
        /// Which.
        connection: ConnectionKey,
        /// How many.
        count: u64,
    },
    /// The peer opened a stream; it may be readable already.
    StreamOpened {
        /// Which.
        connection: ConnectionKey,
        /// The stream.
        stream: StreamId,
    },
    /// Data, an end or a reset can be read.
    StreamReadable {
        /// Which.
        connection: ConnectionKey,
        /// The stream.
        stream: StreamId,
    },
    /// A write that was blocked can go on.
    StreamWritable {
        /// Which.
        connection: ConnectionKey,
        /// The stream.
        stream: StreamId,
    },
    /// The peer does not want more data on this stream (STOP_SENDING).
    StreamStopped {
        /// Which.
        connection: ConnectionKey,
        /// The stream.
        stream: StreamId,
        /// The peer's error code.
        code: u64,
    },
    /// Everything that was sent on a finished stream has been acknowledged.
    StreamFinished {
        /// Which.
        connection: ConnectionKey,
        /// The stream.
        stream: StreamId,
    },
    /// More streams may be opened.
    StreamsAvailable {
        /// Which.
        connection: ConnectionKey,
        /// Of which direction.
        dir: Dir,
    },
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
    #[error("closed by the peer: {reason} (code {code:#x})")]
    ApplicationClosed {
        /// Application error code.
        code: u64,
        /// The peer's words.
        reason: String,
    },
    /// The server's public key is not the one that the link names.
    #[error("the server is not the one that the link names (its public key does not match the pin)")]
    WrongPin,
    /// QUIC or TLS failed; the text is for people.
    #[error("{0}")]
    Protocol(String),
    /// Closed by ourselves.
    #[error("closed here")]
    LocallyClosed,
    /// No valid token within [`crate::limits::AUTHENTICATION_DEADLINE`].
    #[error("no valid token in time")]
    Unauthenticated,
}

impl CloseReason {
    pub(crate) fn new(error: &ConnectionError, wrong_pin: bool) -> Self {
        match error {
            _ if wrong_pin => Self::WrongPin,
            ConnectionError::TimedOut => Self::TimedOut,
            ConnectionError::Reset => Self::Reset,
            ConnectionError::LocallyClosed => Self::LocallyClosed,
            ConnectionError::ApplicationClosed(close) => Self::ApplicationClosed {
                code: close.error_code.into_inner(),
                reason: String::from_utf8_lossy(&close.reason).into_owned(),
            },
            other => Self::Protocol(other.to_string()),
        }
    }
}

/// What a read gives.
#[derive(Debug, PartialEq, Eq)]
pub enum Read {
    /// The next bytes in order.
    Data(Bytes),
    /// Nothing at present; [`Event::StreamReadable`] follows.
    Blocked,
    /// The peer has sent everything.
    Finished,
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
