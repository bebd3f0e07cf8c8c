//! Events that a shard's QUIC reports to its caller.

use crate::error::CloseReason;
use crate::stream::{Direction, StreamId};

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
    /// Datagrams that the core had taken will not be sent: the path MTU fell, or the connection ended.
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
        direction: Direction,
    },
}
