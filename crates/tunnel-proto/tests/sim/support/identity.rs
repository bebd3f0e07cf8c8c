//! A server's key and certificate: always the same, so that handshakes are, too.

use std::sync::LazyLock;

use rcgen::{CertificateParams, KeyPair};

/// What a server shows and a client knows.
pub(crate) struct Identity {
    pub(crate) certificate: Vec<u8>,
    /// PKCS#8 DER.
    pub(crate) private_key: Vec<u8>,
    pub(crate) pin: [u8; 32],
}

/// PKCS#8 of an Ed25519 key up to its 32 bytes (RFC 8410 section 7). Its signatures have one length, unlike ECDSA's.
const PKCS8_ED25519: [u8; 16] = [
    0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20,
];

/// The identity of every server here.
pub(crate) fn identity() -> &'static Identity {
    static IDENTITY: LazyLock<Identity> = LazyLock::new(|| {
        let private_key = [&PKCS8_ED25519[..], &[5; 32]].concat();
        let key = KeyPair::try_from(&private_key[..]).expect("a well-formed key");
        let parameters = CertificateParams::new(["server.test".to_owned()]).expect("a well-formed name");
        let certificate = parameters
            .self_signed(&key)
            .expect("the key signs")
            .der()
            .to_vec();
        let pin = quic::public_key_pin(&certificate).expect("a well-formed certificate");
        Identity {
            certificate,
            private_key,
            pin,
        }
    });
    &IDENTITY
}
