//! What two ends with a common key do so that nobody else changes their connection (FTCP-24 to FTCP-28).
//!
//! Each end sends a salt behind the handshake, and the key and both salts give a key for each direction of this
//! connection. A datagram is sealed on its own, because the kernel cuts super-segments: its tag stands behind it in its
//! segment. A segment without payload has its tag in an option. A nonce is the datagram's place in its direction, 64
//! bits long, or a count of segments without payload; neither comes twice, as long as a train that is taken back has
//! not left.

mod proof;

use std::fmt;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::{hkdf, hmac};

use crate::limits::{KEY_BYTES, SALT_BYTES, TAG_BYTES};

pub use proof::Proof;

/// The first byte of a nonce.
const OF_DATAGRAM: u8 = 0;
const OF_SEGMENT: u8 = 1;

/// A secret that both ends have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key(pub [u8; KEY_BYTES]);

impl Key {
    /// How many they are.
    pub const BYTES: usize = KEY_BYTES;
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key")
    }
}

/// What a tag covers of a header. Numbers count from where their direction began, because routers move that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Covered {
    /// Control bits, without PSH, which offloads move.
    pub(crate) flags: u8,
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: u32,
}

impl Covered {
    fn bytes(self) -> [u8; 9] {
        let mut bytes = [self.flags; 9];
        bytes[1..5].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[5..].copy_from_slice(&self.acknowledgement.to_be_bytes());
        bytes
    }
}

/// One direction.
#[derive(Debug)]
struct Direction {
    key: LessSafeKey,
    /// The last place of a datagram, from which others follow although headers have 32 bits of it.
    place: u64,
}

impl Direction {
    /// The place nearest to the last one whose low bits are these.
    fn place(&self, sequence: u32) -> u64 {
        let ahead = sequence.wrapping_sub(self.place as u32) as i32;
        self.place.saturating_add_signed(ahead.into())
    }
}

/// Both directions, as soon as both salts are known.
#[derive(Debug)]
struct Agreed {
    peer_salt: [u8; SALT_BYTES],
    send: Direction,
    receive: Direction,
    /// Segments without payload that left.
    sent: u64,
}

/// One connection's. See the module's text.
#[derive(Debug)]
pub(crate) struct Seal {
    key: Key,
    salt: [u8; SALT_BYTES],
    agreed: Option<Box<Agreed>>,
}

impl Seal {
    /// `salt` is another one for each connection.
    pub(crate) fn new(key: Key, salt: [u8; SALT_BYTES]) -> Self {
        Self {
            key,
            salt,
            agreed: None,
        }
    }

    /// Whether both salts are known.
    pub(crate) fn is_agreed(&self) -> bool {
        self.agreed.is_some()
    }

    /// Our salt, with a tag; that of the passive end covers the other one's salt, too.
    pub(crate) fn hello(&self, is_passive: bool) -> Proof {
        let peer = self.agreed.as_ref().map(|agreed| agreed.peer_salt);
        let peer = peer.filter(|_| is_passive).unwrap_or_default();
        Proof::Hello {
            salt: self.salt,
            tag: self.hello_tag(is_passive, self.salt, peer),
        }
    }

    /// The salt in the hello of a peer that has our key.
    pub(crate) fn salt_of(&self, is_passive: bool, proof: Proof) -> Option<[u8; SALT_BYTES]> {
        let Proof::Hello { salt, tag } = proof else {
            return None;
        };
        let own = if is_passive { [0; SALT_BYTES] } else { self.salt };
        let expected = self.hello_tag(!is_passive, salt, own);
        let is_genuine = aws_lc_rs::constant_time::verify_slices_are_equal(&expected, &tag).is_ok();
        is_genuine.then_some(salt)
    }

    /// Takes the peer's salt; `false` where it has not our key, or has another salt than before.
    pub(crate) fn agree(&mut self, is_passive: bool, proof: Proof) -> bool {
        let Some(salt) = self.salt_of(is_passive, proof) else {
            return false;
        };
        if let Some(agreed) = &self.agreed {
            return agreed.peer_salt == salt;
        }
        let (active, passive) = if is_passive {
            (salt, self.salt)
        } else {
            (self.salt, salt)
        };
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, &[active, passive].concat()).extract(&self.key.0);
        let direction = |name: &[u8]| {
            let info = [name];
            let material = secret.expand(&info, &AES_128_GCM);
            let key = material.expect("a key of 16 bytes is shorter than HKDF's most");
            Direction {
                key: LessSafeKey::new(UnboundKey::from(key)),
                place: 0,
            }
        };
        let (of_active, of_passive) = (
            direction(b"gramway tcp active"),
            direction(b"gramway tcp passive"),
        );
        let (send, receive) = if is_passive {
            (of_passive, of_active)
        } else {
            (of_active, of_passive)
        };
        self.agreed = Some(Box::new(Agreed {
            peer_salt: salt,
            send,
            receive,
            sent: 0,
        }));
        true
    }

    /// Proof of a segment without payload; none before both salts are known.
    pub(crate) fn prove(&mut self, covered: Covered) -> Option<Proof> {
        let agreed = self.agreed.as_mut()?;
        agreed.sent += 1;
        let (nonce, aad) = (nonce(OF_SEGMENT, agreed.sent), Aad::from(covered.bytes()));
        let tag = agreed.send.key.seal_in_place_separate_tag(nonce, aad, &mut []);
        Some(Proof::Control {
            count: agreed.sent,
            tag: tag_bytes(tag),
        })
    }

    /// Whether a segment without payload comes from who has the key.
    pub(crate) fn is_proved(&self, covered: Covered, proof: Proof) -> bool {
        let (Some(agreed), Proof::Control { count, tag }) = (&self.agreed, proof) else {
            return false;
        };
        let (nonce, aad) = (nonce(OF_SEGMENT, count), Aad::from(covered.bytes()));
        let key = &agreed.receive.key;
        key.open_separate_gather(nonce, aad, &[], &tag, &mut []).is_ok()
    }

    /// Appends a datagram, sealed, and its tag; `false` before both salts are known.
    #[must_use]
    pub(crate) fn seal(&mut self, covered: Covered, datagram: &[u8], framed: &mut Vec<u8>) -> bool {
        let Some(agreed) = &mut self.agreed else {
            return false;
        };
        agreed.send.place = agreed.send.place(covered.sequence);
        let (nonce, aad) = (nonce(OF_DATAGRAM, agreed.send.place), Aad::from(covered.bytes()));
        let start = framed.len();
        framed.extend(datagram);
        let key = &agreed.send.key;
        let tag = key.seal_in_place_separate_tag(nonce, aad, &mut framed[start..]);
        framed.extend(tag_bytes(tag));
        true
    }

    /// Opens a datagram with its tag into `opened`; `false` where it is not the peer's.
    pub(crate) fn open(&mut self, covered: Covered, sealed: &[u8], opened: &mut Vec<u8>) -> bool {
        let Some(agreed) = &mut self.agreed else {
            return false;
        };
        let Some((datagram, tag)) = sealed
            .split_last_chunk::<TAG_BYTES>()
            .filter(|(datagram, _)| !datagram.is_empty())
        else {
            return false;
        };
        let place = agreed.receive.place(covered.sequence);
        opened.clear();
        opened.resize(datagram.len(), 0);
        let (nonce, aad) = (nonce(OF_DATAGRAM, place), Aad::from(covered.bytes()));
        let key = &agreed.receive.key;
        let is_genuine = key
            .open_separate_gather(nonce, aad, datagram, tag, opened)
            .is_ok();
        if is_genuine {
            agreed.receive.place = agreed.receive.place.max(place);
        }
        is_genuine
    }

    fn hello_tag(
        &self,
        of_passive: bool,
        salt: [u8; SALT_BYTES],
        answered: [u8; SALT_BYTES],
    ) -> [u8; TAG_BYTES] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.key.0);
        let mut context = hmac::Context::with_key(&key);
        context.update(b"gramway tcp hello");
        context.update(&[u8::from(of_passive)]);
        context.update(&salt);
        context.update(&answered);
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&context.sign().as_ref()[..TAG_BYTES]);
        tag
    }
}

fn nonce(kind: u8, number: u64) -> Nonce {
    let mut bytes = [kind; 12];
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

fn tag_bytes(tag: Result<aws_lc_rs::aead::Tag, aws_lc_rs::error::Unspecified>) -> [u8; TAG_BYTES] {
    let tag = tag.expect("a segment is shorter than AES-GCM's most");
    let mut bytes = [0; TAG_BYTES];
    bytes.copy_from_slice(tag.as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Seal, Seal) {
        let key = Key([7; KEY_BYTES]);
        let (mut active, mut passive) = (Seal::new(key, [1; SALT_BYTES]), Seal::new(key, [2; SALT_BYTES]));
        assert!(passive.agree(true, active.hello(false)));
        assert!(active.agree(false, passive.hello(true)));
        (active, passive)
    }

    fn covered(sequence: u32) -> Covered {
        Covered {
            flags: 0x10,
            sequence,
            acknowledgement: 9,
        }
    }

    /// FTCP-25: the place goes on where the number in the header begins again.
    #[test]
    fn numbers_that_wrap_give_other_nonces() {
        let (mut active, mut passive) = pair();
        let mut seen = Vec::new();
        let mut opened = Vec::new();
        for round in 0..3_u64 {
            for sequence in [0, 1 << 30, 1 << 31, 3 << 30, u32::MAX] {
                let mut sealed = Vec::new();
                assert!(active.seal(covered(sequence), b"datagram", &mut sealed));
                assert!(
                    passive.open(covered(sequence), &sealed, &mut opened),
                    "{round} {sequence}"
                );
                assert_eq!(opened, b"datagram");
                assert!(!seen.contains(&sealed), "{round} {sequence}");
                seen.push(sealed);
            }
            assert_eq!(passive.agreed.as_ref().unwrap().receive.place >> 32, round);
        }
        // A late one from before the wrap.
        let mut sealed = Vec::new();
        assert!(active.seal(covered(u32::MAX - 100), b"late", &mut sealed));
        assert!(active.seal(covered(5), b"next", &mut Vec::new()));
        assert!(passive.open(covered(u32::MAX - 100), &sealed, &mut opened));
    }

    /// FTCP-24: whoever repeats an old salt gets other keys, because the answer has a new one.
    #[test]
    fn a_salt_of_an_earlier_connection_opens_nothing_of_a_later_one() {
        let (mut active, _) = pair();
        let mut later = Seal::new(Key([7; KEY_BYTES]), [3; SALT_BYTES]);
        assert!(later.agree(true, active.hello(false)));
        let mut sealed = Vec::new();
        assert!(active.seal(covered(1), b"datagram", &mut sealed));
        assert!(!later.open(covered(1), &sealed, &mut Vec::new()));
        // Nor is an answer taken that was meant for another salt.
        let mut other = Seal::new(Key([7; KEY_BYTES]), [4; SALT_BYTES]);
        assert!(!other.agree(false, later.hello(true)));
        // Nor our own words.
        let own = other.hello(false);
        assert!(!other.agree(false, own) && !other.agree(true, later.hello(true)));
    }

    /// FTCP-25, FTCP-26.
    #[test]
    fn nothing_that_was_changed_is_opened() {
        let (mut active, mut passive) = pair();
        let mut sealed = Vec::new();
        assert!(active.seal(covered(100), b"datagram", &mut sealed));
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(!passive.open(covered(100), &changed, &mut Vec::new()), "{at}");
        }
        let other = |change: fn(&mut Covered)| {
            let mut covered = covered(100);
            change(&mut covered);
            covered
        };
        for changed in [
            other(|covered| covered.flags |= 1),
            other(|covered| covered.sequence += 1),
            other(|covered| covered.acknowledgement += 1),
        ] {
            assert!(!passive.open(changed, &sealed, &mut Vec::new()));
            let proof = active.prove(covered(100)).unwrap();
            assert!(passive.is_proved(covered(100), proof) && !passive.is_proved(changed, proof));
            assert!(!active.is_proved(covered(100), proof), "the other direction");
        }
        for cut in 0..=TAG_BYTES {
            assert!(!passive.open(covered(100), &sealed[..cut], &mut Vec::new()));
        }
    }
}
