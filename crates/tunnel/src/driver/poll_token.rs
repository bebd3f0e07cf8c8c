//! What a poller's event is about, in one number.

use tunnel_proto::RequestId;

/// The owner of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// The outer UDP socket.
    Outer,
    /// Another thread has something.
    Waker,
    /// A client's UDP listener.
    UdpListener(usize),
    /// A client's TCP listener.
    TcpListener(usize),
    /// This shard's queue of the TUN device.
    Tun,
    /// News of the host's network.
    Monitor,
    /// The inner socket of a request.
    Request(usize),
}

const KIND_SHIFT: u32 = 56;

impl Token {
    pub(super) fn of(request: RequestId) -> Self {
        Self::Request(request.index())
    }

    pub(super) fn encode(self) -> u64 {
        let (kind, index) = match self {
            Self::Outer => (0, 0),
            Self::Waker => (1, 0),
            Self::UdpListener(index) => (2, index),
            Self::TcpListener(index) => (3, index),
            Self::Request(index) => (4, index),
            Self::Tun => (5, 0),
            Self::Monitor => (6, 0),
        };
        kind << KIND_SHIFT | index as u64
    }

    pub(super) fn decode(number: u64) -> Self {
        let index = (number & ((1 << KIND_SHIFT) - 1)) as usize;
        match number >> KIND_SHIFT {
            0 => Self::Outer,
            1 => Self::Waker,
            2 => Self::UdpListener(index),
            3 => Self::TcpListener(index),
            5 => Self::Tun,
            6 => Self::Monitor,
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
            Token::Outer,
            Token::Waker,
            Token::UdpListener(3),
            Token::TcpListener(0),
            Token::Request(1 << 40),
            Token::Tun,
            Token::Monitor,
        ];
        for token in tokens {
            assert_eq!(Token::decode(token.encode()), token);
        }
    }
}
