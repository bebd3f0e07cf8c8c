//! What a poller's event is about, in one number.

use tunnel_proto::RequestId;

/// The owner of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PollToken {
    /// The outer UDP socket.
    Outer,
    /// Another thread has something.
    Waker,
    /// This shard's queue of the TUN device.
    Tun,
    /// The inner socket of a request.
    Request(usize),
    /// A descriptor that only one of the roles has, see [`Role::source_ready`](super::role::Role::source_ready).
    Role {
        /// Which kind, as the role counts them.
        kind: u8,
        /// Which of this kind.
        index: usize,
    },
}

const KIND_SHIFT: u32 = 56;

/// Kinds from here on are the roles'.
const ROLE_KINDS: u64 = 16;

impl PollToken {
    pub(super) fn of(request: RequestId) -> Self {
        Self::Request(request.index())
    }

    pub(super) fn encode(self) -> u64 {
        let (kind, index) = match self {
            Self::Outer => (0, 0),
            Self::Waker => (1, 0),
            Self::Tun => (2, 0),
            Self::Request(index) => (3, index),
            Self::Role { kind, index } => (ROLE_KINDS + u64::from(kind), index),
        };
        kind << KIND_SHIFT | index as u64
    }

    pub(super) fn decode(number: u64) -> Self {
        let index = (number & ((1 << KIND_SHIFT) - 1)) as usize;
        match number >> KIND_SHIFT {
            0 => Self::Outer,
            1 => Self::Waker,
            2 => Self::Tun,
            kind @ ROLE_KINDS.. => Self::Role {
                kind: (kind - ROLE_KINDS) as u8,
                index,
            },
            _ => Self::Request(index),
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
            PollToken::Role { kind: 0, index: 3 },
            PollToken::Role { kind: 2, index: 0 },
        ];
        for token in tokens {
            assert_eq!(PollToken::decode(token.encode()), token);
        }
    }
}
