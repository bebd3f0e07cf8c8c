//! What rustls has, as quinn-proto takes it.

use std::io::Cursor;

use quinn_proto::crypto::{self, KeyPair, PacketKey};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{Side, TransportError, TransportErrorCode};
use rustls::quic::{Connection, Keys, Secrets};

/// Keys of a packet number space.
pub(crate) fn keys(keys: Keys) -> crypto::Keys {
    crypto::Keys {
        header: KeyPair {
            local: Box::new(keys.local.header),
            remote: Box::new(keys.remote.header),
        },
        packet: KeyPair {
            local: Box::new(keys.local.packet),
            remote: Box::new(keys.remote.packet),
        },
    }
}

/// The packet keys of the next update (RFC 9001 section 6).
pub(crate) fn updated_keys(secrets: &mut Secrets) -> KeyPair<Box<dyn PacketKey>> {
    let keys = secrets.next_packet_keys();
    KeyPair {
        local: Box::new(keys.local),
        remote: Box::new(keys.remote),
    }
}

pub(crate) fn side(side: Side) -> rustls::Side {
    match side {
        Side::Client => rustls::Side::Client,
        Side::Server => rustls::Side::Server,
    }
}

/// What the peer is told of an error: no more than its alert.
pub(crate) fn alert(tls: &Connection) -> TransportError {
    let code = match tls.alert() {
        Some(alert) => TransportErrorCode::crypto(alert.into()),
        None => TransportErrorCode::PROTOCOL_VIOLATION,
    };
    TransportError {
        code,
        frame: None,
        reason: String::new(),
    }
}

/// The transport parameters of the other end, once they are known; `side` is this end's.
pub(crate) fn parameters(
    tls: &Connection,
    side: Side,
) -> Result<Option<TransportParameters>, TransportError> {
    let parameters = tls.quic_transport_parameters();
    let read = |parameters| TransportParameters::read(side, &mut Cursor::new(parameters));
    Ok(parameters.map(read).transpose()?)
}
