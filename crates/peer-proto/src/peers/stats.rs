//! The state of a peer's connection, as a program sees it.

use std::net::SocketAddr;
use std::time::Duration;

use quic::ConnectionReport;

use super::{PeerKey, Peers};
use crate::receiver::ReceiveCounters;
use crate::sender::{SendCounters, Sender};

/// State of a connection and of its path.
///
/// Rates are those of QUIC packets, headers included. A packet that is lost is not sent again as it was: streams send
/// the bytes once more, and messages are counted in [`SendCounters::repeated`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct PathStats {
    /// The peer's address on the path in use.
    pub remote: SocketAddr,
    /// Whether a rendezvous relays what is sent; the path is direct otherwise.
    pub is_relayed: bool,
    /// Smoothed round-trip time.
    pub round_trip: Duration,
    /// Latest sample of the round-trip time, the peer's delay of its acknowledgement included; zero before the first.
    pub round_trip_latest: Duration,
    /// Shortest round-trip time of this path.
    pub round_trip_min: Duration,
    /// Mean deviation of the samples (RFC 9002 section 5.3): how much the round trip varies.
    pub round_trip_variation: Duration,
    /// How much longer the last round trip was than one without a queue, at its shortest: the queue on the way.
    pub queueing_delay: Duration,
    /// What the path was seen to deliver, in bytes a second; `None` before the first measurement. Where the program
    /// sends less, the path may carry more.
    pub delivery_bytes_per_second: Option<u64>,
    /// How fast packets leave at most, in bytes a second; `None` where they are not paced.
    pub pacing_bytes_per_second: Option<u64>,
    /// Packets in a million that the path loses however little is sent.
    pub random_loss_per_million: u32,
    /// Bytes that may be under way.
    pub congestion_window: u64,
    /// Bytes under way.
    pub in_flight: u64,
    /// Bytes of UDP payload that the path carries.
    pub path_mtu: u16,
    /// Longest body of an unordered message that fits one packet at present, in bytes.
    pub packet_body_max: usize,
    /// Bytes of messages that wait to be sent or to be acknowledged, with what each costs besides.
    pub waiting_bytes: usize,
    /// Bytes of messages that came and are not read, that wait for others, or that are incomplete.
    pub unread_bytes: usize,
    /// Bytes of packets that were declared lost.
    pub bytes_lost: u64,
    /// Acknowledgements by which the peer reported marks of congestion (ECN, RFC 3168), each for one or more packets.
    pub congestion_marks: u64,
    /// Packets sent, received and lost, and their bytes.
    pub counters: quic::Counters,
    /// What became of messages that were sent.
    pub sent: SendCounters,
    /// What became of messages that came.
    pub received: ReceiveCounters,
}

/// Connections that were turned away or closed for what their peers did, since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Peers that are not allowed to connect.
    pub not_allowed: u64,
    /// Peers that broke a rule of the protocol.
    pub violations: u64,
    /// Peers that connected to us and sent much while as many others did as may.
    pub crowded: u64,
}

impl Peers {
    /// What was turned away.
    #[must_use]
    pub fn refusals(&self) -> Refusals {
        self.refusals
    }

    /// Connections of QUIC that have not ended.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.quic.open_connections()
    }

    /// What became of the connections that others began, until their handshakes.
    #[must_use]
    pub fn incoming_totals(&self) -> quic::IncomingCounters {
        self.quic.incoming_totals()
    }

    /// TLS's exporter of a connection with this label and no context (RFC 8446 section 7.5), the same 32 bytes at both
    /// ends and at nobody else's; `None` before the handshake is complete and once the connection has ended.
    pub fn exporter(&mut self, peer: PeerKey, label: &[u8]) -> Option<[u8; 32]> {
        let connection = self.peer(peer)?.connection()?;
        self.quic.exporter(connection, label, &[])
    }

    /// State and counters of a connection.
    pub fn path_stats(&mut self, peer: PeerKey) -> Option<PathStats> {
        let connection = self.peer(peer)?.connection()?;
        let report: ConnectionReport = self.quic.report(connection)?;
        let (remote, is_relayed) = self.path(peer)?;
        let entry = self.peer(peer)?;
        let (sender, receiver) = (entry.sender.get(), entry.receiver.get());
        let head = crate::frame::Head::Unordered.frame_bytes(1 << 20);
        Some(PathStats {
            remote,
            is_relayed,
            round_trip: report.rtt,
            round_trip_latest: report.rtt_latest,
            round_trip_min: report.rtt_min,
            round_trip_variation: report.rtt_variation,
            queueing_delay: report.path.queueing_delay,
            delivery_bytes_per_second: Some(report.path.bandwidth_bytes_per_second).filter(|rate| *rate > 0),
            pacing_bytes_per_second: report.pacing_bits_per_second.map(|bits| bits / 8),
            random_loss_per_million: report.path.random_loss_per_million,
            congestion_window: report.congestion_window,
            in_flight: report.in_flight,
            path_mtu: report.path_mtu,
            packet_body_max: report.datagram_max.unwrap_or(0).saturating_sub(head),
            waiting_bytes: sender.map_or(0, Sender::bytes),
            unread_bytes: entry.unread_bytes(),
            bytes_lost: report.bytes_lost,
            congestion_marks: report.congestion_marks,
            counters: report.counters,
            sent: sender.map(|sender| sender.counters).unwrap_or_default(),
            received: receiver.map(|receiver| receiver.counters).unwrap_or_default(),
        })
    }

    /// Bytes of messages that wait for a peer or are under way to it, with what each costs besides.
    #[must_use]
    pub fn waiting_bytes(&self, peer: PeerKey) -> usize {
        let entry = self.peers.get(peer.index()).and_then(Option::as_deref);
        let entry = entry.filter(|entry| entry.generation == peer.generation);
        let sender = entry.and_then(|entry| entry.sender.get());
        sender.map_or(0, Sender::bytes)
    }
}
