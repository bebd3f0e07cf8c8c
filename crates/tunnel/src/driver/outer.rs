//! The outer UDP socket: batches in, trains out, what waits while it is full.

use std::io;
use std::time::Instant;

use packet_io::{DatagramSocket, Interest, Outgoing, Poller, Ready, ReceiveBatch, SocketOptions, UdpSocket};
use quic::{Outbox, Path};

use super::neighbours::Segment;
use super::role::Role;
use super::{PollToken, Shard, report};
use crate::config::CommonConfig;
use crate::limits;
use crate::snapshot::IoCounters;

/// The outer socket of a shard, replaced when a client connects anew.
pub(super) struct Outer {
    socket: Option<UdpSocket>,
    batch: ReceiveBatch,
    outbox: Outbox,
    blocked: bool,
    /// Counters of earlier sockets.
    past: IoCounters,
    /// When something was last received.
    pub(super) heard: Option<Instant>,
}

pub(super) fn options(common: &CommonConfig) -> SocketOptions {
    SocketOptions {
        receive_buffer_bytes: common.receive_buffer_bytes,
        send_buffer_bytes: common.send_buffer_bytes,
        offloads: packet_io::Offloads {
            gso: common.gso,
            gro: common.gro,
        },
        dont_fragment: true,
        receive_ecn: true,
        ..SocketOptions::default()
    }
}

impl Outer {
    pub(super) fn new() -> Self {
        Self {
            socket: None,
            batch: ReceiveBatch::new(limits::OUTER_RECEIVE_SLOTS, packet_io::SLOT_BYTES_MAX),
            outbox: Outbox::default(),
            blocked: false,
            past: IoCounters::default(),
            heard: None,
        }
    }

    /// Puts a socket in place of the present one, whose unsent trains are of no use any more.
    pub(super) fn replace(&mut self, socket: UdpSocket, poller: &Poller) -> io::Result<()> {
        self.close();
        poller.add(&socket, PollToken::Outer.encode(), Interest::READABLE)?;
        self.socket = Some(socket);
        Ok(())
    }

    pub(super) fn close(&mut self) {
        if let Some(mut socket) = self.socket.take() {
            // What the kernel dropped since the last datagram is known now or never.
            let _ = socket.refresh_kernel_drops();
            self.past += report::io_counters(socket.stats());
        }
        self.outbox.release(usize::MAX);
        self.blocked = false;
    }

    pub(super) fn socket(&self) -> Option<&UdpSocket> {
        self.socket.as_ref()
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked || self.socket.is_none()
    }

    pub(super) fn counters(&mut self) -> IoCounters {
        let mut counters = self.past;
        if let Some(socket) = &mut self.socket {
            // A number that is a little old is better than none.
            let _ = socket.refresh_kernel_drops();
            counters += report::io_counters(socket.stats());
            counters.receive_buffer_wanted = socket.grants().receive.wanted;
            counters.receive_buffer_obtained = socket.grants().receive.obtained;
        }
        counters
    }

    /// Sends what the outbox holds; what the socket does not take waits until it is writable.
    fn send(&mut self, poller: &Poller) {
        let Some(socket) = &mut self.socket else {
            return self.outbox.release(usize::MAX);
        };
        if self.blocked || self.outbox.is_empty() {
            return;
        }
        let is_connected = socket.remote_addr().is_some();
        let messages: Vec<Outgoing<'_>> = self
            .outbox
            .trains()
            .iter()
            .map(|train| Outgoing {
                destination: (!is_connected).then_some(train.destination),
                source: train.source,
                ecn: train.ecn,
                segment_size: train.segment_size,
                payload: &train.bytes,
            })
            .collect();
        let outcome = socket.send(&messages).unwrap_or_default();
        drop(messages);
        self.outbox.release(outcome.messages);
        self.outbox.advance(outcome.partial_segments);
        if outcome.blocked {
            self.blocked = true;
            // It is watched since it was put in place.
            let _ = poller.modify(socket, PollToken::Outer.encode(), Interest::BOTH);
        } else {
            // Whatever is left then can never be sent.
            self.outbox.release(usize::MAX);
        }
    }

    fn unblock(&mut self, poller: &Poller) {
        if let Some(socket) = self.socket.as_ref().filter(|_| self.blocked) {
            self.blocked = false;
            let _ = poller.modify(socket, PollToken::Outer.encode(), Interest::READABLE);
        }
    }
}

impl<R: Role> Shard<R> {
    pub(super) fn outer_ready(&mut self, now: Instant, event: Ready) {
        if event.writable {
            self.io.outer.unblock(&self.io.poller);
            self.io.outer.send(&self.io.poller);
        }
        if !event.readable {
            return;
        }
        let Some(socket) = &mut self.io.outer.socket else {
            return;
        };
        match socket.receive(&mut self.io.outer.batch) {
            Ok(0) => {}
            Ok(count) => {
                self.io.outer.heard = Some(now);
                (0..count).for_each(|index| self.take_outer(now, index));
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => R::port_is_closed(self, now),
            Err(_) => {}
        }
    }

    /// One message of the outer batch; what it holds for inner sockets leaves in bursts that receivers can take.
    fn take_outer(&mut self, now: Instant, index: usize) {
        let outer = &mut self.io.outer;
        let (meta, data) = outer.batch.take(index);
        if meta.truncated {
            return;
        }
        let path = Path {
            remote: meta.source,
            local: meta.local,
        };
        self.engine.handle_outer(
            now,
            path,
            meta.ecn,
            data,
            meta.segment_size,
            &mut self.delivery,
            &mut outer.outbox,
        );
        self.hand_over_segments();
        if self.delivery.is_full() {
            self.flush_delivery();
            // A receiver that shares our core gets to drain its buffer before the next burst fills it.
            self.core_yield.run_others();
        }
    }

    /// Segments whose connection ID names another shard go there.
    fn hand_over_segments(&mut self) {
        for (shard, segment) in self.delivery.foreign.drain(..) {
            self.neighbours.hand_over_segment(usize::from(shard), segment);
        }
    }

    /// A segment of a connection of this shard that another one received.
    pub(super) fn take_segment(&mut self, now: Instant, segment: Segment) {
        let Segment { path, ecn, bytes } = segment;
        self.io.outer.heard = Some(now);
        let (delivery, outbox) = (&mut self.delivery, &mut self.io.outer.outbox);
        self.engine
            .handle_outer(now, path, ecn, bytes, 0, delivery, outbox);
        if self.delivery.is_full() {
            self.flush_delivery();
        }
    }

    /// Sends what QUIC has; whether there is more than one turn should send.
    pub(super) fn flush_outer(&mut self, now: Instant) -> bool {
        if self.io.outer.is_blocked() {
            self.io.outer.send(&self.io.poller);
            return false;
        }
        for _ in 0..limits::FLUSHES_PER_TURN {
            let more = self.engine.flush(now, &mut self.io.outer.outbox);
            self.io.outer.send(&self.io.poller);
            if !more || self.io.outer.is_blocked() {
                return false;
            }
        }
        true
    }
}
