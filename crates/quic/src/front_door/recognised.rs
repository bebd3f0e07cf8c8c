//! TLS of a server's connection to a client that it recognised: that of any other, but for what the hello could not say.
//!
//! A browser does not offer ACK_FREQUENCY (draft-ietf-quic-ack-frequency-07), and so our hellos do not. Our clients take
//! these frames all the same (QR1-30). The ServerHello is turned where the cover's is (QR1-27).

use std::any::Any;
use std::io::Cursor;
use std::sync::Arc;

use packet::varint;
use quinn_proto::crypto::{
    ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, ServerConfig, Session, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectionId, Side, TransportError};
use rustls::quic::Suite;

use super::server_hello;
use crate::tls::accepted;

/// The parameter by which a peer offers the extension, and its shortest delay in microseconds.
const MIN_ACK_DELAY: u64 = 0xff04_de1b;
const MIN_ACK_DELAY_MICROSECONDS: u64 = 1_000;

/// TLS's settings of one such connection, as quinn-proto takes them. Where the version comes first in its ServerHello,
/// the configuration's suite hashes it so.
pub(super) fn settings(
    config: rustls::ServerConfig,
    initial_suite: Suite,
    is_version_first: bool,
) -> Arc<dyn ServerConfig> {
    Arc::new(Recognised {
        config: accepted::settings(config, initial_suite),
        is_version_first,
    })
}

struct Recognised {
    config: Arc<dyn ServerConfig>,
    is_version_first: bool,
}

impl ServerConfig for Recognised {
    fn initial_keys(&self, version: u32, dst_cid: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        self.config.initial_keys(version, dst_cid)
    }

    fn retry_tag(&self, version: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.config.retry_tag(version, orig_dst_cid, packet)
    }

    fn start_session(self: Arc<Self>, version: u32, params: &TransportParameters) -> Box<dyn Session> {
        Box::new(RecognisedSession {
            tls: Arc::clone(&self.config).start_session(version, params),
            is_version_first: self.is_version_first,
        })
    }
}

struct RecognisedSession {
    tls: Box<dyn Session>,
    is_version_first: bool,
}

impl Session for RecognisedSession {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        self.tls.initial_keys(dst_cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.tls.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.tls.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.tls.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.tls.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.tls.read_handshake(buf)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let Some(parameters) = self.tls.transport_parameters()? else {
            return Ok(None);
        };
        let mut encoded = Vec::new();
        parameters.write(&mut encoded);
        varint::write(MIN_ACK_DELAY, &mut encoded);
        varint::write(varint::len(MIN_ACK_DELAY_MICROSECONDS) as u64, &mut encoded);
        varint::write(MIN_ACK_DELAY_MICROSECONDS, &mut encoded);
        let parameters = TransportParameters::read(Side::Server, &mut Cursor::new(encoded))?;
        Ok(Some(parameters))
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let before = buf.len();
        let keys = self.tls.write_handshake(buf);
        if self.is_version_first
            && let Some(turned) = server_hello::turned(&buf[before..])
        {
            buf.truncate(before);
            buf.extend_from_slice(&turned);
        }
        keys
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.tls.next_1rtt_keys()
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.tls.is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.tls.export_keying_material(output, label, context)
    }
}
