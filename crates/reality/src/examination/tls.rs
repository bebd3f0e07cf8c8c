//! TLS of a visitor: hello, and a verifier that takes every certificate and remembers what it was.

use std::sync::{Arc, OnceLock};

use packet::varint;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// Transport parameters of a browser but the source ID, which is empty (RFC 9000 section 18.2): idle time, UDP payload,
/// flow control, streams.
const PARAMETERS: [(u8, u64); 8] = [
    (0x01, 30_000),
    (0x03, 1_472),
    (0x04, 15_728_640),
    (0x05, 6_291_456),
    (0x06, 6_291_456),
    (0x07, 6_291_456),
    (0x08, 100),
    (0x09, 103),
];
const INITIAL_SOURCE_ID: u8 = 0x0f;

/// Whom a visitor trusts.
#[derive(Clone, Debug)]
pub struct Roots(pub(super) Arc<RootCertStore>);

impl Roots {
    /// The authorities that browsers trust, and these certificates (DER).
    ///
    /// # Errors
    /// When one of them is no certificate.
    pub fn with(certificates: Vec<Vec<u8>>) -> Result<Self, String> {
        let mut store = RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        for certificate in certificates {
            let added = store.add(CertificateDer::from(certificate));
            added.map_err(|error| error.to_string())?;
        }
        Ok(Self(Arc::new(store)))
    }
}

/// Which key exchange a visit offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Groups {
    /// X25519MLKEM768 and X25519, as browsers do.
    Hybrid,
    /// X25519 alone.
    Classic,
}

/// The transport parameters, each as short as it can be: quinn refuses longer forms, which RFC 9000 section 16 allows.
pub(super) fn parameters() -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, value) in PARAMETERS {
        let mut encoded = Vec::new();
        varint::write(value, &mut encoded);
        bytes.extend([kind, encoded.len() as u8]);
        bytes.append(&mut encoded);
    }
    bytes.extend([INITIAL_SOURCE_ID, 0]);
    bytes
}

/// The hello of a client of ours, as far as the library sends it; every certificate is taken.
pub(super) fn client_config(
    chain: Arc<ChainRecorder>,
    groups: Groups,
) -> Result<ClientConfig, rustls::Error> {
    let mut provider = default_provider();
    // A browser's order; what is left is of older versions of TLS.
    provider.cipher_suites = vec![
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    provider.kx_groups = match groups {
        Groups::Hybrid => vec![
            kx_group::X25519MLKEM768,
            kx_group::X25519,
            kx_group::SECP256R1,
            kx_group::SECP384R1,
        ],
        Groups::Classic => vec![kx_group::X25519],
    };
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(chain)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h3".to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Takes every certificate, and remembers whether its chain is valid.
#[derive(Debug)]
pub(super) struct ChainRecorder {
    inner: Arc<WebPkiServerVerifier>,
    pub(super) verdict: OnceLock<Result<(), String>>,
}

impl ChainRecorder {
    pub(super) fn new(roots: Arc<RootCertStore>) -> Result<Self, String> {
        let inner = WebPkiServerVerifier::builder_with_provider(roots, Arc::new(default_provider()));
        Ok(Self {
            inner: inner.build().map_err(|error| error.to_string())?,
            verdict: OnceLock::new(),
        })
    }
}

impl ServerCertVerifier for ChainRecorder {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verdict = self.inner.verify_server_cert(leaf, others, name, ocsp, now);
        let verdict = verdict.map(drop).map_err(|error| error.to_string());
        let _first = self.verdict.set(verdict);
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values are those of a capture of Chrome.
    #[test]
    fn no_parameter_is_longer_than_a_browsers() {
        let numbers: [&[u8]; 9] = [
            &[0x01, 4, 0x80, 0x00, 0x75, 0x30],
            &[0x03, 2, 0x45, 0xc0],
            &[0x04, 4, 0x80, 0xf0, 0x00, 0x00],
            &[0x05, 4, 0x80, 0x60, 0x00, 0x00],
            &[0x06, 4, 0x80, 0x60, 0x00, 0x00],
            &[0x07, 4, 0x80, 0x60, 0x00, 0x00],
            &[0x08, 2, 0x40, 0x64],
            &[0x09, 2, 0x40, 0x67],
            &[0x0f, 0],
        ];
        assert_eq!(parameters(), numbers.concat());
    }
}
