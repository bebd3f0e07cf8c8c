//! The lives of QUIC connections: what begins with a handshake, what ends with a loss, a drain and a close of all.

use std::time::Instant;

use quic::{CloseReason, ConnectionKey, ConnectionReport, Counters};

use super::life::Cause;
use super::peer::Peer;
use super::request::RequestId;
use super::{Engine, Role, masque_code};
use crate::drops::DropReason;
use crate::snapshot::TimeSamples;

/// What the peers of an engine that ends read beside H3_NO_ERROR.
pub(crate) const SHUTDOWN_REASON: &str = "shutting down";

impl<R: Role> Engine<R> {
    /// The handshake is complete: our three unidirectional streams open (RFC 9114 section 6.2).
    pub(super) fn connected(&mut self, now: Instant, connection: ConnectionKey) {
        let mut peer = Peer::new(R::HTTP, connection);
        for bytes in peer.h3.opening_streams() {
            let Some(stream) = self
                .endpoint
                .open_stream(connection, quic::Direction::Unidirectional)
            else {
                self.endpoint.close(
                    now,
                    connection,
                    masque_code(masque::Code::StreamCreationError),
                    b"no control stream",
                );
                return;
            };
            // Three opening streams take under 100 bytes, within any peer's first credit.
            let written = self.endpoint.write(connection, stream, &bytes);
            debug_assert!(written.is_ok_and(|written| written == bytes.len()));
            peer.own_streams.push(stream);
        }
        peer.datagram_max = self.endpoint.datagram_max(connection).unwrap_or(0);
        if let Some(report) = self.endpoint.report(connection) {
            peer.measured(report.rtt);
            self.state
                .times
                .handshakes
                .observe(TimeSamples::micros(now.saturating_duration_since(report.begun)));
        }
        self.state.connections_total += 1;
        let index = connection.index();
        if self.state.peers.len() <= index {
            self.state.peers.resize_with(index + 1, || None);
        }
        self.state.peers[index] = Some(peer);
        R::connected(&mut self.state, connection);
        if self.state.draining {
            self.send_goaway(connection);
        }
    }

    /// The connection is gone, and with it its requests and what waits in its queues.
    pub(super) fn lose(&mut self, connection: ConnectionKey, reason: CloseReason, counters: &Counters) {
        let peer = self.state.peer(connection);
        let mut ids: Vec<RequestId> =
            peer.map_or_else(Vec::new, |peer| peer.requests.values().copied().collect());
        // Drivers hear of them in an order that does not depend on hashes.
        ids.sort_unstable();
        for id in ids {
            self.end_for(id, Cause::ConnectionLost);
        }
        debug_assert!(
            self.state.requests.iter().all(|(_, request)| request
                .stream()
                .is_none_or(|stream| stream.connection != connection)),
            "a peer knows all its requests"
        );
        if let Some(mut peer) = self
            .state
            .peers
            .get_mut(connection.index())
            .and_then(Option::take)
        {
            let mut queued = 0;
            while peer.queue.pop().is_some() {
                queued += 1;
            }
            self.state.ledger.ingress.drop(DropReason::PathChanged, queued);
            self.state
                .ledger
                .egress
                .drop(DropReason::UnknownSession, peer.early.len() as u64);
            self.state.ledger.egress.drop(
                DropReason::ReassemblyExpired,
                u64::from(peer.reassembler.waiting()),
            );
        }
        R::connection_lost(&mut self.state, connection, reason, counters);
    }

    /// Closes the connections whose peer broke a rule of HTTP/3.
    pub(super) fn close_broken_peers(&mut self, now: Instant) {
        while let Some((connection, error)) = self.state.broken.pop() {
            self.endpoint
                .close(now, connection, masque_code(error.code), error.reason.as_bytes());
        }
    }

    /// Both ends of every connection go on to new keys: [`quic::Endpoint::update_keys`].
    pub fn update_keys(&mut self) {
        for peer in self.state.peers.iter().flatten() {
            self.endpoint.update_keys(peer.connection);
        }
    }

    /// Ends every request and connection at once, with H3_NO_ERROR and the reason "shutting down".
    pub fn close_all(&mut self, now: Instant) {
        let connections: Vec<_> = self
            .state
            .peers
            .iter()
            .flatten()
            .map(|peer| peer.connection)
            .collect();
        for connection in connections.into_iter().chain(self.state.role.connecting()) {
            self.endpoint.close(
                now,
                connection,
                masque_code(masque::Code::NoError),
                SHUTDOWN_REASON.as_bytes(),
            );
        }
    }

    /// Tells a client where the path holds back what we send to it (PATH-2).
    pub(super) fn tell_held_back(&mut self, connection: ConnectionKey, report: &ConnectionReport) {
        let Some(peer) = self.state.peer(connection).filter(|peer| peer.authenticated) else {
            return;
        };
        let held_back = peer.meter.take(report);
        if let Some(held_back) = held_back.filter(|_| peer.control_unsent.is_empty()) {
            let frame = peer.h3.held_back_frame(held_back);
            self.send_control(connection, &frame);
        }
    }

    /// Writes whole frames to our control stream, behind what found no credit before.
    pub(super) fn send_control(&mut self, connection: ConnectionKey, frames: &[u8]) {
        let Some(peer) = self.state.peer(connection) else {
            return;
        };
        let mut unsent = std::mem::take(&mut peer.control_unsent);
        unsent.extend_from_slice(frames);
        let written = match peer.own_streams.first() {
            Some(control) if !unsent.is_empty() => self.endpoint.write_ahead(connection, *control, &unsent),
            _ => return,
        };
        // Where the connection has ended, nothing is owed.
        unsent.drain(..written.unwrap_or(unsent.len()));
        if let Some(peer) = self.state.peer(connection) {
            peer.control_unsent = unsent;
        }
    }

    /// Refuses new requests from here on, and tells the peers so, once (RFC 9114 section 5.2).
    pub fn start_drain(&mut self) {
        if std::mem::replace(&mut self.state.draining, true) {
            return;
        }
        let peers = self.state.peers.iter().flatten();
        let connections: Vec<_> = peers.map(|peer| peer.connection).collect();
        for connection in connections {
            self.send_goaway(connection);
        }
    }

    fn send_goaway(&mut self, connection: ConnectionKey) {
        let Some(peer) = self.state.peer(connection) else {
            return;
        };
        let frame = peer.h3.goaway_frame(peer.next_request * 4);
        self.send_control(connection, &frame);
    }

    /// Open connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.state.peers.iter().flatten().count()
    }
}
