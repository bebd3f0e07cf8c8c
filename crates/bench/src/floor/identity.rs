//! A throw-away server certificate.

use crate::Error;

/// The name in the certificate.
pub(crate) const SERVER_NAME: &str = "localhost";

/// Certificate and key, DER.
pub(crate) struct Identity {
    /// Self-signed X.509.
    pub(crate) certificate: Vec<u8>,
    /// PKCS#8.
    pub(crate) private_key: Vec<u8>,
}

impl Identity {
    /// Makes a new one.
    ///
    /// # Errors
    /// When the library refuses.
    pub(crate) fn new() -> Result<Self, Error> {
        let made = rcgen::generate_simple_self_signed([SERVER_NAME.to_owned()]);
        let made = made.map_err(|error| Error::Setup(format!("cannot make a certificate: {error}")))?;
        Ok(Self {
            certificate: made.cert.der().to_vec(),
            private_key: made.signing_key.serialize_der(),
        })
    }
}
