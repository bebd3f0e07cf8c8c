//! TLS between ends that know each other by Ed25519 keys: raw public keys (RFC 7250) instead of certificates, in both
//! directions. Each end proves that it holds its private key by the signature in CertificateVerify (RFC 8446 section
//! 4.4.3).

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, SignatureScheme};

use super::{Refusal, crypto_provider, without_resumption};
use crate::config::Aead;
use crate::error::CloseReason;

/// What stands before the 32 bytes of an Ed25519 key in a SubjectPublicKeyInfo (RFC 8410 section 4).
const PUBLIC_KEY_PREFIX: [u8; 12] = *b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";

/// What stands before the 32 bytes of a seed in PKCS#8 (RFC 8410 section 7).
const PRIVATE_KEY_PREFIX: [u8; 16] = *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

/// An Ed25519 key pair by which other ends know this one; a clone shares it.
#[derive(Clone)]
pub struct KeyIdentity {
    certified: Arc<CertifiedKey>,
    public_key: [u8; 32],
}

impl KeyIdentity {
    /// The key pair of a seed (RFC 8032 section 5.1.5): 32 secret random bytes.
    ///
    /// # Panics
    /// Never: every seed has a key pair.
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        let pkcs8 = PrivatePkcs8KeyDer::from([&PRIVATE_KEY_PREFIX[..], seed].concat());
        let key = aws_lc_rs::sign::any_eddsa_type(&pkcs8).expect("32 bytes are a seed");
        let spki = key.public_key().expect("an Ed25519 key has a public key");
        let public_key = public_key_of(&spki).expect("it is an Ed25519 key");
        let certificate = CertificateDer::from(spki.to_vec());
        let certified = Arc::new(CertifiedKey::new(vec![certificate], key));
        Self {
            certified,
            public_key,
        }
    }

    /// What others know this end by.
    #[must_use]
    pub fn public_key(&self) -> [u8; 32] {
        self.public_key
    }
}

/// Shows nothing of the private key.
impl fmt::Debug for KeyIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("KeyIdentity").finish_non_exhaustive()
    }
}

/// The Ed25519 key in a SubjectPublicKeyInfo; `None` where it is of another kind.
pub(crate) fn public_key_of(spki: &[u8]) -> Option<[u8; 32]> {
    spki.strip_prefix(&PUBLIC_KEY_PREFIX)?.try_into().ok()
}

/// The SubjectPublicKeyInfo of an Ed25519 key.
pub(super) fn spki(public_key: &[u8; 32]) -> Vec<u8> {
    [&PUBLIC_KEY_PREFIX[..], public_key].concat()
}

/// TLS of the end that accepts. It takes every key; the caller reads it when the handshake is complete.
pub(super) fn server(aead: Aead, identity: &KeyIdentity, protocol: &[u8]) -> rustls::ServerConfig {
    server_with(crypto_provider(aead), identity, protocol, None)
}

/// The same with suites of the caller's; with `known`, only the holder of that key gets in.
pub(super) fn server_with(
    provider: CryptoProvider,
    identity: &KeyIdentity,
    protocol: &[u8],
    known: Option<[u8; 32]>,
) -> rustls::ServerConfig {
    let verifier = Verifier::new(&provider, known);
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3 suites")
        .with_client_cert_verifier(Arc::new(verifier))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::clone(
            &identity.certified,
        ))));
    let mut config = without_resumption(config);
    config.alpn_protocols = vec![protocol.to_vec()];
    config
}

/// TLS of the end that connects, which goes on only with the holder of `known`.
pub(super) fn client(
    aead: Aead,
    identity: &KeyIdentity,
    protocol: &[u8],
    known: [u8; 32],
) -> (rustls::ClientConfig, Refusal) {
    client_with(crypto_provider(aead), identity, protocol, known)
}

/// The same with suites of the caller's.
pub(super) fn client_with(
    provider: CryptoProvider,
    identity: &KeyIdentity,
    protocol: &[u8],
    known: [u8; 32],
) -> (rustls::ClientConfig, Refusal) {
    let verifier = Verifier::new(&provider, Some(known));
    let refusal = Arc::clone(&verifier.refusal);
    let mut config = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3 suites")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::clone(
            &identity.certified,
        ))));
    config.alpn_protocols = vec![protocol.to_vec()];
    config.enable_sni = false;
    config.enable_early_data = false;
    config.resumption = Resumption::disabled();
    (config, refusal)
}

/// Takes raw Ed25519 keys only.
#[derive(Debug)]
struct Verifier {
    /// The only key that is taken; `None`: every key.
    known: Option<[u8; 32]>,
    refusal: Refusal,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    fn new(provider: &CryptoProvider, known: Option<[u8; 32]>) -> Self {
        Self {
            known,
            refusal: Refusal::default(),
            algorithms: provider.signature_verification_algorithms,
        }
    }

    fn check(&self, end_entity: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        let key = public_key_of(end_entity).ok_or(CertificateError::BadEncoding)?;
        if self.known.is_some_and(|known| known != key) {
            // Only the first refusal counts.
            let _ = self.refusal.set(CloseReason::WrongPeer);
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        Ok(())
    }

    fn check_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signature, &self.algorithms)
    }
}

const NO_TLS12: &str = "QUIC has no TLS 1.2";

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.check(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General(NO_TLS12.to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.check_signature(message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.check(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General(NO_TLS12.to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.check_signature(message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_pair_of_a_seed_is_that_of_rfc_8032() {
        let seed = data("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
        let public_key = data("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
        assert_eq!(KeyIdentity::from_seed(&seed).public_key(), public_key);
    }

    #[test]
    fn a_key_of_another_kind_is_no_identity() {
        let mut spki = [&PUBLIC_KEY_PREFIX[..], &[7; 32]].concat();
        assert_eq!(public_key_of(&spki), Some([7; 32]));
        assert_eq!(super::spki(&[7; 32]), spki);
        spki.push(7);
        assert_eq!(public_key_of(&spki), None);
        spki.pop();
        spki[8] = 0x6e;
        assert_eq!(public_key_of(&spki), None);
    }

    fn data(hex: &str) -> [u8; 32] {
        std::array::from_fn(|index| u8::from_str_radix(&hex[2 * index..2 * index + 2], 16).unwrap())
    }
}
