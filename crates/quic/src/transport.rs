//! The core's settings for one connection, which depend on its profile, its path, and whether its peer is authenticated.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn_proto::{AckFrequencyConfig, IdleTimeout, MtuDiscoveryConfig, QlogStream, TransportConfig, VarInt};

use crate::config::{ConnectionLimits, Profile};
use crate::congestion::{Factory, Gate, Kind, Tuning};
use crate::limits;

/// What the other end of a connection may do from the start, and whether we keep the connection alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rights {
    /// The same of one stream; and bytes of ours that may be unacknowledged.
    stream_window: u32,
    /// Bytes of stream data beyond what was read.
    window: u32,
    bidirectional_streams: u32,
    unidirectional_streams: u32,
    keeps_alive: bool,
}

impl Rights {
    /// A server that we chose.
    pub(crate) const SERVER: Self = Self {
        stream_window: limits::STREAM_WINDOW_BYTES,
        window: limits::CONNECTION_WINDOW_BYTES,
        bidirectional_streams: 0,
        unidirectional_streams: limits::UNIDIRECTIONAL_STREAMS,
        keeps_alive: true,
    };

    /// A peer that we chose.
    pub(crate) const PEER: Self = Self {
        bidirectional_streams: limits::PEER_STREAMS_UNUSED[0],
        unidirectional_streams: limits::PEER_STREAMS_UNUSED[1],
        ..Self::SERVER
    };

    /// The same, where streams have this window.
    pub(crate) fn peer_with(stream_window: u32) -> Self {
        Self {
            stream_window,
            window: limits::connection_window_bytes(stream_window, 0),
            ..Self::PEER
        }
    }

    /// Whoever asks for a connection, before it is authenticated.
    pub(crate) fn of_stranger(may: &ConnectionLimits) -> Self {
        Self {
            stream_window: limits::STREAM_WINDOW_BYTES,
            window: may.unauthenticated_credit_bytes,
            bidirectional_streams: may.unauthenticated_streams,
            unidirectional_streams: limits::UNIDIRECTIONAL_STREAMS,
            keeps_alive: false,
        }
    }

    /// Whoever asks for a connection between peers, where streams have this window.
    pub(crate) fn of_strange_peer(may: &ConnectionLimits, stream_window: u32) -> Self {
        Self {
            stream_window,
            bidirectional_streams: may.unauthenticated_streams.min(Self::PEER.bidirectional_streams),
            unidirectional_streams: Self::PEER.unidirectional_streams,
            ..Self::of_stranger(may)
        }
    }
}

/// UDP payloads of a connection, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Payloads {
    /// What the path is known to carry; Initial packets are padded to it.
    pub(crate) least: u16,
    /// Datagrams have at most so many at first.
    pub(crate) first: u16,
    /// Datagrams have at most so many.
    pub(crate) most: u16,
}

impl Payloads {
    /// A path of which nothing is known but what the interface carries; larger datagrams than `least` are probed first.
    pub(crate) fn probed(least: u16, most: u16) -> Self {
        let first = least;
        Self { least, first, most }
    }

    /// A path to `remote` of which the same is known, or that is no more than the loopback interface: what that carries
    /// needs no probe. A dozen probes of up to 16 KiB cost a new connection a third of its time. Where a program relays
    /// further, quinn-proto finds the black hole.
    pub(crate) fn between_peers(remote: SocketAddr, most: u16) -> Self {
        let is_loopback = remote.ip().to_canonical().is_loopback();
        let first = if is_loopback {
            most
        } else {
            limits::UDP_PAYLOAD_MIN
        };
        let least = limits::UDP_PAYLOAD_MIN;
        Self { least, first, most }
    }
}

/// Settings of one connection with these payloads, whose congestion controller shares `gate` with it; no other connection
/// may have the same settings. It ends after `idle_timeout` without traffic. `trace` takes its trace.
pub(crate) fn settings(
    profile: Profile,
    payloads: Payloads,
    rights: Rights,
    idle_timeout: Duration,
    gate: &Gate,
    trace: Option<QlogStream>,
) -> Arc<TransportConfig> {
    let most = payloads
        .most
        .clamp(limits::UDP_PAYLOAD_MIN, limits::UDP_PAYLOAD_MAX);
    let first = payloads.first.clamp(limits::UDP_PAYLOAD_MIN, most);
    let least = payloads.least.clamp(limits::UDP_PAYLOAD_MIN, first);
    let mut mtu_discovery = MtuDiscoveryConfig::default();
    mtu_discovery
        .upper_bound(most)
        .black_hole_cooldown(limits::BLACK_HOLE_COOLDOWN);
    let mut config = TransportConfig::default();
    config
        .initial_rtt(limits::INITIAL_ROUND_TRIP)
        .max_concurrent_bidi_streams(VarInt::from_u32(rights.bidirectional_streams))
        .max_concurrent_uni_streams(VarInt::from_u32(rights.unidirectional_streams))
        .stream_receive_window(VarInt::from_u32(rights.stream_window))
        .receive_window(VarInt::from_u32(rights.window))
        .send_window(rights.stream_window.into())
        .max_idle_timeout(Some(
            IdleTimeout::try_from(idle_timeout).expect("30 s fits a varint of milliseconds"),
        ))
        .keep_alive_interval(
            // The other end may not know how soon it ends here.
            (rights.keeps_alive || idle_timeout < limits::IDLE_TIMEOUT)
                .then_some(limits::KEEP_ALIVE_INTERVAL.min(idle_timeout / 3)),
        )
        .packet_threshold(limits::PACKET_THRESHOLD)
        .time_threshold(limits::TIME_THRESHOLD)
        .initial_mtu(first)
        .min_mtu(least)
        .mtu_discovery_config((most > least).then_some(mtu_discovery))
        .ack_frequency_config(Some(ack_frequency(profile)))
        .crypto_buffer_size(limits::CRYPTO_BUFFER_BYTES)
        .datagram_receive_buffer_size(Some(limits::DATAGRAM_RECEIVE_BYTES))
        .datagram_send_buffer_size(limits::DATAGRAM_SEND_BYTES)
        .qlog_stream(trace);
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

fn ack_frequency(profile: Profile) -> AckFrequencyConfig {
    let (packets, delay) = match profile {
        Profile::Throughput | Profile::Fixed { .. } => limits::ACKNOWLEDGED_THROUGHPUT,
        Profile::Latency => limits::ACKNOWLEDGED_LATENCY,
    };
    let mut config = AckFrequencyConfig::default();
    config
        .ack_eliciting_threshold(packets.into())
        .max_ack_delay(Some(delay))
        .reordering_threshold(limits::PACKET_THRESHOLD.into());
    config
}
