//! A train: datagrams of one flow, in order, that one GSO send can carry.
//!
//! All segments have equal size but the last, which may be shorter and closes the train; a longer datagram opens a
//! new train. An empty datagram is a train of its own, because the kernel has no segment of size zero.

use crate::{Segments, TRAIN_SEGMENTS_MAX, UDP_PAYLOAD_MAX, segments};

/// How long a train may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainLimits {
    /// Most segments, 1 to [`TRAIN_SEGMENTS_MAX`].
    pub segments: usize,
    /// Most bytes, at most [`UDP_PAYLOAD_MAX`].
    pub bytes: usize,
}

impl Default for TrainLimits {
    fn default() -> Self {
        Self {
            segments: TRAIN_SEGMENTS_MAX,
            bytes: UDP_PAYLOAD_MAX,
        }
    }
}

/// The datagram does not fit this train; it belongs into the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// A run of datagrams in one contiguous buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Train {
    buffer: Vec<u8>,
    segment_size: usize,
    count: usize,
    closed: bool,
}

impl Train {
    /// Appends one datagram.
    ///
    /// # Errors
    /// [`Refused`] where the datagram has to open a new train: the train is closed by a shorter one, the datagram
    /// is longer than the segments, or a limit is reached. An empty train takes any datagram.
    pub fn push(&mut self, datagram: &[u8], limits: TrainLimits) -> Result<(), Refused> {
        if self.count == 0 {
            self.segment_size = datagram.len();
            self.closed = datagram.is_empty();
        } else if self.closed
            || datagram.is_empty()
            || datagram.len() > self.segment_size
            || self.count >= limits.segments.min(TRAIN_SEGMENTS_MAX)
            || self.buffer.len() + datagram.len() > limits.bytes.min(UDP_PAYLOAD_MAX)
        {
            return Err(Refused);
        } else {
            self.closed = datagram.len() < self.segment_size;
        }
        self.buffer.extend_from_slice(datagram);
        self.count += 1;
        debug_assert!(self.buffer.len() <= self.count * self.segment_size);
        debug_assert!(self.segment_size == 0 || self.buffer.len() > (self.count - 1) * self.segment_size);
        Ok(())
    }

    /// Number of datagrams.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no datagram; a train with one empty datagram is not empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Size of every segment but the last, in bytes.
    #[must_use]
    pub fn segment_size(&self) -> usize {
        self.segment_size
    }

    /// All datagrams, one after the other.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// The datagrams one by one.
    #[must_use]
    pub fn datagrams(&self) -> Segments<'_> {
        segments(&self.buffer, self.segment_size)
    }

    /// Empties the train and keeps its allocation.
    pub fn clear(&mut self) {
        self.buffer.clear();
        self.segment_size = 0;
        self.count = 0;
        self.closed = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(sizes: &[usize]) -> (Train, Vec<Result<(), Refused>>) {
        let mut train = Train::default();
        let results = sizes
            .iter()
            .map(|size| train.push(&vec![7; *size], TrainLimits::default()))
            .collect();
        (train, results)
    }

    #[test]
    fn a_shorter_datagram_closes_its_train() {
        let (train, results) = pushed(&[100, 100, 40, 40]);
        assert_eq!(results, [Ok(()), Ok(()), Ok(()), Err(Refused)]);
        assert_eq!(
            (train.len(), train.bytes().len(), train.segment_size()),
            (3, 240, 100)
        );
        assert_eq!(
            train.datagrams().map(<[u8]>::len).collect::<Vec<_>>(),
            [100, 100, 40]
        );
    }

    #[test]
    fn a_longer_datagram_opens_a_new_train() {
        let (train, results) = pushed(&[100, 101]);
        assert_eq!(results, [Ok(()), Err(Refused)]);
        assert_eq!(train.len(), 1);
    }

    #[test]
    fn an_empty_datagram_travels_alone() {
        let (train, results) = pushed(&[0, 0]);
        assert_eq!(results, [Ok(()), Err(Refused)]);
        assert!(!train.is_empty());
        assert_eq!(pushed(&[5, 0]).1, [Ok(()), Err(Refused)]);
    }

    #[test]
    fn a_train_ends_at_its_limits() {
        let (train, results) = pushed(&[1; 65]);
        assert_eq!((train.len(), results[64]), (64, Err(Refused)));
        let (train, results) = pushed(&[40_000, 30_000]);
        assert_eq!((train.len(), results[1]), (1, Err(Refused)));
        let mut train = Train::default();
        let short = TrainLimits {
            segments: 2,
            bytes: UDP_PAYLOAD_MAX,
        };
        assert_eq!(
            [1, 1, 1].map(|size| train.push(&vec![0; size], short)),
            [Ok(()), Ok(()), Err(Refused)]
        );
    }

    #[test]
    fn a_cleared_train_takes_any_datagram_again() {
        let (mut train, _) = pushed(&[10, 3]);
        train.clear();
        assert!(train.is_empty());
        assert_eq!(train.push(&[0; 20], TrainLimits::default()), Ok(()));
        assert_eq!(train.segment_size(), 20);
    }
}
