//! A client's attempts to connect: what [`Reconnection`](tunnel_proto::Reconnection) decides is carried out here, with
//! a carrier for each attempt.

use std::io;
use std::net::SocketAddr;
use std::task::Poll;
use std::time::Instant;

use packet::CarrierKind;
use packet_io::{route_mtu, unix_seconds};
use quic::ConnectError;
use tunnel_proto::{AttemptId, ConnectAction};

use super::Client;
use super::uplink::UplinkBinding;
use crate::carrier::{Carrier, Refusal};
use crate::driver::Shard;
use crate::driver::delivery::udp_payload_max;
use crate::driver::resolver::{Answer, Unresolved};

/// Why it failed where ICMP says so.
pub(super) const PORT_CLOSED: &str = "nothing listens on its port";

/// Why an address cannot be tried.
#[derive(Debug, thiserror::Error)]
enum AttemptError {
    /// The kernel refuses the socket.
    #[error(transparent)]
    Socket(#[from] io::Error),
    /// QUIC refuses the name or the address.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

/// An attempt that has not begun.
pub(super) struct WaitingAttempt {
    attempt: AttemptId,
    address: SocketAddr,
    server_name: String,
}

impl Shard<Client> {
    pub(in crate::driver) fn server_resolved(&mut self, now: Instant, answer: &Answer) {
        let reconnection = &mut self.role.reconnection;
        match &answer.found {
            Ok(addresses) => reconnection.handle_resolved(now, answer.purpose, addresses),
            Err(Unresolved::Absent) => reconnection.handle_resolved(now, answer.purpose, &[]),
            Err(Unresolved::Late | Unresolved::Unasked) => {
                reconnection.handle_unanswered(now, answer.purpose);
            }
        }
        self.carry_out_connect_actions(now);
    }

    pub(super) fn carry_out_connect_actions(&mut self, now: Instant) {
        while let Some(action) = self.role.reconnection.poll_action() {
            match action {
                ConnectAction::Resolve {
                    resolution,
                    host,
                    port,
                } => self.io.resolver.ask(resolution, &host, port),
                ConnectAction::Connect {
                    attempt,
                    address,
                    server_name,
                } => {
                    self.role.waiting_attempts.push_back(WaitingAttempt {
                        attempt,
                        address,
                        server_name,
                    });
                    self.begin_waiting_attempts(now);
                }
                ConnectAction::Move { attempt } => self.move_to_other_carrier(now, attempt),
                ConnectAction::Choose { attempt } => self.choose(now, attempt),
                ConnectAction::Disconnect { attempt } => self.abandon(now, attempt),
                ConnectAction::Unreachable { reason, is_silence } => {
                    let news = self.role.stripes.lock().unreachable(reason, is_silence);
                    news.into_iter().for_each(|news| self.io.notify(news.into()));
                }
            }
        }
    }

    /// Begins the attempts whose way is known.
    pub(super) fn resume_attempts(&mut self, now: Instant) {
        self.begin_waiting_attempts(now);
        self.carry_out_connect_actions(now);
    }

    fn begin_waiting_attempts(&mut self, now: Instant) {
        while let Some(waiting) = self.role.waiting_attempts.front() {
            let address = waiting.address;
            let way = match &self.role.ip {
                Some(host) => host.poll_way(address.ip()),
                None => Poll::Ready(None),
            };
            let Poll::Ready(binding) = way else { return };
            let Some(waiting) = self.role.waiting_attempts.pop_front() else {
                return;
            };
            let attempt = waiting.attempt;
            // Through the tunnel it would wait for itself.
            let begun = if binding.is_none() && self.role.leads_into_tun(address.ip()) {
                Err("nothing but the tunnel leads to it".to_owned())
            } else {
                let begun = self.begin_attempt(now, &waiting, binding);
                begun.map_err(|error| error.to_string())
            };
            if let Err(reason) = begun {
                self.end_attempt(now, attempt, Some(reason));
            }
        }
    }

    /// An attempt at the address of the connection that is in doubt shares its carrier, which has just taken another
    /// port.
    fn begin_attempt(
        &mut self,
        now: Instant,
        waiting: &WaitingAttempt,
        binding: Option<UplinkBinding>,
    ) -> Result<(), AttemptError> {
        let (attempt, address) = (waiting.attempt, waiting.address);
        self.close_resting_at(now, address);
        let reconnection = &self.role.reconnection;
        let shares = reconnection.is_in_doubt() && reconnection.address() == Some(address);
        let shared = self.io.outer.carrier().filter(|_| shares);
        // The carrier itself is asked where it knows.
        let mark = self.role.mark();
        let ceiling_of = |carrier: &dyn Carrier| {
            let mtu = carrier.path_mtu().or_else(|| route_mtu(address, mark).ok());
            udp_payload_max(address, mtu, carrier.overhead_bytes())
        };
        let (ceiling, known) = if let Some(carrier) = shared {
            let ceiling = ceiling_of(carrier);
            (ceiling, self.io.outer.known.unwrap_or(address))
        } else {
            let carrier = self.carrier_to(address, binding.as_ref())?;
            let ceiling = ceiling_of(carrier.as_ref());
            let (outer, poller) = (&mut self.io.outer, &self.io.poller);
            // A connection that has moved is known by where it was made.
            let known = if outer.known == Some(address) || outer.beside.knows(address) {
                CarrierKind::of(address).stand_in(address, attempt)
            } else {
                address
            };
            let addresses = (address, known);
            outer.beside.add(attempt, addresses, carrier, binding, poller)?;
            (ceiling, known)
        };
        let knows = &self.role.knows;
        let (name, parameters) = (knows.name(&waiting.server_name), knows.parameters(unix_seconds()));
        self.engine
            .connect(now, attempt, known, name, &parameters, ceiling)?;
        Ok(())
    }

    pub(super) fn receive_for_attempt(&mut self, now: Instant, attempt: AttemptId) {
        match self.receive_beside(now, attempt) {
            Ok(0) | Err(Refusal::Passing) => {}
            Ok(_) => self.role.reconnection.handle_heard(attempt),
            Err(Refusal::PortClosed) => {
                self.engine.abandon(now, attempt);
                self.end_attempt(now, attempt, Some(PORT_CLOSED.to_owned()));
                self.carry_out_connect_actions(now);
            }
        }
    }

    pub(super) fn attempt_connected(&mut self, now: Instant, attempt: AttemptId) {
        self.role.reconnection.handle_connected(now, attempt);
        self.carry_out_connect_actions(now);
    }

    /// From now on everything goes through this attempt's carrier.
    fn choose(&mut self, now: Instant, attempt: AttemptId) {
        if let Some(taken) = self.io.outer.beside.take(attempt, &self.io.poller) {
            let former_uplink = std::mem::replace(&mut self.role.uplink, taken.uplink);
            if let Some(former) = self.role.reconnection.predecessor() {
                self.io.outer.set_aside(former, former_uplink, &self.io.poller);
            }
            self.io.outer.known = Some(taken.known);
            if let Err(error) = self.use_carrier(taken.carrier) {
                self.engine.abandon(now, attempt);
                return self
                    .role
                    .reconnection
                    .handle_lost(now, attempt, Some(error.to_string()));
            }
        }
        self.io.outer.heard = Some(now);
        self.role.moved.forget();
        self.role.path_watch.forget();
        self.engine.choose(now, attempt);
    }

    /// Closes an attempt or the connection; the server is to know before its carrier is out of use.
    pub(super) fn abandon(&mut self, now: Instant, attempt: AttemptId) {
        let waiting = &mut self.role.waiting_attempts;
        waiting.retain(|waiting| waiting.attempt != attempt);
        self.engine.abandon(now, attempt);
        self.flush_outer(now);
        self.io.outer.close_beside(attempt, &self.io.poller);
    }

    /// An attempt has failed.
    fn end_attempt(&mut self, now: Instant, attempt: AttemptId, reason: Option<String>) {
        self.io.outer.close_beside(attempt, &self.io.poller);
        self.role.reconnection.handle_lost(now, attempt, reason);
    }
}
