//! What is counted per connection and for the whole endpoint.

use std::net::SocketAddr;
use std::ops::AddAssign;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::config::Profile;
use crate::congestion::PathEstimate;

/// Counters of one connection, or sums over several; what `gramway status` shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
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
    /// Times that congestion control reduced rate or window: for more loss than is random, a mark, or a slower path.
    pub window_cuts: u64,
    /// Path MTU probes lost.
    pub lost_mtu_probes: u64,
    /// Black holes detected (RFC 8899 section 4.3).
    pub black_holes: u64,
    /// Trains handed to the driver, each one GSO send where the kernel takes it.
    pub trains_sent: u64,
    /// QUIC packets in those trains.
    pub train_segments_sent: u64,
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.packets_sent += other.packets_sent;
        self.packets_received += other.packets_received;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        self.datagrams_sent += other.datagrams_sent;
        self.datagrams_received += other.datagrams_received;
        self.acks_sent += other.acks_sent;
        self.acks_received += other.acks_received;
        self.stream_frames_sent += other.stream_frames_sent;
        self.stream_frames_received += other.stream_frames_received;
        self.packets_lost += other.packets_lost;
        self.window_cuts += other.window_cuts;
        self.lost_mtu_probes += other.lost_mtu_probes;
        self.black_holes += other.black_holes;
        self.trains_sent += other.trains_sent;
        self.train_segments_sent += other.train_segments_sent;
    }
}

/// What became of the new connections that peers asked for, since the start:
/// `offered = accepted + damaged + refused + retried + ignored + expired + waiting`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IncomingCounters {
    /// Told to the caller as [`crate::Event::Incoming`].
    pub offered: u64,
    /// Accepted.
    pub accepted: u64,
    /// Accepted by the caller, but their first packet could not be used.
    pub damaged: u64,
    /// Refused by the caller.
    pub refused: u64,
    /// Asked by the caller to prove their address.
    pub retried: u64,
    /// Ignored by the caller.
    pub ignored: u64,
    /// Not decided on in time.
    pub expired: u64,
    /// Waiting for the caller's decision.
    pub waiting: u64,
    /// Not offered: packets of a first flight whose connection was not accepted just before.
    pub turned_down: u64,
    /// Not offered and not answered, because too many were in progress.
    pub over_limit: u64,
    /// Accepted, and ended before their token came, because newcomers needed the room.
    pub pushed_out: u64,
    /// Not offered, but asked to prove their address, because many came.
    pub over_rate: u64,
}

impl AddAssign for IncomingCounters {
    fn add_assign(&mut self, other: Self) {
        self.offered += other.offered;
        self.accepted += other.accepted;
        self.damaged += other.damaged;
        self.refused += other.refused;
        self.retried += other.retried;
        self.ignored += other.ignored;
        self.expired += other.expired;
        self.waiting += other.waiting;
        self.turned_down += other.turned_down;
        self.over_limit += other.over_limit;
        self.pushed_out += other.pushed_out;
        self.over_rate += other.over_rate;
    }
}

/// State of one living connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConnectionReport {
    /// The peer's address.
    pub remote: SocketAddr,
    /// When the handshake began: with our first packet, or with the peer's that was accepted.
    pub begun: Instant,
    /// Whether [`crate::Endpoint::authenticate`] was called for it; always, where we connected.
    pub authenticated: bool,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Latest sample of the round-trip time, delays of acknowledgements included; zero before the first.
    pub rtt_latest: Duration,
    /// Shortest round-trip time of the path; as `rtt` before the first sample.
    pub rtt_min: Duration,
    /// Mean deviation of the samples (RFC 9002 section 5.3); zero before the first.
    pub rtt_variation: Duration,
    /// Congestion window in bytes.
    pub congestion_window: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Counts ACK frames that acknowledged something that was in flight.
    pub acknowledgements: u64,
    /// How often there was more to send than congestion control let go.
    pub held_back: u64,
    /// How often there was nothing more to send.
    pub idle: u64,
    /// Pacing rate in bits per second; `None` where trains are not paced.
    pub pacing_bits_per_second: Option<u64>,
    /// How throughput is weighed against delay.
    pub profile: Profile,
    /// The congestion controller's estimates of the path.
    pub path: PathEstimate,
    /// Path MTU in bytes of UDP payload.
    pub path_mtu: u16,
    /// Largest payload of one DATAGRAM frame at present, in bytes; `None` before the peer's parameters are known.
    pub datagram_max: Option<usize>,
    /// Bytes of the packets declared lost.
    pub bytes_lost: u64,
    /// Acknowledgements that reported marks of congestion (RFC 3168), each for one or more packets.
    pub congestion_marks: u64,
    /// Its counters.
    pub counters: Counters,
}
