//! Cutting a payload: as few fragments as its room allows, all of one size except perhaps the last.

use std::ops::Range;

use super::HEADER_BYTES;
use crate::limits::{FRAGMENTS_MAX, UDP_PAYLOAD_BYTES_MAX};

/// Numbers the messages of one flow in one direction.
#[derive(Debug, Clone, Default)]
pub struct Splitter {
    next_message: u32,
}

impl Splitter {
    /// Starts at message 0.
    #[must_use]
    pub const fn new() -> Self {
        Self { next_message: 0 }
    }

    /// How many fragments a payload of `payload_bytes` takes where each, header included, has `room` bytes; `None`
    /// where it cannot be split: more than 256 fragments, or more than the longest UDP payload.
    #[must_use]
    pub fn count(payload_bytes: usize, room: usize) -> Option<usize> {
        let piece = room.checked_sub(HEADER_BYTES).filter(|piece| *piece > 0)?;
        let count = payload_bytes.div_ceil(piece).max(1);
        (count <= FRAGMENTS_MAX && payload_bytes <= UDP_PAYLOAD_BYTES_MAX).then_some(count)
    }

    /// The fragments of the next message; `None` as for [`Splitter::count`]. `room` is what a DATAGRAM frame takes
    /// behind the prefix of [`crate::datagram::prefix`].
    ///
    /// ```
    /// let mut splitter = masque::split::Splitter::new();
    /// let fragments = splitter.fragments(2000, 1400).unwrap();
    /// assert_eq!(fragments.len(), 2);
    /// for (header, range) in fragments {
    ///     assert_eq!((header.len(), range.len()), (6, 1000));
    /// }
    /// ```
    pub fn fragments(&mut self, payload_bytes: usize, room: usize) -> Option<Fragments> {
        let count = Self::count(payload_bytes, room)?;
        let message = self.next_message;
        self.next_message = message.wrapping_add(1);
        // Pieces as equal as can be make datagrams of one size, which fill a train.
        let piece_bytes = payload_bytes.div_ceil(count);
        Some(Fragments {
            message,
            piece_bytes,
            payload_bytes,
            count,
            index: 0,
        })
    }
}

/// The fragments of one message, in order: header, and the range of the payload that follows it.
#[derive(Debug, Clone)]
pub struct Fragments {
    message: u32,
    piece_bytes: usize,
    payload_bytes: usize,
    count: usize,
    index: usize,
}

impl Iterator for Fragments {
    type Item = ([u8; HEADER_BYTES], Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.index == self.count {
            return None;
        }
        let start = self.index * self.piece_bytes;
        let range = start..(start + self.piece_bytes).min(self.payload_bytes);
        let [a, b, c, d] = self.message.to_be_bytes();
        let header = [a, b, c, d, self.index as u8, (self.count - 1) as u8];
        self.index += 1;
        Some((header, range))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count - self.index, Some(self.count - self.index))
    }
}

impl ExactSizeIterator for Fragments {}
