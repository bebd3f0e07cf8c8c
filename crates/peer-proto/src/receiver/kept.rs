//! What is kept of a message, and what that costs.

use bytes::Bytes;

use crate::limits::{COPIED_BYTES_MAX, MESSAGE_COST_BYTES};

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

    /// A body out of a packet, which has memory of its own of at most so many bytes; `None`: the packet lies in the
    /// buffer that it was received in, and what that keeps is bounded elsewhere. A short one would keep all of it.
    pub(super) fn out_of_packet(body: Bytes, packet_bytes_max: Option<usize>) -> Self {
        let length = body.len();
        let packet_bytes = packet_bytes_max.unwrap_or(length);
        if length < packet_bytes / 2 || length <= COPIED_BYTES_MAX {
            Self::own(Bytes::copy_from_slice(&body), length)
        } else {
            Self::own(body, length.max(packet_bytes))
        }
    }
}

/// What counts for a message, or for its absence, in bytes.
pub(super) fn cost(kept: Option<&Kept>) -> usize {
    kept.map_or(0, |kept| kept.bytes) + MESSAGE_COST_BYTES
}
