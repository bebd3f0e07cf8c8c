//! What a server accepts a recognised client with: a suite and group of the cover, and a certificate that proves itself to
//! this client alone (QR1-15, QR1-18, QR1-27).

use std::sync::Arc;

use reality::authenticator::ChannelKeys;
use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs as provider};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::quic::Suite;
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};
use rustls::{NamedGroup, SupportedCipherSuite};

use super::certificate::{self, Template};
use super::{recognised, server_hello};
use crate::config::Aead;
use crate::error::ConfigurationError;
use crate::tls::{self, ServerIdentity};

/// What a watcher sees of the cover's TLS, and what a server with this front door has, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoverTls {
    /// The suite that it chose (RFC 8446 appendix B.4).
    pub cipher_suite: u16,
    /// The group that it chose (RFC 8446 section 4.2.7).
    pub group: u16,
    /// Bytes of its Certificate message, or of what it sends instead, header included.
    pub certificate_message_bytes: usize,
    /// Its ServerHello has `supported_versions` before `key_share`.
    pub is_version_first: bool,
}

/// A key for certificates. The server makes a new one when this one is as old as [`crate::limits::CERTIFICATE_KEY_TIME`],
/// or when the cover has changed.
pub struct FrontDoorIdentity {
    template: Template,
    key: Arc<dyn SigningKey>,
    /// Without a certificate.
    config: rustls::ServerConfig,
    initial_suite: Suite,
    is_version_first: bool,
}

impl FrontDoorIdentity {
    /// A fresh one, for a server that looks like this cover.
    ///
    /// # Errors
    /// [`ConfigurationError::Cover`] where the cover has what we cannot have.
    pub fn generate(aead: Aead, cover: &CoverTls) -> Result<Self, ConfigurationError> {
        let refused = |error: rustls::Error| ConfigurationError::Certificate(error.to_string());
        let mut suite = suite(aead, cover.cipher_suite)?;
        if cover.is_version_first {
            suite = server_hello::turning(aead, suite);
        }
        let provider = CryptoProvider {
            cipher_suites: vec![suite],
            kx_groups: vec![group(cover.group)?],
            ..tls::crypto_provider(aead)
        };
        let key = certificate::key()?;
        let template = Template::new(&key, cover.certificate_message_bytes, provider.secure_random)?;
        let private_key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let key = provider
            .key_provider
            .load_private_key(private_key)
            .map_err(refused)?;
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(refused)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(NoCertificate));
        Ok(Self {
            template,
            key,
            config: tls::without_resumption(config),
            initial_suite: tls::initial_suite(aead),
            is_version_first: cover.is_version_first,
        })
    }

    /// What the client whose hello gave `keys` is accepted with, and nobody else.
    #[must_use]
    pub fn for_client(&self, keys: ChannelKeys) -> ServerIdentity {
        ServerIdentity {
            crypto: recognised::settings(
                self.configuration(&keys),
                self.initial_suite,
                self.is_version_first,
            ),
            keys: Some(keys),
        }
    }

    fn configuration(&self, keys: &ChannelKeys) -> rustls::ServerConfig {
        let chain = vec![self.certificate(keys)];
        let certified = CertifiedKey::new(chain, Arc::clone(&self.key));
        let mut config = self.config.clone();
        config.cert_resolver = Arc::new(SingleCertAndKey::from(certified));
        config
    }

    fn certificate(&self, keys: &ChannelKeys) -> CertificateDer<'static> {
        let public_key = self
            .key
            .public_key()
            .expect("every key of ECDSA has a public half");
        let proof = keys.certificate_proof(&public_key);
        CertificateDer::from(self.template.with_proof(&proof))
    }
}

/// Shows nothing of the key.
impl std::fmt::Debug for FrontDoorIdentity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("FrontDoorIdentity")
    }
}

fn suite(aead: Aead, number: u16) -> Result<SupportedCipherSuite, ConfigurationError> {
    tls::suites(aead)
        .find(|suite| u16::from(suite.common.suite) == number)
        .map(SupportedCipherSuite::Tls13)
        .ok_or_else(|| ConfigurationError::Cover(format!("it chooses cipher suite {number:#06x}")))
}

fn group(number: u16) -> Result<&'static dyn SupportedKxGroup, ConfigurationError> {
    let groups = provider::ALL_KX_GROUPS.iter();
    let mut groups = groups.filter(|group| OFFERED.contains(&group.name()));
    groups
        .find(|group| u16::from(group.name()) == number)
        .copied()
        .ok_or_else(|| ConfigurationError::Cover(format!("it chooses key-exchange group {number:#06x}")))
}

/// Groups that a client of ours offers.
const OFFERED: [NamedGroup; 4] = [
    NamedGroup::X25519MLKEM768,
    NamedGroup::X25519,
    NamedGroup::secp256r1,
    NamedGroup::secp384r1,
];

/// Stands where a client's certificate belongs.
#[derive(Debug)]
struct NoCertificate;

impl rustls::server::ResolvesServerCert for NoCertificate {
    fn resolve(&self, _: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use reality::authenticator::{self, Binding, open};
    use reality::client_hello::ClientHello;
    use reality::credentials::{ServerKey, UserKey};
    use rustls::quic::{ClientConnection, ServerConnection, Version};

    use super::*;
    use crate::front_door::client::{FrontDoorClient, TrustedRoots, composed_for_test};
    use crate::front_door::{Outcome, Verdict};

    const COVER: CoverTls = CoverTls {
        cipher_suite: 0x1301,
        group: 0x11ec,
        certificate_message_bytes: 2_345,
        is_version_first: false,
    };

    /// A client that has sent its hello, the hello, and what the server finds in it.
    fn greeting() -> (ClientConnection, Arc<Outcome>, Vec<u8>, authenticator::Recognised) {
        let (server, user) = (ServerKey::from_bytes(&[0x42; 32]), UserKey::derive(&[7; 32]));
        let door = FrontDoorClient {
            server: *server.public(),
            user: user.clone(),
            unix_seconds: 1_800_000_000,
            roots: TrustedRoots::web_pki_and(&[]).unwrap(),
        };
        let (tls, outcome, hello, destination_id) = composed_for_test("cover.example", &door);
        let binding = Binding {
            version: 1,
            destination_id: &destination_id,
        };
        let window = std::time::Duration::from_secs(120);
        let parsed = ClientHello::parse(&hello).unwrap();
        let found = open(&parsed, &binding, &[server], &user, door.unix_seconds, window).unwrap();
        (tls, outcome, hello, found)
    }

    /// Types and whole lengths of handshake messages (RFC 8446 section 4).
    fn messages(mut bytes: &[u8]) -> Vec<(u8, usize)> {
        let mut messages = Vec::new();
        while let [kind, high, middle, low, ..] = bytes {
            let length = 4 + u32::from_be_bytes([0, *high, *middle, *low]) as usize;
            messages.push((*kind, length));
            bytes = &bytes[length..];
        }
        messages
    }

    /// A server's answer to a hello: ServerHello, and what follows it.
    fn answer(config: rustls::ServerConfig, hello: &[u8]) -> (ServerConnection, [Vec<u8>; 2]) {
        let mut server =
            ServerConnection::new(Arc::new(config), Version::V1, vec![0x01, 0x01, 0x1e]).unwrap();
        server.read_hs(hello).unwrap();
        let mut flights = [Vec::new(), Vec::new()];
        for flight in &mut flights {
            assert!(server.write_hs(flight).is_some(), "keys of the next space");
        }
        (server, flights)
    }

    /// QR1-15, QR1-18, QR1-27: EncryptedExtensions, a Certificate of the cover's length, CertificateVerify, Finished; no
    /// ticket behind it.
    #[test]
    fn the_servers_flight_has_the_covers_lengths_and_no_ticket() {
        for bytes in [600, 1_111, 2_345, 4_096] {
            let cover = CoverTls {
                certificate_message_bytes: bytes,
                ..COVER
            };
            let identity = FrontDoorIdentity::generate(Aead::default(), &cover).unwrap();
            let (mut client, outcome, hello, found) = greeting();
            let config = identity.configuration(&found.keys);
            let (mut server, flights) = answer(config, &hello);
            let kinds: Vec<u8> = messages(&flights[1]).iter().map(|(kind, _)| *kind).collect();
            assert_eq!(kinds, [8, 11, 15, 20]);
            assert_eq!(messages(&flights[1])[1], (11, bytes));
            let mut finished = Vec::new();
            for flight in &flights {
                client.read_hs(flight).unwrap();
                client.write_hs(&mut finished);
            }
            assert_eq!(outcome.verdict(), Verdict::Tunnel);
            server.read_hs(&finished).unwrap();
            assert!(!server.is_handshaking());
            let mut after = Vec::new();
            server.write_hs(&mut after);
            assert!(after.is_empty(), "{after:?}");
        }
    }

    /// QR1-16: the proof shows the key, and CertificateVerify that the server has it.
    #[test]
    fn a_proof_without_its_key_is_refused() {
        let identity = FrontDoorIdentity::generate(Aead::default(), &COVER).unwrap();
        let other = FrontDoorIdentity::generate(Aead::default(), &COVER).unwrap();
        let (mut client, outcome, hello, found) = greeting();
        let mut config = identity.configuration(&found.keys);
        let stolen = vec![identity.certificate(&found.keys)];
        let certified = CertifiedKey::new(stolen, Arc::clone(&other.key));
        config.cert_resolver = Arc::new(SingleCertAndKey::from(certified));
        let (_, flights) = answer(config, &hello);
        client.read_hs(&flights[0]).unwrap();
        client.write_hs(&mut Vec::new());
        client.read_hs(&flights[1]).unwrap_err();
        assert_eq!(client.alert(), Some(rustls::AlertDescription::DecryptError));
        assert_eq!(outcome.verdict(), Verdict::Invalid);
    }
}
