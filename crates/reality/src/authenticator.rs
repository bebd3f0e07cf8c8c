//! The 32 bytes in a hello's random by which a server recognises its clients, and the keys that follow from them
//! (specs/qr1.md, "The client's hello"). Nobody else can tell them from random ones.
//!
//! The first half is a header, enciphered as one block: no nonce is needed, because the key is new for every hello. The
//! second half is a MAC over the first, the hello, the connection ID and the version, under a key that only this user
//! and the server have.

use std::time::Duration;

use aws_lc_rs::cipher::{AES_256, DecryptingKey, DecryptionContext, EncryptingKey, UnboundCipherKey};
use aws_lc_rs::digest;
use aws_lc_rs::hkdf::Prk;
use subtle::ConstantTimeEq;

use crate::client_hello::{ClientHello, HelloError};
use crate::credentials::{SID_BYTES, ServerKey, ServerPublicKey, SharedSecret, UserKey, Users};
use crate::kdf;
use crate::limits::SERVER_KEYS_MAX;

/// Bytes of each half of the random.
const HALF_BYTES: usize = 16;
/// Of the header.
const VERSION: u8 = 1;

/// What the authenticator covers besides the hello.
#[derive(Clone, Copy, Debug)]
pub struct Binding<'a> {
    /// QUIC's version.
    pub version: u32,
    /// Destination connection ID of the client's first Initial, at most 20 bytes.
    pub destination_id: &'a [u8],
}

/// What client and server share of one connection once the server has recognised the hello.
#[derive(Clone)]
pub struct ChannelKeys {
    server: [u8; 32],
    channel: [u8; 32],
    transcript: [u8; 32],
    tag: [u8; HALF_BYTES],
}

impl ChannelKeys {
    /// The server's proof in its certificate (QR1-15): `spki` is the DER of its SubjectPublicKeyInfo.
    #[must_use]
    pub fn certificate_proof(&self, spki: &[u8]) -> [u8; 32] {
        kdf::hmac(&self.server, &[b"qr1 cert", spki, &self.tag])
    }

    /// What the client's first request carries (QR1-17); `exporter` is TLS's, with [`Self::transcript`] as its context.
    #[must_use]
    pub fn channel_binding(&self, exporter: &[u8; 32]) -> [u8; 32] {
        kdf::hmac(&self.channel, &[exporter])
    }

    /// `th` of QR1-5.
    #[must_use]
    pub fn transcript(&self) -> &[u8; 32] {
        &self.transcript
    }

    /// `T` of QR1-5, by which the replay window knows the hello.
    #[must_use]
    pub fn tag(&self) -> &[u8; HALF_BYTES] {
        &self.tag
    }
}

impl std::fmt::Debug for ChannelKeys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ChannelKeys")
    }
}

/// Whose hello it is.
#[derive(Clone, Debug)]
pub struct Recognised {
    /// The user's short name.
    pub sid: [u8; SID_BYTES],
    /// The client's clock, in seconds of Unix time.
    pub time: u32,
    /// The keys of the connection.
    pub keys: ChannelKeys,
}

/// The client's part: the random for `hello`, a whole ClientHello message whose random may be anything, and the keys.
/// `shared` belongs to `server` and the hello's X25519 key.
pub fn seal(
    hello: &[u8],
    binding: &Binding<'_>,
    shared: &SharedSecret,
    server: &ServerPublicKey,
    user: &UserKey,
    unix_seconds: u32,
) -> Result<([u8; 32], ChannelKeys), HelloError> {
    let hello = ClientHello::parse(hello)?;
    let ephemeral = hello.x25519_share().ok_or(HelloError::NoShare)?;
    let transcript = transcript(&hello, binding);
    let prk = connection_key(&transcript, shared, ephemeral, server);
    let mut header = [0; HALF_BYTES];
    header[0] = VERSION << 4;
    header[4..8].copy_from_slice(&unix_seconds.to_be_bytes());
    header[8..].copy_from_slice(&user.sid);
    encipher(&prk, &mut header);
    let keys = channel_keys(&prk, user, &header, transcript);
    let mut random = [0; 32];
    random[..HALF_BYTES].copy_from_slice(&header);
    random[HALF_BYTES..].copy_from_slice(&keys.tag);
    Ok((random, keys))
}

/// The server's part, the steps of QR1-7 but the replay window: whose hello it is. `keys` are the present one and the
/// one before it, `window` is how far the client's clock may be off, either way.
#[must_use]
pub fn open(
    hello: &ClientHello<'_>,
    binding: &Binding<'_>,
    keys: &[ServerKey],
    users: &impl Users,
    now_unix: u32,
    window: Duration,
) -> Option<Recognised> {
    let ephemeral = hello.x25519_share()?;
    let transcript = transcript(hello, binding);
    let (enciphered, tag) = hello.random().split_first_chunk::<HALF_BYTES>()?;
    keys.iter().take(SERVER_KEYS_MAX).find_map(|key| {
        let prk = connection_key(&transcript, &key.agree(ephemeral)?, ephemeral, key.public());
        let mut header = *enciphered;
        decipher(&prk, &mut header);
        let (time, user) = read_header(&header, users)?;
        if u64::from(time.abs_diff(now_unix)) > window.as_secs() {
            return None;
        }
        let keys = channel_keys(&prk, &user, enciphered, transcript);
        bool::from(keys.tag[..].ct_eq(tag)).then_some(Recognised {
            sid: user.sid,
            time,
            keys,
        })
    })
}

/// Time and user of a header; flags and feature may be anything.
fn read_header(header: &[u8; HALF_BYTES], users: &impl Users) -> Option<(u32, UserKey)> {
    let [first, _feature, 0, 0, t0, t1, t2, t3, sid @ ..] = *header else {
        return None;
    };
    let user = (first >> 4 == VERSION).then(|| users.user(&sid)).flatten()?;
    Some((u32::from_be_bytes([t0, t1, t2, t3]), user))
}

/// `th`.
fn transcript(hello: &ClientHello<'_>, binding: &Binding<'_>) -> [u8; 32] {
    let (message, random) = (hello.message(), hello.random_range());
    let mut hash = digest::Context::new(&digest::SHA256);
    hash.update(b"qr1 ch");
    hash.update(&binding.version.to_be_bytes());
    hash.update(&[binding.destination_id.len() as u8]);
    hash.update(binding.destination_id);
    hash.update(&message[..random.start]);
    hash.update(&[0; 32]);
    hash.update(&message[random.end..]);
    let mut output = [0; 32];
    output.copy_from_slice(hash.finish().as_ref());
    output
}

/// `prk`.
fn connection_key(
    transcript: &[u8; 32],
    shared: &SharedSecret,
    ephemeral: &[u8; 32],
    server: &ServerPublicKey,
) -> Prk {
    kdf::extract(transcript, &[*shared.bytes(), *ephemeral, server.0].concat())
}

/// Everything below `prk2`.
fn channel_keys(
    prk: &Prk,
    user: &UserKey,
    enciphered: &[u8; HALF_BYTES],
    transcript: [u8; 32],
) -> ChannelKeys {
    let prk = kdf::extract(&kdf::expand::<32>(prk, b"qr1 salt"), user.psk());
    let mac = kdf::hmac(&kdf::expand(&prk, b"qr1 client"), &[enciphered, &transcript]);
    let mut tag = [0; HALF_BYTES];
    tag.copy_from_slice(&mac[..HALF_BYTES]);
    ChannelKeys {
        server: kdf::expand(&prk, b"qr1 server"),
        channel: kdf::expand(&prk, b"qr1 channel"),
        transcript,
        tag,
    }
}

/// The block cipher of the header.
fn header_cipher(prk: &Prk) -> UnboundCipherKey {
    UnboundCipherKey::new(&AES_256, &kdf::expand::<32>(prk, b"qr1 hdr"))
        .expect("AES-256 has keys of 32 bytes")
}

fn encipher(prk: &Prk, header: &mut [u8; HALF_BYTES]) {
    EncryptingKey::ecb(header_cipher(prk))
        .and_then(|key| key.encrypt(header))
        .expect("the header is one block");
}

fn decipher(prk: &Prk, header: &mut [u8; HALF_BYTES]) {
    DecryptingKey::ecb(header_cipher(prk))
        .and_then(|key| key.decrypt(header, DecryptionContext::None).map(drop))
        .expect("the header is one block");
}

#[cfg(test)]
mod tests;
