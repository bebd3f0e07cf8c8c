//! Whom a client met: the server of its link, who proves it; or a site that is what its certificate says (QR1-16, QR1-19).

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};
use subtle::ConstantTimeEq;

use super::certificate;
use super::client::TrustedRoots;
use super::outcome::{Outcome, Verdict};

/// Signatures that a browser takes, in its order. TLS 1.3 forbids PKCS#1 in handshakes; it stands for certificates.
const SCHEMES: [SignatureScheme; 9] = [
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PKCS1_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PKCS1_SHA384,
    SignatureScheme::RSA_PSS_SHA512,
    SignatureScheme::RSA_PKCS1_SHA512,
    SignatureScheme::RSA_PKCS1_SHA1,
];

/// Of one connection.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) roots: TrustedRoots,
    pub(super) now: UnixTime,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
    pub(super) outcome: Arc<Outcome>,
}

impl Verifier {
    fn proves_itself(&self, certificate: &CertificateDer<'_>) -> bool {
        let Some(keys) = self.outcome.keys() else {
            return false;
        };
        let Ok(parsed) = webpki::EndEntityCert::try_from(certificate) else {
            return false;
        };
        let proof = keys.certificate_proof(&parsed.subject_public_key_info());
        certificate::proof(certificate).is_some_and(|found| bool::from(found.ct_eq(&proof)))
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.proves_itself(end_entity) {
            self.outcome.decide(Verdict::Tunnel);
        } else if let Err(error) = self.roots.verify(
            end_entity,
            intermediates,
            server_name,
            self.now,
            self.algorithms.all,
        ) {
            self.outcome.decide(Verdict::Invalid);
            return Err(error);
        } else {
            self.outcome.decide(Verdict::Genuine);
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("QUIC has no TLS 1.2".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let valid = rustls::crypto::verify_tls13_signature(message, certificate, signature, &self.algorithms);
        if valid.is_err() {
            self.outcome.decide(Verdict::Invalid);
        }
        valid
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        SCHEMES.to_vec()
    }
}
