//! Local TCP connections whose target the server has not opened yet: they wait for the tunnel, then for its answer.

use std::net::TcpStream;
use std::time::Instant;

use bytes::BytesMut;
use packet_io::Interest;
use tunnel_proto::{End, Ending, Negotiation, NotOpened, Protocol, RequestId, Target};

use super::{Client, ClientInner, ClientMessage};
use crate::driver::relay::reset_on_close;
use crate::driver::{Inner, PollToken, Relay, Shard};
use crate::limits;

/// A local connection and where it is to lead.
pub(in crate::driver) struct LocalConnection {
    pub(super) stream: TcpStream,
    pub(super) target: Target,
    /// `None` where the listener has named the target.
    pub(super) negotiated: Option<Negotiated>,
}

/// A negotiation that has brought a target, and has yet to tell what became of it.
pub(super) struct Negotiated {
    pub(super) negotiation: Box<dyn Negotiation>,
    /// What the program has sent for the target already.
    pub(super) early: BytesMut,
    /// What the program has not been sent yet.
    pub(super) answer: BytesMut,
}

/// A connection whose request waits, or is under way.
pub(in crate::driver) struct Opening {
    stream: TcpStream,
    target: Target,
    negotiated: Option<Negotiated>,
    /// Until when its request has to leave.
    deadline: Instant,
}

impl LocalConnection {
    pub(super) fn new(stream: TcpStream, target: Target) -> Self {
        Self {
            stream,
            target,
            negotiated: None,
        }
    }

    /// What it holds, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let negotiated = self.negotiated.as_ref();
        negotiated.map_or(0, |negotiated| negotiated.early.len() + negotiated.answer.len())
    }
}

impl Opening {
    /// Closes the connection in a way that tells the program that it failed.
    pub(super) fn close(self) {
        reset_on_close(&self.stream);
    }
}

impl Shard<Client> {
    /// A local connection, which has its place, becomes a stream: here, or at a sibling while the stripe is down.
    pub(super) fn connect(&mut self, now: Instant, connection: LocalConnection) {
        let Some(sibling) = self.stand_in(now) else {
            return self.open(now, connection);
        };
        // A program whose connection finds no room there sees it reset.
        let lost = connection.stream.try_clone();
        let message = ClientMessage::Connection(Box::new(connection));
        if self.neighbours.hand_over(sibling, message) {
            return self.io.tcp_left();
        }
        if let Ok(stream) = lost {
            reset_on_close(&stream);
        }
        self.io.tcp.failed += 1;
        self.io.tcp_closed();
    }

    /// A connection that a sibling accepted.
    pub(super) fn take_over(&mut self, now: Instant, connection: LocalConnection) {
        // It may have been accepted just before the end.
        if self.drain.is_some() || !self.io.tcp_opened() {
            self.io.tcp.failed += 1;
            return reset_on_close(&connection.stream);
        }
        self.open(now, connection);
    }

    fn open(&mut self, now: Instant, connection: LocalConnection) {
        let target = connection.target.clone();
        let id = self.engine.open(now, Protocol::Tcp, connection.target);
        // A program that goes away is reported whatever the interest.
        let watched = self
            .io
            .watch(&connection.stream, PollToken::of(id), Interest::NONE);
        let opening = Opening {
            stream: connection.stream,
            target,
            negotiated: connection.negotiated,
            deadline: now + limits::TCP_WAIT_FOR_TUNNEL,
        };
        self.insert_inner(id, Inner::Role(ClientInner::Opening(Box::new(opening))));
        if watched.is_err() {
            self.give_up_opening(id);
        }
    }

    /// The server has opened the target.
    pub(super) fn established(&mut self, id: RequestId) {
        let Some(opening) = self.take_opening(id) else {
            return;
        };
        // It was watched for hang-ups alone, which are reported again and again to a relay that cannot act on them.
        let token = PollToken::of(id).encode();
        let _ = self.io.poller.modify(&opening.stream, token, Interest::READABLE);
        let mut relay = Relay::new(opening.stream, Interest::READABLE);
        relay.body_is_readable();
        if let Some(mut negotiated) = opening.negotiated {
            negotiated.negotiation.handle_opened(&mut negotiated.answer);
            let (answer, early) = (negotiated.answer.freeze(), negotiated.early.freeze());
            relay.begin_with(answer, early, id, &mut self.engine, &mut self.io.tcp);
        }
        self.insert_inner(id, Inner::Tcp(relay));
        self.step_relay(id);
    }

    fn take_opening(&mut self, id: RequestId) -> Option<Opening> {
        let inner = self.inner.get_mut(id.index())?;
        match inner.take() {
            Some(Inner::Role(ClientInner::Opening(opening))) => Some(*opening),
            other => {
                *inner = other;
                None
            }
        }
    }

    /// The program is gone, or nobody would hear of it.
    pub(super) fn give_up_opening(&mut self, id: RequestId) {
        self.close_inner(id, true);
        self.engine.end(id, End::Failed);
    }

    /// Closes connections that waited too long for the tunnel.
    pub(super) fn close_overdue(&mut self, now: Instant) {
        let is_overdue = |inner: &Option<Inner<ClientInner>>| match inner {
            Some(Inner::Role(ClientInner::Opening(opening))) => opening.deadline <= now,
            _ => false,
        };
        let openings = self.inner.iter().enumerate();
        let overdue: Vec<RequestId> = openings
            .filter(|(_, inner)| is_overdue(inner))
            .map(|(index, _)| RequestId::from_index(index))
            .filter(|id| self.engine.is_queued(*id))
            .collect();
        for id in overdue {
            self.io.tcp.failed += 1;
            self.tell_trouble(
                now,
                "a local TCP connection was closed: the tunnel is down".to_owned(),
            );
            if let Some(opening) = self.take_opening(id) {
                self.fail_opening(now, opening, NotOpened::NoTunnel);
            }
            self.engine.end(id, End::Failed);
        }
    }

    /// A request has ended; where its target was not open, the program hears why.
    pub(super) fn opening_ended(&mut self, now: Instant, id: RequestId, ending: &Ending) {
        let Some(opening) = self.take_opening(id) else {
            return;
        };
        let failure = match *ending {
            Ending::Refused { status, error } => {
                self.io.tcp.failed += 1;
                self.tell_refused(now, "TCP", &opening.target, status, error);
                NotOpened::Refused { status, error }
            }
            _ => NotOpened::NoTunnel,
        };
        self.fail_opening(now, opening, failure);
    }

    /// Closes a connection that gets no target: by a reset, or with the words of its negotiation.
    fn fail_opening(&mut self, now: Instant, mut opening: Opening, failure: NotOpened) {
        let Some(mut negotiated) = opening.negotiated.take() else {
            opening.close();
            return self.io.tcp_closed();
        };
        negotiated
            .negotiation
            .handle_failed(failure, &mut negotiated.answer);
        // Watched on, it would have a request's token.
        let _ = self.io.poller.remove(&opening.stream);
        self.say_farewell(now, opening.stream, negotiated.answer);
    }
}
