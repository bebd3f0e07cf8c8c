//! Inner sockets: what each request has at this end, and the steps that move its bytes.

use std::time::Instant;

use packet_io::{Interest, ReceiveBatch};
use tunnel_proto::{End, RequestId};

use super::relay::{Relay, Step, reset_on_close};
use super::role::Role;
use super::{PollToken, Shard};
use crate::limits;

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
    }

    /// Moves a relay's bytes, then follows what it needs.
    pub(super) fn step_relay(&mut self, id: RequestId) {
        let Some(Some(Inner::Tcp(relay))) = self.inner.get_mut(id.index()) else {
            return;
        };
        let step = relay.step(id, &mut self.engine, &mut self.io.tcp);
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
                if step == Step::Again {
                    self.again.push(id);
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
    }

    /// Closes the inner end of a request; `reset` tells a TCP peer that it did not end well.
    pub(super) fn close_inner(&mut self, id: RequestId, reset: bool) {
        let Some(inner) = self.inner.get_mut(id.index()).and_then(Option::take) else {
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
            Some(Some(Inner::Tcp(_))) => self.step_relay(id),
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
