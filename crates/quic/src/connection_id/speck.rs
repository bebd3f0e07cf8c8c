//! Speck64/128 (Beaulieu and others, "The SIMON and SPECK Families of Lightweight Block Ciphers", 2013).

/// Rounds, and so round keys.
pub(crate) const ROUNDS: usize = 27;

/// A key, expanded.
#[derive(Clone)]
pub(crate) struct Speck {
    /// In the order of enciphering.
    pub(crate) round_keys: [u32; ROUNDS],
}

impl Speck {
    /// Of a key whose words are little-endian, the one that comes first in the schedule at the front.
    pub(crate) fn new(key: [u8; 16]) -> Self {
        let word = |index: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| key[4 * index + byte]));
        Self::from_words([word(0), word(1), word(2), word(3)])
    }

    /// The key schedule; `first` is the round key that comes first, the last word of the paper's notation.
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

    pub(crate) fn encipher(&self, block: u64) -> u64 {
        let words = ((block >> 32) as u32, block as u32);
        let (x, y) = self
            .round_keys
            .iter()
            .fold(words, |(x, y), key| encipher_round(x, y, *key));
        u64::from(x) << 32 | u64::from(y)
    }

    pub(crate) fn decipher(&self, block: u64) -> u64 {
        let (mut x, mut y) = ((block >> 32) as u32, block as u32);
        for key in self.round_keys.iter().rev() {
            y = (y ^ x).rotate_right(3);
            x = (x ^ key).wrapping_sub(y).rotate_left(8);
        }
        u64::from(x) << 32 | u64::from(y)
    }

    /// With the key of the paper's test vector.
    #[cfg(test)]
    pub(crate) fn of_the_paper() -> Self {
        Self::from_words([0x0302_0100, 0x0b0a_0908, 0x1312_1110, 0x1b1a_1918])
    }
}

fn encipher_round(x: u32, y: u32, key: u32) -> (u32, u32) {
    let x = x.rotate_right(8).wrapping_add(y) ^ key;
    (x, y.rotate_left(3) ^ x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cipher_is_the_one_of_the_paper() {
        let (cipher, clear, sealed) = (
            Speck::of_the_paper(),
            0x3b72_6574_7475_432d,
            0x8c6f_a548_454e_028b,
        );
        assert_eq!(cipher.encipher(clear), sealed);
        assert_eq!(cipher.decipher(sealed), clear);
    }
}
