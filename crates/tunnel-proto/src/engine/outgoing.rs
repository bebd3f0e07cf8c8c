//! From inner sockets into QUIC: datagrams get their prefix, are numbered for repair or split where they have to be, and wait in
//! their peer's queue until the next transmit can take them.

use std::time::Instant;

use masque::datagram;
use masque::split::Splitter;

use super::life::{Life, RequestStream};
use super::queue::{FlowId, NoRoom, Queued};
use super::repair::{Repair, Repairing};
use super::request::{Kind, Request, RequestId};
use super::way::{Way, append};
use super::{Engine, Role, State, quarter};
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
                if let Some(peer) = self.state.peer(connection) {
                    peer.datagram_max = datagram_max;
                }
                for payload in payloads {
                    self.state.ledger.ingress.accepted += 1;
                    self.state.enqueue(now, id, payload);
                }
                self.endpoint.mark_ready(connection);
            }
            Life::Refused { .. } | Life::Ended | Life::Headers(_) | Life::Opening(_) | Life::Closing(_) => {
                self.refuse_datagrams(payloads.count());
            }
        }
    }

    /// Whether some peer's queue holds more than inner sockets should add to while QUIC is sending.
    #[must_use]
    pub fn queue_is_long(&self) -> bool {
        self.state
            .peers
            .iter()
            .flatten()
            .any(|peer| peer.queue.bytes() > limits::QUEUE_INTAKE_BYTES)
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
    /// Queues one datagram of a session with a stream; it is counted as accepted already.
    fn enqueue(&mut self, now: Instant, id: RequestId, payload: &[u8]) {
        let ingress = &mut self.ledger.ingress;
        let Some(request) = self.requests.get_mut(id.0) else {
            return ingress.drop(DropReason::SessionClosed, 1);
        };
        let Some(RequestStream {
            connection,
            id: stream,
        }) = request.stream()
        else {
            return ingress.drop(DropReason::SessionClosed, 1);
        };
        let Kind::Udp {
            split,
            splitter,
            repair,
            ..
        } = &mut request.kind
        else {
            return ingress.drop(DropReason::SessionClosed, 1);
        };
        let Some(peer) = self.peers.get_mut(connection.index()).and_then(Option::as_mut) else {
            return ingress.drop(DropReason::SessionClosed, 1);
        };
        let quarter = quarter(stream);
        let flow = FlowId {
            hash: id.0 as u64,
            is_controlled: false,
        };
        if let Repair::Agreed(repairing) = repair
            && peer.plan.is_active()
            && Repairing::has_room(peer)
            && repairing.fits(quarter, payload.len(), peer.datagram_max)
        {
            let mut way = Way {
                arena: &mut self.arena,
                peer,
                ingress,
                policy: self.config.queue_policy,
                now,
                quarter,
                flow,
            };
            way.push_source(repairing, self.repair.field(), payload.len(), |arena| {
                arena.extend_from_slice(payload);
            });
            return self.repair.arm(id, repairing);
        }
        let (prefix, prefix_bytes) = datagram::prefix(quarter, datagram::UDP_CONTEXT_ID);
        let whole = prefix_bytes + payload.len() <= peer.datagram_max;
        let mut total = prefix_bytes + payload.len();
        let mut split_plan = None;
        if !whole {
            let context = match (self.config.oversize, split.any()) {
                (Oversize::Split, Some(context)) => context,
                _ => return ingress.drop(DropReason::TooLarge, 1),
            };
            let (prefix, prefix_bytes) = datagram::prefix(quarter, context);
            let room = peer.datagram_max.saturating_sub(prefix_bytes);
            let Some(count) = Splitter::count(payload.len(), room) else {
                return ingress.drop(DropReason::TooLarge, 1);
            };
            total = payload.len() + count * (prefix_bytes + SPLIT_HEADER_BYTES);
            split_plan = Some((prefix, prefix_bytes, room));
        }
        match peer.queue.make_room(flow, total, self.config.queue_policy) {
            Ok(evicted) => ingress.drop(DropReason::QueueFull, evicted),
            Err(NoRoom::Flow) => return ingress.drop(DropReason::FlowQuota, 1),
            Err(NoRoom::Queue) => return ingress.drop(DropReason::QueueFull, 1),
        }
        if self.arena.capacity() - self.arena.len() < total {
            self.arena.reserve(limits::ARENA_BYTES.max(total));
        }
        let time_max = if split_plan.is_some() {
            peer.fragment_time_max
        } else {
            limits::QUEUE_TIME_MAX
        };
        let mut push = |parts: [&[u8]; 3]| {
            let bytes = append(&mut self.arena, parts);
            peer.queue.push(
                flow,
                Queued {
                    bytes,
                    since: now,
                    expires: now + time_max,
                    apart: None,
                },
            );
        };
        let Some((split_prefix, split_prefix_bytes, room)) = split_plan else {
            return push([&prefix[..prefix_bytes], payload, &[]]);
        };
        let fragments = splitter
            .fragments(payload.len(), room)
            .expect("it was counted above");
        ingress.split += fragments.len() as u64 - 1;
        for (header, range) in fragments {
            push([&split_prefix[..split_prefix_bytes], &header, &payload[range]]);
        }
    }
}

/// Bytes of a fragment's header (specs/split.md).
const SPLIT_HEADER_BYTES: usize = masque::split::HEADER_BYTES;
