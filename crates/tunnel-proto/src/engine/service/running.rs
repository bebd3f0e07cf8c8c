//! Services at work: the engine's events become calls of their handlers, and what these leave behind becomes bytes, datagrams
//! and ends.

use std::any::Any;
use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use masque::Code;
use quic::ConnectionKey;

use super::{Service, ServiceStream, StreamEnd};
use crate::drops::DropReason;
use crate::engine::life::{Cause, Life};
use crate::engine::queue::FlowId;
use crate::engine::queue_writer::QueueWriter;
use crate::engine::request::{Kind, Request, RequestId, Sending};
use crate::engine::{Deliver, Engine, Role, State};
use crate::limits;

impl<R: Role> Engine<R> {
    /// The service of a request, for its owner; `None` where it has ended or is of another type. What the owner changes takes
    /// effect with [`Engine::wake_service`].
    pub fn service<S: Service>(&mut self, id: RequestId) -> Option<&mut S> {
        let Kind::Service(session) = &mut self.state.requests.get_mut(id.0)?.kind else {
            return None;
        };
        let service: &mut dyn Any = &mut *session.service;
        service.downcast_mut()
    }

    /// A service has something to do that did not come from its peer: [`Service::handle_wake`] is called where the request is
    /// open.
    pub fn wake_service(&mut self, now: Instant, id: RequestId, deliver: &mut impl Deliver) {
        self.call_service(now, id, |service, stream| service.handle_wake(now, stream));
        self.offer_left_content(now, id, deliver);
    }

    pub(in crate::engine) fn open_service_stream(&mut self, now: Instant, id: RequestId) {
        self.call_service(now, id, |service, stream| service.handle_open(now, stream));
    }

    /// The other end of a connection is at another address: its services may have told somebody the former one.
    pub(in crate::engine) fn tell_services_of_remote(
        &mut self,
        now: Instant,
        connection: ConnectionKey,
        remote: SocketAddr,
    ) {
        let Some(peer) = self.state.peer(connection) else {
            return;
        };
        let mut requests: Vec<_> = peer.requests.values().copied().collect();
        requests.sort_unstable();
        for id in requests {
            self.call_service(now, id, |service, stream| {
                service.handle_remote_changed(now, remote, stream);
            });
        }
    }

    /// Content has come that the service has not seen.
    pub(in crate::engine) fn take_service_content(&mut self, now: Instant, id: RequestId, content: Bytes) {
        if let Some(Request {
            kind: Kind::Service(session),
            ..
        }) = self.state.requests.get_mut(id.0)
        {
            session.left = content;
            self.offer_content(now, id);
        }
    }

    /// QUIC has taken everything that was written.
    pub(in crate::engine) fn service_is_writable(
        &mut self,
        now: Instant,
        id: RequestId,
        deliver: &mut impl Deliver,
    ) {
        self.tell_of_room(now, id);
        self.offer_left_content(now, id, deliver);
    }

    pub(in crate::engine) fn service_peer_finished(&mut self, now: Instant, id: RequestId) {
        self.call_service(now, id, |service, stream| service.handle_finish(now, stream));
        self.end_finished_service(id);
    }

    /// A service's request is over when both sides have ended and ours is acknowledged.
    pub(in crate::engine) fn end_finished_service(&mut self, id: RequestId) {
        let is_over = |request: &Request| {
            matches!(request.kind, Kind::Service(_))
                && request.peer_finished
                && request.sending == Sending::Acknowledged
        };
        if self.state.requests.get(id.0).is_some_and(is_over) {
            self.end_for(id, Cause::Finished);
        }
    }

    /// Datagrams that came since the last turn.
    pub(in crate::engine) fn hand_out_service_datagrams(&mut self, now: Instant) {
        while let Some((id, payload)) = self.state.service_datagrams.pop_front() {
            let is_open = |request: &Request| {
                matches!((&request.kind, &request.life), (Kind::Service(_), Life::Open(_)))
            };
            if !self.state.requests.get(id.0).is_some_and(is_open) {
                self.state.ledger.egress.drop(DropReason::UnknownSession, 1);
                continue;
            }
            self.state.ledger.egress.sent += 1;
            self.call_service(now, id, |service, stream| {
                service.handle_datagram(now, &payload, stream);
            });
        }
    }

    /// What a service had left: where it takes all of it, the stream is read on.
    fn offer_left_content(&mut self, now: Instant, id: RequestId, deliver: &mut impl Deliver) {
        let has_left =
            |request: &Request| matches!(&request.kind, Kind::Service(session) if !session.left.is_empty());
        if !self.state.requests.get(id.0).is_some_and(has_left) {
            return;
        }
        self.offer_content(now, id);
        let request = self.state.requests.get(id.0);
        if request.is_some_and(|request| request.kind.handler().takes_content()) {
            self.read_message(now, id, deliver);
        }
    }

    /// Until a service has taken what came, its reader counts as standing.
    fn offer_content(&mut self, now: Instant, id: RequestId) {
        let Some(Request {
            kind: Kind::Service(session),
            ..
        }) = self.state.requests.get_mut(id.0)
        else {
            return;
        };
        let mut content = std::mem::take(&mut session.left);
        self.call_service(now, id, |service, stream| {
            service.handle_content(now, &mut content, stream);
        });
        let stands = !content.is_empty();
        if let Some(Request {
            kind: Kind::Service(session),
            ..
        }) = self.state.requests.get_mut(id.0)
        {
            session.left = content;
            self.state.set_unread(id, stands);
        }
    }

    /// Calls a handler of an open request, and carries out what it leaves behind.
    fn call_service(
        &mut self,
        now: Instant,
        id: RequestId,
        handler: impl FnOnce(&mut dyn Service, &mut ServiceStream<'_>),
    ) {
        if self.run_handler(now, id, handler) {
            self.tell_of_room(now, id);
        }
    }

    /// As long as a service asks for room and QUIC has some.
    fn tell_of_room(&mut self, now: Instant, id: RequestId) {
        loop {
            let Some(Request {
                kind: Kind::Service(session),
                output,
                ..
            }) = self.state.requests.get_mut(id.0)
            else {
                return;
            };
            if !output.is_empty() || !std::mem::take(&mut session.wants_room) {
                return;
            }
            if !self.run_handler(now, id, |service, stream| service.handle_writable(now, stream)) {
                return;
            }
        }
    }

    /// Whether the request goes on, and its stream takes bytes.
    fn run_handler(
        &mut self,
        now: Instant,
        id: RequestId,
        handler: impl FnOnce(&mut dyn Service, &mut ServiceStream<'_>),
    ) -> bool {
        let state = &mut self.state;
        let Some(request) = state.requests.get_mut(id.0) else {
            return false;
        };
        let (Life::Open(stream), Kind::Service(session)) = (&request.life, &mut request.kind) else {
            return false;
        };
        let (connection, quarter) = (stream.connection, stream.quarter());
        let Some(peer) = state.peers.get_mut(connection.index()).and_then(Option::as_mut) else {
            return false;
        };
        peer.datagram_max = self.endpoint.datagram_max(connection).unwrap_or(0);
        let waiting = request.output.iter().map(Bytes::len).sum::<usize>();
        let mut stream = ServiceStream {
            output_bytes: waiting + request.output.len() * limits::HELD_ENTRY_BYTES,
            output: &mut request.output,
            datagrams: QueueWriter {
                arena: &mut state.arena,
                peer,
                ingress: &mut state.ledger.ingress,
                policy: state.config.queue_policy,
                now,
                quarter,
                flow: FlowId {
                    hash: id.0 as u64,
                    is_controlled: false,
                },
            },
            wants_room: false,
            end: (request.sending != Sending::Open).then_some(StreamEnd::Finish),
        };
        handler(&mut *session.service, &mut stream);
        let end = stream.end;
        session.wants_room |= stream.wants_room && end.is_none();
        request.last_active = now;
        match end {
            Some(StreamEnd::Reset) => {
                self.end_for(id, Cause::Reset(Code::RequestCancelled));
                return false;
            }
            Some(StreamEnd::Finish) if request.sending == Sending::Open => {
                request.sending = Sending::Finishing
            }
            Some(StreamEnd::Finish) | None => {}
        }
        self.endpoint.mark_ready(connection);
        self.pump(id)
    }
}

impl<R: Role> State<R> {
    /// A datagram of a service, for its next turn; it is counted as accepted already.
    pub(in crate::engine) fn take_service_datagram(&mut self, id: RequestId, payload: &[u8]) {
        if self.service_datagrams.len() >= limits::SERVICE_DATAGRAMS_MAX {
            return self.ledger.egress.drop(DropReason::QueueFull, 1);
        }
        self.service_datagrams.push_back((id, payload.to_vec()));
    }
}
