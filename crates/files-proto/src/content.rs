//! What a file's bytes are called: chunks of 1 MiB, each with an address by which it verifies alone, and the root.
//!
//! BLAKE3 is a tree over blocks of 1 KiB. A chunk of 1 MiB at a multiple of 1 MiB is a whole subtree of it, so the
//! subtree's chaining value is the chunk's address, and the addresses of all chunks give the ordinary BLAKE3 hash of
//! the file, which `b3sum` shows as well: nothing is hashed twice (FILE-10, FILE-11). `bao-tree` verifies the same tree
//! by 1 KiB to 16 KiB with the inner nodes sent along; at 1 MiB the list of addresses is all that is needed.

use std::collections::BTreeMap;

use blake3::Hasher;
use blake3::hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};

use crate::limits::CHUNK_BYTES;

/// A chunk's BLAKE3 chaining value; of a file that is one chunk, the hash itself.
pub type Address = [u8; 32];

/// The BLAKE3 hash of a whole file.
pub type Root = [u8; 32];

/// Chunks of a file of `size` bytes; an empty file has none.
#[must_use]
pub fn chunk_count(size: u64) -> u64 {
    size.div_ceil(CHUNK_BYTES)
}

/// Bytes of chunk `index` of a file of `size` bytes; 0 where there is no such chunk.
#[must_use]
pub fn chunk_length(size: u64, index: u64) -> u64 {
    let start = index.saturating_mul(CHUNK_BYTES);
    size.saturating_sub(start).min(CHUNK_BYTES)
}

/// The address of chunk `index` with these bytes; `only` where the file has no other chunk (FILE-10).
///
/// # Panics
/// When `bytes` is empty or longer than a chunk.
#[must_use]
pub fn chunk_address(index: u64, only: bool, bytes: &[u8]) -> Address {
    assert!(
        !bytes.is_empty() && bytes.len() as u64 <= CHUNK_BYTES,
        "a chunk has from 1 byte to 1 MiB"
    );
    if only {
        return blake3::hash(bytes).into();
    }
    Hasher::new()
        .set_input_offset(index * CHUNK_BYTES)
        .update(bytes)
        .finalize_non_root()
}

/// The root of a file from the addresses of all its chunks, in order (FILE-11).
#[must_use]
pub fn root(addresses: &[Address]) -> Root {
    let mut builder = RootBuilder::default();
    for (index, address) in addresses.iter().enumerate() {
        builder.insert(index as u64, *address);
    }
    builder
        .root(addresses.len() as u64)
        .expect("each of the chunks has an address")
}

/// Finds a root from addresses that come in any order, and forgets each pair for its parent: chunks in order take
/// memory for the logarithm of their number.
#[derive(Clone, Debug, Default)]
pub struct RootBuilder {
    /// Chaining values by level (0 are chunks) and place in it; never both children of a node that is here.
    nodes: BTreeMap<(u32, u64), Address>,
}

impl RootBuilder {
    /// Takes the address of a chunk; each chunk once, as an address that is part of a parent cannot be replaced.
    pub fn insert(&mut self, index: u64, address: Address) {
        let (mut level, mut place, mut value) = (0, index, address);
        // The last two nodes are merged by `root`, which knows that they are the last.
        while let Some(sibling) = self.nodes.get(&(level, place ^ 1)).copied() {
            if place <= 1 {
                break;
            }
            self.nodes.remove(&(level, place ^ 1));
            let (left, right) = if place & 1 == 0 {
                (value, sibling)
            } else {
                (sibling, value)
            };
            value = merge_subtrees_non_root(&left, &right, Mode::Hash);
            (level, place) = (level + 1, place >> 1);
        }
        self.nodes.insert((level, place), value);
    }

    /// The root of a file of `chunks` chunks, if all of them have been inserted.
    #[must_use]
    pub fn root(&self, chunks: u64) -> Option<Root> {
        match chunks {
            0 => Some(blake3::hash(b"").into()),
            1 => self.nodes.get(&(0, 0)).copied().filter(|_| self.nodes.len() == 1),
            _ => {
                let left = largest_power_below(chunks);
                let first = self.subtree(0, left)?;
                let second = self.subtree(left, chunks - left)?;
                Some(merge_subtrees_root(&first, &second, Mode::Hash).into())
            }
        }
    }

    /// How many values are remembered.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The value of the subtree over `chunks` chunks from `start`, a multiple of a power of two not below them.
    fn subtree(&self, start: u64, chunks: u64) -> Option<Address> {
        if chunks.is_power_of_two() {
            let level = chunks.trailing_zeros();
            if let Some(value) = self.nodes.get(&(level, start >> level)) {
                return Some(*value);
            }
            if chunks == 1 {
                return None;
            }
        }
        let left = largest_power_below(chunks);
        let first = self.subtree(start, left)?;
        let second = self.subtree(start + left, chunks - left)?;
        Some(merge_subtrees_non_root(&first, &second, Mode::Hash))
    }
}

/// The largest power of two below `chunks`, which is 2 or more: what BLAKE3's left subtree holds.
fn largest_power_below(chunks: u64) -> u64 {
    1 << (63 - (chunks - 1).leading_zeros())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::seq::SliceRandom;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn bytes(seed: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        rand::rngs::SmallRng::seed_from_u64(seed).fill(&mut bytes[..]);
        bytes
    }

    fn addresses(bytes: &[u8]) -> Vec<Address> {
        let only = bytes.len() as u64 <= CHUNK_BYTES;
        bytes
            .chunks(CHUNK_BYTES as usize)
            .enumerate()
            .map(|(index, chunk)| chunk_address(index as u64, only, chunk))
            .collect()
    }

    /// FILE-10, FILE-11.
    #[test]
    fn the_addresses_of_chunks_give_the_ordinary_hash_of_the_file() {
        let mib = CHUNK_BYTES as usize;
        let all = bytes(1, 9 * mib + 77);
        let lengths = [
            0,
            1,
            1_023,
            1_024,
            1_025,
            mib - 1,
            mib,
            mib + 1,
            2 * mib,
            2 * mib + 1,
            3 * mib,
            4 * mib,
            4 * mib + 5,
            5 * mib,
            7 * mib + 1_024,
            8 * mib,
            9 * mib + 77,
        ];
        for length in lengths {
            let part = &all[..length];
            assert_eq!(
                root(&addresses(part)),
                *blake3::hash(part).as_bytes(),
                "{length} bytes"
            );
            assert_eq!(chunk_count(length as u64), addresses(part).len() as u64);
        }
    }

    /// FILE-11.
    #[test]
    fn a_root_needs_every_chunk() {
        let addresses: Vec<Address> = (0..11).map(|index| [index; 32]).collect();
        for missing in 0..addresses.len() {
            let mut builder = RootBuilder::default();
            for (index, address) in addresses
                .iter()
                .enumerate()
                .filter(|(index, _)| *index != missing)
            {
                builder.insert(index as u64, *address);
            }
            assert_eq!(builder.root(11), None);
            builder.insert(missing as u64, addresses[missing]);
            assert_eq!(builder.root(11), Some(root(&addresses)));
            assert_eq!(builder.root(12), None);
        }
    }

    #[test]
    fn chunks_in_order_take_memory_for_the_logarithm_of_their_number() {
        let mut builder = RootBuilder::default();
        for index in 0..10_000 {
            builder.insert(index, [7; 32]);
            assert!(builder.nodes() <= 2 * 14);
        }
    }

    #[test]
    fn the_last_chunk_has_what_is_left() {
        assert_eq!(chunk_length(CHUNK_BYTES + 5, 0), CHUNK_BYTES);
        assert_eq!(chunk_length(CHUNK_BYTES + 5, 1), 5);
        assert_eq!(chunk_length(CHUNK_BYTES + 5, 2), 0);
        assert_eq!(chunk_length(5, u64::MAX), 0);
    }

    proptest! {
        /// FILE-11: chunks may come by any carrier, in any order.
        #[test]
        fn the_order_of_chunks_does_not_change_the_root(count in 1_u64..200, seed: u64) {
            let addresses: Vec<Address> = (0..count).map(|index| *blake3::hash(&index.to_be_bytes()).as_bytes()).collect();
            let mut order: Vec<u64> = (0..count).collect();
            order.shuffle(&mut rand::rngs::SmallRng::seed_from_u64(seed));
            let mut builder = RootBuilder::default();
            for index in order {
                builder.insert(index, addresses[index as usize]);
            }
            prop_assert_eq!(builder.root(count), Some(root(&addresses)));
        }
    }
}
