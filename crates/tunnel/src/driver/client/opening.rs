//! Local TCP connections whose target the server has not opened yet: they wait for the tunnel, then for its answer.

use std::net::TcpStream;
use std::time::Instant;

use packet_io::Interest;
use tunnel_proto::{End, Ending, Protocol, RequestId, Target};

use super::local::explain;
use super::{Client, ClientInner};
use crate::driver::relay::reset_on_close;
use crate::driver::{Inner, PollToken, Relay, Shard};
use crate::limits;

/// A connection whose request waits, or is under way.
pub(in crate::driver) struct Opening {
    stream: TcpStream,
    /// Until when its request has to leave.
    deadline: Instant,
}

impl Opening {
    /// Closes the connection in a way that tells the program that it failed.
    pub(super) fn close(self) {
        reset_on_close(&self.stream);
    }
}

impl Shard<Client> {
    /// A local connection becomes a stream, accepted here or by a sibling whose stripe is down.
    pub(super) fn take_over(&mut self, now: Instant, target: Target, stream: TcpStream) {
        if self.drain_until.is_some() {
            // A sibling accepted it just before the end.
            self.io.tcp.failed += 1;
            return;
        }
        if stream.set_nonblocking(true).is_err() || !self.io.tcp_opened() {
            self.io.tcp.failed += 1;
            return;
        }
        let id = self.engine.open(now, Protocol::Tcp, target);
        // A program that goes away is reported whatever the interest.
        let watched = self.io.watch(&stream, PollToken::of(id), Interest::NONE);
        let opening = Opening {
            stream,
            deadline: now + limits::TCP_WAIT_FOR_TUNNEL,
        };
        self.insert_inner(id, Inner::Role(ClientInner::Opening(opening)));
        if watched.is_err() {
            self.give_up_opening(id);
        }
    }

    /// The server has opened the target.
    pub(super) fn established(&mut self, id: RequestId) {
        if let Some(opening) = self.take_opening(id) {
            let mut relay = Relay::new(opening.stream, Interest::NONE);
            relay.body_is_readable();
            self.insert_inner(id, Inner::Tcp(relay));
            self.step_relay(id);
        }
    }

    fn take_opening(&mut self, id: RequestId) -> Option<Opening> {
        let inner = self.inner.get_mut(id.index())?;
        match inner.take() {
            Some(Inner::Role(ClientInner::Opening(opening))) => Some(opening),
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
            self.tell_refused(
                now,
                "a local TCP connection was closed: the tunnel is down".to_owned(),
            );
            self.give_up_opening(id);
        }
    }

    /// The request of a connection has ended before the target was opened.
    pub(super) fn tell_refusal(&mut self, id: RequestId, ending: &Ending) {
        if let Ending::Refused { status, error } = ending
            && matches!(
                self.inner.get(id.index()),
                Some(Some(Inner::Role(ClientInner::Opening(_))))
            )
        {
            self.io.tcp.failed += 1;
            let text = format!(
                "the server refused a TCP connection: {}",
                explain(*status, *error)
            );
            self.tell_refused(Instant::now(), text);
        }
    }
}
