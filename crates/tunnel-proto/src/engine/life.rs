//! The life of a request, and how it ends: what becomes of its stream, and what the driver is told.

use std::time::Instant;

use masque::response::{self, ProxyError};
use masque::{Code, Target};
use quic::{ConnectionKey, StreamId};

use super::request::{Kind, RequestId, Sending};
use super::{Action, Ending, Engine, Role, State, masque_code, quarter};
use crate::drops::DropReason;

/// The stream of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestStream {
    pub(crate) connection: ConnectionKey,
    pub(crate) id: StreamId,
}

impl RequestStream {
    /// The Quarter Stream ID (RFC 9297 section 2.1).
    pub(crate) fn quarter(self) -> u64 {
        quarter(self.id)
    }
}

/// Where a request stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Client: no stream for it yet. With its target, where it leads to one.
    Queued(Option<Target>),
    /// Client: sent, not answered.
    Sent(RequestStream),
    /// Client: a UDP session that was refused; its source is not asked for again before `until`.
    Refused { stream: RequestStream, until: Instant },
    /// Server: its headers have not come.
    Headers(RequestStream),
    /// Server: who asks is not known yet; what follows the headers stays in QUIC.
    Identifying(RequestStream),
    /// Server: the driver opens the target.
    Opening(RequestStream),
    /// Answered with success.
    Open(RequestStream),
    /// The driver is done with it; the peer has not acknowledged everything.
    Closing(RequestStream),
    /// Over; the driver hears of it with [`Action::Ended`].
    Ended,
}

impl Life {
    pub(crate) fn stream(&self) -> Option<RequestStream> {
        match self {
            Self::Queued(_) | Self::Ended => None,
            Self::Refused { stream, .. }
            | Self::Sent(stream)
            | Self::Headers(stream)
            | Self::Identifying(stream)
            | Self::Opening(stream)
            | Self::Open(stream)
            | Self::Closing(stream) => Some(*stream),
        }
    }
}

/// Why the driver ends a request; it hears no more of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Both sides of a TCP forward are done. It goes on here until the peer has acknowledged everything that was written.
    /// So does a service, whose side ends after what it has sent. A UDP session or a bound socket ends at once.
    Done,
    /// The local connection of a TCP forward is gone: the stream is reset (RFC 9114 section 4.4).
    Failed,
    /// Server: the target could not be opened.
    Refused(ProxyError),
}

/// Why the engine ends a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It has come to its end.
    Finished,
    /// The answer is all that there is to it. Where not all of it finds credit, the stream is reset.
    Answered,
    /// Nothing was heard for the idle timeout, or its place was needed.
    Idle,
    /// The server refused it.
    Refused { status: u16, error: Option<ProxyError> },
    /// A side broke off, or a rule: the stream is reset with this code.
    Reset(Code),
    /// The stream, or the connection below it, ends by itself.
    StreamGone,
    /// The connection is gone.
    ConnectionLost,
}

impl Cause {
    fn ending(self) -> Ending {
        match self {
            Self::Finished | Self::Answered => Ending::Finished,
            Self::Idle => Ending::Idle,
            Self::Refused { status, error } => Ending::Refused { status, error },
            Self::Reset(_) | Self::StreamGone => Ending::Reset,
            Self::ConnectionLost => Ending::ConnectionLost,
        }
    }
}

impl<R: Role> Engine<R> {
    /// Ends a request of the driver.
    pub fn end(&mut self, id: RequestId, end: End) {
        let Some(request) = self.state.requests.get_mut(id.0) else {
            return;
        };
        if request.life == Life::Ended {
            return;
        }
        let is_service = matches!(request.kind, Kind::Service(_));
        let cause = match (end, &request.life) {
            (End::Done, _) if request.is_udp() || matches!(request.kind, Kind::Bound(_)) => Cause::Finished,
            (End::Done, Life::Open(stream)) if request.sending != Sending::Acknowledged => {
                request.life = Life::Closing(*stream);
                self.state.closing += 1;
                // The driver of a TCP forward has ended its side itself.
                if is_service && request.sending == Sending::Open {
                    request.sending = Sending::Finishing;
                    self.pump(id);
                }
                return;
            }
            (End::Done, _) if is_service => Cause::Finished,
            (End::Done, _) => Cause::StreamGone,
            (End::Failed, _) => Cause::Reset(Code::ConnectError),
            (End::Refused(error), Life::Opening(_)) => {
                self.send_headers(id, &response::failure(error));
                Cause::Answered
            }
            (End::Refused(_), _) => Cause::StreamGone,
        };
        self.end_move(id);
        self.end_stream(id, cause);
        self.state.forget(id);
        self.state.requests.remove(id.0);
    }

    /// Ends the other stream of a session that moves: what it carries has no receiver any more.
    fn end_move(&mut self, id: RequestId) {
        let request = self.state.requests.get_mut(id.0);
        if let Some(moved) = request.and_then(|request| request.moved.take()) {
            self.end_for(moved, Cause::Finished);
        }
    }

    /// Ends a request, and tells the driver where it knows of it.
    pub(super) fn end_for(&mut self, id: RequestId, cause: Cause) {
        let Some(request) = self.state.requests.get(id.0) else {
            return;
        };
        if request.life == Life::Ended {
            return;
        }
        self.end_move(id);
        self.end_stream(id, cause);
        self.state.forget(id);
        if let Kind::Moved(moved) = &self.state.requests[id.0].kind {
            let of = moved.of;
            if let Some(request) = self.state.requests.get_mut(of.0) {
                request.moved = request.moved.filter(|moved| *moved != id);
            }
        }
        let request = &mut self.state.requests[id.0];
        let is_told = request.kind.handler().is_of_driver() && !matches!(request.life, Life::Closing(_));
        request.life = Life::Ended;
        if is_told {
            let ending = cause.ending();
            request.kind.handler_mut().ended(&ending);
            self.state
                .actions
                .push_back(Action::Ended { request: id, ending });
        } else {
            self.state.requests.remove(id.0);
        }
    }

    fn end_stream(&mut self, id: RequestId, cause: Cause) {
        let request = &self.state.requests[id.0];
        match cause {
            Cause::Answered if !request.output.is_empty() => self.reset(id, Code::RequestRejected),
            Cause::Finished | Cause::Answered | Cause::Idle | Cause::Refused { .. } => self.close_stream(id),
            Cause::Reset(code) => self.reset(id, code),
            Cause::StreamGone | Cause::ConnectionLost => {}
        }
    }

    /// Ends both directions of a request's stream without an error.
    pub(super) fn close_stream(&mut self, id: RequestId) {
        let Some(request) = self.state.requests.get(id.0) else {
            return;
        };
        if let Some(stream) = request.life.stream() {
            self.endpoint.finish(stream.connection, stream.id);
            if !request.peer_finished {
                self.endpoint
                    .stop(stream.connection, stream.id, masque_code(Code::NoError));
            }
        }
    }

    fn reset(&mut self, id: RequestId, code: Code) {
        let request = self.state.requests.get(id.0);
        if let Some(stream) = request.and_then(|request| request.life.stream()) {
            let code = masque_code(code);
            self.endpoint.reset(stream.connection, stream.id, code);
            self.endpoint.stop(stream.connection, stream.id, code);
        }
    }
}

impl<R: Role> State<R> {
    /// Takes a request that ends out of all tables, and gives back what it holds.
    fn forget(&mut self, id: RequestId) {
        let request = &mut self.requests[id.0];
        let (stream, is_closing) = (request.life.stream(), matches!(request.life, Life::Closing(_)));
        let was_unread = std::mem::take(&mut request.unread);
        request.output.clear();
        self.queued.remove(&id);
        if is_closing {
            self.closing -= 1;
        }
        if request.is_udp() {
            self.udp_sessions -= 1;
            self.sessions.give_back();
            self.idleness.remove(id);
        }
        let lost = self.waiting.take(id).len() as u64;
        self.ledger.ingress.drop(DropReason::SessionClosed, lost);
        if let Some(stream) = stream
            && let Some(peer) = self
                .peers
                .get_mut(stream.connection.index())
                .and_then(Option::as_mut)
        {
            let quarter = stream.quarter();
            peer.forget(quarter);
            if was_unread {
                peer.unread -= 1;
                self.unread_changed.push(stream.connection);
            }
            let early = peer.early.take(quarter).len() as u64;
            self.ledger.egress.drop(DropReason::UnknownSession, early);
            let fragments = peer.reassembler.forget(quarter);
            self.ledger
                .egress
                .drop(DropReason::ReassemblyExpired, u64::from(fragments));
        }
        R::request_ended(self, id);
        self.forget_repair(id);
    }
}
