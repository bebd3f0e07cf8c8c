//! Inner sockets: what each request has at this end, and the steps that move its bytes.

use std::time::Instant;

use packet_io::{Interest, ReceiveBatch};
use tunnel_proto::{End, RequestId};

use super::inner_turns::{More, Served};
use super::relay::{Relay, Step, reset_on_close};
use super::role::Role;
use super::{PollToken, Shard};
use crate::limits;
use crate::snapshot::TcpCounters;

/// The inner end of a request; `E` are those that only one role has.
pub(super) enum Inner<E> {
    /// A TCP connection.
    Tcp(Relay),
    Role(E),
}

impl<R: Role> Shard<R> {
    pub(super) fn relay(&mut self, id: RequestId) -> Option<&mut Relay> {
        match self.inner.get_mut(id.index())?.as_mut()? {
            Inner::Tcp(relay) => Some(relay),
            _ => None,
        }
    }

    pub(super) fn insert_inner(&mut self, id: RequestId, inner: Inner<R::Inner>) {
        if self.inner.len() <= id.index() {
            self.inner.resize_with(id.index() + 1, || None);
        }
        self.inner[id.index()] = Some(inner);
        self.inner_turns.enter(id, self.engine.user_of_request(id));
    }

    /// Serves the inner sockets that are ready, by turns of their users.
    pub(super) fn serve_inner(&mut self, now: Instant) {
        self.inner_turns.begin_turn();
        while let Some(id) = self.inner_turns.next() {
            let served = match self.inner.get(id.index()) {
                Some(Some(Inner::Tcp(_))) => self.serve_relay(id),
                Some(Some(Inner::Role(_))) => R::serve_inner(self, now, id),
                Some(None) | None => continue,
            };
            self.inner_turns.note(id, served);
        }
        self.inner_turns.end_turn();
    }

    /// Moves a relay's bytes out of turn, because the engine has something for it.
    pub(super) fn step_relay(&mut self, id: RequestId) {
        let served = self.serve_relay(id);
        self.inner_turns.note(id, served);
    }

    /// Moves a relay's bytes, then follows what it needs.
    fn serve_relay(&mut self, id: RequestId) -> Served {
        let Some(Some(Inner::Tcp(relay))) = self.inner.get_mut(id.index()) else {
            return Served::default();
        };
        let moved = |tcp: &TcpCounters| (tcp.bytes_in + tcp.bytes_out) as usize;
        let before = moved(&self.io.tcp);
        let step = relay.step(id, &mut self.engine, &mut self.io.tcp);
        let served = Served {
            cost_bytes: limits::INNER_CALL_BYTES + moved(&self.io.tcp) - before,
            more: if step == Step::Again {
                More::Untold
            } else {
                More::None
            },
        };
        match step {
            Step::Wait | Step::Again => {
                let wanted = relay.wanted();
                if wanted != relay.interest {
                    relay.interest = wanted;
                    let token = PollToken::of(id).encode();
                    // A hang-up is reported whatever the interest, again and again: without any it is not watched.
                    let _ = if wanted == Interest::NONE {
                        self.io.poller.remove(&relay.stream)
                    } else {
                        let known = self.io.poller.modify(&relay.stream, token, wanted);
                        known.or_else(|_| self.io.poller.add(&relay.stream, token, wanted))
                    };
                }
            }
            Step::Done => {
                self.close_inner(id, false);
                self.engine.end(id, End::Done);
            }
            Step::Failed => {
                self.close_inner(id, true);
                self.engine.end(id, End::Failed);
            }
            Step::Ended => {}
        }
        served
    }

    /// Takes the inner end of a request out, which goes on with another one, or without.
    pub(super) fn take_inner(&mut self, id: RequestId) -> Option<Inner<R::Inner>> {
        let inner = self.inner.get_mut(id.index()).and_then(Option::take)?;
        self.inner_turns.leave(id);
        Some(inner)
    }

    /// Closes the inner end of a request; `reset` tells a TCP peer that it did not end well.
    pub(super) fn close_inner(&mut self, id: RequestId, reset: bool) {
        let Some(inner) = self.take_inner(id) else {
            return;
        };
        match inner {
            Inner::Role(inner) => R::close_inner(self, id, inner),
            Inner::Tcp(relay) => {
                if reset {
                    reset_on_close(&relay.stream);
                }
                self.io.tcp_closed();
            }
        }
    }

    pub(super) fn inner_ready(&mut self, now: Instant, id: RequestId) {
        match self.inner.get_mut(id.index()) {
            Some(Some(Inner::Tcp(_))) => self.inner_turns.push(id),
            Some(Some(Inner::Role(_))) => R::inner_ready(self, now, id),
            Some(None) | None => {}
        }
    }

    /// Sends the trains that were collected for inner sockets.
    pub(super) fn flush_delivery(&mut self) {
        self.flush_packets();
        if self.delivery.is_empty() {
            return;
        }
        R::send_trains(self);
    }
}

/// Buffers for one batch of an inner socket.
pub(super) fn inner_batch() -> ReceiveBatch {
    ReceiveBatch::new(limits::INNER_RECEIVE_SLOTS, packet_io::SLOT_BYTES_MAX)
}
