//! What servers and users have: an X25519 key pair, and a pre-shared key under a short name.

use std::collections::BTreeMap;
use std::fmt;

use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey, X25519};
use aws_lc_rs::encoding::{AsBigEndian, Curve25519SeedBin};
use subtle::ConstantTimeEq;

use crate::kdf;

/// Bytes of a user's short name.
pub const SID_BYTES: usize = 8;

/// A server's X25519 key (QR1-1).
pub struct ServerKey {
    private: PrivateKey,
    public: ServerPublicKey,
}

impl ServerKey {
    /// The key of these bytes, which for a new one are random; RFC 7748 section 5 makes a key of any.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        let private = PrivateKey::from_private_key(&X25519, bytes).expect("32 bytes are an X25519 key");
        let computed = private
            .compute_public_key()
            .expect("an X25519 key has a public half");
        let mut public = [0; 32];
        public.copy_from_slice(computed.as_ref());
        Self {
            private,
            public: ServerPublicKey(public),
        }
    }

    /// The bytes it was made of. Secret.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 32] {
        let encoded: Curve25519SeedBin<'_> = self.private.as_be_bytes().expect("an X25519 key has bytes");
        let mut bytes = [0; 32];
        bytes.copy_from_slice(encoded.as_ref());
        bytes
    }

    /// Its public half, which only links tell.
    #[must_use]
    pub fn public(&self) -> &ServerPublicKey {
        &self.public
    }

    /// What it shares with the owner of `ephemeral`, a public key.
    pub(crate) fn agree(&self, ephemeral: &[u8; 32]) -> Option<SharedSecret> {
        agree(&self.private, ephemeral)
    }
}

impl fmt::Debug for ServerKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ServerKey")
    }
}

/// The public half of a server's key. Who has it can find out which hellos are meant for this server if their clients'
/// keys become known, so that it is as secret as a link.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ServerPublicKey(pub [u8; 32]);

impl ServerPublicKey {
    /// What the server shares with the owner of `ephemeral`, an X25519 key; `None` where that is zeros (QR1-4).
    #[must_use]
    pub fn agree(&self, ephemeral: &PrivateKey) -> Option<SharedSecret> {
        agree(ephemeral, &self.0)
    }
}

impl fmt::Debug for ServerPublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ServerPublicKey")
    }
}

/// What X25519 gives to both sides; never zeros.
pub struct SharedSecret([u8; 32]);

impl SharedSecret {
    /// `None` for zeros (QR1-4; RFC 7748 section 6.1): a public key of low order gives them whatever the private one
    /// is.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Option<Self> {
        let is_zero = bytes.ct_eq(&[0; 32]);
        (!bool::from(is_zero)).then_some(Self(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for SharedSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SharedSecret")
    }
}

fn agree(private: &PrivateKey, public: &[u8; 32]) -> Option<SharedSecret> {
    let secret = agreement::agree(private, UnparsedPublicKey::new(&X25519, public), (), |secret| {
        <[u8; 32]>::try_from(secret).map_err(|_| ())
    });
    secret.ok().and_then(SharedSecret::new)
}

/// What a user has (QR1-2).
#[derive(Clone, PartialEq, Eq)]
pub struct UserKey {
    /// The short name by which a server finds the key.
    pub sid: [u8; SID_BYTES],
    psk: [u8; 32],
}

impl UserKey {
    /// Bytes of short name and pre-shared key.
    pub const BYTES: usize = SID_BYTES + 32;

    /// Of the link's token.
    #[must_use]
    pub fn derive(token: &[u8; 32]) -> Self {
        Self::from_bytes(&kdf::expand(
            &kdf::extract(b"qr1 user", token),
            b"qr1 credentials",
        ))
    }

    /// Of what [`Self::to_bytes`] gave.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let (mut sid, mut psk) = ([0; SID_BYTES], [0; 32]);
        sid.copy_from_slice(&bytes[..SID_BYTES]);
        psk.copy_from_slice(&bytes[SID_BYTES..]);
        Self { sid, psk }
    }

    /// Short name and pre-shared key. Secret.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..SID_BYTES].copy_from_slice(&self.sid);
        bytes[SID_BYTES..].copy_from_slice(&self.psk);
        bytes
    }

    pub(crate) fn psk(&self) -> &[u8; 32] {
        &self.psk
    }
}

impl fmt::Debug for UserKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("UserKey")
    }
}

/// Whom a server knows.
pub trait Users {
    /// The user of a short name.
    fn user(&self, sid: &[u8; SID_BYTES]) -> Option<UserKey>;
}

/// One user alone.
impl Users for UserKey {
    fn user(&self, sid: &[u8; SID_BYTES]) -> Option<UserKey> {
        (self.sid == *sid).then(|| self.clone())
    }
}

/// Users by their short names.
impl Users for BTreeMap<[u8; SID_BYTES], UserKey> {
    fn user(&self, sid: &[u8; SID_BYTES]) -> Option<UserKey> {
        self.get(sid).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_same_after_it_was_kept_and_tells_nothing_of_itself() {
        let key = ServerKey::from_bytes(&[0x77; 32]);
        let again = ServerKey::from_bytes(&key.to_bytes());
        assert_eq!(key.public(), again.public());
        let user = UserKey::derive(&[1; 32]);
        assert_eq!(UserKey::from_bytes(&user.to_bytes()), user);
        let shown = format!("{key:?} {:?} {:?}", key.public(), UserKey::derive(&[1; 32]));
        assert_eq!(shown, "ServerKey ServerPublicKey UserKey");
    }

    /// QR1-4. RFC 7748 section 6.1; the points are those of order 1, 2, 4 and 8, and their other encodings
    /// (<https://cr.yp.to/ecdh.html>, "How do I validate Curve25519 public keys?").
    #[test]
    fn points_of_low_order_give_no_secret() {
        let hex = |text: &str| {
            let bytes = data_encoding::HEXLOWER
                .decode(text.as_bytes())
                .expect("hexadecimal");
            <[u8; 32]>::try_from(bytes).expect("32 bytes")
        };
        let order_8 = [
            "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
            "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
        ];
        let mut points: Vec<[u8; 32]> = order_8.map(hex).to_vec();
        let mut small = [0; 32];
        points.push(small);
        small[0] = 1;
        points.push(small);
        // p - 1, p and p + 1.
        for first in [0xec, 0xed, 0xee] {
            let mut point = [0xff; 32];
            (point[0], point[31]) = (first, 0x7f);
            points.push(point);
        }
        let server = ServerKey::from_bytes(&[0x42; 32]);
        for mut point in points {
            assert!(server.agree(&point).is_none(), "{point:02x?}");
            // The highest bit is not part of the number.
            point[31] |= 0x80;
            assert!(server.agree(&point).is_none(), "{point:02x?}");
            let client = PrivateKey::from_private_key(&X25519, &[9; 32]).expect("a key");
            assert!(ServerPublicKey(point).agree(&client).is_none());
        }
        assert!(SharedSecret::new([0; 32]).is_none());
        let mut base = [0; 32];
        base[0] = 9;
        assert!(server.agree(&base).is_some());
    }
}
