//! The engine's counters at one moment, as `gramway status` shows them.

use std::net::SocketAddr;
use std::ops::AddAssign;
use std::time::Duration;

use packet::Histogram;
use quic::Counters as QuicCounters;
use serde::Serialize;

use crate::drops::Account;
use crate::limits::TIME_BUCKETS;

/// One direction of the datagram path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Direction {
    /// Its account.
    #[serde(flatten)]
    pub account: Account,
    /// Datagrams that wait in a queue or in reassembly.
    pub waiting: u64,
}

/// How long things took, in microseconds: samples, of which none costs a datagram anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TimeSamples {
    /// Handshakes that were completed, from the first packet that was accepted; a client's from its first one.
    pub handshakes: Histogram<TIME_BUCKETS>,
    /// Smoothed round trips: of each connection with a token one a second.
    pub round_trips: Histogram<TIME_BUCKETS>,
    /// How long the oldest datagram in a connection's queue had waited, zero where none did: of each connection with a
    /// token one a second.
    pub queue_waits: Histogram<TIME_BUCKETS>,
}

impl TimeSamples {
    pub(crate) fn micros(time: Duration) -> u64 {
        u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
    }
}

/// What became of the questions to an authorizer, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AuthorizationCounters {
    /// Asked.
    pub asked: u64,
    /// Granted, at once or later.
    pub granted: u64,
    /// Refused, at once or later.
    pub refused: u64,
    /// Not answered in time; the request was put off.
    pub expired: u64,
    /// Requests that were put off without asking, because too many questions were open.
    pub over_limit: u64,
    /// Later answers to requests that were gone.
    pub too_late: u64,
    /// Open: neither answered nor too old, also where whoever asked is gone.
    pub waiting: u64,
}

/// What a server's rendezvous has at present, and has done since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RendezvousCounters {
    /// Peers that are registered at present.
    pub registered: u64,
    /// Registrations since the start.
    pub registrations: u64,
    /// Registrations that were refused because there was no room.
    pub over_limit: u64,
    /// Registrations that were refused because the key was not proved, or the path is another one.
    pub unproved: u64,
    /// Calls of peers.
    pub calls: u64,
    /// Calls of peers that are not registered.
    pub absent: u64,
    /// Calls that were too many, or found no room.
    pub busy: u64,
    /// Answers of peers who were called.
    pub answers: u64,
    /// Sockets of peers between which it relays, at present.
    pub sockets: u64,
    /// Contexts of these sockets, at present.
    pub contexts: u64,
    /// Bytes of sealed packets that were taken to be relayed.
    pub relayed_bytes: u64,
}

/// One living QUIC connection.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PeerSnapshot {
    /// The peer's address.
    pub remote: SocketAddr,
    /// What carries its datagrams: `udp` or `tcp`.
    pub carrier: &'static str,
    /// Whether a valid token has been seen.
    pub authenticated: bool,
    /// Smoothed round-trip time in milliseconds.
    pub rtt_ms: f64,
    /// Congestion window in bytes.
    pub congestion_window_bytes: u64,
    /// What congestion control believes of the path.
    pub path: PathSnapshot,
    /// Path MTU in bytes of UDP payload.
    pub path_mtu: u16,
    /// Largest UDP payload that travels in one datagram at present.
    pub payload_unsplit: usize,
    /// Bytes in the datagram queue.
    pub queue_bytes: usize,
    /// Counters of this connection.
    pub quic: QuicCounters,
}

/// What congestion control believes of a path, and what it does about it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PathSnapshot {
    /// The profile: `throughput`, `latency` or `fixed`.
    pub profile: &'static str,
    /// What it is doing: [`quic::Phase`].
    pub phase: quic::Phase,
    /// What the path delivers, in bits of QUIC packets per second; 0 before the first measurement.
    pub bandwidth_bits_per_second: u64,
    /// Pacing rate; `None` where trains are not paced.
    pub pacing_bits_per_second: Option<u64>,
    /// Bytes in flight.
    pub in_flight_bytes: u64,
    /// The round trip without a queue, in milliseconds.
    pub base_round_trip_ms: f64,
    /// The queue on the path in the last round trip, at its shortest, in milliseconds.
    pub queueing_delay_ms: f64,
    /// Part of the packets that is lost however little is sent, 0 to 1.
    pub random_loss: f64,
}

impl PathSnapshot {
    pub(crate) fn new(report: &quic::ConnectionReport) -> Self {
        Self {
            profile: report.profile.name(),
            phase: report.path.phase,
            bandwidth_bits_per_second: report.path.bandwidth_bytes_per_second.saturating_mul(8),
            pacing_bits_per_second: report.pacing_bits_per_second,
            in_flight_bytes: report.in_flight,
            base_round_trip_ms: report.path.base_round_trip.as_secs_f64() * 1e3,
            queueing_delay_ms: report.path.queueing_delay.as_secs_f64() * 1e3,
            random_loss: f64::from(report.path.random_loss_per_million) / 1e6,
        }
    }
}

impl AddAssign for Direction {
    fn add_assign(&mut self, other: Self) {
        self.account += other.account;
        self.waiting += other.waiting;
    }
}

impl AddAssign for TimeSamples {
    fn add_assign(&mut self, other: Self) {
        self.handshakes += other.handshakes;
        self.round_trips += other.round_trips;
        self.queue_waits += other.queue_waits;
    }
}

impl AddAssign for AuthorizationCounters {
    fn add_assign(&mut self, other: Self) {
        self.asked += other.asked;
        self.granted += other.granted;
        self.refused += other.refused;
        self.expired += other.expired;
        self.over_limit += other.over_limit;
        self.too_late += other.too_late;
        self.waiting += other.waiting;
    }
}
