//! Connection IDs that contain the issuing shard, encrypted, so that only holders of the key can read it.
//!
//! The first 8 bytes of an ID are one block of Speck64/128 ([`speck`]). Its plaintext is the shard, a mark of 24 bits that
//! identifies our IDs, the generation of the process (4 bits), which tells it from the one whose sockets it took over, and
//! a 28-bit counter that starts at a number chosen by the seed: no ID is used twice, and all are uniform to observers
//! (RFC 9000 section 5.1 asks that IDs cannot be linked). The kernel's packet filter can decrypt this
//! cipher without privileges, so that a datagram reaches the socket of its shard from any address. The mark also says
//! whether an ID may have been ours before a restart, and so deserves a stateless reset.
//!
//! Servers differ in the length of their IDs. Where it is more than 8 bytes, the others are a keyed function of the block,
//! and uniform, too (QR1-27, QR1-28).

mod speck;

use aws_lc_rs::{hkdf, hmac};
use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};
use speck::Speck;

use crate::initial;
use crate::limits::{CONNECTION_ID_BYTES, CONNECTION_ID_BYTES_MAX};

/// Rounds of Speck64/128, and so its round keys.
pub const STEER_ROUNDS: usize = speck::ROUNDS;

/// Second to fourth byte of the clear text of an ID's block; one in 16 million random IDs has it, and passes for ours.
pub const STEER_MARK: u32 = 0x6d_b5c4;

/// A long header up to the length of the destination connection ID (RFC 8999 section 5.1), in bytes.
const LONG_HEADER_BYTES: usize = 6;

const COUNT_BITS: u32 = 28;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const GENERATION_MASK: u8 = 0xf;

/// The block that an ID of ours begins with.
pub(crate) type Block = [u8; CONNECTION_ID_BYTES];

/// Bytes of an endpoint's connection IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdLength(u8);

impl IdLength {
    /// No IDs, as browsers have it: packets are told by their sender's address. For endpoints that only connect, and that
    /// have one connection to each address.
    pub const NONE: Self = Self(0);

    /// An ID of 8 to 20 bytes (RFC 9000 section 17.2), which can name its shard.
    ///
    /// ```
    /// use quic::IdLength;
    /// assert_eq!(IdLength::new(8), Some(IdLength::default()));
    /// assert_eq!((IdLength::new(4), IdLength::new(21)), (None, None));
    /// ```
    #[must_use]
    pub fn new(bytes: usize) -> Option<Self> {
        let is_possible = (CONNECTION_ID_BYTES..=CONNECTION_ID_BYTES_MAX).contains(&bytes);
        is_possible.then_some(Self(bytes as u8))
    }

    /// In bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        usize::from(self.0)
    }
}

/// 8 bytes.
impl Default for IdLength {
    fn default() -> Self {
        Self(CONNECTION_ID_BYTES as u8)
    }
}

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

/// Which process of a chain an endpoint belongs to, each of which took over the sockets of the one before: their connection
/// IDs differ. A number of 4 bits, after which it begins again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Generation(u8);

impl Generation {
    /// The one with this number, of which the lowest 4 bits count.
    #[must_use]
    pub fn new(number: u8) -> Self {
        Self(number & GENERATION_MASK)
    }

    /// The generation after this one.
    ///
    /// ```
    /// use quic::Generation;
    /// assert_eq!(Generation::new(15).next(), Generation::default());
    /// ```
    #[must_use]
    pub fn next(self) -> Self {
        Self::new(self.0 + 1)
    }

    /// Below 16.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }
}

/// The key of a process's connection IDs, and their length.
#[derive(Clone)]
pub struct SteerKey {
    cipher: Speck,
    /// What follows the block is its MAC under this key, as far as there is room.
    tail: hmac::Key,
    length: IdLength,
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
    /// let key = quic::SteerKey::derive(&[7; 64], quic::IdLength::default());
    /// assert_eq!(key.round_keys().len(), quic::STEER_ROUNDS);
    /// ```
    #[must_use]
    pub fn derive(reset_key: &[u8; 64], length: IdLength) -> Self {
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, b"gramway steering key").extract(reset_key);
        Self {
            cipher: Speck::new(expand(&secret, b"Speck64/128")),
            tail: hmac::Key::new(hmac::HMAC_SHA256, &expand::<32>(&secret, b"rest of the ID")),
            length,
        }
    }

    /// The round keys in the order of enciphering, for a program that deciphers elsewhere. Secret.
    #[must_use]
    pub fn round_keys(&self) -> &[u32; STEER_ROUNDS] {
        &self.cipher.round_keys
    }

    /// Bytes of an ID.
    #[must_use]
    pub fn id_length(&self) -> IdLength {
        self.length
    }

    /// The shard that an ID with this block names; `None` where it is not one of ours, of this process or of one before it.
    pub(crate) fn shard(&self, block: Block) -> Option<u8> {
        self.names(block).map(|(shard, _)| shard)
    }

    /// As [`Self::shard`], with the generation of the process that issued it.
    pub(crate) fn names(&self, block: Block) -> Option<(u8, Generation)> {
        let clear = self.cipher.decipher(u64::from_be_bytes(block));
        let named = (clear >> 32) as u32;
        let generation = Generation::new((clear as u32 >> COUNT_BITS) as u8);
        (named & 0xff_ffff == STEER_MARK).then_some(((named >> 24) as u8, generation))
    }

    /// The ID with this clear text.
    fn id(&self, clear: u64) -> ConnectionId {
        let mut id = [0; CONNECTION_ID_BYTES_MAX];
        let (block, rest) = id.split_at_mut(CONNECTION_ID_BYTES);
        block.copy_from_slice(&self.cipher.encipher(clear).to_be_bytes());
        if self.length.bytes() > CONNECTION_ID_BYTES {
            let bytes = rest.len();
            rest.copy_from_slice(&hmac::sign(&self.tail, block).as_ref()[..bytes]);
        }
        ConnectionId::new(&id[..self.length.bytes()])
    }

    /// Whether an ID may have been issued with this key.
    fn may_have_issued(&self, id: &[u8]) -> bool {
        let Some((block, rest)) = id.split_first_chunk::<CONNECTION_ID_BYTES>() else {
            return false;
        };
        id.len() == self.length.bytes()
            && self.shard(*block).is_some()
            && (rest.is_empty() || hmac::sign(&self.tail, block).as_ref().starts_with(rest))
    }
}

fn expand<const N: usize>(secret: &hkdf::Prk, label: &[u8]) -> [u8; N] {
    struct Bytes(usize);
    impl hkdf::KeyType for Bytes {
        fn len(&self) -> usize {
            self.0
        }
    }
    let mut output = [0; N];
    secret
        .expand(&[label], Bytes(N))
        .and_then(|okm| okm.fill(&mut output))
        .expect("HKDF-SHA256 gives up to 8,160 bytes");
    output
}

/// The shard that the destination connection ID of a received datagram names, which may be one that does not exist
/// (any more); `None` where the ID is not one of ours, e.g. in a client's first packets.
#[must_use]
pub fn shard_of(key: &SteerKey, datagram: &[u8]) -> Option<u8> {
    key.shard(destination_block(datagram, key.length)?)
}

/// The block of the first packet's destination connection ID, where that has the length of ours (RFC 8999 sections 5.1 and
/// 5.2). Datagrams that end before a long header's ID would end are not parsed: every QUIC packet is longer.
pub(crate) fn destination_block(datagram: &[u8], length: IdLength) -> Option<Block> {
    if datagram.len() < LONG_HEADER_BYTES + length.bytes() {
        return None;
    }
    let id = if initial::is_long_header(datagram) {
        initial::destination_id(datagram)?
    } else {
        &datagram[1..=length.bytes()]
    };
    (id.len() == length.bytes()).then(|| id.first_chunk().copied())?
}

/// Issues the IDs of one shard.
pub(crate) struct Generator {
    key: SteerKey,
    prefix: u64,
    count: u64,
}

impl Generator {
    pub(crate) fn new(key: SteerKey, shard: u8, generation: Generation, seed: &[u8; 32]) -> Self {
        let start = [0, 1, 2, 3, 4, 5, 6, 7].map(|index| seed[index]);
        Self {
            key,
            prefix: u64::from(shard) << 56
                | u64::from(STEER_MARK) << 32
                | u64::from(generation.0) << COUNT_BITS,
            count: u64::from_be_bytes(start),
        }
    }

    pub(crate) fn next_id(&mut self) -> ConnectionId {
        self.count = self.count.wrapping_add(1);
        self.key.id(self.prefix | self.count & COUNT_MASK)
    }
}

impl ConnectionIdGenerator for Generator {
    fn generate_cid(&mut self) -> ConnectionId {
        self.next_id()
    }

    /// Only IDs that we could have issued get a stateless reset; of shards that a restart did away with, too.
    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        self.key.may_have_issued(id).then_some(()).ok_or(InvalidCid)
    }

    fn cid_len(&self) -> usize {
        self.key.length.bytes()
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

    fn length(bytes: usize) -> IdLength {
        IdLength::new(bytes).unwrap()
    }

    fn key(reset_key: u8, bytes: usize) -> SteerKey {
        SteerKey::derive(&[reset_key; 64], length(bytes))
    }

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
    fn ids_of_one_shard_and_two_generations_are_told_apart_and_both_are_ours() {
        let key = key(3, 8);
        for number in [0, 1, 15] {
            let generation = Generation::new(number);
            let mut generator = Generator::new(key.clone(), 2, generation, &[0xff; 32]);
            for _ in 0..1_000 {
                let id = generator.next_id();
                assert_eq!(key.names(*id.first_chunk().unwrap()), Some((2, generation)));
                assert!(generator.validate(&id).is_ok());
            }
        }
        assert_eq!(Generation::new(15).next(), Generation::new(0));
    }

    /// QR1-28.
    #[test]
    fn a_million_ids_of_each_length_are_uniform_and_name_their_shard() {
        for bytes in [8, 20] {
            let key = key(3, bytes);
            let mut generators: Vec<_> = (0..16)
                .map(|shard| Generator::new(key.clone(), shard, Generation::default(), &[shard; 32]))
                .collect();
            let mut counts = vec![[0_u32; 256]; bytes];
            let mut seen = std::collections::HashSet::new();
            for number in 0..1_000_000_usize {
                let shard = number % 16;
                let id = generators[shard].generate_cid();
                assert_eq!(id.len(), bytes);
                assert_eq!(key.shard(*id.first_chunk().unwrap()), Some(shard as u8));
                assert!(seen.insert(id), "{id} came twice");
                for (count, byte) in counts.iter_mut().zip(&id[..]) {
                    count[usize::from(*byte)] += 1;
                }
            }
            let expected = 1_000_000.0 / 256.0;
            for (place, count) in counts.iter().enumerate() {
                let chi_square: f64 = count
                    .iter()
                    .map(|count| (f64::from(*count) - expected).powi(2) / expected)
                    .sum();
                assert!(
                    chi_square < CHI_SQUARE_MAX,
                    "byte {place} of {bytes}: {chi_square}"
                );
            }
        }
    }

    /// What a watcher can compute from an ID of quinn-proto's own generator, and what is the same for all IDs of one
    /// endpoint: 3 random bytes, and 5 of FxHash with public constants over a key and these.
    fn hashed_tag(id: &[u8; 8]) -> u64 {
        const SEEDS: [u64; 2] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344];
        /// The inverse of FxHash's multiplier, 0xf1357aea2e62a9c5, modulo 2^14.
        const INVERSE: u64 = 0x2d0d;
        let [n0, n1, n2, signature @ ..] = *id;
        let first = SEEDS[0] ^ u64::from(n0);
        let second = SEEDS[1] ^ (u64::from(n2) << 8 | u64::from(n1));
        let product = u128::from(first) * u128::from(second);
        let of_nonce = (product as u64 ^ (product >> 64) as u64) ^ 3;
        let hash = signature
            .iter()
            .rev()
            .fold(0, |hash, byte| hash << 8 | u64::from(*byte));
        ((hash >> 26 & 0x3fff) * INVERSE).wrapping_sub(of_nonce) & 0x3fff
    }

    /// QR1-28. The detector finds quinn-proto's own generator after a few IDs, and nothing in ours.
    #[test]
    fn no_constant_stands_in_all_ids_of_an_endpoint() {
        let tags = |generator: &mut dyn ConnectionIdGenerator| {
            let blocks = std::iter::repeat_with(|| *generator.generate_cid().first_chunk().unwrap());
            let tags: std::collections::BTreeSet<u64> =
                blocks.take(1_000).map(|block| hashed_tag(&block)).collect();
            tags.len()
        };
        let mut theirs = quinn_proto::HashedConnectionIdGenerator::from_key(0x1234_5678_9abc_def0);
        assert_eq!(tags(&mut theirs), 1, "the detector works");
        for bytes in [8, 20] {
            // 1,000 draws of 16,384 values give 970 different ones on average.
            let found = tags(&mut Generator::new(
                key(3, bytes),
                0,
                Generation::default(),
                &[1; 32],
            ));
            assert!(found > 900, "{found} tags in 1,000 IDs of {bytes} bytes");
        }
    }

    /// QR1-27.
    #[test]
    fn long_and_short_headers_are_read_and_all_else_is_not_ours() {
        for bytes in [8, 15, 20] {
            let key = key(3, bytes);
            let id = Generator::new(key.clone(), 5, Generation::default(), &[1; 32]).generate_cid();
            assert_eq!(shard_of(&key, &long_header(&id)), Some(5));
            assert_eq!(shard_of(&key, &short_header(&id)), Some(5));
            assert_eq!(shard_of(&key, &short_header(&id)[..5 + bytes]), None);
            assert_eq!(shard_of(&key, &[]), None);
            assert_eq!(shard_of(&key, &long_header(&id[..bytes - 1])), None);
            assert_eq!(shard_of(&key, &long_header(&[&id[..], &[0]].concat())), None);
            assert_eq!(shard_of(&self::key(4, bytes), &short_header(&id)), None);
        }
    }

    #[test]
    fn an_endpoint_without_ids_finds_none() {
        let key = SteerKey::derive(&[3; 64], IdLength::NONE);
        let mut generator = Generator::new(key.clone(), 0, Generation::default(), &[1; 32]);
        let id = generator.generate_cid();
        assert!(id.is_empty() && generator.validate(&id).is_err());
        assert_eq!(shard_of(&key, &short_header(&[7; 8])), None);
        assert_eq!(shard_of(&key, &long_header(&[])), None);
    }

    #[test]
    fn only_ids_of_ours_are_worth_a_reset_up_to_their_last_bit() {
        for bytes in [8, 20] {
            let mut generator = Generator::new(key(3, bytes), 5, Generation::default(), &[1; 32]);
            let id = generator.generate_cid();
            assert!(generator.validate(&id).is_ok());
            assert!(
                Generator::new(key(4, bytes), 5, Generation::default(), &[1; 32])
                    .validate(&id)
                    .is_err()
            );
            for bit in 0..8 * bytes {
                let mut other = id.to_vec();
                other[bit / 8] ^= 1 << (bit % 8);
                let other = ConnectionId::new(&other);
                assert!(generator.validate(&other).is_err(), "bit {bit}");
            }
        }
    }

    /// The steering program of `packet-io` is tested with the same key and IDs.
    #[test]
    fn ids_are_as_the_kernels_program_expects_them() {
        let key = SteerKey {
            cipher: Speck::of_the_paper(),
            ..key(3, 8)
        };
        let id = |shard| Generator::new(key.clone(), shard, Generation::default(), &[0; 32]).generate_cid();
        assert_eq!(id(0)[..], [0x1a, 0x0b, 0x1b, 0x2f, 0x6f, 0xe6, 0x94, 0x5d]);
        assert_eq!(id(1)[..], [0xfc, 0xf2, 0x9b, 0xa7, 0x5b, 0x96, 0xf6, 0x51]);
    }
}
