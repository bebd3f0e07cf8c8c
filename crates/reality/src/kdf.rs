//! HKDF (RFC 5869) and HMAC (RFC 2104), both with SHA-256, as the formulas of specs/qr1.md are written.

use aws_lc_rs::{hkdf, hmac};

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Extract.
pub(crate) fn extract(salt: &[u8], input: &[u8]) -> hkdf::Prk {
    hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(input)
}

/// HKDF-Expand.
pub(crate) fn expand<const BYTES: usize>(prk: &hkdf::Prk, info: &[u8]) -> [u8; BYTES] {
    let mut output = [0; BYTES];
    prk.expand(&[info], Length(BYTES))
        .and_then(|okm| okm.fill(&mut output))
        .expect("HKDF-SHA256 gives up to 8,160 bytes");
    output
}

/// HMAC of all parts together.
pub(crate) fn hmac(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    for part in parts {
        context.update(part);
    }
    let mut output = [0; 32];
    output.copy_from_slice(context.sign().as_ref());
    output
}
