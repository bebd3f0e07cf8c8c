//! The exporter of TLS 1.3 from its secret (RFC 8446 section 7.5).

use rustls::Tls13CipherSuite;
use rustls::crypto::tls13::{HkdfExpander, OkmBlock};

/// What each label of TLS 1.3 begins with (RFC 8446 section 7.1).
const LABEL_PREFIX: &[u8] = b"tls13 ";

/// Fills `output`; `None` where it is longer than 255 hashes, or the label than 249 bytes.
pub(super) fn export(
    suite: &Tls13CipherSuite,
    secret: &OkmBlock,
    label: &[u8],
    context: &[u8],
    output: &mut [u8],
) -> Option<()> {
    let (hash, hkdf) = (suite.common.hash_provider, suite.hkdf_provider);
    let mut derived = [0; OkmBlock::MAX_LEN];
    let derived = &mut derived[..hash.output_len()];
    let main = hkdf.expander_for_okm(secret);
    expand_label(&*main, label, hash.hash(&[]).as_ref(), derived)?;
    let of_label = hkdf.expander_for_okm(&OkmBlock::new(derived));
    expand_label(&*of_label, b"exporter", hash.hash(context).as_ref(), output)
}

/// HKDF-Expand-Label (RFC 8446 section 7.1).
fn expand_label(expander: &dyn HkdfExpander, label: &[u8], context: &[u8], output: &mut [u8]) -> Option<()> {
    let length = u16::try_from(output.len()).ok()?.to_be_bytes();
    let label_length = [u8::try_from(LABEL_PREFIX.len() + label.len()).ok()?];
    let context_length = [u8::try_from(context.len()).ok()?];
    let info = [
        &length[..],
        &label_length,
        LABEL_PREFIX,
        label,
        &context_length,
        context,
    ];
    expander.expand_slice(&info, output).ok()
}
