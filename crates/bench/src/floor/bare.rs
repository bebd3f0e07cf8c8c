//! quinn-proto alone as an end of [`super::quic_driver`]: what our `quic` crate is compared with.
//!
//! The settings that weigh are those of our crate's default profile; what our crate adds (shares for streams,
//! admission, counters, pins) is missing here.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::{hkdf, hmac};
use bytes::Bytes;
use packet::Ecn;
use quic::OutgoingTrain;
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{
    AckFrequencyConfig, ClientConfig, Connection, ConnectionHandle, DatagramEvent, EcnCodepoint, Endpoint,
    EndpointConfig, Event, MtuDiscoveryConfig, ServerConfig, TransportConfig,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{CipherSuite, RootCertStore};

use super::end::{Arrived, End, PAYLOAD_BYTES, UDP_PAYLOAD_MAX, payload};
use super::identity::{Identity, SERVER_NAME};
use crate::Error;

/// Trains per flush, as many as our crate makes.
const TRAINS_PER_FLUSH: usize = quic::limits::TRAINS_PER_FLUSH;

/// Datagrams inside quinn-proto, in bytes: one train with its bookkeeping.
const SEND_BUFFER_BYTES: usize = 64 * (PAYLOAD_BYTES + 64);

/// Packets after which an acknowledgement is sent at last; our default profile.
const ACK_THRESHOLD: u32 = 63;

/// Longest delay of an acknowledgement; our default profile.
const ACK_DELAY: Duration = Duration::from_millis(2);

/// One endpoint with one connection.
pub(super) struct Bare {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    connected: bool,
    peer: SocketAddr,
    trains: Vec<OutgoingTrain>,
    spare: Vec<Vec<u8>>,
    received: u64,
    payload: Bytes,
}

impl Bare {
    /// A client that has begun to connect, and its server.
    ///
    /// # Errors
    /// When the certificate is refused.
    pub(super) fn pair(identity: &Identity) -> Result<[Self; 2], Error> {
        let failed =
            |error: &dyn std::fmt::Display| Error::Setup(format!("cannot set quinn-proto up: {error}"));
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        provider
            .cipher_suites
            .sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
        let provider = Arc::new(provider);
        let certificate = CertificateDer::from(identity.certificate.clone());
        let private_key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(identity.private_key.clone()));

        let server_tls = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .and_then(|builder| {
                builder
                    .with_no_client_auth()
                    .with_single_cert(vec![certificate.clone()], private_key)
            })
            .map_err(|error| failed(&error))?;
        let server_tls = QuicServerConfig::try_from(server_tls).map_err(|error| failed(&error))?;
        let token_key = hkdf::Salt::new(hkdf::HKDF_SHA256, b"bare").extract(&[3; 64]);
        let mut server_config = ServerConfig::new(Arc::new(server_tls), Arc::new(token_key));
        server_config.transport_config(transport());

        let mut roots = RootCertStore::empty();
        roots.add(certificate).map_err(|error| failed(&error))?;
        let client_tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| failed(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let client_tls = QuicClientConfig::try_from(client_tls).map_err(|error| failed(&error))?;
        let mut client_config = ClientConfig::new(Arc::new(client_tls));
        client_config.transport_config(transport());

        let [client_address, server_address] = [1, 2].map(|last| SocketAddr::from(([10, 0, 0, last], 443)));
        let mut client = Self::new(endpoint(None, 1), server_address);
        let connection = client
            .endpoint
            .connect(Instant::now(), client_config, server_address, SERVER_NAME);
        client.connection = Some(connection.map_err(|error| failed(&error))?);
        Ok([
            client,
            Self::new(endpoint(Some(Arc::new(server_config)), 2), client_address),
        ])
    }

    fn new(endpoint: Endpoint, peer: SocketAddr) -> Self {
        Self {
            endpoint,
            connection: None,
            connected: false,
            peer,
            trains: Vec::new(),
            spare: Vec::new(),
            received: 0,
            payload: payload(),
        }
    }

    fn poll_events(&mut self) {
        let Some((handle, connection)) = &mut self.connection else {
            return;
        };
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
            }
        }
        while let Some(event) = connection.poll() {
            self.connected |= matches!(event, Event::Connected);
        }
    }
}

fn endpoint(server: Option<Arc<ServerConfig>>, seed: u8) -> Endpoint {
    let mut config = EndpointConfig::new(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, &[seed; 64])));
    config.grease_quic_bit(false);
    Endpoint::new(Arc::new(config), server, true, Some([seed; 32]))
}

fn transport() -> Arc<TransportConfig> {
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(UDP_PAYLOAD_MAX);
    let mut acks = AckFrequencyConfig::default();
    acks.ack_eliciting_threshold(ACK_THRESHOLD.into())
        .max_ack_delay(Some(ACK_DELAY))
        .reordering_threshold(quic::limits::PACKET_THRESHOLD.into());
    let mut config = TransportConfig::default();
    config
        .packet_threshold(quic::limits::PACKET_THRESHOLD)
        .time_threshold(quic::limits::TIME_THRESHOLD)
        .mtu_discovery_config(Some(discovery))
        .ack_frequency_config(Some(acks))
        .datagram_receive_buffer_size(Some(quic::limits::DATAGRAM_RECEIVE_BYTES))
        .datagram_send_buffer_size(SEND_BUFFER_BYTES);
    Arc::new(config)
}

impl End for Bare {
    fn take(&mut self, now: Instant, arrived: Arrived) {
        let Arrived {
            mut data,
            segment_size,
            ecn,
        } = arrived;
        let codepoint = EcnCodepoint::from_bits(ecn.bits());
        let mut response = Vec::new();
        while !data.is_empty() {
            let segment = data.split_to(segment_size.min(data.len()));
            let event = self
                .endpoint
                .handle(now, self.peer, None, codepoint, segment, &mut response);
            match (event, &mut self.connection) {
                (Some(DatagramEvent::ConnectionEvent(_, event)), Some((_, connection))) => {
                    connection.handle_event(event);
                }
                (Some(DatagramEvent::NewConnection(incoming)), _) => {
                    self.connection = self.endpoint.accept(incoming, now, &mut response, None).ok();
                }
                _ => {}
            }
        }
        if let Some((_, connection)) = &mut self.connection {
            while connection.datagrams().recv().is_some() {
                self.received += 1;
            }
        }
        self.poll_events();
    }

    fn flush(&mut self, now: Instant, feed: &mut u64) {
        let Some((_, connection)) = &mut self.connection else {
            return;
        };
        let segments = packet::TRAIN_SEGMENTS_MAX
            .min(packet::UDP_PAYLOAD_MAX / usize::from(connection.current_mtu()))
            .max(1);
        for _ in 0..TRAINS_PER_FLUSH {
            while *feed > 0 && connection.datagrams().send(self.payload.clone(), false).is_ok() {
                *feed -= 1;
            }
            let mut bytes = self.spare.pop().unwrap_or_default();
            let Some(transmit) = connection.poll_transmit(now, segments, &mut bytes) else {
                self.spare.push(bytes);
                break;
            };
            bytes.truncate(transmit.size);
            self.trains.push(OutgoingTrain {
                destination: transmit.destination,
                source: transmit.src_ip,
                ecn: transmit
                    .ecn
                    .map_or(Ecn::NotEct, |codepoint| Ecn::from_bits(codepoint as u8)),
                segment_size: transmit.segment_size.unwrap_or(transmit.size),
                bytes,
            });
        }
        self.poll_events();
    }

    fn trains(&self) -> &[OutgoingTrain] {
        &self.trains
    }

    fn release(&mut self) {
        for mut train in self.trains.drain(..) {
            train.bytes.clear();
            self.spare.push(train.bytes);
        }
    }

    fn timeout(&mut self) -> Option<Instant> {
        self.connection
            .as_mut()
            .and_then(|(_, connection)| connection.poll_timeout())
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Some((_, connection)) = &mut self.connection {
            connection.handle_timeout(now);
        }
        self.poll_events();
    }

    fn is_connected(&self) -> bool {
        self.connected
    }

    fn received(&self) -> u64 {
        self.received
    }
}
