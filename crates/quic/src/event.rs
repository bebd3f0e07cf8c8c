//! Events that a shard's QUIC reports to its caller.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;

use crate::counters::Counters;
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

/// Names one new connection that waits for its decision; never used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IncomingKey(pub(crate) u64);

/// A peer asks for a connection: what its first packet says in clear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// Names it for the decision.
    pub key: IncomingKey,
    /// The peer's address.
    pub remote: SocketAddr,
    /// Our address, where the socket is bound to a wildcard.
    pub local: Option<IpAddr>,
    /// Whether a Retry has proved the address (RFC 9000 section 8.1); else it may be forged.
    pub is_address_validated: bool,
    /// The token of its Initial packet as it came (RFC 9000 section 17.2.2); empty where there is none.
    pub token: Bytes,
    /// Destination connection ID of the peer's very first packet, before a Retry: 8 to 20 bytes of its choice.
    pub original_destination_id: Bytes,
}

/// What limits the rate of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitedBy {
    /// Who sends: all that it gave and the peer takes has left.
    Program,
    /// The path: more waits than congestion control lets go.
    Path,
}

/// What limits the rate of a connection, and what the path carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Congestion {
    /// What limits the rate.
    pub limited_by: LimitedBy,
    /// What the path was seen to deliver, in bytes of QUIC packets per second; 0 before the first measurement. Where the
    /// program limits the rate, the path may carry more.
    pub bytes_per_second: u64,
    /// Bytes that may be under way.
    pub window: u64,
    /// Smoothed round-trip time.
    pub round_trip: Duration,
}

/// Something happened on a connection.
#[derive(Debug, PartialEq)]
pub enum Event {
    /// A peer asks for a connection. The caller decides with [`Endpoint::accept`], [`Endpoint::retry`],
    /// [`Endpoint::refuse`] or [`Endpoint::ignore`], at once or within [`crate::limits::UNDECIDED_TIME_MAX`].
    ///
    /// Who takes everybody writes
    ///
    /// ```ignore
    /// Event::Incoming(incoming) => drop(endpoint.accept(now, incoming.key, &AcceptParameters::default())),
    /// ```
    ///
    /// [`Endpoint::accept`]: crate::Endpoint::accept
    /// [`Endpoint::retry`]: crate::Endpoint::retry
    /// [`Endpoint::refuse`]: crate::Endpoint::refuse
    /// [`Endpoint::ignore`]: crate::Endpoint::ignore
    Incoming(Incoming),
    /// A new connection was not decided on in time, and is ignored from here on.
    IncomingExpired {
        /// Which.
        incoming: IncomingKey,
    },
    /// The handshake is complete.
    Connected {
        /// Which.
        connection: ConnectionKey,
    },
    /// The handshake is complete, and the server is not that of the link: it is the genuine site behind whose face that one
    /// hides (QR1-19). No stream and no datagram leaves on this connection. The caller lets it rest for a while, as a
    /// browser does, and closes it.
    Redirected {
        /// Which.
        connection: ConnectionKey,
    },
    /// A client's packets come from another address, to which ours go from here on (RFC 9000 section 9).
    RemoteChanged {
        /// Which.
        connection: ConnectionKey,
        /// Where its client is.
        remote: SocketAddr,
    },
    /// The connection has ended; its key may be used again for another one.
    Closed {
        /// Which.
        connection: ConnectionKey,
        /// Why.
        reason: CloseReason,
        /// What it had counted until here.
        counters: Counters,
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
    /// The path carries longer or shorter packets than was known. Among peers only.
    PathMtuChanged {
        /// Which.
        connection: ConnectionKey,
        /// Bytes of UDP payload.
        path_mtu: u16,
    },
    /// The path begins or ceases to limit the rate, or carries twice or half of what was told. Among peers only.
    Congestion {
        /// Which.
        connection: ConnectionKey,
        /// What limits the rate, and what the path carries.
        congestion: Congestion,
    },
    /// A peer that connected to us has used an eighth of the credit of its streams
    /// ([`crate::limits::UNAUTHENTICATED_CREDIT_BYTES`]), or given up a stream, which may have used all of it;
    /// [`crate::Endpoint::widen`] gives it more. Among peers only, and once.
    CreditWanted {
        /// Which.
        connection: ConnectionKey,
    },
    /// More streams may be opened.
    StreamsAvailable {
        /// Which.
        connection: ConnectionKey,
        /// Of which direction.
        direction: Direction,
    },
}
