//! The server's key and certificate: self-signed ECDSA P-256, known to clients by the pin of its public key.

use aws_lc_rs::digest::{SHA256, digest};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PublicKeyData, date_time_ymd,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tunnel::certificates::Certificates;

use crate::exit::Problem;

/// A private key with its certificate chain.
pub(crate) struct Identity {
    key: KeyPair,
    certificate_pem: String,
    chain: Vec<Vec<u8>>,
}

/// Why an identity cannot be loaded or created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IdentityError {
    /// The file of the private key is wrong.
    #[error("the private key is not PKCS#8 PEM")]
    Key,
    /// The file of the certificate is wrong.
    #[error("the certificate is not PEM")]
    Certificate,
    /// Key and certificate do not belong together.
    #[error("the certificate belongs to another key")]
    OtherKey,
    /// No certificate can be made, e.g. for a host whose name is too long.
    #[error(transparent)]
    Making(#[from] rcgen::Error),
}

impl Identity {
    /// Makes the certificate of a new key, for these hosts.
    pub(crate) fn generate(hosts: &[String]) -> Result<Self, IdentityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        Self::certify(key, hosts)
    }

    /// Makes the certificate of the key in this PEM text, for these hosts.
    pub(crate) fn renew(key_pem: &[u8], hosts: &[String]) -> Result<Self, IdentityError> {
        Self::certify(read_key(key_pem)?, hosts)
    }

    /// Takes key and certificate from PEM texts; the chain starts with the server's own certificate.
    pub(crate) fn load(key_pem: &[u8], certificate_pem: &[u8]) -> Result<Self, IdentityError> {
        let key = read_key(key_pem)?;
        let chain: Vec<Vec<u8>> = CertificateDer::pem_slice_iter(certificate_pem)
            .map(|certificate| certificate.map(|certificate| certificate.to_vec()))
            .collect::<Result<_, _>>()
            .map_err(|_| IdentityError::Certificate)?;
        // A certificate holds its SubjectPublicKeyInfo as it stands (RFC 5280 section 4.1).
        let public = key.subject_public_key_info();
        match chain.first() {
            None => Err(IdentityError::Certificate),
            Some(leaf) if !leaf.windows(public.len()).any(|window| window == public) => {
                Err(IdentityError::OtherKey)
            }
            Some(_) => {
                let certificate_pem = String::from_utf8_lossy(certificate_pem).into_owned();
                Ok(Self {
                    key,
                    certificate_pem,
                    chain,
                })
            }
        }
    }

    /// SHA-256 of the public key's SubjectPublicKeyInfo.
    pub(crate) fn pin(&self) -> [u8; 32] {
        let hash = digest(&SHA256, &self.key.subject_public_key_info());
        hash.as_ref().try_into().expect("SHA-256 has 32 bytes")
    }

    /// Private key, PEM.
    pub(crate) fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// Certificate chain, PEM.
    pub(crate) fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// For handshakes.
    pub(crate) fn shown(&self) -> Result<Certificates, Problem> {
        Certificates::new(self.chain.clone(), self.key.serialize_der())
            .map_err(|error| Problem::configuration(error.to_string()))
    }

    fn certify(key: KeyPair, hosts: &[String]) -> Result<Self, IdentityError> {
        let mut parameters = CertificateParams::new(hosts)?;
        parameters.distinguished_name = DistinguishedName::new();
        parameters.distinguished_name.push(DnType::CommonName, "gramway");
        // Trust comes from the pin, so the certificate never ends (RFC 5280 section 4.1.2.5 gives this date).
        parameters.not_before = date_time_ymd(2024, 1, 1);
        parameters.not_after = date_time_ymd(9999, 12, 31);
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = parameters.self_signed(&key)?;
        Ok(Self {
            certificate_pem: certificate.pem(),
            chain: vec![certificate.der().to_vec()],
            key,
        })
    }
}

fn read_key(pem: &[u8]) -> Result<KeyPair, IdentityError> {
    let text = std::str::from_utf8(pem).map_err(|_| IdentityError::Key)?;
    KeyPair::from_pem(text).map_err(|_| IdentityError::Key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts() -> Vec<String> {
        vec![
            "example.org".to_owned(),
            "192.0.2.1".to_owned(),
            "2001:db8::1".to_owned(),
        ]
    }

    #[test]
    fn an_identity_survives_its_files_and_a_new_certificate_keeps_the_pin() {
        let identity = Identity::generate(&hosts()).unwrap();
        let key_pem = identity.key_pem();
        let loaded = Identity::load(key_pem.as_bytes(), identity.certificate_pem().as_bytes()).unwrap();
        assert_eq!(loaded.pin(), identity.pin());
        assert_eq!(loaded.chain, identity.chain);
        assert_eq!(loaded.key_pem(), key_pem);
        assert_eq!(
            Identity::renew(key_pem.as_bytes(), &[]).unwrap().pin(),
            identity.pin()
        );
    }

    #[test]
    fn a_certificate_of_another_key_and_broken_files_are_refused() {
        let (one, other) = (
            Identity::generate(&hosts()).unwrap(),
            Identity::generate(&[]).unwrap(),
        );
        let load = |key: &str, certificate: &str| {
            Identity::load(key.as_bytes(), certificate.as_bytes())
                .map(|_| ())
                .unwrap_err()
                .to_string()
        };
        assert_ne!(one.pin(), other.pin());
        assert!(load(&one.key_pem(), other.certificate_pem()).contains("another key"));
        assert!(load("x", one.certificate_pem()).contains("private key"));
        assert!(load(&one.key_pem(), "x").contains("certificate"));
    }
}
