//! Parameters of endpoints and connections, and their translation into quinn-proto's settings.

use std::sync::Arc;
use std::time::Duration;

use quinn_proto::{AckFrequencyConfig, MtuDiscoveryConfig, TransportConfig, VarInt};

use crate::congestion::{Factory, Gate, Kind, Tuning};
use crate::connection_id::Shard;
use crate::limits;

/// How a connection weighs throughput against delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Sparse acknowledgements, and a queue of half a round trip at most; the default.
    #[default]
    Throughput,
    /// Prompt acknowledgements, and a queue of two milliseconds at most.
    Latency,
    /// A rate that the operator names, never exceeded and not reduced by loss; packets are Not-ECT.
    Fixed {
        /// Bits per second of QUIC packets, at least 1,000,000.
        bits_per_second: u64,
    },
}

/// Which library seals and opens packets. Which one is faster depends on the processor: [`crate::sealing_probe`] lets the
/// caller measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aead {
    /// aws-lc-rs: AES-GCM with AVX-512.
    #[default]
    AwsLc,
    /// ring: AES-GCM with AVX2 and VAES.
    Ring,
}

/// What an endpoint needs in either role.
pub struct EndpointParameters {
    /// Upper bound of UDP payloads that we send and that the peer may send us, in bytes; `None`: 65,507.
    pub udp_payload_max: Option<u16>,
    /// Throughput against delay.
    pub profile: Profile,
    /// Which library seals and opens packets.
    pub aead: Aead,
    /// Key of stateless resets (RFC 9000 section 10.3.2), the same over restarts of a server and in all its shards. The
    /// key of connection IDs is derived from it.
    pub reset_key: [u8; 64],
    /// Which shard the endpoint is; every connection ID that it issues names it.
    pub shard: Shard,
    /// Seed of connection IDs and packet-number gaps; from the operating system outside tests.
    pub seed: [u8; 32],
}

/// What a server needs besides.
pub struct ServerParameters {
    /// Certificate chain, DER, leaf first.
    pub certificate_chain: Vec<Vec<u8>>,
    /// Private key of the leaf, PKCS#8 DER.
    pub private_key: Vec<u8>,
    /// Key of address validation tokens (RFC 9000 section 8.1), the same over restarts.
    pub token_key: [u8; 64],
}

/// How a client knows its server.
#[derive(Clone, Copy, Debug)]
pub struct ClientParameters {
    /// SHA-256 of the server's SubjectPublicKeyInfo.
    pub pin: [u8; 32],
}

impl Profile {
    /// Its name as settings and `status` have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Latency => "latency",
            Self::Fixed { .. } => "fixed",
        }
    }

    /// Whether ECN marks are used: a rate that does not react to congestion must not claim to (RFC 9298 section 6).
    pub(crate) fn uses_ecn(self) -> bool {
        !matches!(self, Self::Fixed { .. })
    }

    fn ack_frequency(self) -> AckFrequencyConfig {
        let (packets, delay) = match self {
            Self::Throughput | Self::Fixed { .. } => (63_u32, Duration::from_millis(2)),
            Self::Latency => (3, Duration::from_millis(1)),
        };
        let mut config = AckFrequencyConfig::default();
        config
            .ack_eliciting_threshold(packets.into())
            .max_ack_delay(Some(delay))
            .reordering_threshold(limits::PACKET_THRESHOLD.into());
        config
    }
}

/// Settings of one connection whose path carries at most `udp_payload_ceiling` bytes, and whose congestion controller
/// shares `gate` with it; no other connection may have the same settings.
pub(crate) fn transport(
    profile: Profile,
    udp_payload_ceiling: u16,
    authenticated: bool,
    gate: &Gate,
) -> Arc<TransportConfig> {
    let ceiling = udp_payload_ceiling.clamp(limits::UDP_PAYLOAD_MIN, limits::UDP_PAYLOAD_MAX);
    let mut mtu_discovery = MtuDiscoveryConfig::default();
    mtu_discovery.upper_bound(ceiling);
    let window = if authenticated {
        limits::CONNECTION_WINDOW_BYTES
    } else {
        limits::UNAUTHENTICATED_CREDIT_BYTES
    };
    let streams = if authenticated {
        0
    } else {
        limits::UNAUTHENTICATED_STREAMS
    };
    let mut config = TransportConfig::default();
    config
        .initial_rtt(limits::INITIAL_ROUND_TRIP)
        .max_concurrent_bidi_streams(VarInt::from_u32(streams))
        .max_concurrent_uni_streams(VarInt::from_u32(limits::UNIDIRECTIONAL_STREAMS))
        .stream_receive_window(VarInt::from_u32(limits::STREAM_WINDOW_BYTES))
        .receive_window(VarInt::from_u32(window))
        .send_window(limits::SEND_WINDOW_BYTES)
        .max_idle_timeout(Some(
            limits::IDLE_TIMEOUT
                .try_into()
                .expect("30 s fits a varint of milliseconds"),
        ))
        .keep_alive_interval(authenticated.then_some(limits::KEEP_ALIVE_INTERVAL))
        .packet_threshold(limits::PACKET_THRESHOLD)
        .time_threshold(limits::TIME_THRESHOLD)
        .initial_mtu(limits::UDP_PAYLOAD_MIN)
        .mtu_discovery_config((ceiling > limits::UDP_PAYLOAD_MIN).then_some(mtu_discovery))
        .ack_frequency_config(Some(profile.ack_frequency()))
        .crypto_buffer_size(limits::CRYPTO_BUFFER_BYTES)
        .datagram_receive_buffer_size(Some(limits::DATAGRAM_RECEIVE_BYTES))
        .datagram_send_buffer_size(limits::DATAGRAM_SEND_BYTES);
    config.congestion_controller_factory(Arc::new(Factory {
        kind: match profile {
            Profile::Throughput => Kind::Model(Tuning::Throughput),
            Profile::Latency => Kind::Model(Tuning::Latency),
            Profile::Fixed { bits_per_second } => Kind::Fixed(bits_per_second),
        },
        gate: gate.clone(),
    }));
    Arc::new(config)
}
