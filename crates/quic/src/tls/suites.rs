//! The cipher suites of a provider without what QUIC does not use: rustls makes keys of TLS records, which QUIC has none
//! of (RFC 9001 section 4), and the packet keys of an update that may never come (section 6). Each would be an expanded
//! AEAD key of 600 bytes, and the time to expand it. What is not packets is ring's for both libraries: a key of header
//! protection is half as long as that of aws-lc, which could decrypt, too, and its hashes and HKDF make no contexts on
//! the heap.

use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};

use rustls::crypto::CipherSuiteCommon;
use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, InboundPlainMessage, Iv, MessageDecrypter, MessageEncrypter,
    OutboundOpaqueMessage, OutboundPlainMessage, Tls13AeadAlgorithm, UnsupportedOperationError,
};
use rustls::crypto::{aws_lc_rs, ring};
use rustls::quic::{Algorithm, HeaderProtectionKey, PacketKey, Tag};
use rustls::{ConnectionTrafficSecrets, Error, SupportedCipherSuite, Tls13CipherSuite};

use crate::config::Aead;

/// All suites of TLS 1.3 that the library has.
pub(crate) fn suites(aead: Aead) -> impl Iterator<Item = &'static Tls13CipherSuite> {
    static AWS_LC: LazyLock<Vec<Tls13CipherSuite>> = LazyLock::new(|| lean(aws_lc_rs::ALL_CIPHER_SUITES));
    static RING: LazyLock<Vec<Tls13CipherSuite>> = LazyLock::new(|| lean(ring::ALL_CIPHER_SUITES));
    match aead {
        Aead::AwsLc => AWS_LC.iter(),
        Aead::Ring => RING.iter(),
    }
}

fn lean(suites: &[SupportedCipherSuite]) -> Vec<Tls13CipherSuite> {
    let suites = suites.iter().filter_map(SupportedCipherSuite::tls13);
    let lean = |suite: &Tls13CipherSuite| {
        let small = of_ring(suite).unwrap_or(suite);
        Tls13CipherSuite {
            common: CipherSuiteCommon {
                suite: suite.common.suite,
                hash_provider: small.common.hash_provider,
                confidentiality_limit: suite.common.confidentiality_limit,
            },
            hkdf_provider: small.hkdf_provider,
            aead_alg: Box::leak(Box::new(NoRecords(suite.aead_alg))),
            quic: suite.quic.map(|packets| {
                let headers = small.quic.unwrap_or(packets);
                &*Box::leak(Box::new(OnDemand { packets, headers })) as &dyn Algorithm
            }),
        }
    };
    suites.map(lean).collect()
}

/// The same suite by ring.
fn of_ring(suite: &Tls13CipherSuite) -> Option<&'static Tls13CipherSuite> {
    let mut suites = ring::ALL_CIPHER_SUITES.iter();
    let same = suites.find(|entry| entry.suite() == suite.common.suite);
    same.and_then(SupportedCipherSuite::tls13)
}

/// Makes no keys for TLS records.
struct NoRecords(&'static dyn Tls13AeadAlgorithm);

impl Tls13AeadAlgorithm for NoRecords {
    fn encrypter(&self, _: AeadKey, _: Iv) -> Box<dyn MessageEncrypter> {
        Box::new(NoRecord)
    }

    fn decrypter(&self, _: AeadKey, _: Iv) -> Box<dyn MessageDecrypter> {
        Box::new(NoRecord)
    }

    fn key_len(&self) -> usize {
        self.0.key_len()
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.0.extract_keys(key, iv)
    }

    fn fips(&self) -> bool {
        self.0.fips()
    }
}

/// In place of a record's key.
struct NoRecord;

impl MessageEncrypter for NoRecord {
    fn encrypt(&mut self, _: OutboundPlainMessage<'_>, _: u64) -> Result<OutboundOpaqueMessage, Error> {
        Err(Error::EncryptError)
    }

    fn encrypted_payload_len(&self, payload_len: usize) -> usize {
        payload_len
    }
}

impl MessageDecrypter for NoRecord {
    fn decrypt<'a>(&mut self, _: InboundOpaqueMessage<'a>, _: u64) -> Result<InboundPlainMessage<'a>, Error> {
        Err(Error::DecryptError)
    }
}

/// Expands packet keys when they are used.
struct OnDemand {
    packets: &'static dyn Algorithm,
    headers: &'static dyn Algorithm,
}

impl Algorithm for OnDemand {
    fn packet_key(&self, key: AeadKey, iv: Iv) -> Box<dyn PacketKey> {
        Box::new(Unexpanded {
            algorithm: self.packets,
            secret: Mutex::new(Some((key, iv))),
            expanded: OnceLock::new(),
        })
    }

    fn header_protection_key(&self, key: AeadKey) -> Box<dyn HeaderProtectionKey> {
        self.headers.header_protection_key(key)
    }

    fn aead_key_len(&self) -> usize {
        self.packets.aead_key_len()
    }

    fn fips(&self) -> bool {
        self.packets.fips()
    }
}

/// A packet key, expanded by its first use.
struct Unexpanded {
    algorithm: &'static dyn Algorithm,
    /// Until it is expanded.
    secret: Mutex<Option<(AeadKey, Iv)>>,
    expanded: OnceLock<Box<dyn PacketKey>>,
}

impl Unexpanded {
    fn key(&self) -> &dyn PacketKey {
        let expand = || {
            let secret = self.secret.lock().unwrap_or_else(PoisonError::into_inner).take();
            let (key, iv) = secret.expect("it is taken once");
            self.algorithm.packet_key(key, iv)
        };
        self.expanded.get_or_init(expand).as_ref()
    }
}

impl PacketKey for Unexpanded {
    fn encrypt_in_place(&self, packet_number: u64, header: &[u8], payload: &mut [u8]) -> Result<Tag, Error> {
        self.key().encrypt_in_place(packet_number, header, payload)
    }

    fn decrypt_in_place<'a>(
        &self,
        packet_number: u64,
        header: &[u8],
        payload: &'a mut [u8],
    ) -> Result<&'a [u8], Error> {
        self.key().decrypt_in_place(packet_number, header, payload)
    }

    fn tag_len(&self) -> usize {
        self.key().tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.key().confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.key().integrity_limit()
    }
}

#[cfg(test)]
mod tests {
    use rustls::Side;
    use rustls::quic::{Suite, Version};

    use super::*;

    #[test]
    fn headers_are_masked_as_the_library_masks_them() {
        for (aead, library) in [
            (Aead::AwsLc, aws_lc_rs::ALL_CIPHER_SUITES),
            (Aead::Ring, ring::ALL_CIPHER_SUITES),
        ] {
            for suite in suites(aead) {
                let same = library.iter().find(|entry| entry.suite() == suite.common.suite);
                let original = same.and_then(SupportedCipherSuite::tls13).unwrap();
                let keys = |suite: &'static Tls13CipherSuite| {
                    let quic = suite.quic.unwrap();
                    Suite { suite, quic }.keys(&[7; 8], Side::Client, Version::V1)
                };
                let (ours, theirs) = (keys(suite).local.header, keys(original).local.header);
                let (sample, clear) = ([9; 16], (0x43, [1, 2, 3, 4]));
                let masked = |key: &dyn HeaderProtectionKey| {
                    let (mut first, mut number) = clear;
                    key.encrypt_in_place(&sample, &mut first, &mut number).unwrap();
                    (first, number)
                };
                assert_eq!(masked(&*ours), masked(&*theirs));
                let (mut first, mut number) = masked(&*theirs);
                assert_ne!((first, number), clear);
                ours.decrypt_in_place(&sample, &mut first, &mut number).unwrap();
                assert_eq!((first, number), clear);
            }
        }
    }

    #[test]
    fn a_packet_key_is_expanded_by_its_first_use_and_seals_like_that_of_the_library() {
        for (aead, library) in [
            (Aead::AwsLc, aws_lc_rs::ALL_CIPHER_SUITES),
            (Aead::Ring, ring::ALL_CIPHER_SUITES),
        ] {
            for suite in suites(aead) {
                let original = library.iter().find(|entry| entry.suite() == suite.common.suite);
                let original = original
                    .and_then(SupportedCipherSuite::tls13)
                    .unwrap()
                    .quic
                    .unwrap();
                let secret = || (AeadKey::from([7; 32]), Iv::from([9; 12]));
                let ((key, iv), (same_key, same_iv)) = (secret(), secret());
                if original.aead_key_len() != key.as_ref().len() {
                    continue;
                }
                let lazy = Unexpanded {
                    algorithm: original,
                    secret: Mutex::new(Some((key, iv))),
                    expanded: OnceLock::new(),
                };
                assert!(lazy.expanded.get().is_none());
                let (mut ours, mut theirs) = ([1; 100], [1; 100]);
                let tag = lazy.encrypt_in_place(5, b"header", &mut ours).unwrap();
                let expected = original.packet_key(same_key, same_iv);
                let expected = expected.encrypt_in_place(5, b"header", &mut theirs).unwrap();
                assert_eq!((ours, tag.as_ref()), (theirs, expected.as_ref()));
                assert!(lazy.secret.lock().unwrap().is_none());
            }
        }
    }
}
