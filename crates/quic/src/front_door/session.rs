//! TLS of one client connection, as quinn-proto asks for it. Against quinn-proto's own it begins with a hello that exists
//! already, and an error says no more to the peer than its alert (QR1-22).

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use quinn_proto::crypto::{self, ExportKeyingMaterialError, HeaderKey, KeyPair, PacketKey};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectionId, Side, TransportError};
use rustls::quic::{ClientConnection, Connection, KeyChange, Secrets, Suite, Version};

use super::client::DESTINATION_ID_BYTES;
use super::outcome::Outcome;
use crate::tls::quinn;

/// Keys of the integrity tag of a Retry (RFC 9001 section 5.8).
const RETRY_KEY: [u8; 16] = [
    0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8, 0x4e,
];
const RETRY_NONCE: [u8; 12] = [
    0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb,
];

/// Bytes of that tag.
const RETRY_TAG_BYTES: usize = 16;

/// A connection that can begin.
pub(crate) struct Begun {
    /// For quinn-proto, and one connection.
    pub(crate) config: quinn_proto::ClientConfig,
    pub(crate) outcome: Arc<Outcome>,
}

impl Begun {
    /// The connection of this session, whose hello is bound to `destination_id`.
    pub(super) fn new(
        session: Session,
        destination_id: [u8; DESTINATION_ID_BYTES],
        outcome: Arc<Outcome>,
    ) -> Self {
        let prepared = Prepared(Mutex::new(Some(session)));
        let mut config = quinn_proto::ClientConfig::new(Arc::new(prepared));
        let destination_id = ConnectionId::new(&destination_id);
        config.initial_dst_cid_provider(Arc::new(move || destination_id));
        Self { config, outcome }
    }
}

/// Hands the session over that was begun before the connection.
struct Prepared(Mutex<Option<Session>>);

impl crypto::ClientConfig for Prepared {
    fn start_session(
        self: Arc<Self>,
        _version: u32,
        _server_name: &str,
        _parameters: &TransportParameters,
    ) -> Result<Box<dyn crypto::Session>, quinn_proto::ConnectError> {
        let session = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(Box::new(session.expect("it is made for one connection")))
    }
}

pub(super) struct Session {
    tls: Connection,
    /// Until QUIC takes it.
    hello: Option<Vec<u8>>,
    next_secrets: Option<Secrets>,
    initial_suite: Suite,
}

impl Session {
    /// `tls` has written `hello`.
    pub(super) fn new(tls: ClientConnection, hello: Vec<u8>, initial_suite: Suite) -> Self {
        Self {
            tls: Connection::Client(tls),
            hello: Some(hello),
            next_secrets: None,
            initial_suite,
        }
    }

    /// TLS, and its hello, which QUIC has not taken yet.
    #[cfg(test)]
    pub(super) fn into_parts(self) -> (ClientConnection, Vec<u8>) {
        match (self.tls, self.hello) {
            (Connection::Client(tls), Some(hello)) => (tls, hello),
            _ => panic!("a client's, and QUIC has taken nothing"),
        }
    }
}

impl crypto::Session for Session {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> crypto::Keys {
        quinn::keys(self.initial_suite.keys(dst_cid, quinn::side(side), Version::V1))
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        None
    }

    fn early_data_accepted(&self) -> Option<bool> {
        Some(false)
    }

    fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        let read = self.tls.read_hs(buf);
        read.map(|()| false).map_err(|_| quinn::alert(&self.tls))
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        quinn::parameters(&self.tls, Side::Client)
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<crypto::Keys> {
        if let Some(hello) = self.hello.take() {
            buf.extend_from_slice(&hello);
        }
        Some(match self.tls.write_hs(buf)? {
            KeyChange::Handshake { keys } => quinn::keys(keys),
            KeyChange::OneRtt { keys, next } => {
                self.next_secrets = Some(next);
                quinn::keys(keys)
            }
        })
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.next_secrets.as_mut().map(quinn::updated_keys)
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        let Some(token_bytes) = payload.len().checked_sub(RETRY_TAG_BYTES) else {
            return false;
        };
        let (token, tag) = payload.split_at(token_bytes);
        let length = [orig_dst_cid.len() as u8];
        let pseudo_packet = [&length, &orig_dst_cid[..], header, token].concat();
        let key = UnboundKey::new(&AES_128_GCM, &RETRY_KEY).expect("AES-128 has keys of 16 bytes");
        let nonce = Nonce::assume_unique_for_key(RETRY_NONCE);
        LessSafeKey::new(key)
            .open_in_place(nonce, Aad::from(pseudo_packet), &mut tag.to_vec())
            .is_ok()
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.tls
            .export_keying_material(output, label, Some(context))
            .map(drop)
            .map_err(|_| ExportKeyingMaterialError)
    }
}
