//! How a client says and proves who it is (RDV-4, RDV-5): `/PEER/SIGNATURE/`.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use data_encoding::BASE64URL_NOPAD;

use super::PeerKeyBytes;

/// `:protocol` of requests for a rendezvous.
pub const PROTOCOL: &str = "gramway-rendezvous";

/// What stands before the exporter in what a client signs.
const CONTEXT: &[u8] = b"gramway-rendezvous registration\0";

/// What the holder of a key signs to be registered over the connection with this exporter
/// ([`crate::ServiceRequest::exporter`]).
#[must_use]
pub fn statement(exporter: &[u8; 32]) -> Vec<u8> {
    [CONTEXT, exporter].concat()
}

/// Who wants to be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistrationPath {
    /// Its Ed25519 key.
    pub peer: PeerKeyBytes,
    /// Of the [`statement`].
    pub signature: [u8; 64],
}

impl RegistrationPath {
    /// Whether the holder of the key has signed this connection's statement.
    pub(super) fn is_proved(&self, exporter: &[u8; 32]) -> bool {
        let key = UnparsedPublicKey::new(&ED25519, self.peer);
        key.verify(&statement(exporter), &self.signature).is_ok()
    }
}

impl fmt::Display for RegistrationPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [peer, signature] = [&self.peer[..], &self.signature].map(|bytes| BASE64URL_NOPAD.encode(bytes));
        write!(formatter, "/{peer}/{signature}/")
    }
}

/// A path that registers nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the path is not /PEER/SIGNATURE/")]
pub struct NotARegistrationPath;

impl FromStr for RegistrationPath {
    type Err = NotARegistrationPath;

    fn from_str(text: &str) -> Result<Self, NotARegistrationPath> {
        let parts: Vec<_> = text.split('/').collect();
        let ["", peer, signature, ""] = parts[..] else {
            return Err(NotARegistrationPath);
        };
        let decode = |text: &str| BASE64URL_NOPAD.decode(text.as_bytes()).ok();
        let peer = decode(peer).and_then(|bytes| bytes.try_into().ok());
        let signature = decode(signature).and_then(|bytes| bytes.try_into().ok());
        Ok(Self {
            peer: peer.ok_or(NotARegistrationPath)?,
            signature: signature.ok_or(NotARegistrationPath)?,
        })
    }
}

/// Reads a path, for the fuzz target: one that is taken is the one that we would have written.
pub fn fuzz(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    if let Ok(path) = text.parse::<RegistrationPath>() {
        assert_eq!(path.to_string(), text);
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};

    use super::*;

    /// RDV-4, RDV-5.
    #[test]
    fn a_path_proves_its_key_on_its_own_connection_alone() {
        let keys = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let signature = keys.sign(&statement(&[1; 32]));
        let path = RegistrationPath {
            peer: keys.public_key().as_ref().try_into().unwrap(),
            signature: signature.as_ref().try_into().unwrap(),
        };
        assert_eq!(path.to_string().parse(), Ok(path));
        assert!(path.is_proved(&[1; 32]));
        assert!(!path.is_proved(&[2; 32]));
        let other = Ed25519KeyPair::from_seed_unchecked(&[8; 32]).unwrap();
        let stolen = RegistrationPath {
            peer: other.public_key().as_ref().try_into().unwrap(),
            ..path
        };
        assert!(!stolen.is_proved(&[1; 32]));
        for text in [
            "",
            "/",
            "//",
            "/a/b/",
            &path.to_string()[1..],
            &format!("{path}x/"),
        ] {
            assert_eq!(
                text.parse::<RegistrationPath>(),
                Err(NotARegistrationPath),
                "{text}"
            );
        }
    }
}
