//! Codes with which connections and streams end, as both ends see them (PEER-16).
//!
//! A program chooses its own of 0 to [`PROGRAM_MAX`]. A greater one that it gives is sent as [`PROGRAM_MAX`], because
//! the other end would take it for one of these.

use peer_proto::code as protocol;

/// The greatest code of a program.
pub const PROGRAM_MAX: u64 = 0xfeff;

/// The peer breaks a rule.
pub const PROTOCOL: u64 = protocol::PROTOCOL as u64;

/// The peer's key is not wanted here ([`crate::Builder::allow`]).
pub const REFUSED: u64 = protocol::REFUSED as u64;

/// A message's deadline passed.
pub const EXPIRED: u64 = protocol::EXPIRED as u64;

/// A message is longer than this end takes ([`crate::Builder::message_bytes_max`]).
pub const TOO_LARGE: u64 = protocol::TOO_LARGE as u64;

/// A message comes too slowly for an end that is short of room.
pub const STALLED: u64 = protocol::STALLED as u64;

/// As many of those that connected to this end send much as may ([`crate::Builder::accepted_window_bytes_max`]).
pub const CROWDED: u64 = protocol::CROWDED as u64;

/// As many connections as may wait for this end's program ([`crate::Builder::accept_queue_max`]).
pub const QUEUE_FULL: u64 = protocol::QUEUE_FULL as u64;

/// What is sent of a program's code.
pub(crate) fn of_program(code: u64) -> u32 {
    code.min(PROGRAM_MAX) as u32
}
