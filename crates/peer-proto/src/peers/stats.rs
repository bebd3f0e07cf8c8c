//! The state of a peer's connection, as a program sees it.

use std::net::SocketAddr;
use std::time::Duration;

use quic::ConnectionReport;

use super::{PeerKey, Peers};
use crate::receiver::ReceiveCounters;
use crate::sender::SendCounters;

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathStats {
    /// The peer's address on the path in use.
    pub remote: SocketAddr,
    /// Smoothed round-trip time.
    pub round_trip: Duration,
    /// Bytes that may be under way.
    pub congestion_window: u64,
    /// Bytes under way.
    pub in_flight: u64,
    /// Bytes of UDP payload that the path carries.
    pub path_mtu: u16,
    /// Longest body of an unordered message that fits one packet at present, in bytes.
    pub packet_body_max: usize,
    /// Packets sent, received and lost, and their bytes.
    pub counters: quic::Counters,
    /// What became of messages that were sent.
    pub sent: SendCounters,
    /// What became of messages that came.
    pub received: ReceiveCounters,
}

impl Peers {
    /// State and counters of a connection.
    pub fn path_stats(&mut self, peer: PeerKey) -> Option<PathStats> {
        let connection = self.peer(peer)?.connection()?;
        let report: ConnectionReport = self.quic.report(connection)?;
        let (remote, _) = self.path(peer)?;
        let entry = self.peer(peer)?;
        let head = crate::frame::Head::Unordered.frame_bytes(1 << 20);
        Some(PathStats {
            remote,
            round_trip: report.rtt,
            congestion_window: report.congestion_window,
            in_flight: report.in_flight,
            path_mtu: report.path_mtu,
            packet_body_max: report.datagram_max.unwrap_or(0).saturating_sub(head),
            counters: report.counters,
            sent: entry.sender.counters,
            received: entry.receiver.counters,
        })
    }

    /// Bytes of messages that wait for a peer or are under way to it, with what each costs besides.
    #[must_use]
    pub fn waiting_bytes(&self, peer: PeerKey) -> usize {
        let entry = self.peers.get(peer.index()).and_then(Option::as_deref);
        let entry = entry.filter(|entry| entry.generation == peer.generation);
        entry.map_or(0, |entry| entry.sender.bytes())
    }
}
