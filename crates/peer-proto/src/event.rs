//! What the peers of a socket report.

use std::net::SocketAddr;

use quic::{CloseReason, Congestion, Direction, StreamId};

use crate::attempt::Attempt;
use crate::delivery::{Outcome, Ticket};
use crate::error::Failure;
use crate::id::PeerId;
use crate::peers::PeerKey;

/// Something happened.
#[derive(Debug, PartialEq)]
pub enum Event {
    /// A connection is complete: both ends have proved their keys.
    Connected {
        /// Which.
        peer: PeerKey,
        /// Who it is.
        id: PeerId,
        /// Whether the peer began it.
        is_incoming: bool,
    },
    /// What was tried to reach a peer that is connected, or not reached: told before that.
    Tried {
        /// Which.
        peer: PeerKey,
        /// In the order in which it was begun.
        attempts: Vec<Attempt>,
    },
    /// No address led to the peer; its key is free for another one.
    Failed {
        /// Which.
        peer: PeerKey,
        /// What became of each address that was begun, in the order in which it was.
        failures: Vec<Failure>,
    },
    /// The connection has ended, after the end of every ticket. Messages, and streams whose end has come, can still be
    /// read: the other end may know that they have come. The key is free for another one when they are read, or the
    /// peer is closed.
    Closed {
        /// Which.
        peer: PeerKey,
        /// Why.
        reason: CloseReason,
        /// Whether there are messages or streams to read.
        has_unread: bool,
    },
    /// The connection takes another path: packets for the peer go there from here on. Nothing is lost by that.
    PathChanged {
        /// Which.
        peer: PeerKey,
        /// The peer's address.
        remote: SocketAddr,
        /// Whether a rendezvous relays for it; it is direct otherwise.
        is_relayed: bool,
    },
    /// Messages can be read; told again only after all were read.
    Received {
        /// Of whom.
        peer: PeerKey,
    },
    /// A ticket has ended.
    Ended {
        /// Of which connection.
        peer: PeerKey,
        /// Which.
        ticket: Ticket,
        /// How.
        outcome: Outcome,
    },
    /// After [`crate::SendError::Full`]: half of the room is free again; after [`crate::Peers::want_room`]: as much as
    /// was wanted.
    Room {
        /// Of which connection.
        peer: PeerKey,
    },
    /// The peer opened a stream for the program.
    StreamOpened {
        /// Of which connection.
        peer: PeerKey,
        /// The stream.
        stream: StreamId,
    },
    /// Data, an end or a reset can be read.
    StreamReadable {
        /// Of which connection.
        peer: PeerKey,
        /// The stream.
        stream: StreamId,
    },
    /// A write that was blocked can go on.
    StreamWritable {
        /// Of which connection.
        peer: PeerKey,
        /// The stream.
        stream: StreamId,
    },
    /// The peer does not want more data on this stream, which is reset.
    StreamStopped {
        /// Of which connection.
        peer: PeerKey,
        /// The stream.
        stream: StreamId,
        /// The peer's error code.
        code: u64,
    },
    /// Everything that was sent on a finished stream is acknowledged.
    StreamFinished {
        /// Of which connection.
        peer: PeerKey,
        /// The stream.
        stream: StreamId,
    },
    /// The path carries longer or shorter packets than was known.
    PathMtuChanged {
        /// Of which connection.
        peer: PeerKey,
        /// Bytes of UDP payload.
        path_mtu: u16,
    },
    /// The path begins or ceases to limit the rate, or carries twice or half of what was told.
    Congestion {
        /// Of which connection.
        peer: PeerKey,
        /// What limits the rate, and what the path carries.
        congestion: Congestion,
    },
    /// More streams may be opened.
    StreamsAvailable {
        /// Of which connection.
        peer: PeerKey,
        /// Of which direction.
        direction: Direction,
    },
}
