//! A connection that the server is about to end (GOAWAY, RFC 9114 section 5.2), and the one that takes its place.
//!
//! After a GOAWAY new requests wait, and those that the server will not process are asked again, until another connection
//! is chosen. Then the one before becomes a *former* connection: its TCP connections go on there until they or it end. A UDP
//! session is opened on the new connection while it still uses the former one. As soon as the server has opened it, the
//! session sends there, and what still arrives on its former stream is delivered until nothing has come for a while.
//! A former connection without requests is left.

use std::time::Instant;

use bytes::Bytes;
use masque::{Code, MessageReader};
use quic::ConnectionKey;

use super::Client;
use super::moved_session::MovedSession;
use super::token_check::TokenCheck;
use crate::drops::DropReason;
use crate::engine::life::{Cause, Life};
use crate::engine::request::{Kind, Request, RequestId, Sending};
use crate::engine::role::Side;
use crate::engine::udp::UdpSession;
use crate::engine::{Action, ClientAction, Engine, masque_code};
use crate::limits;

impl Client {
    /// The connection that takes new requests.
    pub(super) fn taking_requests(&self) -> Option<ConnectionKey> {
        self.current
            .filter(|_| !self.holds_requests && !self.is_going_away)
    }

    /// The present connection becomes a former one. One that has to make room for it.
    pub(super) fn retire(&mut self) -> Option<ConnectionKey> {
        self.former.extend(self.current.take());
        (self.former.len() > limits::FORMER_CONNECTIONS_MAX).then(|| self.former.remove(0))
    }
}

impl Engine<Client> {
    /// The server takes no requests from stream `first` on.
    pub(super) fn going_away(&mut self, now: Instant, connection: ConnectionKey, first: u64) {
        let role = &mut self.state.role;
        if role.current != Some(connection) {
            return;
        }
        if !std::mem::replace(&mut role.is_going_away, true) {
            self.state
                .actions
                .push_back(Action::Role(ClientAction::GoingAway));
        }
        let is_rejected = |request: &Request| match request.life {
            Life::Sent(stream) => stream.connection == connection && u64::from(stream.id) >= first,
            _ => false,
        };
        let requests = self.state.requests.iter();
        let rejected: Vec<_> = requests
            .filter_map(|(id, request)| is_rejected(request).then_some(RequestId(id)))
            .collect();
        for id in rejected {
            match self.state.requests[id.0].kind {
                Kind::TokenCheck(TokenCheck) => {
                    return self.give_up(now, connection, "it takes no new connections at present");
                }
                Kind::Moved(_) => self.end_for(id, Cause::Finished),
                _ => self.ask_again(id),
            }
        }
    }

    /// A request that the server will not process waits for another connection.
    fn ask_again(&mut self, id: RequestId) {
        self.state.set_unread(id, false);
        let request = &mut self.state.requests[id.0];
        let Life::Sent(stream) = request.life else {
            return;
        };
        request.life = Life::Queued(request.target.take());
        request.reader = MessageReader::new(Client::HTTP);
        request.input = Bytes::new();
        request.output.clear();
        (request.sending, request.peer_finished) = (Sending::Open, false);
        self.state.queued.insert(id);
        let code = masque_code(Code::RequestCancelled);
        self.endpoint.reset(stream.connection, stream.id, code);
        self.endpoint.stop(stream.connection, stream.id, code);
        if let Some(peer) = self.state.peer(stream.connection) {
            let quarter = stream.quarter();
            peer.forget(quarter);
            let early = peer.early.take(quarter).len() as u64;
            self.state.ledger.egress.drop(DropReason::UnknownSession, early);
        }
    }

    /// The present connection takes over the UDP sessions of former ones.
    pub(super) fn move_sessions(&mut self, now: Instant) {
        if self.state.role.former.is_empty() {
            return;
        }
        let requests = self.state.requests.iter();
        let ids: Vec<_> = requests.map(|(id, _)| RequestId(id)).collect();
        for id in ids {
            self.move_session(now, id);
        }
    }

    /// Opens a session on the present connection that is open on a former one.
    pub(super) fn move_session(&mut self, now: Instant, id: RequestId) {
        let role = &self.state.role;
        let (Some(connection), Some(request)) = (role.taking_requests(), self.state.requests.get(id.0))
        else {
            return;
        };
        let Life::Open(stream) = request.life else { return };
        let is_former = request.is_udp() && role.former.contains(&stream.connection);
        let Some(target) = request.target.clone().filter(|_| is_former) else {
            return;
        };
        if let Some(earlier) = request.moved {
            self.end_for(earlier, Cause::Finished);
        }
        let session = UdpSession::new(self.offers());
        let kind = Kind::Moved(Box::new(MovedSession { session, of: id }));
        let other = Request::new(Client::HTTP, kind, Life::Queued(Some(target)), now);
        let other = self.state.insert_request(other);
        self.state.requests[id.0].moved = Some(other);
        self.send_queued_requests(now, connection);
    }

    /// The server has accepted a request. Where it is the other stream of a session that moves, the session goes on there,
    /// and the request takes its former stream. The request that has the new stream.
    pub(super) fn complete_move(&mut self, now: Instant, id: RequestId) -> RequestId {
        let of = match &self.state.requests[id.0].kind {
            Kind::Moved(moved) => moved.of,
            _ => return id,
        };
        self.state.disarm_repair(of);
        let Some((session, other)) = self.state.requests.get2_mut(of.0, id.0) else {
            return id;
        };
        let (Kind::Udp(own), Kind::Moved(moved)) = (&mut session.kind, &mut other.kind) else {
            return id;
        };
        std::mem::swap(own, &mut moved.session);
        std::mem::swap(&mut session.life, &mut other.life);
        std::mem::swap(&mut session.reader, &mut other.reader);
        std::mem::swap(&mut session.input, &mut other.input);
        std::mem::swap(&mut session.output, &mut other.output);
        std::mem::swap(&mut session.sending, &mut other.sending);
        std::mem::swap(&mut session.peer_finished, &mut other.peer_finished);
        other.last_active = now;
        for (id, stream) in [(of, session.stream()), (id, other.stream())] {
            if let Some(stream) = stream
                && let Some(peer) = self.state.peer(stream.connection)
            {
                peer.give_stream(stream.quarter(), id);
            }
        }
        of
    }

    /// Ends streams of moved sessions on which nothing comes any more, and those that are not answered.
    pub(super) fn end_quiet_moves(&mut self, now: Instant) {
        if self.state.role.former.is_empty() {
            return;
        }
        let is_over = |request: &Request| {
            let quiet = now.saturating_duration_since(request.last_active);
            match (&request.kind, &request.life) {
                (Kind::Moved(_), Life::Open(_)) => quiet >= limits::MOVED_SESSION_QUIET,
                (Kind::Moved(_), _) => quiet >= limits::OPENING_TIME_MAX,
                _ => false,
            }
        };
        let requests = self.state.requests.iter();
        let over: Vec<_> = requests
            .filter_map(|(id, request)| is_over(request).then_some(RequestId(id)))
            .collect();
        for id in over {
            self.end_for(id, Cause::Finished);
        }
    }

    /// Leaves former connections that have no requests; an IP session there ends once another one takes packets.
    pub(super) fn leave_empty_connections(&mut self) {
        for connection in self.state.role.former.clone() {
            self.end_former_ip(connection);
            let peer = self.state.peer(connection);
            if peer.is_some_and(|peer| peer.requests.is_empty()) {
                self.leave(connection);
            }
        }
    }

    fn end_former_ip(&mut self, connection: ConnectionKey) {
        let Some(present) = self.state.role.ip_session else {
            return;
        };
        let is_former = |id: &RequestId| {
            let stream = self.state.requests[id.0].stream();
            *id != present && stream.is_some_and(|stream| stream.connection == connection)
        };
        let former: Vec<_> = self.state.ip_requests().into_iter().filter(is_former).collect();
        for id in former {
            self.end_for(id, Cause::Finished);
        }
    }

    /// The driver closes a former connection.
    pub(super) fn leave(&mut self, connection: ConnectionKey) {
        self.state.role.former.retain(|former| *former != connection);
        if let Some(attempt) = self.state.role.attempt_of(connection) {
            let done = ClientAction::Done { attempt };
            self.state.actions.push_back(Action::Role(done));
        }
    }
}
