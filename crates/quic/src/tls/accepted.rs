//! TLS of a connection that the other end began, as quinn-proto asks for it. Against quinn-proto's own it ends with the
//! handshake: what is needed of it then is a few secrets, and an idle connection does not keep the rest (2.6 KiB). An
//! error says no more to the other end than its alert.

use std::any::Any;
use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::sync::Arc;

use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::crypto::{
    self, ExportKeyingMaterialError, HeaderKey, KeyPair, PacketKey, ServerConfig, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectionId, Side, TransportError, TransportErrorCode};
use rustls::crypto::tls13::OkmBlock;
use rustls::pki_types::CertificateDer;
use rustls::quic::{Connection, KeyChange, Secrets, ServerConnection, Suite, Version};
use rustls::{AlertDescription, KeyLog, Tls13CipherSuite};

use super::{exporter, quinn, raw_key};

/// The drafts of QUIC with salts and codepoints of their own (draft-ietf-quic-tls-29 to 32): what else quinn-proto speaks
/// has those of version 1.
const OLD_DRAFTS: RangeInclusive<u32> = 0xff00_001d..=0xff00_0020;

/// TLS's settings of a server, as quinn-proto takes them; `suite` is that of Initial packets.
pub(crate) fn settings(mut tls: rustls::ServerConfig, suite: Suite) -> Arc<dyn ServerConfig> {
    tls.key_log = Arc::new(ToSession);
    let tls = Arc::new(tls);
    let quinn = QuicServerConfig::with_initial(Arc::clone(&tls), suite)
        .expect("the suite of Initial packets is AES-128-GCM");
    Arc::new(Accepting { tls, quinn, suite })
}

struct Accepting {
    tls: Arc<rustls::ServerConfig>,
    /// What has no session.
    quinn: QuicServerConfig,
    suite: Suite,
}

impl ServerConfig for Accepting {
    fn initial_keys(&self, version: u32, dst_cid: &ConnectionId) -> Result<crypto::Keys, UnsupportedVersion> {
        self.quinn.initial_keys(version, dst_cid)
    }

    fn retry_tag(&self, version: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.quinn.retry_tag(version, orig_dst_cid, packet)
    }

    fn start_session(
        self: Arc<Self>,
        version: u32,
        parameters: &TransportParameters,
    ) -> Box<dyn crypto::Session> {
        let version = if OLD_DRAFTS.contains(&version) {
            Version::V1Draft
        } else {
            Version::V1
        };
        let mut encoded = Vec::new();
        parameters.write(&mut encoded);
        let tls = ServerConnection::new(Arc::clone(&self.tls), version, encoded)
            .expect("the settings have TLS 1.3, and its suites keys of QUIC");
        Box::new(Session {
            initial: (self.suite, version),
            tls: Some(Box::new(Connection::Server(tls))),
            next_secrets: None,
            exporter_secret: None,
            proved: None,
        })
    }
}

struct Session {
    /// Suite and version of Initial packets.
    initial: (Suite, Version),
    /// Until the handshake is complete.
    tls: Option<Box<Connection>>,
    /// Of the packet keys, for their updates.
    next_secrets: Option<Secrets>,
    /// Of the exporter.
    exporter_secret: Option<OkmBlock>,
    /// What remains of `tls`.
    proved: Option<Proved>,
}

/// What is known when the handshake is complete.
struct Proved {
    suite: &'static Tls13CipherSuite,
    /// The raw public key that the other end showed.
    public_key: Option<[u8; 32]>,
}

impl Session {
    /// Gives TLS up that has nothing more to say.
    fn shed(&mut self) {
        let has_secrets = self.next_secrets.is_some() && self.exporter_secret.is_some();
        let Some(tls) = self.tls.take_if(|tls| has_secrets && !tls.is_handshaking()) else {
            return;
        };
        let suite = tls.negotiated_cipher_suite().and_then(|suite| suite.tls13());
        let shown = tls.peer_certificates().and_then(|shown| shown.first());
        self.proved = suite.map(|suite| Proved {
            suite,
            public_key: shown.and_then(|shown| raw_key::public_key_of(shown)),
        });
    }
}

impl crypto::Session for Session {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> crypto::Keys {
        let (suite, version) = self.initial;
        quinn::keys(suite.keys(dst_cid, quinn::side(side), version))
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        let shown: Vec<CertificateDer<'static>> = match (&self.tls, &self.proved) {
            (Some(tls), _) => tls.peer_certificates()?.to_vec(),
            (None, proved) => vec![raw_key::spki(&proved.as_ref()?.public_key?).into()],
        };
        Some(Box::new(shown))
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        None
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        let Some(tls) = &mut self.tls else {
            // A client has nothing to say after its Finished (RFC 9001 sections 4.4 and 6, RFC 8446 section 4.6).
            return Err(TransportError {
                code: TransportErrorCode::crypto(AlertDescription::UnexpectedMessage.into()),
                frame: None,
                reason: String::new(),
            });
        };
        // Of a session that panicked in the middle.
        drop(LOGGED.take());
        let read = tls.read_hs(buf);
        if let Some(secret) = LOGGED.take() {
            self.exporter_secret = Some(secret);
        }
        read.map(|()| false).map_err(|_| quinn::alert(tls))
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        match &self.tls {
            Some(tls) => quinn::parameters(tls, Side::Server),
            None => Ok(None),
        }
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<crypto::Keys> {
        match self.tls.as_mut()?.write_hs(buf) {
            Some(KeyChange::Handshake { keys }) => Some(quinn::keys(keys)),
            Some(KeyChange::OneRtt { keys, next }) => {
                self.next_secrets = Some(next);
                Some(quinn::keys(keys))
            }
            None => {
                self.shed();
                None
            }
        }
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.next_secrets.as_mut().map(quinn::updated_keys)
    }

    fn is_valid_retry(&self, _orig_dst_cid: &ConnectionId, _header: &[u8], _payload: &[u8]) -> bool {
        // A server gets none (RFC 9000 section 17.2.5).
        false
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        let (Some(proved), Some(secret)) = (&self.proved, &self.exporter_secret) else {
            return Err(ExportKeyingMaterialError);
        };
        exporter::export(proved.suite, secret, label, context, output).ok_or(ExportKeyingMaterialError)
    }
}

thread_local! {
    /// The secret of the exporter, from the step of the handshake that makes it to the end of that step.
    static LOGGED: RefCell<Option<OkmBlock>> = const { RefCell::new(None) };
}

/// Hands one secret of a handshake to the session that takes its next step: rustls tells it to nobody else. It is written
/// nowhere.
#[derive(Debug)]
struct ToSession;

impl KeyLog for ToSession {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        if self.will_log(label) {
            LOGGED.set(Some(OkmBlock::new(secret)));
        }
    }

    fn will_log(&self, label: &str) -> bool {
        label == "EXPORTER_SECRET"
    }
}

#[cfg(test)]
mod tests;
