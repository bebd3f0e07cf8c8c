//! The CRYPTO stream of one level: pieces come in any order, and are given on in order.

use std::collections::BTreeMap;

use crate::limits::{FLIGHT_BYTES_MAX, FLIGHT_PIECES_MAX};

/// What came of a stream, as far as it was not taken yet.
#[derive(Debug, Default)]
pub(super) struct CryptoStream {
    taken: u64,
    pieces: BTreeMap<u64, Vec<u8>>,
}

impl CryptoStream {
    /// Keeps a piece; one that lies beyond the bounds is given up as if it were lost.
    pub(super) fn insert(&mut self, offset: u64, data: &[u8]) {
        let is_within = offset
            .checked_add(data.len() as u64)
            .is_some_and(|end| end <= FLIGHT_BYTES_MAX);
        if is_within && self.pieces.len() < FLIGHT_PIECES_MAX {
            let known = self.pieces.get(&offset).map_or(0, Vec::len);
            if data.len() > known {
                self.pieces.insert(offset, data.to_vec());
            }
        }
    }

    /// What follows without a gap.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let mut found = Vec::new();
        while let Some(entry) = self.pieces.first_entry() {
            let Some(known) = self.taken.checked_sub(*entry.key()) else {
                break;
            };
            let data = entry.remove();
            let new = usize::try_from(known).ok().and_then(|known| data.get(known..));
            found.extend_from_slice(new.unwrap_or_default());
            self.taken += new.map_or(0, <[u8]>::len) as u64;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_in_any_order_repeated_and_overlapping_make_one_stream() {
        let mut stream = CryptoStream::default();
        stream.insert(4, b"efgh");
        assert_eq!(stream.take(), b"");
        stream.insert(2, b"cde");
        stream.insert(0, b"ab");
        stream.insert(0, b"a");
        assert_eq!(stream.take(), b"abcdefgh");
        stream.insert(3, b"de");
        stream.insert(7, b"hij");
        assert_eq!(stream.take(), b"ij");
    }

    #[test]
    fn what_lies_beyond_the_bounds_is_given_up() {
        let mut stream = CryptoStream::default();
        for offset in [FLIGHT_BYTES_MAX, u64::MAX - 1, u64::MAX] {
            stream.insert(offset, b"x");
        }
        assert!(stream.pieces.is_empty());
        for offset in 1..=2 * FLIGHT_PIECES_MAX as u64 {
            stream.insert(offset * 2, b"x");
        }
        assert_eq!(stream.pieces.len(), FLIGHT_PIECES_MAX);
    }
}
