//! What a relay counts: datagrams in and out, and why others are not.

use std::ops::AddAssign;

use packet_io::SendOutcome;

/// Counters of a worker, or of all. Every datagram that came was sent, waits, or is counted as dropped:
/// `udp_received + tcp_received = udp_sent + tcp_sent + dropped() + waiting`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams from UDP sockets.
    pub udp_received: u64,
    /// Datagrams to UDP sockets.
    pub udp_sent: u64,
    /// Datagrams from connections.
    pub tcp_received: u64,
    /// Datagrams to connections.
    pub tcp_sent: u64,
    /// Datagrams that wait for a connection.
    pub waiting: u64,
    /// Dropped: too long for the path or the peer.
    pub too_large: u64,
    /// Dropped: the socket took no more.
    pub socket_full: u64,
    /// Dropped: no connection in time, or the flow ended.
    pub no_connection: u64,
    /// Dropped: there are [`crate::limits::FLOWS_MAX`] flows, or no more sockets.
    pub no_flow: u64,
    /// Dropped: refused by the kernel, empty, or cut short.
    pub other: u64,
    /// Flows that began.
    pub flows: u64,
    /// Flows that are there.
    pub flows_open: u64,
    /// Flows that carried nothing for the configured time.
    pub expired: u64,
    /// Connections of flows that had one before.
    pub reconnects: u64,
    /// Packets that the path joined, so that the datagrams in them were lost.
    pub joined: u64,
    /// Packets of connections that do not come from who has the key.
    pub unproved: u64,
    /// Datagrams that the kernel dropped before we saw them, because a buffer was full.
    pub kernel_drops: u64,
}

impl Counters {
    /// Datagrams that were dropped here.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.too_large + self.socket_full + self.no_connection + self.no_flow + self.other
    }

    /// Counts what became of `offered` datagrams; gives how many were sent.
    pub(crate) fn sent(&mut self, offered: u64, outcome: &SendOutcome) -> u64 {
        let drops = &outcome.dropped;
        self.too_large += drops.too_large;
        self.other += drops.total() - drops.too_large;
        self.socket_full += offered.saturating_sub(outcome.segments + drops.total());
        outcome.segments
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.udp_received += other.udp_received;
        self.udp_sent += other.udp_sent;
        self.tcp_received += other.tcp_received;
        self.tcp_sent += other.tcp_sent;
        self.waiting += other.waiting;
        self.too_large += other.too_large;
        self.socket_full += other.socket_full;
        self.no_connection += other.no_connection;
        self.no_flow += other.no_flow;
        self.other += other.other;
        self.flows += other.flows;
        self.flows_open += other.flows_open;
        self.expired += other.expired;
        self.reconnects += other.reconnects;
        self.joined += other.joined;
        self.unproved += other.unproved;
        self.kernel_drops += other.kernel_drops;
    }
}
