//! Repair of a session's datagrams (specs/repair.md): what was agreed on, both directions' state, and the timers that the
//! whole shard has for it: one that measures the paths' loss, one for the ends of bursts.
//!
//! A session without repair costs nothing here, and one with it nothing but a look at the plan while its path loses
//! nothing: payloads go in context 0 then.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ::repair::{Decoder, Encoder, Field, SOURCE_HEADER_BYTES, Taken, parity_bytes};
use masque::limits::{REPAIR_LATENCY_MS_MAX, REPAIR_LATENCY_MS_MIN};
use masque::repair::RepairOffer;
use masque::{HeaderList, datagram};
use packet::checksum::ChecksumState;
use quic::ConnectionKey;

use super::egress::receiver_of;
use super::offer::Offer;
use super::peer::Peer;
use super::queue::FlowId;
use super::queue_writer::QueueWriter;
use super::request::{Kind, RequestId};
use super::{Deliver, Engine, Role, State};
use crate::drops::DropReason;
use crate::limits;

/// Repair of one request.
pub(crate) type Repair = Offer<RepairOffer, Box<Repairing>>;

/// Both directions of a request with repair.
#[derive(Debug)]
pub(crate) struct Repairing {
    pub(crate) offer: RepairOffer,
    pub(crate) encoder: Encoder,
    decoder: Decoder,
    /// When something came in its contexts.
    heard: Instant,
    /// Bytes of its copies, as counted at its peer.
    bytes: usize,
    /// When the end of its burst is looked after, as [`RepairState`] has it.
    armed: Option<Instant>,
}

/// Which of the two contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Source,
    Parity,
}

impl Repair {
    /// What was offered or agreed on.
    pub(crate) fn offer(&self) -> Option<RepairOffer> {
        match self {
            Self::None => None,
            Self::Offered(offer) => Some(*offer),
            Self::Agreed(repairing) => Some(repairing.offer),
        }
    }

    pub(crate) fn agreed(&mut self) -> Option<&mut Repairing> {
        match self {
            Self::Agreed(repairing) => Some(repairing),
            Self::None | Self::Offered(_) => None,
        }
    }
}

impl Repairing {
    fn new(offer: RepairOffer, now: Instant) -> Self {
        Self {
            offer,
            encoder: Encoder::new(Duration::from_millis(offer.latency_ms.into())),
            decoder: Decoder::default(),
            heard: now,
            bytes: 0,
            armed: None,
        }
    }

    /// Which of its contexts this is (REPAIR-3).
    pub(super) fn part(&self, context_id: u64) -> Option<Part> {
        if context_id == self.offer.context_id {
            Some(Part::Source)
        } else if context_id == self.offer.parity_context_id() {
            Some(Part::Parity)
        } else {
            None
        }
    }

    /// Whether a payload fits one datagram, and parity of it another.
    pub(super) fn fits(&self, quarter: u64, payload_bytes: usize, datagram_max: usize) -> bool {
        let (_, prefix_bytes) = datagram::prefix(quarter, self.offer.parity_context_id());
        let longest = parity_bytes(payload_bytes).max(SOURCE_HEADER_BYTES + payload_bytes);
        prefix_bytes + longest <= datagram_max
    }

    /// Whether the peer's sessions have room for another copy.
    pub(super) fn has_room(peer: &Peer) -> bool {
        peer.repair_bytes < limits::REPAIR_BYTES_MAX
    }

    /// Counts the copies at their peer; without room the session gives those of what it received back (REPAIR-13).
    pub(super) fn count_bytes(&mut self, peer: &mut Peer) {
        let mut bytes = self.encoder.memory() + self.decoder.memory();
        if bytes > self.bytes && peer.repair_bytes - self.bytes + bytes > limits::REPAIR_BYTES_MAX {
            self.decoder.rest();
            bytes = self.encoder.memory();
        }
        peer.repair_bytes = peer.repair_bytes - self.bytes + bytes;
        self.bytes = bytes;
        // The payload that passed the bound may have been the longest, in memory that doubles.
        let bound = limits::REPAIR_BYTES_MAX + 2 * packet::UDP_PAYLOAD_MAX + 256;
        debug_assert!(peer.repair_bytes <= bound, "copies are bounded for each peer");
    }

    /// Parity that waited longer in the queue would come too late.
    pub(super) fn parity_time_max(&self) -> Duration {
        limits::QUEUE_TIME_MAX.min(Duration::from_millis(self.offer.latency_ms.into()))
    }
}

/// What a shard has for the repair of all its sessions.
#[derive(Debug, Default)]
pub(super) struct RepairState {
    /// Made with the first session that agrees on repair.
    field: Option<Field>,
    /// Sessions whose ends of bursts are looked after, and when: once each, not later than it is due.
    armed: BTreeSet<(Instant, RequestId)>,
    /// Connections whose loss is measured.
    measured: BTreeSet<ConnectionKey>,
    /// When that is done; `None` while there are none.
    measure_due: Option<Instant>,
}

impl RepairState {
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        [self.tail_due(), self.measure_due].into_iter().flatten().min()
    }

    /// When the first end of a burst may be due.
    fn tail_due(&self) -> Option<Instant> {
        self.armed.first().map(|(due, _)| *due)
    }

    /// It is there where any session has agreed on repair.
    pub(super) fn field_if_made(&mut self) -> Option<&mut Field> {
        self.field.as_mut()
    }

    pub(super) fn field(&mut self) -> &mut Field {
        self.field.get_or_insert_default()
    }

    /// Looks after the end of the burst that a payload may have been.
    pub(super) fn arm(&mut self, id: RequestId, repairing: &mut Repairing) {
        let Some(due) = repairing.encoder.tail_due() else {
            return;
        };
        // While a burst goes on its end moves away: when it is looked after, it is armed again.
        if repairing.armed.is_none() {
            repairing.armed = Some(due);
            self.armed.insert((due, id));
        }
    }
}

impl<R: Role> Engine<R> {
    /// Runs what is due of repair.
    pub(super) fn handle_repair_timeout(&mut self, now: Instant) {
        let state = &mut self.state.repair;
        if state.measure_due.take_if(|due| *due <= now).is_some() {
            self.measure_loss(now);
        }
        if self.state.repair.tail_due().is_some_and(|due| due <= now) {
            self.send_tails(now);
        }
    }

    fn measure_loss(&mut self, now: Instant) {
        let State { repair, peers, .. } = &mut self.state;
        repair.measured.retain(|connection| {
            let peer = peers.get_mut(connection.index()).and_then(Option::as_mut);
            let Some(peer) = peer.filter(|peer| peer.repairing > 0) else {
                return false;
            };
            if let Some(report) = self.endpoint.report(*connection) {
                peer.loss
                    .measure(report.counters.packets_sent, report.counters.packets_lost);
                peer.plan.follow(peer.loss.loss());
            }
            true
        });
        repair.measure_due = (!repair.measured.is_empty()).then_some(now + ::repair::limits::LOSS_INTERVAL);
    }

    /// Sends parity for the ends of bursts that are due.
    fn send_tails(&mut self, now: Instant) {
        let armed = &mut self.state.repair.armed;
        let mut due = Vec::new();
        while let Some((at, id)) = armed.first().copied()
            && at <= now
        {
            armed.pop_first();
            due.push(id);
        }
        for id in due {
            if let Some(connection) = self.state.send_tail(now, id) {
                self.endpoint.mark_ready(connection);
            }
        }
    }
}

impl<R: Role> State<R> {
    /// Client: what its requests offer (REPAIR-1).
    pub(super) fn repair_offer(&self) -> Option<RepairOffer> {
        let latency_ms = u16::try_from(self.config.repair?.as_millis()).unwrap_or(u16::MAX);
        Some(RepairOffer {
            context_id: masque::repair::CONTEXT_ID,
            latency_ms: latency_ms.clamp(REPAIR_LATENCY_MS_MIN, REPAIR_LATENCY_MS_MAX),
        })
    }

    /// Client: the server has accepted a request, and perhaps its offer (REPAIR-2).
    pub(super) fn repair_answered(&mut self, now: Instant, id: RequestId, list: &HeaderList) {
        let request = self.requests.get_mut(id.0);
        let Some(repair) = request.and_then(|request| request.kind.repair()) else {
            return;
        };
        let Some(offer) = std::mem::replace(repair, Repair::None).offer() else {
            return;
        };
        if let Some(accepted) = RepairOffer::of(list).filter(|accepted| accepted.accepts(&offer)) {
            self.agree_on_repair(now, id, accepted);
        }
    }

    /// Both sides have agreed on repair of a request.
    pub(super) fn agree_on_repair(&mut self, now: Instant, id: RequestId, offer: RepairOffer) {
        let Some(request) = self.requests.get_mut(id.0) else {
            return;
        };
        let connection = request.stream().map(|stream| stream.connection);
        let Some(repair) = request.kind.repair() else {
            return;
        };
        *repair = Repair::Agreed(Box::new(Repairing::new(offer, now)));
        // The tables of the field are made here and not while packets wait.
        self.repair.field();
        self.repair
            .measure_due
            .get_or_insert(now + ::repair::limits::LOSS_INTERVAL);
        if let Some(connection) = connection
            && let Some(peer) = self.peer(connection)
        {
            peer.repairing += 1;
            self.repair.measured.insert(connection);
        }
    }

    /// A request sends nothing more: the end of its last burst is not looked after.
    pub(super) fn disarm_repair(&mut self, id: RequestId) {
        let repair = self
            .requests
            .get_mut(id.0)
            .and_then(|request| request.kind.repair());
        if let Some(due) = repair
            .and_then(Repair::agreed)
            .and_then(|repairing| repairing.armed.take())
        {
            self.repair.armed.remove(&(due, id));
        }
    }

    /// A request has ended.
    pub(super) fn forget_repair(&mut self, id: RequestId) {
        let Some(request) = self.requests.get_mut(id.0) else {
            return;
        };
        let connection = request.stream().map(|stream| stream.connection);
        let repair = request.kind.repair();
        let Some(Repair::Agreed(repairing)) = repair.map(|repair| std::mem::replace(repair, Repair::None))
        else {
            return;
        };
        if let Some(due) = repairing.armed {
            self.repair.armed.remove(&(due, id));
        }
        if let Some(peer) = connection.and_then(|connection| self.peer(connection)) {
            peer.repairing -= 1;
            peer.repair_bytes -= repairing.bytes;
        }
    }

    /// The connection that got parity, if any.
    fn send_tail(&mut self, now: Instant, id: RequestId) -> Option<ConnectionKey> {
        let request = self.requests.get_mut(id.0)?;
        let stream = request.stream();
        let repairing = request.kind.repair()?.agreed()?;
        repairing.armed = None;
        let stream = stream?;
        let peer = self.peers.get_mut(stream.connection.index())?.as_mut()?;
        let mut writer = QueueWriter {
            arena: &mut self.arena,
            peer,
            ingress: &mut self.ledger.ingress,
            policy: self.config.queue_policy,
            now,
            quarter: stream.quarter(),
            flow: FlowId {
                hash: id.0 as u64,
                is_controlled: false,
            },
        };
        writer.push_tail(repairing, self.repair.field.get_or_insert_default());
        self.repair.arm(id, repairing);
        Some(stream.connection)
    }

    /// A datagram of a request's repair contexts; it is counted as accepted already.
    pub(super) fn take_repair(
        &mut self,
        now: Instant,
        id: RequestId,
        part: Part,
        datagram: &[u8],
        deliver: &mut impl Deliver,
    ) {
        let egress = &mut self.ledger.egress;
        let request = self.requests.get_mut(id.0);
        let Some(repairing) = request.and_then(|request| request.kind.repair()?.agreed()) else {
            return egress.drop(DropReason::UnknownContext, 1);
        };
        repairing.heard = now;
        let field = self.repair.field.get_or_insert_default();
        match part {
            Part::Source => match repairing.decoder.source(field, datagram) {
                Ok(Taken::Payload(payload)) => self.deliver_repaired(now, id, payload, deliver),
                Ok(Taken::Duplicate) => egress.drop(DropReason::AlreadyRepaired, 1),
                Err(_) => return egress.drop(DropReason::Malformed, 1),
            },
            Part::Parity => match repairing.decoder.parity(field, datagram) {
                Ok(()) => egress.parity_received += 1,
                Err(_) => return egress.drop(DropReason::Malformed, 1),
            },
        }
        while let Some(payload) = self.next_rebuilt(id) {
            self.ledger.egress.repaired += 1;
            self.deliver_repaired(now, id, &payload, deliver);
        }
        self.count_repair_bytes(id);
    }

    fn count_repair_bytes(&mut self, id: RequestId) {
        let Some(request) = self.requests.get_mut(id.0) else {
            return;
        };
        let peer = request
            .stream()
            .and_then(|stream| self.peers.get_mut(stream.connection.index())?.as_mut());
        if let (Some(repairing), Some(peer)) = (request.kind.repair().and_then(Repair::agreed), peer) {
            repairing.count_bytes(peer);
        }
    }

    /// Losses are few enough for a copy.
    fn next_rebuilt(&mut self, id: RequestId) -> Option<Vec<u8>> {
        let repairing = self.requests.get_mut(id.0)?.kind.repair()?.agreed()?;
        repairing.decoder.rebuilt().map(<[u8]>::to_vec)
    }

    /// A payload of context ID is what it would be in context 0 (REPAIR-15).
    fn deliver_repaired(&mut self, now: Instant, id: RequestId, payload: &[u8], deliver: &mut impl Deliver) {
        let is_ip = matches!(
            self.requests.get(id.0).map(|request| &request.kind),
            Some(Kind::Ip(_))
        );
        if is_ip {
            self.take_packet(now, id, payload, ChecksumState::Full, deliver);
        } else if payload.len() > packet::UDP_PAYLOAD_MAX {
            self.ledger.egress.drop(DropReason::TargetTooLarge, 1);
        } else if let Some(request) = self.requests.get(id.0) {
            deliver.deliver(receiver_of(&request.kind, id), payload);
        }
    }

    /// Sessions that have been silent give memory back (REPAIR-13).
    pub(super) fn rest_repair(&mut self, now: Instant) {
        let is_over = |since: Instant| now.saturating_duration_since(since) >= limits::REPAIR_REST;
        for (_, request) in &mut self.requests {
            let connection = request.stream().map(|stream| stream.connection);
            let Some(repairing) = request.kind.repair().and_then(Repair::agreed) else {
                continue;
            };
            if repairing.encoder.last_sent().is_some_and(is_over) {
                repairing.encoder.rest();
            }
            if repairing.decoder.memory() > 0 && is_over(repairing.heard) {
                repairing.decoder.rest();
            }
            if repairing.bytes != repairing.encoder.memory() + repairing.decoder.memory()
                && let Some(peer) = connection.and_then(|key| self.peers.get_mut(key.index())?.as_mut())
            {
                repairing.count_bytes(peer);
            }
        }
    }
}
