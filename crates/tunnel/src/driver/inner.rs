//! Inner sockets: what each request has at this end, and the steps that move its bytes.

use std::net::SocketAddr;
use std::time::Instant;

use packet_io::{DatagramSocket, Interest, Ready, ReceiveBatch, UdpSocket};
use tunnel_proto::RequestId;

use super::relay::{Relay, Step};
use super::{Role, Shard, Token, report, server};
use crate::limits;

/// The inner end of a request.
pub(super) enum Inner {
    /// Server: a target that is being resolved or connected.
    Opening(server::targets::Opening),
    /// Server: a UDP socket connected to the target.
    Upstream(Box<UdpSocket>),
    /// Client: a source behind a UDP listener.
    Source { listener: usize, address: SocketAddr },
    /// Both: a TCP connection.
    Tcp(Relay),
}

impl Shard {
    pub(super) fn relay(&mut self, id: RequestId) -> Option<&mut Relay> {
        match self.inner.get_mut(id.index())?.as_mut()? {
            Inner::Tcp(relay) => Some(relay),
            _ => None,
        }
    }

    pub(super) fn insert_inner(&mut self, id: RequestId, inner: Inner) {
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
        let step = relay.step(id, &mut self.engine, &mut self.tcp);
        match step {
            Step::Wait | Step::Again => {
                let wanted = relay.wanted();
                if wanted != relay.interest {
                    relay.interest = wanted;
                    let token = Token::of(id).encode();
                    // A hang-up is reported whatever the interest, again and again: without any it is not watched.
                    let _ = if wanted == Interest::NONE {
                        self.poller.remove(&relay.stream)
                    } else {
                        let known = self.poller.modify(&relay.stream, token, wanted);
                        known.or_else(|_| self.poller.add(&relay.stream, token, wanted))
                    };
                }
                if step == Step::Again {
                    self.again.push(id);
                }
            }
            Step::Done => {
                self.close_inner(id, false);
                self.engine.forget(id);
            }
            Step::Failed => {
                self.close_inner(id, true);
                self.engine.abort(id);
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
            Inner::Opening(opening) => opening.close(&self.poller),
            Inner::Upstream(mut socket) => {
                // What the kernel dropped since the last datagram is known now or never.
                let _ = socket.refresh_kernel_drops();
                self.inner_io_past += report::io_counters(socket.stats());
            }
            Inner::Source { listener, address } => {
                // The source may have a new session already.
                if let Some(listener) = self.udp_listeners.get_mut(listener)
                    && listener.sessions.get(&address) == Some(&id)
                {
                    listener.sessions.remove(&address);
                }
            }
            Inner::Tcp(relay) => {
                if reset {
                    relay.reset_on_close();
                }
                self.tcp_closed();
            }
        }
    }

    /// A TCP connection takes its place; false where there is none.
    pub(super) fn tcp_opened(&mut self) -> bool {
        let is_there = self.tcp_room.take();
        if is_there {
            self.tcp.total += 1;
            self.tcp.open += 1;
        }
        is_there
    }

    pub(super) fn tcp_closed(&mut self) {
        self.tcp_room.give_back();
        self.tcp.open -= 1;
    }

    pub(super) fn inner_ready(&mut self, now: Instant, id: RequestId, event: Ready) {
        match self.inner.get_mut(id.index()) {
            Some(Some(Inner::Upstream(_))) => self.receive_upstream(now, id),
            Some(Some(Inner::Tcp(relay))) => {
                if event.hangup && !relay.open {
                    self.close_inner(id, false);
                    self.engine.abort(id);
                } else {
                    self.step_relay(id);
                }
            }
            Some(Some(Inner::Opening(_))) => self.target_ready(now, id),
            Some(Some(Inner::Source { .. }) | None) | None => {}
        }
    }

    /// Sends the trains that were collected for inner sockets.
    pub(super) fn flush_delivery(&mut self) {
        self.flush_packets();
        if self.delivery.is_empty() {
            return;
        }
        let (inner, listeners) = (&mut self.inner, &mut self.udp_listeners);
        match self.role {
            Role::Server(_) => {
                self.delivery.flush(
                    self.engine.egress(),
                    |id| Some((id.index(), None)),
                    |index, send| {
                        if let Some(Some(Inner::Upstream(socket))) = inner.get_mut(index) {
                            send(socket);
                        }
                    },
                );
            }
            Role::Client(_) => {
                let destination = |id: RequestId| match inner.get(id.index()) {
                    Some(Some(Inner::Source { listener, address })) => Some((*listener, Some(*address))),
                    _ => None,
                };
                self.delivery
                    .flush(self.engine.egress(), destination, |index, send| {
                        if let Some(listener) = listeners.get_mut(index) {
                            send(&mut listener.socket);
                        }
                    });
            }
        }
    }
}

/// Room for one batch of an inner socket.
pub(super) fn inner_batch() -> ReceiveBatch {
    ReceiveBatch::new(limits::INNER_RECEIVE_SLOTS, packet_io::SLOT_BYTES_MAX)
}
