//! What a segment without payload says to who has the key: an option in the form of TCP-AO (RFC 5925 section 2.2),
//! which has a MAC of any length.

use crate::limits::{SALT_BYTES, TAG_BYTES};
use crate::profile::OptionBytes;

/// The kind of TCP-AO.
const KIND: u8 = 29;

/// Bytes before the MAC: kind, length and the two key IDs, which are zero.
const HEAD_BYTES: usize = 4;

/// See the module's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proof {
    /// Nothing.
    #[default]
    None,
    /// The sender's salt, with which the keys begin.
    Hello {
        /// Random, another one for each connection.
        salt: [u8; SALT_BYTES],
        /// By the common key.
        tag: [u8; TAG_BYTES],
    },
    /// The segment is the sender's.
    Control {
        /// How many such segments it has sent.
        count: u64,
        /// By the key of the direction.
        tag: [u8; TAG_BYTES],
    },
}

impl Proof {
    /// Reads the options of a segment without SYN.
    pub(crate) fn parse(mut options: &[u8]) -> Self {
        while let [kind, rest @ ..] = options {
            options = match (*kind, rest) {
                (0, _) => break,
                (1, _) => rest,
                (KIND, [length, ..]) => {
                    let mac = options.get(HEAD_BYTES..usize::from(*length));
                    return mac.map_or(Self::None, Self::of);
                }
                (_, [length, ..]) if *length >= 2 => options.get(usize::from(*length)..).unwrap_or_default(),
                _ => break,
            };
        }
        Self::None
    }

    fn of(mac: &[u8]) -> Self {
        let Some((said, tag)) = mac.split_last_chunk::<TAG_BYTES>() else {
            return Self::None;
        };
        if let Ok(salt) = <[u8; SALT_BYTES]>::try_from(said) {
            return Self::Hello { salt, tag: *tag };
        }
        <[u8; 8]>::try_from(said).map_or(Self::None, |count| Self::Control {
            count: u64::from_be_bytes(count),
            tag: *tag,
        })
    }

    /// The option, or none.
    pub(crate) fn option(self) -> OptionBytes {
        let mut option = OptionBytes::default();
        let mut write = |said: &[u8], tag: &[u8]| {
            let length = HEAD_BYTES + said.len() + tag.len();
            option.push(&[KIND, length as u8, 0, 0]);
            option.push(said);
            option.push(tag);
        };
        match self {
            Self::None => {}
            Self::Hello { salt, tag } => write(&salt, &tag),
            Self::Control { count, tag } => write(&count.to_be_bytes(), &tag),
        }
        option
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// FTCP-24, FTCP-26.
    #[test]
    fn a_proof_is_an_option_of_whole_words_that_is_found_again() {
        let hello = Proof::Hello {
            salt: [3; SALT_BYTES],
            tag: [4; TAG_BYTES],
        };
        let control = Proof::Control {
            count: 1 << 40,
            tag: [5; TAG_BYTES],
        };
        for (proof, bytes) in [(hello, 36), (control, 28), (Proof::None, 0)] {
            let option = proof.option();
            assert_eq!(option.as_slice().len(), bytes);
            assert_eq!(Proof::parse(option.as_slice()), proof);
            let behind_others = [&[1, 8, 4, 0, 0][..], option.as_slice()].concat();
            assert_eq!(Proof::parse(&behind_others), proof);
        }
    }

    proptest! {
        #[test]
        fn random_options_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Proof::parse(&bytes);
        }
    }
}
