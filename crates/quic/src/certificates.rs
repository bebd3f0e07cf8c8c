//! The certificate that a server shows, which may be replaced while it runs, and what it is good for.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use aws_lc_rs::digest;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::config::Aead;
use crate::error::ConfigurationError;
use crate::tls;

/// A certificate chain with its key: handshakes take the one that is there when they begin. A clone shares it.
#[derive(Clone)]
pub struct Certificates(Arc<Shown>);

#[derive(Debug)]
struct Shown(RwLock<Arc<CertifiedKey>>);

impl Certificates {
    /// Takes a chain (DER, leaf first) and the private key of its leaf (DER of PKCS#8, PKCS#1 or SEC1).
    ///
    /// # Errors
    /// [`ConfigurationError::Certificate`] where they cannot be used, or do not belong together.
    pub fn new(chain: Vec<Vec<u8>>, private_key: Vec<u8>) -> Result<Self, ConfigurationError> {
        let certified = Arc::new(certified(chain, private_key)?);
        Ok(Self(Arc::new(Shown(RwLock::new(certified)))))
    }

    /// Puts others in their place, for handshakes that begin from here on.
    ///
    /// # Errors
    /// As of [`Self::new`]; the former ones stay then.
    pub fn replace(&self, chain: Vec<Vec<u8>>, private_key: Vec<u8>) -> Result<(), ConfigurationError> {
        let certified = Arc::new(certified(chain, private_key)?);
        *self.0.0.write().unwrap_or_else(PoisonError::into_inner) = certified;
        Ok(())
    }

    /// For the TLS of an endpoint.
    pub(crate) fn resolver(&self) -> Arc<dyn ResolvesServerCert> {
        self.0.clone()
    }
}

/// Shows nothing of the key.
impl fmt::Debug for Certificates {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Certificates")
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let shown = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&shown))
    }
}

fn certified(chain: Vec<Vec<u8>>, private_key: Vec<u8>) -> Result<CertifiedKey, ConfigurationError> {
    let refused = |error: &dyn fmt::Display| ConfigurationError::Certificate(error.to_string());
    let chain = chain.into_iter().map(CertificateDer::from).collect();
    let key = PrivateKeyDer::try_from(private_key).map_err(|error| refused(&error))?;
    let provider: CryptoProvider = tls::crypto_provider(Aead::default());
    CertifiedKey::from_der(chain, key, &provider).map_err(|error| refused(&error))
}

/// SHA-256 of the SubjectPublicKeyInfo of a certificate: what a link calls its pin.
///
/// # Errors
/// [`ConfigurationError::Unreadable`] where `certificate` is not DER of an X.509 certificate.
pub fn public_key_pin(certificate: &[u8]) -> Result<[u8; 32], ConfigurationError> {
    let certificate = CertificateDer::from(certificate);
    let digest = digest::digest(&digest::SHA256, &parsed(&certificate)?.subject_public_key_info());
    Ok(digest.as_ref().try_into().expect("SHA-256 has 32 bytes"))
}

/// The host names that a certificate (DER) is for, without those with a `*`.
///
/// # Errors
/// As of [`public_key_pin`].
pub fn names_of_certificate(certificate: &[u8]) -> Result<Vec<String>, ConfigurationError> {
    let certificate = CertificateDer::from(certificate);
    let parsed = parsed(&certificate)?;
    let names = parsed.valid_dns_names().filter(|name| !name.contains('*'));
    Ok(names.map(str::to_owned).collect())
}

/// Whether a certificate (DER) is for this host, a name or an address (RFC 6125).
#[must_use]
pub fn is_certificate_for(certificate: &[u8], host: &str) -> bool {
    let certificate = CertificateDer::from(certificate);
    let Ok(parsed) = parsed(&certificate) else {
        return false;
    };
    ServerName::try_from(host).is_ok_and(|name| parsed.verify_is_valid_for_subject_name(&name).is_ok())
}

fn parsed<'a>(certificate: &'a CertificateDer<'_>) -> Result<webpki::EndEntityCert<'a>, ConfigurationError> {
    webpki::EndEntityCert::try_from(certificate)
        .map_err(|error| ConfigurationError::Unreadable(error.to_string()))
}
