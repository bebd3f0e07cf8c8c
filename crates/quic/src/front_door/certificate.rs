//! The server's certificate: one for each connection, of a key and a length that stay, with the proof in an extension
//! (QR1-15). Nobody checks its signature, names and dates, so that only the proof is written anew.

use std::ops::{Range, RangeInclusive};

use rcgen::{CertificateParams, CustomExtension, KeyPair, PKCS_ECDSA_P256_SHA256, SerialNumber};
use rustls::crypto::SecureRandom;

use crate::error::ConfigurationError;
use crate::limits::CERTIFICATE_MESSAGE_BYTES_MAX;

/// Bytes of a proof.
pub(super) const PROOF_BYTES: usize = 32;

/// The extension's object identifier: 2.25 stands before numbers that were chosen at random (ITU-T X.667).
const EXTENSION: [u64; 3] = [2, 25, 0x3d1c_9c64_52a7_e0b1];

/// The same in DER, without tag and length (ITU-T X.690 section 8.19).
const EXTENSION_DER: [u8; 10] = [0x69, 0xbd, 0x8e, 0xa7, 0x8c, 0xc5, 0x95, 0x9f, 0xc1, 0x31];

/// A Certificate message around one certificate without extensions of TLS (RFC 8446 sections 4 and 4.4.2): type and length,
/// request context, length of the list, length of the certificate, length of its extensions.
const AROUND_BYTES: usize = 4 + 1 + 3 + 3 + 2;

/// Bytes of serial numbers that are tried where lengths in front of lengths leave a total out.
const SERIAL_BYTES: RangeInclusive<usize> = 8..=12;

/// Certificates that are issued at most until one has the length: the signature's varies by up to four bytes.
const ATTEMPTS_MAX: usize = 64;

/// Tags of DER.
const SEQUENCE: u8 = 0x30;
const EXTENSIONS: u8 = 0xa3;
const OBJECT_IDENTIFIER: u8 = 0x06;
const OCTET_STRING: u8 = 0x04;

/// A certificate that lacks its proof.
pub(super) struct Template {
    certificate: Vec<u8>,
    proof_at: usize,
}

impl Template {
    /// A certificate of `key` whose Certificate message has `message_bytes`.
    ///
    /// # Errors
    /// [`ConfigurationError::Cover`] where it cannot have so few, or more than [`CERTIFICATE_MESSAGE_BYTES_MAX`].
    pub(super) fn new(
        key: &KeyPair,
        message_bytes: usize,
        random: &dyn SecureRandom,
    ) -> Result<Self, ConfigurationError> {
        let impossible =
            || ConfigurationError::Cover(format!("its Certificate message has {message_bytes} bytes"));
        if message_bytes > CERTIFICATE_MESSAGE_BYTES_MAX {
            return Err(impossible());
        }
        let wanted = message_bytes.saturating_sub(AROUND_BYTES);
        let mut serials = SERIAL_BYTES;
        let found = serials.find_map(|serial| Self::of_length(key, serial, wanted, random).transpose());
        found.ok_or_else(impossible)?
    }

    /// One of exactly `wanted` bytes, where this length of the serial number leads to one.
    fn of_length(
        key: &KeyPair,
        serial_bytes: usize,
        wanted: usize,
        random: &dyn SecureRandom,
    ) -> Result<Option<Self>, ConfigurationError> {
        let mut content = vec![0; PROOF_BYTES];
        for _ in 0..ATTEMPTS_MAX {
            let certificate = issue(key, serial_bytes, &content, random)?;
            if certificate.len() == wanted {
                let place = extension(&certificate).expect("it was issued with the extension");
                let proof_at = place.start;
                return Ok(Some(Self {
                    certificate,
                    proof_at,
                }));
            }
            let bytes = (content.len() + wanted).checked_sub(certificate.len());
            let Some(bytes) = bytes.filter(|bytes| *bytes >= PROOF_BYTES) else {
                break;
            };
            content.resize(bytes, 0);
            let filled = random.fill(&mut content[PROOF_BYTES..]);
            filled.map_err(|_| ConfigurationError::Certificate("no random numbers".to_owned()))?;
        }
        Ok(None)
    }

    /// The certificate with `proof`, DER.
    pub(super) fn with_proof(&self, proof: &[u8; PROOF_BYTES]) -> Vec<u8> {
        let mut certificate = self.certificate.clone();
        certificate[self.proof_at..self.proof_at + PROOF_BYTES].copy_from_slice(proof);
        certificate
    }
}

fn issue(
    key: &KeyPair,
    serial_bytes: usize,
    content: &[u8],
    random: &dyn SecureRandom,
) -> Result<Vec<u8>, ConfigurationError> {
    let refused = |error: rcgen::Error| ConfigurationError::Certificate(error.to_string());
    let mut serial = vec![0; serial_bytes];
    random
        .fill(&mut serial)
        .map_err(|_| ConfigurationError::Certificate("no random numbers".to_owned()))?;
    // Positive, and as long as it is.
    serial[0] = serial[0] & 0x7f | 0x40;
    let mut parameters = CertificateParams::new(Vec::new()).map_err(refused)?;
    parameters.serial_number = Some(SerialNumber::from(serial));
    let extension = CustomExtension::from_oid_content(&EXTENSION, content.to_vec());
    parameters.custom_extensions = vec![extension];
    let certificate = parameters.self_signed(key).map_err(refused)?;
    Ok(certificate.der().to_vec())
}

/// A fresh key for certificates.
pub(super) fn key() -> Result<KeyPair, ConfigurationError> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
        .map_err(|error| ConfigurationError::Certificate(error.to_string()))
}

/// The proof in a certificate that somebody sent, where there is one.
pub(super) fn proof(certificate: &[u8]) -> Option<&[u8; PROOF_BYTES]> {
    certificate[extension(certificate)?].first_chunk()
}

/// Where the extension's content lies in a certificate (RFC 5280 section 4.1).
fn extension(certificate: &[u8]) -> Option<Range<usize>> {
    let all = Elements::new(certificate, 0..certificate.len());
    let (_, whole) = all.clone().find(|(tag, _)| *tag == SEQUENCE)?;
    let (_, to_be_signed) = all.within(whole).find(|(tag, _)| *tag == SEQUENCE)?;
    let (_, tagged) = all.within(to_be_signed).find(|(tag, _)| *tag == EXTENSIONS)?;
    let (_, list) = all.within(tagged).find(|(tag, _)| *tag == SEQUENCE)?;
    all.within(list)
        .find_map(|(_, extension)| {
            let mut parts = all.within(extension);
            let (tag, identifier) = parts.next()?;
            let is_ours = tag == OBJECT_IDENTIFIER && certificate[identifier] == EXTENSION_DER;
            is_ours
                .then(|| parts.find(|(tag, _)| *tag == OCTET_STRING))
                .flatten()
        })
        .map(|(_, content)| content)
}

/// Tags and contents of DER's elements, one behind the other.
#[derive(Clone)]
struct Elements<'a> {
    bytes: &'a [u8],
    rest: Range<usize>,
}

impl<'a> Elements<'a> {
    fn new(bytes: &'a [u8], rest: Range<usize>) -> Self {
        Self { bytes, rest }
    }

    /// Those inside of the content of one of them.
    fn within(&self, content: Range<usize>) -> Self {
        Self::new(self.bytes, content)
    }
}

impl Iterator for Elements<'_> {
    type Item = (u8, Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        let [tag, first, rest @ ..] = self.bytes.get(self.rest.clone())? else {
            return None;
        };
        let (length, header) = match first {
            0..=0x7f => (usize::from(*first), 2),
            0x81 => (usize::from(*rest.first()?), 3),
            0x82 => (usize::from(u16::from_be_bytes(*rest.first_chunk()?)), 4),
            _ => return None,
        };
        let start = self.rest.start + header;
        let end = start.checked_add(length).filter(|end| *end <= self.rest.end)?;
        self.rest.start = end;
        Some((*tag, start..end))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustls::crypto::aws_lc_rs::default_provider;

    use super::*;

    /// QR1-15.
    #[test]
    fn every_length_of_the_message_that_a_cover_may_have_is_met_exactly() {
        let (key, provider) = (key().unwrap(), default_provider());
        let least = *reality::limits::COVER_CERTIFICATE_BYTES.start();
        for wanted in (least..560).chain([700, 800, 2_000, 4_711, 16_000, CERTIFICATE_MESSAGE_BYTES_MAX]) {
            let template = Template::new(&key, wanted, provider.secure_random).unwrap();
            let certificate = template.with_proof(&[0xab; PROOF_BYTES]);
            assert_eq!(certificate.len() + AROUND_BYTES, wanted);
            assert_eq!(proof(&certificate), Some(&[0xab; PROOF_BYTES]));
            let parsed = rustls::pki_types::CertificateDer::from(&certificate[..]);
            webpki::EndEntityCert::try_from(&parsed).unwrap();
        }
    }

    #[test]
    fn a_length_that_no_certificate_has_is_refused() {
        let (key, provider) = (key().unwrap(), default_provider());
        for wanted in [0, 13, 300, CERTIFICATE_MESSAGE_BYTES_MAX + 1, usize::MAX] {
            assert!(
                Template::new(&key, wanted, provider.secure_random).is_err(),
                "{wanted}"
            );
        }
    }

    #[test]
    fn the_padding_does_not_compress() {
        let (key, provider) = (key().unwrap(), default_provider());
        let template = Template::new(&key, 4_000, provider.secure_random).unwrap();
        let content = &template.certificate[extension(&template.certificate).unwrap()][PROOF_BYTES..];
        let values: std::collections::BTreeSet<u8> = content.iter().copied().collect();
        assert!(
            content.len() > 3_000 && values.len() > 250,
            "{} values",
            values.len()
        );
    }

    #[test]
    fn a_certificate_without_the_extension_has_no_proof() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        assert_eq!(proof(made.cert.der()), None);
        assert_eq!(proof(&[]), None);
    }

    proptest! {
        #[test]
        fn damaged_certificates_are_read_without_panic(
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
            end in any::<prop::sample::Index>(),
        ) {
            thread_local! {
                static CERTIFICATE: Vec<u8> = {
                    let random = default_provider().secure_random;
                    Template::new(&key().unwrap(), 600, random).unwrap().with_proof(&[1; PROOF_BYTES])
                };
            }
            let mut damaged = CERTIFICATE.with(Clone::clone);
            for (place, value) in flips {
                let place = place.index(damaged.len());
                damaged[place] = value;
            }
            let _ = proof(&damaged);
            let _ = proof(&damaged[..end.index(damaged.len())]);
        }
    }
}
