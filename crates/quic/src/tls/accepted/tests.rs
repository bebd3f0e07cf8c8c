//! What is kept of a handshake does what the whole session of the other end does.

use std::io::Cursor;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::quic::ClientConnection;
use rustls::{CipherSuite, SupportedCipherSuite};

use super::*;
use crate::config::Aead;
use crate::tls::{KeyIdentity, crypto_provider, initial_suite, suites};

const SUITES: [CipherSuite; 3] = [
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS13_AES_256_GCM_SHA384,
    CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
];

/// Both ends of a connection.
struct Meeting {
    client: Connection,
    client_secrets: Option<Secrets>,
    server: Box<dyn crypto::Session>,
}

fn identity(seed: u8) -> KeyIdentity {
    KeyIdentity::from_seed(&[seed; 32])
}

impl Meeting {
    /// A peer's handshake by this suite, before its first step.
    fn new(aead: Aead, suite: CipherSuite) -> Self {
        let only = |entry: &&'static Tls13CipherSuite| entry.common.suite == suite;
        let provider = CryptoProvider {
            cipher_suites: suites(aead)
                .filter(only)
                .map(SupportedCipherSuite::Tls13)
                .collect(),
            ..crypto_provider(aead)
        };
        let (tls, _) = raw_key::client_with(provider, &identity(1), b"test", identity(2).public_key());
        let name = ServerName::try_from("peer").unwrap();
        let client = ClientConnection::new(Arc::new(tls), Version::V1, name, Vec::new()).unwrap();
        let parameters = TransportParameters::read(Side::Server, &mut Cursor::new([])).unwrap();
        let accepting = settings(raw_key::server(aead, &identity(2), b"test"), initial_suite(aead));
        Self {
            client: Connection::Client(client),
            client_secrets: None,
            server: accepting.start_session(1, &parameters),
        }
    }

    /// Each end says what it can, by levels of encryption, as QUIC carries it; whether the handshake goes on.
    fn step(&mut self) -> bool {
        loop {
            let mut said = Vec::new();
            let change = self.client.write_hs(&mut said);
            self.server.read_handshake(&said).unwrap();
            match change {
                Some(KeyChange::OneRtt { next, .. }) => self.client_secrets = Some(next),
                Some(KeyChange::Handshake { .. }) => {}
                None => break,
            }
        }
        loop {
            let mut said = Vec::new();
            let change = self.server.write_handshake(&mut said);
            self.client.read_hs(&said).unwrap();
            if change.is_none() {
                break;
            }
        }
        self.client.is_handshaking() || self.server.is_handshaking()
    }

    fn complete(aead: Aead, suite: CipherSuite) -> Self {
        let mut meeting = Self::new(aead, suite);
        while meeting.step() {
            let early = meeting.server.export_keying_material(&mut [0; 32], b"early", b"");
            assert!(early.is_err(), "the client is not known yet");
        }
        meeting
    }

    fn assert_both_export_the_same(&self, label: &[u8], context: &[u8], bytes: usize) -> Vec<u8> {
        let mut ours = vec![0; bytes];
        self.server
            .export_keying_material(&mut ours, label, context)
            .unwrap();
        let theirs = vec![0_u8; bytes];
        let theirs = self
            .client
            .export_keying_material(theirs, label, Some(context))
            .unwrap();
        assert_eq!(ours, theirs);
        ours
    }
}

#[test]
fn what_is_kept_of_a_handshake_exports_what_the_whole_session_of_the_other_end_exports() {
    for aead in [Aead::AwsLc, Aead::Ring] {
        for suite in SUITES {
            let meeting = Meeting::complete(aead, suite);
            meeting.assert_both_export_the_same(b"EXPORTER-a", b"", 32);
            meeting.assert_both_export_the_same(b"EXPORTER-b", b"context", 100);
            let mut too_much = vec![0; 255 * 48 + 1];
            let refused = meeting
                .server
                .export_keying_material(&mut too_much, b"EXPORTER-a", b"");
            assert!(refused.is_err());
        }
    }
}

/// One thread has the handshakes of all connections in turns.
#[test]
fn of_two_handshakes_in_turns_each_keeps_its_own_secret() {
    let mut meetings = [0; 2].map(|_| Meeting::new(Aead::AwsLc, SUITES[0]));
    while meetings.each_mut().map(Meeting::step).contains(&true) {}
    let [one, other] = meetings.map(|meeting| meeting.assert_both_export_the_same(b"EXPORTER-a", b"", 32));
    assert_ne!(one, other);
}

#[test]
fn the_keys_of_updates_and_the_proved_key_outlive_the_handshake() {
    for suite in SUITES {
        let mut met = Meeting::complete(Aead::AwsLc, suite);
        for update in 0..3 {
            let theirs = met.client_secrets.as_mut().unwrap().next_packet_keys();
            let ours = met.server.next_1rtt_keys().unwrap();
            let mut payload = *b"sealed by the client";
            let tag = theirs
                .local
                .encrypt_in_place(update, b"header", &mut payload)
                .unwrap();
            let mut packet = bytes::BytesMut::from(&[&payload[..], tag.as_ref()].concat()[..]);
            ours.remote.decrypt(update, b"header", &mut packet).unwrap();
            assert_eq!(&packet[..], b"sealed by the client");
        }
        let proved = crate::tls::proved_key(met.server.as_ref());
        assert_eq!(proved, Some(identity(1).public_key()));
    }
}

/// RFC 9001 section 6: a KeyUpdate, and whatever else a client may not say.
#[test]
fn a_client_that_goes_on_with_tls_after_the_handshake_is_refused() {
    let mut met = Meeting::complete(Aead::AwsLc, SUITES[0]);
    let refused = met.server.read_handshake(&[24, 0, 0, 1, 0]).unwrap_err();
    assert_eq!(u64::from(refused.code), 0x10a);
    assert!(refused.reason.is_empty());
    assert!(met.server.write_handshake(&mut Vec::new()).is_none());
}
