//! What a stack is told, and what it tells.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use packet::{Ecn, Train};

use crate::headers::Headers;
use crate::profile::Profile;
use crate::seal::Key;

/// How a stack behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Whom its connections look like.
    pub profile: Profile,
    /// What both ends have in common; `None`: everybody may connect, and nothing is sealed. Not with phantun.
    pub key: Option<Key>,
    /// The port where connections are accepted; `None`: none are.
    pub listen: Option<u16>,
    /// Bytes of an IP packet on our link, from which the announced MSS follows.
    pub mtu: u16,
    /// How long a peer may be silent before it is asked whether it is there; `None`: it never is.
    pub keep_alive: Option<Duration>,
    /// How long a connection may carry no datagram before it ends; `None`: for ever.
    pub idle: Option<Duration>,
}

impl Config {
    /// For a link of 1,500 bytes, without listener and without end for idle connections.
    #[must_use]
    pub fn new(profile: Profile) -> Self {
        Self {
            profile,
            key: None,
            listen: None,
            mtu: 1_500,
            keep_alive: profile.keep_alive(),
            idle: None,
        }
    }
}

/// Names a connection of one stack, never two of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// Why a connection can't begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// One address is IPv4, the other IPv6.
    #[error("an IPv4 and an IPv6 address")]
    Families,
    /// A connection between these addresses is there, or ended a moment ago; another port is free.
    #[error("a connection between these addresses is in use")]
    InUse,
    /// There are [`crate::limits::CONNECTIONS_MAX`] connections.
    #[error("too many connections")]
    Full,
}

/// Why a train can't be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The handshake is not complete, or the connection is over.
    #[error("not connected")]
    NotConnected,
    /// A datagram of no bytes, which no segment can carry.
    #[error("an empty datagram")]
    Empty,
    /// A datagram that does not fit the path, or that the peer does not take.
    #[error("a datagram of over {segment_bytes_max} bytes")]
    TooLarge {
        /// Bytes of the longest one that fits.
        segment_bytes_max: usize,
    },
    /// A train that does not fit an IP packet of 65,535 bytes; in two parts it does.
    #[error("a train of over 65,535 bytes with its headers")]
    TooLong,
    /// More than the peer's window would be on the way without acknowledgement.
    #[error("the peer's window is full")]
    WindowFull,
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The peer ended it in order.
    Finished,
    /// The peer does not know it.
    Reset,
    /// The peer does not want it.
    Refused,
    /// The peer does not answer.
    TimedOut,
    /// It carried nothing for the configured time.
    Idle,
}

/// What happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// One that [`crate::Stack::connect`] began is open.
    Connected {
        /// Which one.
        connection: ConnectionId,
    },
    /// A peer opened one.
    Accepted {
        /// Which one.
        connection: ConnectionId,
        /// The address that the peer connected to.
        local: SocketAddr,
        /// The peer.
        remote: SocketAddr,
    },
    /// One is over; the user did not close it.
    Closed {
        /// Which one.
        connection: ConnectionId,
        /// Why.
        reason: CloseReason,
    },
    /// The path carries less than before.
    PathMtu {
        /// Which connection's.
        connection: ConnectionId,
        /// Bytes of the longest datagram that fits.
        segment_bytes_max: usize,
    },
}

/// Datagrams that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// By which connection.
    pub connection: ConnectionId,
    /// From whom.
    pub remote: SocketAddr,
    /// Where in the packet they are; nowhere, where they had to be taken out of frames.
    pub payload: Range<usize>,
    /// Bytes of each but the last, which may be shorter.
    pub segment_size: usize,
    /// Those out of frames.
    pub trains: Vec<Train>,
    /// ECN codepoint of all.
    pub ecn: Ecn,
}

/// A segment without data, to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Transmit {
    /// Whose it is; `None` for an answer on behalf of no open connection.
    pub connection: Option<ConnectionId>,
    /// From our address.
    pub local: SocketAddr,
    /// To the peer.
    pub remote: SocketAddr,
    /// All of it.
    pub headers: Headers,
}

/// What a stack has done since it exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets taken.
    pub received: u64,
    /// Of these, with data for the user.
    pub delivered: u64,
    /// Packets that are no TCP segment or ICMP message.
    pub malformed: u64,
    /// Segments that do not belong to their connection's present: old, forged, or of another generation.
    pub outside: u64,
    /// Segments, of super-segments all, that do not come from who has the key.
    pub unproved: u64,
    /// Packets whose borders between datagrams the path has lost, with what they carried.
    pub joined: u64,
    /// Segments of no connection.
    pub unknown: u64,
    /// Trains for which headers were written.
    pub sent: u64,
    /// Trains that were refused.
    pub refused: u64,
    /// Connections that peers opened.
    pub accepted: u64,
    /// Connections that we opened.
    pub connected: u64,
    /// SYNs that were answered with a cookie.
    pub cookies: u64,
    /// SYNs that were not answered: a budget was used up, or a table full.
    pub syns_ignored: u64,
    /// RSTs.
    pub resets_sent: u64,
    /// Segments without data that nobody took in time.
    pub overflown: u64,
}
