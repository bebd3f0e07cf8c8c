//! QUIC's settings for a Unix socket: nothing is lost, reordered or congested, peers are near, and memory is
//! bounded.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use noq::congestion::{Controller, ControllerFactory};
use noq::{ClientConfig, EndpointConfig, ServerConfig, TransportConfig, ValidationTokenConfig};
use noq_proto::RandomConnectionIdGenerator;

use crate::limits::{
    CONNECTION_ID_BYTES, CONNECTION_WINDOW_BYTES, DATAGRAM_BYTES_MAX, DATAGRAM_BYTES_MIN,
    DATAGRAM_QUEUE_BYTES, INITIAL_ROUND_TRIP, SEND_WINDOW_BYTES, STREAM_WINDOW_BYTES, STREAMS_MAX,
};
use crate::plaintext::{PlainConfig, TokenHash, VERSION};

/// No congestion control: the kernel blocks the sender when the receiver's socket is full, and loses nothing.
///
/// The window is beyond 32 bits, which also switches noq's pacing off. The usual controllers start with a window of
/// 12,000 bytes whatever the datagram size, and a first datagram longer than that would wait forever.
#[derive(Clone, Debug)]
struct Uncongested;

impl Uncongested {
    const WINDOW: u64 = u64::MAX / 4;
}

impl Controller for Uncongested {
    fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, _: bool, _: u64, _: u64) {}

    fn on_mtu_update(&mut self, _: u16) {}

    fn window(&self) -> u64 {
        Self::WINDOW
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        Self::WINDOW
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl ControllerFactory for Uncongested {
    fn build(self: Arc<Self>, _: Instant, _: u16) -> Box<dyn Controller> {
        Box::new(Self)
    }
}

/// Settings of every connection, for datagrams of at most `datagram_bytes`.
fn transport_config(datagram_bytes: u16) -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    config
        .congestion_controller_factory(Arc::new(Uncongested))
        .initial_mtu(datagram_bytes)
        .min_mtu(datagram_bytes)
        .mtu_discovery_config(None)
        .initial_rtt(INITIAL_ROUND_TRIP)
        // noq-proto 1.4 writes ACK_FREQUENCY without asking for room and panics where a short datagram began the
        // train, which a server with a hundred busy clients meets.
        .ack_frequency_config(None)
        // The socket's end tells of a peer's death, however long it was idle.
        .max_idle_timeout(None)
        .max_concurrent_bidi_streams(STREAMS_MAX.into())
        .max_concurrent_uni_streams(STREAMS_MAX.into())
        .stream_receive_window(STREAM_WINDOW_BYTES.into())
        .receive_window(CONNECTION_WINDOW_BYTES.into())
        .send_window(SEND_WINDOW_BYTES.into())
        .datagram_receive_buffer_size(Some(DATAGRAM_QUEUE_BYTES))
        .datagram_send_buffer_size(DATAGRAM_QUEUE_BYTES)
        .allow_spin(false);
    Arc::new(config)
}

/// Settings of an endpoint that receives datagrams of at most `datagram_bytes`.
pub(crate) fn endpoint_config(datagram_bytes: u16) -> EndpointConfig {
    let mut config = EndpointConfig::new(Arc::new(TokenHash::default()));
    config
        .max_udp_payload_size(datagram_bytes.clamp(DATAGRAM_BYTES_MIN, DATAGRAM_BYTES_MAX))
        .expect("between QUIC's bounds")
        .cid_generator(Arc::new(|| {
            Box::new(RandomConnectionIdGenerator::new(CONNECTION_ID_BYTES))
        }))
        .supported_versions(vec![VERSION])
        // Every packet has QUIC's fixed bit, so what has not is a notice of the socket layer.
        .grease_quic_bit(false);
    config
}

/// Settings of a client.
pub(crate) fn client_config(datagram_bytes: u16) -> ClientConfig {
    let mut config = ClientConfig::new(Arc::new(PlainConfig));
    config
        .transport_config(transport_config(datagram_bytes))
        .token_store(Arc::new(noq::NoneTokenStore))
        .version(VERSION);
    config
}

/// Settings of a server for at most `peers_max` clients.
pub(crate) fn server_config(datagram_bytes: u16, peers_max: usize) -> ServerConfig {
    let mut tokens = ValidationTokenConfig::default();
    tokens.sent(0);
    let mut config = ServerConfig::new(Arc::new(PlainConfig), Arc::new(TokenHash::default()));
    config
        .transport_config(transport_config(datagram_bytes))
        .validation_token_config(tokens)
        .migration(false)
        .max_incoming(peers_max.saturating_mul(2));
    config
}
