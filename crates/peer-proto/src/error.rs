//! What can fail, one error for each operation.

use std::net::SocketAddr;

use quic::CloseReason;

/// Why text is no peer ID (PEER-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseIdError {
    /// It is too long or too short.
    #[error("a peer ID has 52 characters, not {0}; copy it whole")]
    Length(usize),
    /// A character that base32 does not have, or unused bits.
    #[error("this is no peer ID: it has lower-case letters and the digits 2 to 7 only; copy it again")]
    Characters,
}

/// Why a connection cannot be begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// No address was given.
    #[error("no address to connect to: give at least one")]
    NoAddress,
    /// Too many addresses were given.
    #[error("{0} addresses are too many: give at most {max}", max = crate::limits::ADDRESSES_MAX)]
    TooManyAddresses(usize),
    /// Peers connect to others.
    #[error("this is our own peer ID")]
    Ourselves,
    /// None of the addresses can be used.
    #[error("cannot connect to {address}: {error}")]
    Address {
        /// The first of them.
        address: SocketAddr,
        /// What is wrong with it.
        error: quic::ConnectError,
    },
}

/// Why a message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The messages that wait and are under way fill the bound. Room comes as the peer acknowledges some.
    #[error(
        "as much is under way to this peer as may be: wait for room with `send().await`, or try again later"
    )]
    Full,
    /// It is longer than messages may be.
    #[error("the message has {bytes} bytes, and messages to this peer at most {max}: use a stream")]
    TooLarge {
        /// Its length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The connection has as many ordered channels as it may.
    #[error("the connection has {} ordered channels already", crate::limits::CHANNELS_MAX)]
    TooManyChannels,
    /// The connection has as many keys of latest values as it may.
    #[error(
        "the connection has {} keys of latest values already",
        crate::limits::KEYS_MAX
    )]
    TooManyKeys,
    /// There is no connection, not yet or not any more.
    #[error("the peer is not connected")]
    NotConnected,
}

/// What became of one address of a connection attempt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address}: {reason}")]
pub struct Failure {
    /// The address.
    pub address: SocketAddr,
    /// Why no connection came about there.
    pub reason: CloseReason,
}
