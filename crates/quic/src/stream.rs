//! Stream IDs, and the results of reading a stream.

use bytes::Bytes;

/// Names one stream of a connection (RFC 9000 section 2.1).
///
/// `u64::from` gives the number that stands in QUIC's frames; the order is that of these numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub(crate) u64);

impl StreamId {
    /// Who may write to the stream.
    #[must_use]
    pub fn direction(self) -> Direction {
        if self.0 & 0x2 == 0 {
            Direction::Bidirectional
        } else {
            Direction::Unidirectional
        }
    }
}

impl From<StreamId> for u64 {
    fn from(stream: StreamId) -> Self {
        stream.0
    }
}

impl From<u64> for StreamId {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

/// Who may write to a stream (RFC 9000 section 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Both ends.
    Bidirectional,
    /// Only the end that opened it.
    Unidirectional,
}

/// What a read gives.
#[derive(Debug, PartialEq, Eq)]
pub enum Read {
    /// The next bytes in order.
    Data(Bytes),
    /// Nothing at present; [`crate::Event::StreamReadable`] follows.
    Blocked,
    /// The peer has sent everything.
    Finished,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_bit_of_a_number_is_its_direction() {
        let directions = [0, 1, 2, 3, 4].map(|number| StreamId(number).direction());
        let (both, one) = (Direction::Bidirectional, Direction::Unidirectional);
        assert_eq!(directions, [both, both, one, one, both]);
    }
}
