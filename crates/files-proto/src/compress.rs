//! Compression of chunks and packs one by one by zstd (RFC 8878), when to try it, and how hard.
//!
//! Compression is worth its time where bytes leave slower than they are compressed, and where they shrink. A sender
//! asks [`Policy`] for each chunk: it says no while nothing waits for the network, and tries ever less often while what
//! it tried did not shrink. A sample of the chunk decides before the whole of it is compressed. Where its threads wait
//! for the network much longer than they compress, [`Effort`] has them compress harder.

use std::fmt;
use std::time::Duration;

use thiserror::Error;
use zstd::bulk::{Compressor, Decompressor};

use crate::limits::{SAMPLE_BYTES, SKIPPED_CHUNKS_MAX, UNCOMPRESSIBLE_CHUNKS};

/// zstd's levels, from the fastest of its ordinary ones on, which saves most of what the others save. Chunks of source
/// code become 0.89 and 0.82 of what they are by it, in 1.3 and 3.5 times the time. What 6 and 8 save beyond that costs
/// each thread memory.
const LEVELS: [i32; 3] = [1, 3, 5];

/// Bodies by which it is judged whether the level fits.
const BODIES_OF_LEVEL: u32 = 8;

/// Threads that wait so many times as long as they compress take the next level, which takes less than three times as
/// long: they wait all the same then, and do not come back at once.
const PATIENCE: u32 = 4;

/// How hard one thread compresses.
#[derive(Clone, Debug, Default)]
pub struct Effort {
    /// Of [`LEVELS`].
    level: usize,
    /// Since it was last judged.
    bodies: u32,
    compressing: Duration,
    waiting: Duration,
}

impl Effort {
    /// A compressed body has left: how long it was compressed, and how long its thread waited for the network.
    pub fn left(&mut self, compressing: Duration, waiting: Duration) {
        self.bodies += 1;
        self.compressing += compressing;
        self.waiting += waiting;
        if self.bodies < BODIES_OF_LEVEL {
            return;
        }
        let level = if self.waiting >= self.compressing * PATIENCE {
            (self.level + 1).min(LEVELS.len() - 1)
        } else if self.waiting * PATIENCE < self.compressing {
            self.level.saturating_sub(1)
        } else {
            self.level
        };
        *self = Self {
            level,
            ..Self::default()
        };
    }
}

/// When chunks are compressed.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    off: bool,
    /// Chunks in a row that did not shrink.
    failures: u32,
    /// Chunks that are not tried after them.
    skip: u32,
    skipped: u32,
}

impl Policy {
    /// Compresses what shrinks, as long as the network is slower than that.
    #[must_use]
    pub fn auto() -> Self {
        Self::default()
    }

    /// Compresses nothing.
    #[must_use]
    pub fn never() -> Self {
        Self {
            off: true,
            ..Self::default()
        }
    }

    /// Whether to try the next chunk; `network_is_slow` where the sender waits for the network, not for its disk or
    /// its processor.
    pub fn tries(&mut self, network_is_slow: bool) -> bool {
        if self.off || !network_is_slow {
            return false;
        }
        if self.skipped < self.skip {
            self.skipped += 1;
            return false;
        }
        true
    }

    /// What came of a chunk that was tried.
    pub fn tried(&mut self, shrank: bool) {
        self.skipped = 0;
        if shrank {
            (self.failures, self.skip) = (0, 0);
            return;
        }
        self.failures += 1;
        if self.failures >= UNCOMPRESSIBLE_CHUNKS {
            self.skip = (self.skip * 2).clamp(UNCOMPRESSIBLE_CHUNKS, SKIPPED_CHUNKS_MAX);
        }
    }
}

/// Compresses what comes to one thread.
pub struct Compression {
    compressor: Compressor<'static>,
    /// Of [`LEVELS`].
    level: usize,
}

/// Decompresses what comes to one thread.
pub struct Decompression {
    decompressor: Decompressor<'static>,
}

/// A body that is not what its head says (FILE-17).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a compressed record does not become the {raw} bytes that its head tells: the transfer ends")]
pub struct DecompressError {
    /// What the head tells.
    pub raw: usize,
}

impl Compression {
    /// A compressor with its tables.
    #[must_use]
    pub fn new() -> Self {
        Self {
            compressor: Compressor::new(LEVELS[0]).expect("zstd has this level"),
            level: 0,
        }
    }

    /// Compresses so hard from here on.
    pub fn set_effort(&mut self, effort: &Effort) {
        // One that cannot be set leaves the one that is.
        if self.level != effort.level
            && self
                .compressor
                .set_compression_level(LEVELS[effort.level])
                .is_ok()
        {
            self.level = effort.level;
        }
    }

    /// Compresses a body into `out`, which is overwritten; `false`, and nothing in `out` to use, where it would shrink
    /// by less than an eighth.
    pub fn compress(&mut self, raw: &[u8], out: &mut Vec<u8>) -> bool {
        let worth = |bytes: usize| bytes - bytes.div_ceil(8);
        if raw.len() > 4 * SAMPLE_BYTES {
            let start = (raw.len() - SAMPLE_BYTES) / 2;
            if !self.fits(&raw[start..start + SAMPLE_BYTES], worth(SAMPLE_BYTES), out) {
                return false;
            }
        }
        self.fits(raw, worth(raw.len()), out)
    }

    /// Compresses into at most `room` bytes. zstd fails where its output does not fit, which is what is asked.
    fn fits(&mut self, raw: &[u8], room: usize, out: &mut Vec<u8>) -> bool {
        out.clear();
        out.resize(room, 0);
        let used = self.compressor.compress_to_buffer(raw, &mut out[..]).unwrap_or(0);
        out.truncate(used);
        used > 0
    }
}

impl Default for Compression {
    fn default() -> Self {
        Self::new()
    }
}

impl Decompression {
    /// A decompressor with its tables.
    #[must_use]
    pub fn new() -> Self {
        Self {
            decompressor: Decompressor::new().expect("zstd has a decompressor without a dictionary"),
        }
    }

    /// Decompresses a body to exactly the length of `raw`. Nothing is written beyond it, and no memory is taken for a
    /// window, so that a body that would become gigabytes costs what a chunk costs.
    ///
    /// # Errors
    /// The body is damaged, or becomes more or fewer bytes.
    pub fn decompress(&mut self, stored: &[u8], raw: &mut [u8]) -> Result<(), DecompressError> {
        match self.decompressor.decompress_to_buffer(stored, &mut raw[..]) {
            Ok(length) if length == raw.len() => Ok(()),
            _ => Err(DecompressError { raw: raw.len() }),
        }
    }
}

impl Default for Decompression {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Compression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Compression")
    }
}

impl fmt::Debug for Decompression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Decompression")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn random(length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        rand::rngs::SmallRng::seed_from_u64(5).fill(&mut bytes[..]);
        bytes
    }

    fn text(length: usize) -> Vec<u8> {
        let line = b"a line of a log that is much like the one before\n";
        line.iter().copied().cycle().take(length).collect()
    }

    /// FILE-17.
    #[test]
    fn what_shrinks_is_compressed_and_comes_back() {
        let (mut compression, mut decompression) = (Compression::new(), Decompression::new());
        let mut stored = Vec::new();
        for length in [200, 5_000, 1 << 20] {
            let raw = text(length);
            assert!(compression.compress(&raw, &mut stored));
            assert!(stored.len() <= length - length / 8);
            let mut out = vec![0; length];
            decompression.decompress(&stored, &mut out).unwrap();
            assert_eq!(out, raw);
        }
        for length in [1, 2, 100, 5_000, 1 << 20] {
            assert!(!compression.compress(&random(length), &mut stored), "{length}");
        }
        // After one that did not fit, the next one is compressed as ever.
        assert!(compression.compress(&text(1_000), &mut stored));
    }

    /// FILE-17: a bomb costs what a chunk costs.
    #[test]
    fn a_body_that_becomes_more_or_less_than_its_head_tells_is_refused() {
        let mut stored = Vec::new();
        assert!(Compression::new().compress(&vec![0; 1 << 20], &mut stored));
        let mut decompression = Decompression::new();
        for length in [0, 1, (1 << 20) - 1, (1 << 20) + 1] {
            let mut out = vec![0xaa; length];
            let error = DecompressError { raw: length };
            assert_eq!(decompression.decompress(&stored, &mut out), Err(error));
        }
        // Many frames, one behind the other.
        let bomb = stored.repeat(1_000);
        assert!(decompression.decompress(&bomb, &mut vec![0; 1 << 20]).is_err());
        let mut out = vec![1; 1 << 20];
        decompression.decompress(&stored, &mut out).unwrap();
        assert!(out.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn what_does_not_shrink_is_tried_ever_less_often() {
        let mut policy = Policy::auto();
        let mut tried = Vec::new();
        for chunk in 0..3_000_u32 {
            if policy.tries(true) {
                policy.tried(false);
                tried.push(chunk);
            }
        }
        let first: Vec<u32> = (0..UNCOMPRESSIBLE_CHUNKS).collect();
        assert_eq!(tried[..first.len()], first);
        assert!(tried.len() < 24, "{tried:?}");
        // And no less than every so many, as the next file may shrink.
        assert!(
            tried
                .windows(2)
                .all(|pair| pair[1] - pair[0] <= SKIPPED_CHUNKS_MAX + 1)
        );
        while !policy.tries(true) {}
        policy.tried(true);
        assert!((0..100).all(|_| policy.tries(true)));
    }

    #[test]
    fn nothing_is_compressed_for_a_fast_network_or_a_user_who_said_no() {
        assert!(!Policy::auto().tries(false));
        assert!(Policy::auto().tries(true));
        assert!(!Policy::never().tries(true));
    }

    #[test]
    fn who_waits_for_the_network_compresses_harder_until_compressing_takes_as_long() {
        let (waiting, mut effort) = (Duration::from_millis(10), Effort::default());
        let mut levels = Vec::new();
        for _ in 0..20 * BODIES_OF_LEVEL {
            // Each level takes its time.
            let compressing = [1, 4, 9][effort.level];
            effort.left(Duration::from_millis(compressing), waiting);
            levels.push(effort.level);
        }
        assert_eq!(
            levels.iter().max(),
            Some(&1),
            "four milliseconds are not a quarter of ten"
        );
        assert!(levels.is_sorted(), "and they are no reason to go back");
        // The network is as fast as the processor.
        for _ in 0..2 * BODIES_OF_LEVEL {
            effort.left(Duration::from_millis(4), Duration::ZERO);
        }
        assert_eq!(effort.level, 0);
        for _ in 0..20 * BODIES_OF_LEVEL {
            effort.left(Duration::ZERO, waiting);
        }
        assert_eq!(effort.level, LEVELS.len() - 1);
    }

    #[test]
    fn more_effort_makes_less_of_the_same_and_comes_back_likewise() {
        let words = random(1 << 16);
        let raw: Vec<u8> = (0..1 << 15)
            .flat_map(|number: usize| {
                let start = usize::from(words[number]) * 64;
                words[start..start + 4 + usize::from(words[number + 1] % 28)].to_vec()
            })
            .take(1 << 19)
            .collect();
        let (mut compression, mut stored, mut out) = (Compression::new(), Vec::new(), vec![0; raw.len()]);
        let mut lengths = Vec::new();
        for level in 0..LEVELS.len() {
            compression.set_effort(&Effort {
                level,
                ..Effort::default()
            });
            assert!(compression.compress(&raw, &mut stored));
            lengths.push(stored.len());
            Decompression::new().decompress(&stored, &mut out).unwrap();
            assert_eq!(out, raw);
        }
        assert!(lengths[LEVELS.len() - 1] < lengths[0], "{lengths:?}");
        compression.set_effort(&Effort::default());
        assert!(compression.compress(&raw, &mut stored));
        assert_eq!(stored.len(), lengths[0]);
    }

    proptest! {
        /// FILE-17: whatever comes fills its buffer exactly, or is refused.
        #[test]
        fn damaged_bodies_are_refused_or_become_other_bytes(
            place: prop::sample::Index,
            bit in 0_u8..8,
            noise in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let mut stored = Vec::new();
            let raw = text(4_000);
            prop_assert!(Compression::new().compress(&raw, &mut stored));
            let at = place.index(stored.len());
            stored[at] ^= 1 << bit;
            let mut decompression = Decompression::new();
            let _ = decompression.decompress(&stored, &mut vec![0; raw.len()]);
            prop_assert!(decompression.decompress(&noise, &mut vec![0; 4_000]).is_err());
            // Neither leaves the decompressor in a state that spoils the next body.
            stored[at] ^= 1 << bit;
            let mut out = vec![0; raw.len()];
            prop_assert_eq!(decompression.decompress(&stored, &mut out), Ok(()));
            prop_assert_eq!(out, raw);
        }
    }
}
