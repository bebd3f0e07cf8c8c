//! TLS 1.3 over a byte stream, such as a TCP connection, between two ends that have told each other their Ed25519 keys:
//! raw public keys (RFC 7250) in both directions, as QUIC has between peers. Each end takes the key that it names and
//! no other. No resumption, no early data, no other version. Whoever has the connection may take its secrets, to protect
//! records without the library's copies.

use std::sync::Arc;

use rustls::CipherSuite;
use rustls::crypto::{CryptoProvider, aws_lc_rs};

use super::{KeyIdentity, raw_key};

/// For the end that accepts the connection of the holder of `known`; both ends name the same application protocol.
#[must_use]
pub fn accepting(identity: &KeyIdentity, protocol: &[u8], known: [u8; 32]) -> Arc<rustls::ServerConfig> {
    let mut config = raw_key::server_with(provider(), identity, protocol, Some(known));
    config.enable_secret_extraction = true;
    Arc::new(config)
}

/// For the end that connects to the holder of `known`.
#[must_use]
pub fn connecting(identity: &KeyIdentity, protocol: &[u8], known: [u8; 32]) -> Arc<rustls::ClientConfig> {
    let (mut config, _) = raw_key::client_with(provider(), identity, protocol, known);
    config.enable_secret_extraction = true;
    Arc::new(config)
}

/// The library's own suites: those of QUIC make no keys for records.
fn provider() -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|suite| suite.tls13().is_some());
    provider
        .cipher_suites
        .sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    provider
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use rustls::pki_types::ServerName;
    use rustls::{ClientConnection, Error, ServerConnection};

    use super::*;

    const PROTOCOL: &[u8] = b"test";

    fn identity(seed: u8) -> KeyIdentity {
        KeyIdentity::from_seed(&[seed; 32])
    }

    /// Carries what both say to each other until nobody says anything.
    fn talk(client: &mut ClientConnection, server: &mut ServerConnection) -> Result<(), Error> {
        let mut wire = Vec::new();
        while client.wants_write() || server.wants_write() {
            while client.wants_write() {
                client.write_tls(&mut wire).unwrap();
            }
            let mut sent = &wire[..];
            while !sent.is_empty() {
                server.read_tls(&mut sent).unwrap();
                server.process_new_packets()?;
            }
            wire.clear();
            while server.wants_write() {
                server.write_tls(&mut wire).unwrap();
            }
            let mut sent = &wire[..];
            while !sent.is_empty() {
                client.read_tls(&mut sent).unwrap();
                client.process_new_packets()?;
            }
            wire.clear();
        }
        Ok(())
    }

    fn pair(client_knows: u8, server_knows: u8) -> (ClientConnection, ServerConnection) {
        let connecting = connecting(&identity(1), PROTOCOL, identity(client_knows).public_key());
        let accepting = accepting(&identity(2), PROTOCOL, identity(server_knows).public_key());
        let name = ServerName::try_from("peer").unwrap();
        (
            ClientConnection::new(connecting, name).unwrap(),
            ServerConnection::new(accepting).unwrap(),
        )
    }

    #[test]
    fn both_ends_with_the_keys_that_were_named_exchange_bytes_in_aes_128() {
        let (mut client, mut server) = pair(2, 1);
        talk(&mut client, &mut server).unwrap();
        client.writer().write_all(b"hello").unwrap();
        talk(&mut client, &mut server).unwrap();
        let mut heard = [0; 5];
        server.reader().read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"hello");
        let suite = server.negotiated_cipher_suite().unwrap().suite();
        assert_eq!(suite, CipherSuite::TLS13_AES_128_GCM_SHA256);
    }

    #[test]
    fn an_end_with_another_key_is_refused_on_either_side() {
        for (client_knows, server_knows) in [(3, 1), (2, 3)] {
            let (mut client, mut server) = pair(client_knows, server_knows);
            let refused = talk(&mut client, &mut server);
            assert!(
                matches!(refused, Err(Error::InvalidCertificate(_))),
                "{refused:?}"
            );
        }
    }
}
