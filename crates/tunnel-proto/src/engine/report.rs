//! What an engine counts, as its driver reads it.

use std::net::SocketAddr;

use packet::CarrierKind;
use quic::ConnectionKey;

use super::request::RequestId;
use super::{Engine, Role, payload_unsplit};
use crate::access::{User, UserId};
use crate::drops::{Account, Ledger};
use crate::snapshot::{PathSnapshot, PeerSnapshot, TimeSamples};

impl<R: Role> Engine<R> {
    /// The account of all datagrams; the driver enters what became of deliveries.
    pub fn ledger(&mut self) -> &mut Ledger {
        self.state.ledger.ingress.sent = self.endpoint.totals().datagrams_sent;
        &mut self.state.ledger
    }

    /// The egress account alone: what the packet path asks for, without the sums of [`Engine::ledger`].
    pub fn egress(&mut self) -> &mut Account {
        &mut self.state.ledger.egress
    }

    /// Server: whose a request is, once somebody was let in on its connection.
    #[must_use]
    pub fn user_of_request(&self, id: RequestId) -> Option<UserId> {
        let connection = self.state.requests.get(id.0)?.stream()?.connection;
        let peer = self.state.peers.get(connection.index())?.as_ref()?;
        peer.user.as_ref().map(User::id)
    }

    /// Datagrams that wait on the way into QUIC.
    #[must_use]
    pub fn ingress_waiting(&self) -> u64 {
        let queued: usize = self
            .state
            .peers
            .iter()
            .flatten()
            .map(|peer| peer.queue.len())
            .sum();
        queued as u64 + self.state.waiting.len() as u64 + self.endpoint.datagrams_held()
    }

    /// DATAGRAM frames that wait for their session, for the rest of their payload, or for the next turn.
    #[must_use]
    pub fn egress_waiting(&self) -> u64 {
        let peers = self.state.peers.iter().flatten();
        let waiting = peers.map(|peer| peer.early.len() as u64 + u64::from(peer.reassembler.waiting()));
        let of_turn = self.state.service_datagrams.len() + self.state.relayed.waiting();
        waiting.sum::<u64>() + of_turn as u64
    }

    /// Sums of QUIC's counters.
    #[must_use]
    pub fn quic_totals(&self) -> quic::Counters {
        self.endpoint.totals()
    }

    /// What became of the new connections that peers asked for.
    #[must_use]
    pub fn incoming_totals(&self) -> quic::IncomingCounters {
        self.endpoint.incoming_totals()
    }

    /// How long handshakes, round trips and waits in queues took.
    #[must_use]
    pub fn times(&self) -> TimeSamples {
        self.state.times
    }

    /// What was received on the outer side, by class.
    #[must_use]
    pub fn classified(&self) -> &quic::Classified {
        self.endpoint.classified()
    }

    /// The living connections.
    #[must_use]
    pub fn peers(&mut self) -> Vec<PeerSnapshot> {
        let mut snapshots = Vec::new();
        for peer in self.state.peers.iter().flatten() {
            let Some(report) = self.endpoint.report(peer.connection) else {
                continue;
            };
            snapshots.push(PeerSnapshot {
                remote: CarrierKind::unmark(report.remote),
                carrier: CarrierKind::of(report.remote).name(),
                authenticated: peer.authenticated,
                rtt_ms: report.rtt.as_secs_f64() * 1e3,
                congestion_window_bytes: report.congestion_window,
                path: PathSnapshot::new(&report),
                path_mtu: report.path_mtu,
                payload_unsplit: payload_unsplit(report.datagram_max.unwrap_or(0)),
                queue_bytes: peer.queue.bytes(),
                quic: report.counters,
            });
        }
        snapshots
    }

    /// Open UDP sessions and those since the start; open connections and those since the start.
    #[must_use]
    pub fn gauges(&self) -> [(u64, u64); 2] {
        let open = self.state.peers.iter().flatten().count() as u64;
        [
            (self.state.udp_sessions, self.state.sessions_total),
            (open, self.state.connections_total),
        ]
    }

    /// The remote address of a connection as sockets know it, for tests and logs.
    pub fn remote(&mut self, connection: ConnectionKey) -> Option<SocketAddr> {
        let report = self.endpoint.report(connection)?;
        Some(CarrierKind::unmark(report.remote))
    }
}
