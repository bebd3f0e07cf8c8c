//! UDP payloads too large for one DATAGRAM frame, between Gramway peers: cut into fragments and joined again
//! (specs/split.md).
//!
//! The client offers a context ID with the request, the server accepts it with the response; datagrams in that
//! context are fragments. A lost fragment costs its payload, as a lost IP fragment would: nothing is sent again.

mod reassembler;
mod splitter;

pub use reassembler::{Handled, Joined, Reassembler, Refusal};
pub use splitter::{Fragments, Splitter};

use crate::limits::{FRAGMENTS_MAX, UDP_PAYLOAD_BYTES_MAX};

/// The context ID that our clients offer: the first that a client may allocate (RFC 9298 section 4).
pub const CONTEXT_ID: u64 = 2;

/// Bytes before each fragment's piece: message number (4, big-endian), index (1), last index (1) (SPLIT-3).
pub const HEADER_BYTES: usize = 6;

/// Room for a fragment, header included, from which on every UDP payload fits in 256 fragments. Any QUIC path has far
/// more.
pub const ROOM_BYTES_MIN: usize = HEADER_BYTES + UDP_PAYLOAD_BYTES_MAX.div_ceil(FRAGMENTS_MAX);
