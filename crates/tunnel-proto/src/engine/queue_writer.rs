//! From a payload to its peer's queue: room by the policy, bytes from the arena, the prefix of its context. With repair, also
//! the number of the payload, and parity where it is due (specs/repair.md).

use std::time::{Duration, Instant};

use ::repair::{Field, PARITY_HEADER_BYTES, Parity, SOURCE_HEADER_BYTES};
use bytes::{Bytes, BytesMut};
use masque::datagram::{self, PREFIX_BYTES_MAX};
use masque::split::{self, Splitter};

use super::peer::Peer;
use super::queue::{FlowId, NoRoom, Patience, Queued};
use super::repair::Repairing;
use crate::config::QueuePolicy;
use crate::drops::{Account, DropReason};
use crate::limits;

/// A payload is longer than the most pieces hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CannotSplit;

/// The one way of payloads, of UDP sessions, of IP sessions, of services and of bound sockets, into their peer's queue.
pub(super) struct QueueWriter<'a> {
    pub(super) arena: &'a mut BytesMut,
    pub(super) peer: &'a mut Peer,
    pub(super) ingress: &'a mut Account,
    pub(super) policy: QueuePolicy,
    pub(super) now: Instant,
    pub(super) quarter: u64,
    pub(super) flow: FlowId,
}

impl QueueWriter<'_> {
    pub(super) fn reserve(&mut self, bytes: usize) {
        if self.arena.capacity() - self.arena.len() < bytes {
            self.arena.reserve(limits::ARENA_BYTES.max(bytes));
        }
    }

    pub(super) fn make_room(&mut self, bytes: usize) -> Result<(), DropReason> {
        match self.peer.queue.make_room(self.flow, bytes, self.policy) {
            Ok(evicted) => {
                self.ingress.drop(DropReason::QueueFull, evicted);
                Ok(())
            }
            Err(NoRoom::Flow) => Err(DropReason::FlowQuota),
            Err(NoRoom::Queue) => Err(DropReason::QueueFull),
        }
    }

    pub(super) fn push(&mut self, bytes: Bytes, patience: Patience) {
        self.push_entry(bytes, patience, None);
    }

    fn push_entry(&mut self, bytes: Bytes, patience: Patience, apart: Option<u64>) {
        let entry = Queued {
            bytes,
            since: self.now,
            patience,
            apart,
        };
        self.peer.queue.push(self.flow, entry);
    }

    /// Queues a payload that one datagram holds, behind its prefix.
    pub(super) fn push_whole(&mut self, prefix: &[u8], payload: &[u8]) {
        let total = prefix.len() + payload.len();
        if let Err(reason) = self.make_room(total) {
            return self.ingress.drop(reason, 1);
        }
        self.reserve(total);
        let bytes = append(self.arena, [prefix, payload, &[]]);
        self.push(bytes, Patience::whole(limits::QUEUE_TIME_MAX));
    }

    /// Queues a payload that lies behind its prefix already.
    pub(super) fn push_prefixed(&mut self, bytes: Bytes) {
        match self.make_room(bytes.len()) {
            Ok(()) => self.push(bytes, Patience::whole(limits::QUEUE_TIME_MAX)),
            Err(reason) => self.ingress.drop(reason, 1),
        }
    }

    /// Queues a payload that one datagram does not hold, in pieces in the split context.
    ///
    /// # Errors
    /// No number of pieces holds it; nothing was counted.
    pub(super) fn push_fragments(
        &mut self,
        splitter: &mut Splitter,
        context: u64,
        payload: &[u8],
    ) -> Result<(), CannotSplit> {
        let (prefix, prefix_bytes) = datagram::prefix(self.quarter, context);
        let room = self.peer.datagram_max.saturating_sub(prefix_bytes);
        let count = Splitter::count(payload.len(), room).ok_or(CannotSplit)?;
        let total = payload.len() + count * (prefix_bytes + split::HEADER_BYTES);
        if let Err(reason) = self.make_room(total) {
            self.ingress.drop(reason, 1);
            return Ok(());
        }
        self.reserve(total);
        let fragments = splitter
            .fragments(payload.len(), room)
            .expect("it was counted above");
        self.ingress.split += fragments.len() as u64 - 1;
        let patience = Patience::strict(self.peer.fragment_time_max);
        for (header, range) in fragments {
            let bytes = append(self.arena, [&prefix[..prefix_bytes], &header, &payload[range]]);
            self.push(bytes, patience);
        }
        Ok(())
    }

    /// Queues a payload that `append` writes, numbered, and parity where it is due; it is counted as accepted already.
    pub(super) fn push_source(
        &mut self,
        repairing: &mut Repairing,
        field: &mut Field,
        payload_bytes: usize,
        append: impl FnOnce(&mut BytesMut),
    ) {
        let (prefix, prefix_bytes) = datagram::prefix(self.quarter, repairing.offer.context_id);
        let start = prefix_bytes + SOURCE_HEADER_BYTES;
        self.reserve(start + payload_bytes);
        self.arena.extend_from_slice(&prefix[..prefix_bytes]);
        self.arena.extend_from_slice(&[0; SOURCE_HEADER_BYTES]);
        append(self.arena);
        let mut bytes = self.arena.split();
        // What finds no room is not numbered: the peer would wait for it, and parity would be spent on it.
        if let Err(reason) = self.make_room(bytes.len()) {
            return self.ingress.drop(reason, 1);
        }
        let (head, payload) = bytes.split_at_mut(start);
        let header = repairing.encoder.push(
            self.now,
            payload,
            start + payload.len(),
            self.peer.datagram_max,
            &self.peer.plan,
        );
        head[prefix_bytes..].copy_from_slice(&header);
        let patience = Patience::whole(limits::QUEUE_TIME_MAX);
        self.push_entry(bytes.freeze(), patience, Some(self.quarter));
        repairing.count_bytes(self.peer);
        let parity_prefix = datagram::prefix(self.quarter, repairing.offer.parity_context_id());
        let time_max = repairing.parity_time_max();
        while let Some(parity) = repairing.encoder.parity(self.now, parity_prefix.1, field) {
            self.push_parity(parity_prefix, &parity, time_max);
        }
    }

    /// Queues parity for the end of a burst.
    pub(super) fn push_tail(&mut self, repairing: &mut Repairing, field: &mut Field) {
        let prefix = datagram::prefix(self.quarter, repairing.offer.parity_context_id());
        let time_max = repairing.parity_time_max();
        if let Some(parity) = repairing.encoder.tail(self.now, prefix.1, field) {
            self.push_parity(prefix, &parity, time_max);
        }
    }

    /// Parity takes nobody's place: without room it is left out, and was never made.
    fn push_parity(
        &mut self,
        prefix: ([u8; PREFIX_BYTES_MAX], usize),
        parity: &Parity<'_>,
        time_max: Duration,
    ) {
        let (prefix, prefix_bytes) = prefix;
        let total = prefix_bytes + PARITY_HEADER_BYTES + parity.symbol.len();
        let newest = QueuePolicy::DropNewest;
        if self.peer.queue.make_room(self.flow, total, newest).is_err() {
            return;
        }
        self.reserve(total);
        let bytes = append(
            self.arena,
            [&prefix[..prefix_bytes], &parity.header, parity.symbol],
        );
        self.ingress.parity_sent += 1;
        self.ingress.parity_sent_bytes += total as u64;
        self.push_entry(bytes, Patience::strict(time_max), Some(self.quarter));
    }
}

fn append(arena: &mut BytesMut, parts: [&[u8]; 3]) -> Bytes {
    for part in parts {
        arena.extend_from_slice(part);
    }
    arena.split().freeze()
}
