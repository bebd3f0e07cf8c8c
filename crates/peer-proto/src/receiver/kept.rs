//! What is kept of a message, and what that costs.

use bytes::Bytes;

use crate::limits::MESSAGE_COST_BYTES;

/// A body, and the bytes of memory that it keeps.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(super) body: Bytes,
    pub(super) bytes: usize,
}

impl Kept {
    /// A body that has memory of its own.
    pub(crate) fn own(body: Bytes, bytes: usize) -> Self {
        Self { body, bytes }
    }

    /// A body out of a packet of at most `packet_bytes_max` bytes. A short one would keep all of the packet.
    pub(super) fn out_of_packet(body: Bytes, packet_bytes_max: usize) -> Self {
        let length = body.len();
        if length < packet_bytes_max / 2 {
            Self::own(Bytes::copy_from_slice(&body), length)
        } else {
            Self::own(body, length.max(packet_bytes_max))
        }
    }
}

/// What counts for a message, or for its absence, in bytes.
pub(super) fn cost(kept: Option<&Kept>) -> usize {
    kept.map_or(0, |kept| kept.bytes) + MESSAGE_COST_BYTES
}
