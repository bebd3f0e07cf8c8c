//! A server's bound sockets: who gets one, which contexts it has, and how payloads go from one to the other.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use masque::MessageError;
use masque::bind::{self, BindCapsule};
use masque::request::ConnectUdp;
use masque::response::{self, ProxyError};

use super::{BoundSession, Context};
use crate::config::Oversize;
use crate::drops::DropReason;
use crate::engine::life::{Cause, Life, RequestStream};
use crate::engine::request::{Kind, RequestId};
use crate::engine::{Engine, Server, State};
use crate::limits;
use crate::rendezvous::Relay;
use crate::rendezvous::sockets::{Handover, SocketEnd};

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
            self.take_handover(now, handover);
        }
        let mut elsewhere = BTreeMap::<usize, Vec<Handover>>::new();
        while let Some((from, to, payload)) = self.state.relayed.pop_front() {
            if to.shard() == own {
                self.state.ledger.egress.sent += 1;
                self.take_handover(now, Handover::Payload { from, to, payload });
            } else {
                let handed = elsewhere.entry(to.shard()).or_default();
                handed.push(Handover::Payload { from, to, payload });
            }
        }
        self.state.relayed_bytes = 0;
        for (shard, handed) in elsewhere {
            let count = handed.len() as u64;
            let refused = self.hand_over(shard, handed);
            self.state.ledger.egress.sent += count - refused;
            self.state.ledger.egress.drop(DropReason::QueueFull, refused);
        }
    }

    fn hand_over(&self, shard: usize, handed: Vec<Handover>) -> u64 {
        let relay = self.state.role.relay.as_ref();
        relay.map_or(0, |relay| relay.hand_over(shard, handed))
    }

    fn take_handover(&mut self, now: Instant, handover: Handover) {
        match handover {
            Handover::Payload { from, to, payload } => self.relay(now, from, to, &payload),
            Handover::Gone { to, address } => self.close_context_of(to, address),
            Handover::Over { socket } => {
                if self.state.socket(socket).is_some() {
                    self.end_for(socket.request(), Cause::Finished);
                }
            }
        }
    }

    /// A payload from one socket to another one, which is on this shard.
    fn relay(&mut self, now: Instant, from: SocketEnd, to: SocketEnd, payload: &[u8]) {
        let ingress = &mut self.state.ledger.ingress;
        ingress.accepted += 1;
        let Some(session) = self.state.socket(to) else {
            self.state.ledger.ingress.drop(DropReason::SessionClosed, 1);
            let (shard, address) = (from.shard(), to.address);
            let gone = Handover::Gone { to: from, address };
            if self
                .state
                .role
                .relay
                .as_ref()
                .is_some_and(|relay| relay.shard() == shard)
            {
                self.take_handover(now, gone);
            } else {
                self.hand_over(shard, vec![gone]);
            }
            return;
        };
        match session.by_address(from.address).map(|context| context.id) {
            Some(context) => self.send_in_context(now, to.request(), context, payload),
            None => self.state.ledger.ingress.drop(DropReason::UnknownContext, 1),
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

    /// A payload of a client for another one's socket waits for the end of the turn.
    pub(in crate::engine) fn take_for_relay(&mut self, id: RequestId, context: u64, payload: &[u8]) {
        let bytes = payload.len() + limits::HELD_ENTRY_BYTES;
        let has_room = self.relayed_bytes + bytes <= limits::RELAY_WAITING_BYTES_MAX;
        let ends = self.bound(id).and_then(|session| {
            let socket = session.socket.as_ref()?;
            let to = session.by_id(context)?.end?;
            if has_room {
                socket.count_relayed(payload.len());
            }
            Some((socket.end(), to))
        });
        let Some((from, to)) = ends else {
            return self.ledger.egress.drop(DropReason::UnknownContext, 1);
        };
        if !has_room {
            return self.ledger.egress.drop(DropReason::QueueFull, 1);
        }
        self.relayed_bytes += bytes;
        let payload = self.copied(payload);
        self.relayed.push_back((from, to, payload));
    }

    fn copied(&mut self, payload: &[u8]) -> Bytes {
        if self.arena.capacity() - self.arena.len() < payload.len() {
            self.arena.reserve(limits::ARENA_BYTES.max(payload.len()));
        }
        self.arena.extend_from_slice(payload);
        self.arena.split().freeze()
    }
}
