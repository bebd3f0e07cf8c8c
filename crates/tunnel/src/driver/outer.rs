//! The carrier of a shard: batches in, trains out, what waits while it is full. A client's attempts to connect have
//! carriers beside it.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use packet_io::{Interest, Outgoing, Poller, Ready, ReceiveBatch, SocketOptions};
use quic::{Outbox, OutgoingTrain, Path};
use tunnel_proto::AttemptId;

use super::beside::BesideCarriers;
use super::client::uplink::UplinkBinding;
use super::neighbours::Segment;
use super::role::Role;
use super::start::unavailable;
use super::{PollToken, Shard};
use crate::carrier::{Carrier, OfferedSocket, Refusal};
use crate::config::CommonConfig;
use crate::limits;
use crate::snapshot::IoCounters;

/// The carrier of a shard, replaced when a client connects anew.
pub(super) struct Outer {
    carrier: Option<Box<dyn Carrier>>,
    /// How QUIC knows the carrier's only peer, where it has one: a connection may have moved here from another carrier.
    pub(super) known: Option<SocketAddr>,
    /// Of attempts to connect.
    pub(super) beside: BesideCarriers,
    batch: ReceiveBatch,
    outbox: Outbox,
    blocked: bool,
    /// Counters of earlier carriers.
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
            carrier: None,
            known: None,
            beside: BesideCarriers::default(),
            batch: ReceiveBatch::new(limits::OUTER_RECEIVE_SLOTS, packet_io::SLOT_BYTES_MAX),
            outbox: Outbox::default(),
            blocked: false,
            past: IoCounters::default(),
            heard: None,
        }
    }

    /// A carrier that is not read before [`Outer::watch_again`].
    fn hold(&mut self, carrier: Box<dyn Carrier>) {
        self.close();
        self.carrier = Some(carrier);
    }

    /// Puts a carrier in place of the present one, whose unsent trains are of no use any more.
    fn replace(&mut self, carrier: Box<dyn Carrier>, poller: &Poller) -> io::Result<()> {
        self.close();
        poller.add(&carrier, PollToken::Outer.encode(), Interest::READABLE)?;
        self.carrier = Some(carrier);
        Ok(())
    }

    /// The carrier goes on as that of a connection beside the one that takes its place.
    pub(super) fn set_aside(&mut self, former: AttemptId, uplink: Option<UplinkBinding>, poller: &Poller) {
        let remote = self.carrier.as_ref().and_then(|carrier| carrier.remote_addr());
        let (Some(carrier), Some(remote)) = (self.carrier.take(), remote) else {
            return;
        };
        self.blocked = false;
        let known = self.known.unwrap_or(remote);
        // It is watched since it was put in place.
        let _ = poller.remove(&carrier);
        if self
            .beside
            .add(former, (remote, known), carrier, uplink, poller)
            .is_err()
        {
            self.beside.take(former, poller);
        }
    }

    pub(super) fn close(&mut self) {
        if let Some(mut carrier) = self.carrier.take() {
            self.past += carrier.counters().closed();
        }
        self.outbox.release(usize::MAX);
        self.blocked = false;
    }

    fn watch_again(&mut self, poller: &Poller) -> io::Result<()> {
        let interest = if self.blocked {
            Interest::BOTH
        } else {
            Interest::READABLE
        };
        match &self.carrier {
            Some(carrier) => poller.add(carrier, PollToken::Outer.encode(), interest),
            None => Ok(()),
        }
    }

    pub(super) fn carrier(&mut self) -> Option<&mut dyn Carrier> {
        self.carrier
            .as_deref_mut()
            .map(|carrier| carrier as &mut dyn Carrier)
    }

    /// When [`Outer::handle_timeout`] is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let own = self.carrier.as_ref().and_then(|carrier| carrier.poll_timeout());
        [own, self.beside.poll_timeout()].into_iter().flatten().min()
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if let Some(carrier) = &mut self.carrier
            && carrier.poll_timeout().is_some_and(|due| due <= now)
        {
            carrier.handle_timeout(now);
        }
        self.beside.handle_timeout(now);
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked || (self.carrier.is_none() && self.beside.is_empty())
    }

    /// Puts the carrier of an attempt out of use.
    pub(super) fn close_beside(&mut self, attempt: AttemptId, poller: &Poller) {
        if let Some(mut closed) = self.beside.take(attempt, poller) {
            self.past += closed.carrier.counters().closed();
        }
    }

    pub(super) fn counters(&mut self) -> IoCounters {
        let mut counters = self.past;
        if let Some(carrier) = &mut self.carrier {
            counters += carrier.counters();
        }
        self.beside.add_counters(&mut counters);
        counters
    }

    /// Sends what the outbox holds; what the socket does not take waits until it is writable.
    fn send(&mut self, poller: &Poller) {
        if !self.beside.is_empty() {
            self.beside.send(&mut self.outbox);
        }
        let Some(carrier) = &mut self.carrier else {
            return self.outbox.release(usize::MAX);
        };
        if self.blocked || self.outbox.is_empty() {
            return;
        }
        let is_connected = carrier.remote_addr().is_some();
        let messages: Vec<Outgoing<'_>> = self
            .outbox
            .trains()
            .iter()
            .map(|train| outgoing(train, is_connected))
            .collect();
        let outcome = carrier.send(&messages);
        drop(messages);
        self.outbox.release(outcome.messages);
        self.outbox.advance(outcome.partial_segments);
        if outcome.blocked {
            self.blocked = true;
            // It is watched since it was put in place.
            let _ = poller.modify(carrier, PollToken::Outer.encode(), Interest::BOTH);
        } else {
            // Whatever is left then can never be sent.
            self.outbox.release(usize::MAX);
        }
    }

    pub(super) fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    /// Sends what is not QUIC's, beside the outbox; what the socket does not take at once is lost, as on any path. How
    /// many datagrams were sent.
    pub(super) fn send_apart(&mut self, messages: &[Outgoing<'_>]) -> u64 {
        match &mut self.carrier {
            Some(carrier) if !self.blocked => carrier.send(messages).segments,
            _ => 0,
        }
    }

    /// Whether a carrier that was full takes more, whose descriptor does not become writable.
    fn takes_more(&mut self) -> bool {
        self.blocked && self.carrier.as_mut().is_some_and(|carrier| carrier.takes_more())
    }

    fn unblock(&mut self, poller: &Poller) {
        if let Some(carrier) = self.carrier.as_ref().filter(|_| self.blocked) {
            self.blocked = false;
            let _ = poller.modify(carrier, PollToken::Outer.encode(), Interest::READABLE);
        }
    }
}

/// A train as carriers take it; one with a single peer is told no destination.
pub(super) fn outgoing(train: &OutgoingTrain, is_connected: bool) -> Outgoing<'_> {
    Outgoing {
        destination: (!is_connected).then_some(train.destination),
        source: train.source,
        ecn: train.ecn,
        segment_size: train.segment_size,
        payload: &train.bytes,
    }
}

impl<R: Role> Shard<R> {
    /// From now on everything goes through this carrier.
    pub(super) fn use_carrier(&mut self, carrier: Box<dyn Carrier>) -> io::Result<()> {
        let overhead_bytes = carrier.overhead_bytes();
        self.io.outer.replace(carrier, &self.io.poller)?;
        self.delivery.overhead_bytes = overhead_bytes;
        Ok(())
    }

    /// The same, but nothing is read from it before [`Shard::read_held_carrier`].
    pub(super) fn hold_carrier(&mut self, carrier: Box<dyn Carrier>) {
        self.delivery.overhead_bytes = carrier.overhead_bytes();
        self.io.outer.hold(carrier);
    }

    /// Reads the carrier that was held.
    pub(super) fn read_held_carrier(&mut self) {
        if let Err(error) = self.io.outer.watch_again(&self.io.poller) {
            self.failure = Some(unavailable(&error));
        }
    }

    /// Offers the carrier's socket, and watches the descriptor that it has then.
    pub(super) fn offer_carrier(&mut self) -> io::Result<OfferedSocket> {
        let outer = &mut self.io.outer;
        let carrier = outer.carrier.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        self.io.poller.remove(carrier)?;
        let offered = carrier.offer();
        outer.watch_again(&self.io.poller)?;
        offered
    }

    /// The carrier's socket is another process's, too, and is read there alone.
    pub(super) fn hand_over(&mut self) {
        if let Some(carrier) = &mut self.io.outer.carrier {
            carrier.hand_over();
        }
    }

    pub(super) fn withdraw_carrier(&mut self) {
        let outer = &mut self.io.outer;
        if let Some(carrier) = &mut outer.carrier
            && self.io.poller.remove(carrier).is_ok()
        {
            carrier.withdraw();
            // It was watched before.
            let _ = outer.watch_again(&self.io.poller);
        }
    }

    pub(super) fn outer_ready(&mut self, now: Instant, event: Ready) {
        if event.writable || self.io.outer.takes_more() {
            self.io.outer.unblock(&self.io.poller);
            self.io.outer.send(&self.io.poller);
        }
        if !event.readable {
            return;
        }
        let Some(carrier) = &mut self.io.outer.carrier else {
            return;
        };
        match carrier.receive(&mut self.io.outer.batch) {
            Ok(0) => {}
            Ok(count) => {
                self.io.outer.heard = Some(now);
                self.engine
                    .set_copies_received(self.io.outer.batch.has_lent_much());
                let known = self.io.outer.known;
                (0..count).for_each(|index| self.take_outer(now, index, known));
            }
            Err(Refusal::PortClosed) => R::port_is_closed(self, now),
            Err(Refusal::Passing) => {}
        }
    }

    /// What came for an attempt to connect; how many messages.
    pub(super) fn receive_beside(&mut self, now: Instant, attempt: AttemptId) -> Result<usize, Refusal> {
        let outer = &mut self.io.outer;
        let (count, known) = outer.beside.receive(attempt, &mut outer.batch)?;
        (0..count).for_each(|index| self.take_outer(now, index, known));
        Ok(count)
    }

    /// One message of the outer batch, from where QUIC knows as `known`, or by its own address; what it holds for inner
    /// sockets leaves in bursts that receivers can take.
    fn take_outer(&mut self, now: Instant, index: usize, known: Option<SocketAddr>) {
        let outer = &mut self.io.outer;
        let (meta, data) = outer.batch.take(index);
        if meta.truncated {
            return;
        }
        let path = Path {
            remote: known.unwrap_or(meta.source),
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
        R::take_strangers(self, now);
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
        R::take_strangers(self, now);
        if self.delivery.is_full() {
            self.flush_delivery();
        }
    }

    /// Sends what QUIC has; whether there is more than one turn should send.
    pub(super) fn flush_outer(&mut self, now: Instant) -> bool {
        R::before_sending(self);
        if self.io.outer.is_blocked() {
            self.io.outer.send(&self.io.poller);
            return false;
        }
        for _ in 0..limits::FLUSHES_PER_TURN {
            let more = self.engine.flush(now, &mut self.io.outer.outbox);
            R::before_sending(self);
            self.io.outer.send(&self.io.poller);
            if !more || self.io.outer.is_blocked() {
                return false;
            }
        }
        true
    }
}
