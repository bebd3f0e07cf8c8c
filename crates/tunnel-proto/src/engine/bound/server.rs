//! A server's bound sockets: who gets one, which contexts it has, and how payloads go from one to the other.

use std::net::SocketAddr;
use std::time::Instant;

use masque::MessageError;
use masque::bind::{self, BindCapsule};
use masque::request::ConnectUdp;
use masque::response::{self, ProxyError};

use super::{BoundSession, Context, Payload};
use crate::config::Oversize;
use crate::drops::DropReason;
use crate::engine::life::{Cause, Life, RequestStream};
use crate::engine::request::{Kind, Request, RequestId};
use crate::engine::{Engine, Server, State};
use crate::limits;
use crate::rendezvous::Relay;
use crate::rendezvous::sockets::{Handover, SocketEnd, Transfer};

impl Engine<Server> {
    /// Relays between peers that are registered at the rendezvous from here on.
    pub fn serve_relay(&mut self, relay: Relay) {
        self.state.role.relay = Some(relay);
    }

    /// A user asks for a bound socket (RDV-10).
    pub(in crate::engine) fn admit_bound(
        &mut self,
        now: Instant,
        stream: RequestStream,
        id: RequestId,
        asked: &ConnectUdp,
    ) {
        if self.state.draining {
            return self.answer_and_end(id, &response::failure(ProxyError::DestinationUnavailable));
        }
        if !self.take_user_session(id, stream.connection, |rights| rights.services) {
            return;
        }
        let Some(user) = self.account_of(stream.connection) else {
            return;
        };
        let Some(relay) = &self.state.role.relay else {
            return self.answer_and_end(id, &response::response(501));
        };
        let socket = match relay.bind(user, stream.connection, id) {
            Ok(socket) => socket,
            Err(refusal) => return self.answer_and_end(id, &response::response(refusal.status())),
        };
        let split = asked
            .split
            .filter(|_| self.state.config.oversize == Oversize::Split);
        let Some(request) = self.state.requests.get_mut(id.0) else {
            return;
        };
        request.kind = Kind::Bound(Box::new(BoundSession::new(split, Some(socket))));
        request.life = Life::Open(stream);
        request.last_active = now;
        let accepted = request.kind.handler_mut().accept();
        self.send_headers(id, &accepted);
        // Payloads may come before this connection's next turn.
        self.measure_datagrams(stream.connection);
    }

    /// A client says something about a context (RDV-12).
    pub(in crate::engine) fn judge_context(
        &mut self,
        now: Instant,
        id: RequestId,
        capsule: &BindCapsule,
    ) -> Result<(), MessageError> {
        if matches!(capsule, BindCapsule::Assign { .. }) && !self.admits_question(now, id) {
            return Ok(());
        }
        let Some(session) = self.state.bound(id) else {
            return Ok(());
        };
        let (context_id, address) = match capsule {
            BindCapsule::Assign { context_id, address } => (*context_id, *address),
            BindCapsule::Close(context_id) => {
                session.remove(|context| context.id == *context_id);
                return Ok(());
            }
            // This end asks for none.
            BindCapsule::Ack(_) => return Err(bind::MALFORMED),
            BindCapsule::Datagram(_) | BindCapsule::Oversized(_) => return Ok(()),
        };
        let is_taken = session.by_id(context_id).is_some()
            || session.split.agreed() == Some(context_id)
            || address.is_some_and(|address| session.by_address(address).is_some());
        if context_id % 2 != 0 || is_taken {
            return Err(bind::MALFORMED);
        }
        let has_room = session.contexts.len() < limits::RELAY_CONTEXTS_PER_SOCKET_MAX;
        let socket = session.socket.as_mut().filter(|_| has_room);
        let end = address
            .zip(socket)
            .and_then(|(address, socket)| socket.open_context(address));
        let answer = match end {
            Some(end) => {
                session.contexts.push(Context {
                    id: context_id,
                    address: end.address,
                    end: Some(end),
                });
                BindCapsule::Ack(context_id)
            }
            None => BindCapsule::Close(context_id),
        };
        self.say_of_context(id, &answer);
        Ok(())
    }

    /// Carries out what other shards gave for sockets here, and what came for sockets since the last turn.
    pub(in crate::engine) fn relay_payloads(&mut self, now: Instant) {
        let Some(relay) = &self.state.role.relay else {
            return;
        };
        let own = relay.shard();
        for handover in relay.take_handed_over() {
            match handover {
                Handover::Payload { from, to, transfer } => {
                    self.state.relay(now, from, to, Payload::Transferred(transfer));
                }
                Handover::Gone { to, address } => self.close_context_of(to, address),
                Handover::Over { socket } => {
                    if self.state.socket(socket).is_some() {
                        self.end_for(socket.request(), Cause::Finished);
                    }
                }
            }
        }
        let turn = self.state.relayed.take();
        for connection in turn.filled {
            self.measure_datagrams(connection);
            self.endpoint.mark_ready(connection);
        }
        for id in turn.taken {
            if let Some(socket) = self.state.bound(id).and_then(|session| session.socket.as_mut()) {
                socket.report_relayed();
            }
        }
        let mut elsewhere = turn.elsewhere;
        for (to, address) in turn.gone {
            if to.shard() == own {
                self.close_context_of(to, address);
            } else {
                let handed = elsewhere.entry(to.shard()).or_default();
                handed.push(Handover::Gone { to, address });
            }
        }
        let Some(relay) = &self.state.role.relay else {
            return;
        };
        let egress = &mut self.state.ledger.egress;
        for (shard, handed) in elsewhere {
            let is_payload = |handover: &&Handover| matches!(handover, Handover::Payload { .. });
            let payloads = handed.iter().filter(is_payload).count() as u64;
            let refused = relay.hand_over(shard, handed);
            egress.sent += payloads - refused;
            egress.drop(DropReason::QueueFull, refused);
        }
    }

    /// The socket that a context leads to is gone.
    fn close_context_of(&mut self, end: SocketEnd, address: SocketAddr) {
        let session = self.state.socket(end);
        let removed = session.and_then(|session| session.remove(|context| context.address == address));
        if let Some(context) = removed {
            self.say_of_context(end.request(), &BindCapsule::Close(context.id));
        }
    }
}

impl State<Server> {
    /// The request of a socket that is here.
    fn socket(&mut self, end: SocketEnd) -> Option<&mut BoundSession> {
        let session = self.bound(end.request())?;
        (session.address == Some(end.address)).then_some(session)
    }

    /// A payload of a client for another one's socket: into the queue of that one's connection, or to the shard where it is
    /// at the end of the turn.
    pub(in crate::engine) fn take_for_relay(
        &mut self,
        now: Instant,
        id: RequestId,
        context: u64,
        payload: &[u8],
    ) {
        let ends = self.bound(id).and_then(|session| {
            let to = session.by_id(context)?.end?;
            Some((session.socket.as_ref()?.end(), to))
        });
        let Some((from, to)) = ends else {
            return self.ledger.egress.drop(DropReason::UnknownContext, 1);
        };
        let is_here = to.shard() == from.shard();
        if !is_here && !self.relayed.has_room(payload.len()) {
            return self.ledger.egress.drop(DropReason::QueueFull, 1);
        }
        self.relayed.take_from(id);
        if let Some(socket) = self.bound(id).and_then(|session| session.socket.as_mut()) {
            socket.take_relayed(payload.len());
        }
        if is_here {
            self.ledger.egress.sent += 1;
            return self.relay(now, from, to, Payload::Borrowed(payload));
        }
        let transfer = Transfer::new(&mut self.arena, payload);
        self.relayed
            .hand_over(to.shard(), Handover::Payload { from, to, transfer });
    }

    /// A payload from one socket to another one, which is on this shard.
    fn relay(&mut self, now: Instant, from: SocketEnd, to: SocketEnd, payload: Payload<'_>) {
        self.ledger.ingress.accepted += 1;
        let Some(session) = self.socket(to) else {
            self.relayed.gone.insert((from, to.address));
            return self.ledger.ingress.drop(DropReason::SessionClosed, 1);
        };
        let Some(context) = session.by_address(from.address).map(|context| context.id) else {
            return self.ledger.ingress.drop(DropReason::UnknownContext, 1);
        };
        let id = to.request();
        self.enqueue_in_context(now, id, context, payload);
        if let Some(stream) = self.requests.get(id.0).and_then(Request::stream) {
            self.relayed.fill(stream.connection);
        }
    }
}
