//! Connection IDs that contain the issuing shard, encrypted, so that only holders of the key can read it.
//!
//! An ID is one block of Speck64/128 (Beaulieu and others, "The SIMON and SPECK Families of Lightweight Block
//! Ciphers", 2013). Its plaintext is the shard, a mark of 24 bits that identifies our IDs, and a 32-bit counter that starts
//! at a number chosen by the seed: no ID is used twice, and all are uniform to observers (RFC 9000 section 5.1 asks that
//! IDs cannot be linked). The kernel's packet filter can decrypt this cipher without privileges, so that a datagram
//! reaches the socket of its shard from any address. The mark also says whether an ID may have been ours before a restart,
//! and so deserves a stateless reset.

use aws_lc_rs::hkdf;
use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};

use crate::initial;
use crate::limits::CONNECTION_ID_BYTES;

/// Rounds of Speck64/128, and so its round keys.
pub const STEER_ROUNDS: usize = 27;

/// Second to fourth byte of an ID's clear text; one in 16 million random IDs has it, and passes for ours.
pub const STEER_MARK: u32 = 0x6d_b5c4;

/// Datagrams shorter than this, in bytes, are not parsed: a long header up to the end of an 8-byte ID. Every
/// QUIC packet is longer.
const DATAGRAM_BYTES_MIN: usize = 6 + CONNECTION_ID_BYTES;

const COUNT_MASK: u64 = (1 << 32) - 1;

/// Which shard of how many an endpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Its place, below `count`.
    pub index: u8,
    /// Shards of this process, at least 1. With 1 no received segment is looked at for its shard.
    pub count: u8,
}

impl Shard {
    /// The only shard of its process.
    pub const SOLE: Self = Self { index: 0, count: 1 };
}

/// The key of a process's connection IDs.
#[derive(Clone)]
pub struct SteerKey {
    round_keys: [u32; STEER_ROUNDS],
}

impl std::fmt::Debug for SteerKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("SteerKey")
    }
}

impl SteerKey {
    /// The key that belongs to a reset key ([`crate::EndpointParameters::reset_key`]), the same over restarts.
    ///
    /// ```
    /// let key = quic::SteerKey::derive(&[7; 64]);
    /// assert_eq!(key.round_keys().len(), quic::STEER_ROUNDS);
    /// ```
    #[must_use]
    pub fn derive(reset_key: &[u8; 64]) -> Self {
        let mut key = [0; 16];
        hkdf::Salt::new(hkdf::HKDF_SHA256, b"gramway steering key")
            .extract(reset_key)
            .expand(&[b"Speck64/128"], KeyBytes)
            .and_then(|output| output.fill(&mut key))
            .expect("HKDF-SHA256 gives up to 8,160 bytes");
        let word = |index: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| key[4 * index + byte]));
        Self::from_words([word(0), word(1), word(2), word(3)])
    }

    /// Speck's key schedule; `first` is the round key that comes first, the last word of the paper's notation.
    fn from_words([first, l0, l1, l2]: [u32; 4]) -> Self {
        let mut left = [l0, l1, l2];
        let mut key = first;
        let round_keys = std::array::from_fn(|round| {
            let current = key;
            let place = &mut left[round % 3];
            (*place, key) = encipher_round(*place, key, round as u32);
            current
        });
        Self { round_keys }
    }

    /// The round keys in the order of enciphering, for a program that deciphers elsewhere. Secret.
    #[must_use]
    pub fn round_keys(&self) -> &[u32; STEER_ROUNDS] {
        &self.round_keys
    }

    fn encipher(&self, block: u64) -> u64 {
        let words = ((block >> 32) as u32, block as u32);
        let (x, y) = self
            .round_keys
            .iter()
            .fold(words, |(x, y), key| encipher_round(x, y, *key));
        u64::from(x) << 32 | u64::from(y)
    }

    fn decipher(&self, block: u64) -> u64 {
        let (mut x, mut y) = ((block >> 32) as u32, block as u32);
        for key in self.round_keys.iter().rev() {
            y = (y ^ x).rotate_right(3);
            x = (x ^ key).wrapping_sub(y).rotate_left(8);
        }
        u64::from(x) << 32 | u64::from(y)
    }

    /// The shard that an ID names; `None` where it is not one of ours, of this process or of one before it.
    pub(crate) fn shard(&self, id: [u8; CONNECTION_ID_BYTES]) -> Option<u8> {
        let named = (self.decipher(u64::from_be_bytes(id)) >> 32) as u32;
        (named & 0xff_ffff == STEER_MARK).then_some((named >> 24) as u8)
    }
}

struct KeyBytes;

impl hkdf::KeyType for KeyBytes {
    fn len(&self) -> usize {
        16
    }
}

fn encipher_round(x: u32, y: u32, key: u32) -> (u32, u32) {
    let x = x.rotate_right(8).wrapping_add(y) ^ key;
    (x, y.rotate_left(3) ^ x)
}

/// The shard that the destination connection ID of a received datagram names, which may be one that does not exist
/// (any more); `None` where the ID is not one of ours, e.g. in a client's first packets.
#[must_use]
pub fn shard_of(key: &SteerKey, datagram: &[u8]) -> Option<u8> {
    key.shard(destination_id(datagram)?)
}

/// Destination connection ID of the first packet, where it has the length of ours (RFC 8999 sections 5.1 and 5.2).
pub(crate) fn destination_id(datagram: &[u8]) -> Option<[u8; CONNECTION_ID_BYTES]> {
    if datagram.len() < DATAGRAM_BYTES_MIN {
        return None;
    }
    let id = if initial::is_long_header(datagram) {
        initial::destination_id(datagram)?
    } else {
        &datagram[1..=CONNECTION_ID_BYTES]
    };
    id.try_into().ok()
}

/// Issues the IDs of one shard.
pub(crate) struct Generator {
    key: SteerKey,
    prefix: u64,
    count: u64,
}

impl Generator {
    pub(crate) fn new(key: SteerKey, shard: u8, seed: &[u8; 32]) -> Self {
        let start = [0, 1, 2, 3, 4, 5, 6, 7].map(|index| seed[index]);
        Self {
            key,
            prefix: u64::from(shard) << 56 | u64::from(STEER_MARK) << 32,
            count: u64::from_be_bytes(start),
        }
    }

    pub(crate) fn next_id(&mut self) -> [u8; CONNECTION_ID_BYTES] {
        self.count = self.count.wrapping_add(1);
        let clear = self.prefix | self.count & COUNT_MASK;
        self.key.encipher(clear).to_be_bytes()
    }
}

impl ConnectionIdGenerator for Generator {
    fn generate_cid(&mut self) -> ConnectionId {
        ConnectionId::new(&self.next_id())
    }

    /// Only IDs that we could have issued get a stateless reset; of shards that a restart did away with, too.
    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        let id = id[..].try_into().map_err(|_| InvalidCid)?;
        self.key.shard(id).map(drop).ok_or(InvalidCid)
    }

    fn cid_len(&self) -> usize {
        CONNECTION_ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chi-square of a uniform byte has mean 255 and deviation 22.6; a fair generator exceeds this once in 10^8 runs.
    const CHI_SQUARE_MAX: f64 = 400.0;

    fn long_header(id: &[u8]) -> Vec<u8> {
        let mut packet = vec![0xc0, 0, 0, 0, 1, id.len() as u8];
        packet.extend_from_slice(id);
        packet.resize(1200, 0);
        packet
    }

    fn short_header(id: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x40];
        packet.extend_from_slice(id);
        packet.resize(40, 0);
        packet
    }

    #[test]
    fn the_cipher_is_the_one_of_the_paper() {
        let key = SteerKey::from_words([0x0302_0100, 0x0b0a_0908, 0x1312_1110, 0x1b1a_1918]);
        let (clear, sealed) = (0x3b72_6574_7475_432d, 0x8c6f_a548_454e_028b);
        assert_eq!(key.encipher(clear), sealed);
        assert_eq!(key.decipher(sealed), clear);
    }

    #[test]
    fn a_million_ids_are_uniform_and_name_their_shard() {
        let key = SteerKey::derive(&[3; 64]);
        let mut generators: Vec<_> = (0..16)
            .map(|shard| Generator::new(key.clone(), shard, &[9; 32]))
            .collect();
        let (mut counts, mut seen) = (
            [[0_u32; 256]; CONNECTION_ID_BYTES],
            std::collections::HashSet::new(),
        );
        for number in 0..1_000_000_usize {
            let shard = number % 16;
            let id = generators[shard].next_id();
            assert_eq!(key.shard(id), Some(shard as u8));
            assert!(seen.insert(id), "{id:x?} came twice");
            for (count, byte) in counts.iter_mut().zip(id) {
                count[usize::from(byte)] += 1;
            }
        }
        let expected = 1_000_000.0 / 256.0;
        for (place, count) in counts.iter().enumerate() {
            let chi_square: f64 = count
                .iter()
                .map(|count| (f64::from(*count) - expected).powi(2) / expected)
                .sum();
            assert!(chi_square < CHI_SQUARE_MAX, "byte {place}: {chi_square}");
        }
    }

    #[test]
    fn long_and_short_headers_are_read_and_all_else_is_not_ours() {
        let key = SteerKey::derive(&[3; 64]);
        let id = Generator::new(key.clone(), 5, &[1; 32]).next_id();
        assert_eq!(shard_of(&key, &long_header(&id)), Some(5));
        assert_eq!(shard_of(&key, &short_header(&id)), Some(5));
        assert_eq!(shard_of(&key, &short_header(&id)[..13]), None);
        assert_eq!(shard_of(&key, &[]), None);
        assert_eq!(shard_of(&key, &long_header(&[id, id].concat())), None);
        assert_eq!(shard_of(&SteerKey::derive(&[4; 64]), &short_header(&id)), None);
    }

    /// The steering program of `packet-io` is tested with the same key and IDs.
    #[test]
    fn ids_are_as_the_kernels_program_expects_them() {
        let key = SteerKey::from_words([0x0302_0100, 0x0b0a_0908, 0x1312_1110, 0x1b1a_1918]);
        let id = |shard| Generator::new(key.clone(), shard, &[0; 32]).next_id();
        assert_eq!(id(0), [0x1a, 0x0b, 0x1b, 0x2f, 0x6f, 0xe6, 0x94, 0x5d]);
        assert_eq!(id(1), [0xfc, 0xf2, 0x9b, 0xa7, 0x5b, 0x96, 0xf6, 0x51]);
    }
}
