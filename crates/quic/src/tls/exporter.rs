//! The exporter of TLS 1.3 from its secret (RFC 8446 section 7.5).

use rustls::Tls13CipherSuite;
use rustls::crypto::tls13::OkmBlock;

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
    let main = hkdf.expander_for_okm(secret);
    let of_label = with_info(hash.output_len(), label, hash.hash(&[]).as_ref(), |info| {
        main.expand_block(info)
    })?;
    let of_label = hkdf.expander_for_okm(&of_label);
    with_info(output.len(), b"exporter", hash.hash(context).as_ref(), |info| {
        of_label.expand_slice(info, output).ok()
    })?
}

/// HKDF-Expand-Label of so many bytes, by what expands HKDF's info (RFC 8446 section 7.1).
fn with_info<T>(bytes: usize, label: &[u8], context: &[u8], expand: impl FnOnce(&[&[u8]]) -> T) -> Option<T> {
    let length = u16::try_from(bytes).ok()?.to_be_bytes();
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
    Some(expand(&info))
}
