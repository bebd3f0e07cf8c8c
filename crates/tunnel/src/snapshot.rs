//! The counters of one shard at one moment, as `gramway status` shows them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::Serialize;

/// All counters of a running server or client.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Snapshot {
    /// `server` or `client`.
    pub role: String,
    /// Process ID.
    pub pid: u32,
    /// Seconds since the start.
    pub uptime_seconds: f64,
    /// `connecting`, `connected`, `reconnecting`, `draining` (client); `listening`, `draining` (server).
    pub state: String,
    /// Address of the outer socket.
    pub local: Option<SocketAddr>,
    /// Datagrams from inner sockets towards QUIC: `accepted + split = sent + joined + sum(drops) + waiting`.
    pub ingress: Direction,
    /// DATAGRAM frames from QUIC towards inner sockets: the same law.
    pub egress: Direction,
    /// Sums over all QUIC connections, those that have ended included.
    pub quic: QuicCounters,
    /// The outer UDP socket.
    pub outer_io: IoCounters,
    /// All inner UDP sockets together.
    pub inner_io: IoCounters,
    /// TCP forwards.
    pub tcp: TcpCounters,
    /// UDP sessions open at present, and since the start.
    pub udp_sessions: Gauge,
    /// QUIC connections open at present, and since the start.
    pub connections: Gauge,
    /// Requests refused before a valid token: status code as text, count.
    pub refused_requests: BTreeMap<String, u64>,
    /// Client: how often the connection was made again.
    pub reconnects: u64,
    /// The living connections.
    pub peers: Vec<PeerSnapshot>,
}

/// One direction of the datagram path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Direction {
    /// Datagrams that came in.
    pub accepted: u64,
    /// Fragments beyond the first of each payload that was split.
    pub split: u64,
    /// Datagrams that were sent on; where a payload is split, fragments.
    pub sent: u64,
    /// Fragments beyond the first of each payload that was put together.
    pub joined: u64,
    /// Datagrams that wait in a queue or in reassembly.
    pub waiting: u64,
    /// Datagrams dropped, by reason; reasons with zero are left out.
    pub drops: BTreeMap<String, u64>,
}

/// What QUIC counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QuicCounters {
    /// UDP datagrams sent.
    pub packets_sent: u64,
    /// UDP datagrams received.
    pub packets_received: u64,
    /// Bytes of UDP payload sent.
    pub bytes_sent: u64,
    /// Bytes of UDP payload received.
    pub bytes_received: u64,
    /// DATAGRAM frames sent.
    pub datagrams_sent: u64,
    /// DATAGRAM frames received.
    pub datagrams_received: u64,
    /// ACK frames sent.
    pub acks_sent: u64,
    /// ACK frames received.
    pub acks_received: u64,
    /// STREAM frames sent.
    pub stream_frames_sent: u64,
    /// STREAM frames received.
    pub stream_frames_received: u64,
    /// Packets declared lost.
    pub packets_lost: u64,
    /// Congestion events.
    pub congestion_events: u64,
    /// Path MTU probes that were lost.
    pub lost_mtu_probes: u64,
    /// Black holes detected (RFC 8899).
    pub black_holes: u64,
    /// Handed-over trains, each one GSO send where the kernel takes it.
    pub trains_sent: u64,
    /// QUIC packets in those trains.
    pub train_segments_sent: u64,
}

/// What a UDP socket counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IoCounters {
    /// recvmmsg calls.
    pub receives: u64,
    /// Datagrams received.
    pub segments_received: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Messages that the kernel had coalesced.
    pub gro_messages: u64,
    /// Datagrams that the kernel dropped because the receive buffer was full.
    pub kernel_drops: u64,
    /// sendmmsg calls.
    pub sends: u64,
    /// Messages sent with segmentation offload.
    pub gso_messages: u64,
    /// Messages sent.
    pub messages_sent: u64,
    /// Datagrams sent.
    pub segments_sent: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Messages that were split and sent again because the kernel refused the offload.
    pub split_resends: u64,
    /// Paths stepped down from segmentation offload.
    pub gso_step_downs: u64,
    /// Sends that found the socket full.
    pub would_block: u64,
    /// Receive buffer asked for, in bytes.
    pub receive_buffer_wanted: usize,
    /// Receive buffer obtained, in bytes.
    pub receive_buffer_obtained: usize,
}

/// What TCP forwards count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TcpCounters {
    /// Connections open at present.
    pub open: u64,
    /// Connections since the start.
    pub total: u64,
    /// Connections that failed to open (refused, unreachable, unresolvable, tunnel down).
    pub failed: u64,
    /// Bytes from local sockets into QUIC.
    pub bytes_in: u64,
    /// Bytes from QUIC to local sockets.
    pub bytes_out: u64,
}

/// A number at present and since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Gauge {
    /// At present.
    pub open: u64,
    /// Since the start.
    pub total: u64,
}

/// One living QUIC connection.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PeerSnapshot {
    /// The peer's address.
    pub remote: SocketAddr,
    /// Whether a valid token has been seen.
    pub authenticated: bool,
    /// Smoothed round-trip time in milliseconds.
    pub rtt_ms: f64,
    /// Congestion window in bytes.
    pub congestion_window_bytes: u64,
    /// Path MTU in bytes of UDP payload.
    pub path_mtu: u16,
    /// Largest UDP payload that travels in one datagram at present.
    pub payload_unsplit: usize,
    /// Bytes in the datagram queue.
    pub queue_bytes: usize,
    /// Counters of this connection.
    pub quic: QuicCounters,
}
