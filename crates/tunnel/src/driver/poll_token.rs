//! What a poller's event is about, in one number.

use tunnel_proto::{AttemptId, RequestId};

use super::sources::SourceId;

/// The owner of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PollToken {
    /// The outer UDP socket.
    Outer,
    /// The socket of a client's attempt to connect.
    Attempt(AttemptId),
    /// Another thread has something.
    Waker,
    /// This shard's queue of the TUN device.
    Tun,
    /// The inner socket of a request.
    Request(usize),
    /// A descriptor of its own kind, see [`Sources`](super::sources::Sources).
    Source(SourceId),
}

const KIND_SHIFT: u32 = SourceId::BITS;

impl PollToken {
    pub(super) fn of(request: RequestId) -> Self {
        Self::Request(request.index())
    }

    pub(super) fn encode(self) -> u64 {
        let (kind, content) = match self {
            Self::Outer => (0, 0),
            Self::Waker => (1, 0),
            Self::Tun => (2, 0),
            Self::Request(index) => (3, index as u64),
            Self::Source(id) => (4, id.to_bits()),
            Self::Attempt(attempt) => (5, attempt),
        };
        kind << KIND_SHIFT | content
    }

    pub(super) fn decode(number: u64) -> Self {
        let content = number & ((1 << KIND_SHIFT) - 1);
        match number >> KIND_SHIFT {
            0 => Self::Outer,
            1 => Self::Waker,
            2 => Self::Tun,
            3 => Self::Request(content as usize),
            4 => Self::Source(SourceId::from_bits(content)),
            _ => Self::Attempt(content),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_survives_its_number() {
        let tokens = [
            PollToken::Outer,
            PollToken::Waker,
            PollToken::Tun,
            PollToken::Request(1 << 40),
            PollToken::Source(SourceId::from_bits(0)),
            PollToken::Source(SourceId::from_bits((1 << SourceId::BITS) - 1)),
            PollToken::Attempt(1 << 40),
        ];
        for token in tokens {
            assert_eq!(PollToken::decode(token.encode()), token);
        }
    }
}
