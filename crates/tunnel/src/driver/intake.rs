//! Datagrams from inner sockets: a received batch goes to its sessions piece by piece, QUIC sending in between.
//!
//! A batch of coalesced messages holds up to 4 MiB, more than a peer's queue; given over whole, most of it was dropped
//! while QUIC stood ready to send it.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Instant;

use bytes::BytesMut;
use packet_io::DatagramSocket;
use tunnel_proto::{DropReason, RequestId};

use super::client::{Client, ClientMessage};
use super::inner_turns::{More, Served};
use super::role::Role;
use super::server::{Server, ServerInner};
use super::sources::SourceId;
use super::{Inner, Shard};
use crate::limits;

impl Shard<Client> {
    /// One batch of a UDP listener: every run of one source goes to its session.
    pub(super) fn receive_at_listener(&mut self, now: Instant, at: SourceId) {
        if self.intake_should_wait() {
            return;
        }
        let Some(listener) = self.sources.udp_listener(at) else {
            return;
        };
        let Ok(count) = listener.socket.receive(&mut self.inner_batch) else {
            return;
        };
        let number = listener.number;
        if let Some(sibling) = self.stand_in(now) {
            return self.give_away(sibling, number, count);
        }
        let mut start = 0;
        while start < count {
            let source = self.inner_batch.get(start).meta.source;
            let mut end = start + 1;
            while end < count && self.inner_batch.get(end).meta.source == source {
                end += 1;
            }
            match self.session_of(now, at, source) {
                Some(id) => self.take_in(now, id, start..end),
                // Nothing new begins any more.
                None => self.refuse(start..end, DropReason::SessionClosed),
            }
            start = end;
        }
    }

    pub(super) fn refuse(&mut self, messages: Range<usize>, reason: DropReason) {
        let received = messages.map(|index| self.inner_batch.get(index).meta);
        let whole = received.filter(|meta| !meta.truncated);
        let datagrams = whole.map(|meta| meta.segments() as u64).sum();
        let ingress = &mut self.engine.ledger().ingress;
        ingress.accepted += datagrams;
        ingress.drop(reason, datagrams);
    }

    /// The stripe is down, and a sibling takes what has come. What it has no room for is dropped here.
    fn give_away(&mut self, sibling: usize, listener: usize, count: usize) {
        for received in (0..count).map(|index| self.inner_batch.get(index)) {
            if received.meta.truncated {
                continue;
            }
            let message = ClientMessage::Datagrams {
                listener,
                source: received.meta.source,
                bytes: BytesMut::from(received.payload),
                segment_size: received.meta.segment_size,
            };
            if !self.neighbours.hand_over(sibling, message) {
                let datagrams = received.meta.segments() as u64;
                let ingress = &mut self.engine.ledger().ingress;
                ingress.accepted += datagrams;
                ingress.drop(DropReason::NoTunnel, datagrams);
            }
        }
    }

    /// Datagrams of a source at the same listener of a sibling whose stripe is down. The answers leave from here.
    pub(super) fn take_in_for_sibling(
        &mut self,
        now: Instant,
        listener: usize,
        source: SocketAddr,
        bytes: &[u8],
        segment_size: usize,
    ) {
        let at = self.role.udp_listeners.get(listener).copied();
        if let Some(id) = at.and_then(|at| self.session_of(now, at, source)) {
            self.engine
                .send_datagrams(now, id, packet::segments(bytes, segment_size));
        }
    }
}

impl Shard<Server> {
    /// One batch of a target's answers.
    pub(super) fn receive_upstream(&mut self, now: Instant, id: RequestId) -> Served {
        // Its client's queue alone matters: a slow client keeps no other's socket waiting.
        if self.more_to_send && self.engine.queue_of_is_long(id) {
            return Served::default();
        }
        let Some(Some(Inner::Role(ServerInner::Upstream(upstream)))) = self.inner.get_mut(id.index()) else {
            return Served::default();
        };
        // What ICMP reported was about an earlier datagram; its drop is counted where it is sent.
        let buffers = &mut self.role.upstream_buffers;
        let Ok((count, load)) = upstream.receive(&mut self.inner_batch, buffers) else {
            return Served::default();
        };
        self.take_in(now, id, 0..count);
        let more = if load.is_full { More::Polled } else { More::None };
        Served::of_messages(count, load.bytes as usize, more)
    }
}

impl<R: Role> Shard<R> {
    /// Whether what has come already should leave first.
    pub(super) fn intake_should_wait(&self) -> bool {
        self.more_to_send && self.engine.queue_is_long()
    }

    pub(super) fn take_in(&mut self, now: Instant, id: RequestId, messages: Range<usize>) {
        let mut start = messages.start;
        while start < messages.end {
            let (mut end, mut datagrams) = (start, 0);
            while end < messages.end && datagrams < limits::INTAKE_DATAGRAMS {
                datagrams += self.inner_batch.get(end).meta.segments();
                end += 1;
            }
            let batch = &self.inner_batch;
            let whole = (start..end)
                .map(|index| batch.get(index))
                .filter(|received| !received.meta.truncated);
            self.engine
                .send_datagrams(now, id, whole.flat_map(|received| received.segments()));
            if self.engine.queue_is_long() {
                self.more_to_send = self.flush_outer(now);
            }
            start = end;
        }
    }
}
