//! From inner sockets into QUIC: datagrams get their prefix, are numbered for repair or split where they have to be, and wait in
//! their peer's queue until the next transmit can take them.

use std::time::Instant;

use masque::datagram;
use quic::ConnectionKey;

use super::life::Life;
use super::queue::FlowId;
use super::queue_writer::QueueWriter;
use super::repair::{Repair, Repairing};
use super::request::{Kind, Request, RequestId};
use super::udp::UdpSession;
use super::{Engine, Role, State};
use crate::config::Oversize;
use crate::drops::DropReason;
use crate::limits;

impl<R: Role> Engine<R> {
    /// Takes a batch of datagrams of one inner socket for the session `id`, in order.
    ///
    /// What cannot be queued is dropped and counted.
    pub fn send_datagrams<'a>(
        &mut self,
        now: Instant,
        id: RequestId,
        payloads: impl Iterator<Item = &'a [u8]>,
    ) {
        let Some(request) = self.state.requests.get_mut(id.0) else {
            return self.refuse_datagrams(payloads.count());
        };
        request.last_active = now;
        match &request.life {
            Life::Queued(_) => {
                for payload in payloads {
                    self.state.ledger.ingress.accepted += 1;
                    if !self.state.waiting.push(id, payload, now) {
                        self.state.ledger.ingress.drop(DropReason::NoTunnel, 1);
                    }
                }
            }
            Life::Sent(stream) | Life::Open(stream) => {
                let connection = stream.connection;
                let datagram_max = self.endpoint.datagram_max(connection).unwrap_or(0);
                self.state.filled = Some(connection);
                if let Some(peer) = self.state.peer(connection) {
                    peer.datagram_max = datagram_max;
                }
                for payload in payloads {
                    self.state.ledger.ingress.accepted += 1;
                    self.state.enqueue(now, id, payload);
                }
                self.endpoint.mark_ready(connection);
            }
            Life::Refused { .. }
            | Life::Ended
            | Life::Headers(_)
            | Life::Identifying(_)
            | Life::Opening(_)
            | Life::Closing(_) => {
                self.refuse_datagrams(payloads.count());
            }
        }
    }

    /// Whether the queue that got something last, from an inner socket or the TUN, holds more than these should add to
    /// while QUIC is sending. What waits for other peers does not matter: a slow one keeps nobody waiting.
    #[must_use]
    pub fn queue_is_long(&self) -> bool {
        self.state
            .filled
            .is_some_and(|connection| self.state.is_long(connection))
    }

    /// Whether the queue that the datagrams of a request go to is as long.
    #[must_use]
    pub fn queue_of_is_long(&self, id: RequestId) -> bool {
        let request = self.state.requests.get(id.0);
        let stream = request.and_then(Request::stream);
        stream.is_some_and(|stream| self.state.is_long(stream.connection))
    }

    fn refuse_datagrams(&mut self, count: usize) {
        let ingress = &mut self.state.ledger.ingress;
        ingress.accepted += count as u64;
        ingress.drop(DropReason::SessionClosed, count as u64);
    }

    /// What waited for the request of `id` goes into the queue: the request has left.
    pub(super) fn send_waiting(&mut self, now: Instant, id: RequestId) {
        for payload in self.state.waiting.take(id) {
            self.state.enqueue(now, id, &payload);
        }
        let request = self.state.requests.get(id.0);
        if let Some(stream) = request.and_then(Request::stream) {
            self.endpoint.mark_ready(stream.connection);
        }
    }
}

impl<R: Role> State<R> {
    fn is_long(&self, connection: ConnectionKey) -> bool {
        let peer = self.peers.get(connection.index()).and_then(Option::as_ref);
        peer.is_some_and(|peer| peer.queue.bytes() > limits::QUEUE_INTAKE_BYTES)
    }

    /// Queues one datagram of a session with a stream; it is counted as accepted already.
    fn enqueue(&mut self, now: Instant, id: RequestId, payload: &[u8]) {
        let ingress = &mut self.ledger.ingress;
        let Some(request) = self.requests.get_mut(id.0) else {
            return ingress.drop(DropReason::SessionClosed, 1);
        };
        let Some(stream) = request.stream() else {
            return ingress.drop(DropReason::SessionClosed, 1);
        };
        let Kind::Udp(UdpSession {
            split,
            splitter,
            repair,
            ..
        }) = &mut request.kind
        else {
            return ingress.drop(DropReason::SessionClosed, 1);
        };
        let peer = self.peers.get_mut(stream.connection.index());
        let Some(peer) = peer.and_then(Option::as_mut) else {
            return ingress.drop(DropReason::SessionClosed, 1);
        };
        let quarter = stream.quarter();
        let mut writer = QueueWriter {
            arena: &mut self.arena,
            peer,
            ingress,
            policy: self.config.queue_policy,
            now,
            quarter,
            flow: FlowId {
                hash: id.0 as u64,
                is_controlled: false,
            },
        };
        let datagram_max = writer.peer.datagram_max;
        if let Repair::Agreed(repairing) = repair
            && writer.peer.plan.is_active()
            && Repairing::has_room(writer.peer)
            && repairing.fits(quarter, payload.len(), datagram_max)
        {
            writer.push_source(repairing, self.repair.field(), payload.len(), |arena| {
                arena.extend_from_slice(payload);
            });
            return self.repair.arm(id, repairing);
        }
        let (prefix, prefix_bytes) = datagram::prefix(quarter, datagram::UDP_CONTEXT_ID);
        if prefix_bytes + payload.len() <= datagram_max {
            return writer.push_whole(&prefix[..prefix_bytes], payload);
        }
        let context = split.any().filter(|_| self.config.oversize == Oversize::Split);
        let is_split =
            context.is_some_and(|context| writer.push_fragments(splitter, context, payload).is_ok());
        if !is_split {
            writer.ingress.drop(DropReason::TooLarge, 1);
        }
    }
}
