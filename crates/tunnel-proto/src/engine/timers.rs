//! The timers of an engine: QUIC's, those of repair and of the role, and the sweep, every second, of what is idle or waited
//! too long.

use std::time::{Duration, Instant};

use super::life::{Cause, Life};
use super::request::{Request, RequestId};
use super::{Engine, Role};
use crate::drops::DropReason;
use crate::limits;
use crate::snapshot::TimeSamples;

impl<R: Role> Engine<R> {
    /// When [`Engine::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let transport = self.endpoint.poll_timeout().map(|(due, _)| due);
        let repair = self.state.repair.poll_timeout();
        let pacing = self.state.pacing.poll_timeout();
        let role = R::next_due(self);
        [transport, self.next_sweep, repair, pacing, role]
            .into_iter()
            .flatten()
            .min()
    }

    /// Runs what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.endpoint.handle_timeout(now);
        self.handle_repair_timeout(now);
        self.handle_pacing_timeout(now);
        R::handle_due(self, now);
        if self.next_sweep.is_some_and(|due| due <= now) {
            self.sweep(now);
            self.next_sweep = Some(now + limits::SWEEP_INTERVAL);
        }
    }

    /// Ends idle sessions and forgets what waited too long.
    fn sweep(&mut self, now: Instant) {
        let idle_timeout = self.state.config.udp_idle_timeout;
        let is_over = |request: &Request| match request.life {
            Life::Refused { until, .. } => until <= now,
            Life::Open(_) | Life::Sent(_) => {
                request.is_udp() && now.duration_since(request.last_active) >= idle_timeout
            }
            _ => false,
        };
        let requests = self.state.requests.iter();
        let over: Vec<usize> = requests
            .filter(|(_, request)| is_over(request))
            .map(|(id, _)| id)
            .collect();
        for id in over {
            self.end_for(RequestId(id), Cause::Idle);
        }
        R::sweep(self, now);
        self.state.rest_repair(now);
        let expired = self.state.waiting.expire(now, |_| limits::WAITING_TIME_MAX);
        self.state.ledger.ingress.drop(DropReason::NoTunnel, expired);
        for index in 0..self.state.peers.len() {
            let Some(peer) = self.state.peers[index].as_mut() else {
                continue;
            };
            let connection = peer.connection;
            let report = self.endpoint.report(connection);
            let measured = report.as_ref().map_or(Duration::ZERO, |report| report.rtt);
            peer.measured(measured);
            let times = &mut self.state.times;
            if report.is_some_and(|report| report.authenticated) {
                times.round_trips.observe(TimeSamples::micros(measured));
                let waited = peer
                    .queue
                    .oldest()
                    .map(|since| now.saturating_duration_since(since));
                times
                    .queue_waits
                    .observe(TimeSamples::micros(waited.unwrap_or_default()));
            }
            peer.datagram_max = self.endpoint.datagram_max(peer.connection).unwrap_or(0);
            let round_trip = measured.max(limits::EARLY_TIME_MIN);
            let known = &peer.requests;
            let early = peer.early.expire(now, |quarter| {
                if known.contains_key(&quarter) {
                    limits::OPENING_TIME_MAX
                } else {
                    round_trip
                }
            });
            self.state.ledger.egress.drop(DropReason::UnknownSession, early);
            let fragments = peer.reassembler.handle_timeout(now);
            self.state
                .ledger
                .egress
                .drop(DropReason::ReassemblyExpired, u64::from(fragments));
            self.send_control(connection, &[]);
            if let Some(report) = report {
                R::connection_reported(self, now, connection, &report);
            }
        }
    }
}
