//! From the TUN into QUIC: a packet or super-packet is held against the rules, cut into packets that fit a datagram,
//! and queued by flow.

use std::net::IpAddr;
use std::time::Instant;

use ::repair::Field;
use bytes::BytesMut;
use masque::datagram;
use masque::ip::PACKET_CONTEXT_ID;
use packet::checksum::ChecksumState;
use packet::icmp::{self, Unreachable};
use packet::ip::{IpView, claimed_bytes_and_protocol, decrement_hop_limit, flow_key};
use packet::mss::clamp_mss;
use packet::segmentation::Segmenter;
use packet::vnet::{GsoType, OffloadError, VNET_HEADER_BYTES, VnetHeader};

use super::session::IpSession;
use super::{UDP, asks_for_little_delay, is_confined, is_congestion_controlled, is_syn};
use crate::drops::DropReason;
use crate::engine::life::{Life, RequestStream};
use crate::engine::queue::{FlowId, Patience};
use crate::engine::queue_writer::{CannotSplit, QueueWriter};
use crate::engine::repair::Repairing;
use crate::engine::request::{Kind, Request, RequestId};
use crate::engine::{Deliver, Engine, Role, State};
use crate::limits;

/// A packet or super-packet of the TUN that is one by its headers.
pub(in crate::engine) struct ParsedPacket {
    pub(in crate::engine) header: VnetHeader,
    pub(in crate::engine) view: IpView,
    /// The same for all packets of a flow.
    pub(in crate::engine) flow: u64,
}

impl<R: Role> Engine<R> {
    /// A packet whose session is here.
    pub(in crate::engine) fn send_packet_of(
        &mut self,
        now: Instant,
        id: RequestId,
        parsed: &ParsedPacket,
        packet: &mut [u8],
        deliver: &mut impl Deliver,
    ) {
        let request = self.state.requests.get(id.0);
        let stream = request.and_then(Request::stream);
        let RequestStream { connection, .. } = stream.expect("a session that takes packets has a stream");
        let datagram_max = self.endpoint.datagram_max(connection).unwrap_or(0);
        self.state.filled = Some(connection);
        if let Some(peer) = self.state.peer(connection) {
            peer.datagram_max = datagram_max;
        }
        self.state.forward(now, id, parsed, packet, deliver);
        self.endpoint.mark_ready(connection);
    }

    /// Gives up a packet or super-packet of the TUN of which only the start was read, and counts it as
    /// [`DropReason::QueueFull`]. Whether it is UDP.
    pub fn shed_packet(&mut self, header: &[u8; VNET_HEADER_BYTES], start: &[u8]) -> bool {
        let state = &mut self.state;
        let (Ok(header), Some((bytes, protocol))) =
            (VnetHeader::decode(header), claimed_bytes_and_protocol(start))
        else {
            state.drop_malformed();
            return false;
        };
        state.drop_super_packet(&header, bytes, DropReason::QueueFull);
        protocol == UDP
    }
}

impl<R: Role> State<R> {
    /// Reads the headers of a packet of the TUN; without sense it is dropped and counted.
    pub(in crate::engine) fn parse_packet(
        &mut self,
        header: &[u8; VNET_HEADER_BYTES],
        packet: &[u8],
    ) -> Option<ParsedPacket> {
        let (Ok(header), Ok(view)) = (VnetHeader::decode(header), IpView::parse(packet)) else {
            self.drop_malformed();
            return None;
        };
        let flow = flow_key(&view, packet).hash(self.ip.flow_seed);
        Some(ParsedPacket { header, view, flow })
    }

    /// Counts bytes of the TUN that are no packet.
    fn drop_malformed(&mut self) {
        self.ledger.ingress.accepted += 1;
        self.ledger.ingress.drop(DropReason::Malformed, 1);
    }

    /// Counts a super-packet of so many bytes that is given up before it is cut, as so many packets as it would have
    /// become.
    pub(in crate::engine) fn drop_super_packet(
        &mut self,
        header: &VnetHeader,
        bytes: usize,
        reason: DropReason,
    ) {
        let count = match header.gso {
            GsoType::None => 1,
            _ => bytes
                .saturating_sub(usize::from(header.header_bytes))
                .div_ceil(usize::from(header.gso_size.max(1)))
                .clamp(1, limits::SUPER_PACKET_SEGMENTS_MAX),
        };
        self.ledger.ingress.accepted += count as u64;
        self.ledger.ingress.drop(reason, count as u64);
    }

    /// Counts a packet of the TUN for which there is no session: one that is never carried, or one without a tunnel.
    pub(in crate::engine) fn drop_without_session(&mut self, parsed: &ParsedPacket, packet: &[u8]) {
        let reason = if is_confined(parsed.view.destination) {
            DropReason::PolicyDenied
        } else {
            DropReason::NoTunnel
        };
        self.drop_super_packet(&parsed.header, packet.len(), reason);
    }

    /// Makes an ICMP answer to a packet of the TUN and gives it to the TUN, where the rate allows it.
    pub(in crate::engine) fn answer(
        &mut self,
        now: Instant,
        packet: &[u8],
        deliver: &mut impl Deliver,
        make: impl FnOnce(&[u8], IpAddr) -> Option<Vec<u8>>,
    ) {
        let is_ipv4 = packet.first().is_some_and(|first| first >> 4 == 4);
        let Some(from) = self.role.tun_address(is_ipv4, &self.requests) else {
            return;
        };
        if !self.ip.bucket.take(now) {
            return;
        }
        if let Some(answer) = make(packet, from) {
            self.ledger.egress.accepted += 1;
            deliver.deliver_packet(&answer, ChecksumState::Full);
        }
    }

    /// A packet whose session is here.
    fn forward(
        &mut self,
        now: Instant,
        id: RequestId,
        parsed: &ParsedPacket,
        packet: &mut [u8],
        deliver: &mut impl Deliver,
    ) {
        let ParsedPacket { header, view, flow } = parsed;
        if let Err(reason) = self.may_enter(id, view) {
            self.drop_super_packet(header, packet.len(), reason);
            let why = match reason {
                DropReason::NoRoute => Unreachable::NoRoute,
                DropReason::PolicyDenied if !is_confined(view.destination) => Unreachable::Prohibited,
                _ => return,
            };
            return self.answer(now, packet, deliver, |packet, from| {
                icmp::unreachable(packet, why, from)
            });
        }
        // RFC 9484 section 7.2: encapsulation forwards, decapsulation does not.
        if !decrement_hop_limit(packet) {
            self.drop_super_packet(header, packet.len(), DropReason::HopLimit);
            return self.answer(now, packet, deliver, icmp::time_exceeded);
        }
        let flow = FlowId {
            hash: *flow,
            is_controlled: is_congestion_controlled(view.protocol),
        };
        match self.enqueue_packet(now, id, flow, header, view, packet) {
            Ok(()) => {}
            Err(Refusal::TooBig { mtu }) => {
                self.drop_super_packet(header, packet.len(), DropReason::PacketTooBig);
                self.answer(now, packet, deliver, |packet, from| {
                    icmp::packet_too_big(packet, mtu, from)
                });
            }
            Err(Refusal::Malformed) => self.drop_super_packet(header, packet.len(), DropReason::Malformed),
            Err(Refusal::Closed) => self.drop_super_packet(header, packet.len(), DropReason::SessionClosed),
        }
    }

    /// Whether a packet of the TUN may go to the peer: at both ends both addresses are looked at.
    fn may_enter(&self, id: RequestId, view: &IpView) -> Result<(), DropReason> {
        let Some(Kind::Ip(session)) = self.requests.get(id.0).map(|request| &request.kind) else {
            return Err(DropReason::SessionClosed);
        };
        if is_confined(view.destination) || view.source_routed {
            return Err(DropReason::PolicyDenied);
        }
        self.role.may_enter(session, view)
    }

    /// Cuts a packet of a session, which `view` is of, and queues its pieces. Nothing is counted where it is refused.
    pub(in crate::engine) fn enqueue_packet(
        &mut self,
        now: Instant,
        id: RequestId,
        flow: FlowId,
        header: &VnetHeader,
        view: &IpView,
        packet: &mut [u8],
    ) -> Result<(), Refusal> {
        let request = self.requests.get_mut(id.0).ok_or(Refusal::Closed)?;
        request.last_active = now;
        let (Life::Open(stream), Kind::Ip(session)) = (&request.life, &mut request.kind) else {
            return Err(Refusal::Closed);
        };
        let peer = self
            .peers
            .get_mut(stream.connection.index())
            .and_then(Option::as_mut);
        let peer = peer.ok_or(Refusal::Closed)?;
        let mut writer = QueueWriter {
            arena: &mut self.arena,
            peer,
            ingress: &mut self.ledger.ingress,
            policy: self.config.queue_policy,
            now,
            quarter: stream.quarter(),
            flow,
        };
        let field = self.repair.field_if_made();
        match writer.push_packet(session, field, header, view, packet)? {
            Pushed::Plainly => {}
            Pushed::WithRepair => {
                if let Some(repairing) = session.repair.agreed() {
                    self.repair.arm(id, repairing);
                }
            }
        }
        Ok(())
    }
}

/// Why a packet was not cut and queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Refusal {
    /// It is larger than this, in bytes, and nothing but its sender can cut it.
    TooBig { mtu: usize },
    /// It is not what its headers say.
    Malformed,
    /// The session is over.
    Closed,
}

/// How a packet was queued.
enum Pushed {
    Plainly,
    /// Numbered, and with parity where it was due.
    WithRepair,
}

impl QueueWriter<'_> {
    /// Cuts a packet of a session into what fits datagrams.
    fn push_packet(
        &mut self,
        session: &mut IpSession,
        field: Option<&mut Field>,
        header: &VnetHeader,
        view: &IpView,
        packet: &mut [u8],
    ) -> Result<Pushed, Refusal> {
        let unfinished_context = session.checksum.agreed();
        let (plain, plain_bytes) = datagram::prefix(self.quarter, PACKET_CONTEXT_ID);
        let (unfinished, unfinished_bytes) =
            datagram::prefix(self.quarter, unfinished_context.unwrap_or(PACKET_CONTEXT_ID));
        let datagram_max = self.peer.datagram_max;
        let room = datagram_max.saturating_sub(plain_bytes.max(unfinished_bytes));
        let mtu = session.mtu(room);
        if is_syn(view, packet) {
            let _ = clamp_mss(packet, mtu, checksum_state(header.needs_checksum));
        }
        let is_urgent = asks_for_little_delay(packet);
        match Segmenter::with_view(header, view, packet, room) {
            Ok(segmenter) => {
                if is_urgent
                    && let (Some(repairing), Some(field)) = (session.repair.agreed(), field)
                    && self.peer.plan.is_active()
                    && Repairing::has_room(self.peer)
                    && repairing.fits(self.quarter, segmenter.segment_bytes(), datagram_max)
                {
                    self.push_repairable(segmenter, repairing, field);
                    return Ok(Pushed::WithRepair);
                }
                let wanted = checksum_state(unfinished_context.is_some());
                let prefix = match segmenter.checksum_state(wanted) {
                    ChecksumState::Partial => &unfinished[..unfinished_bytes],
                    ChecksumState::Full => &plain[..plain_bytes],
                };
                self.push_segments(segmenter, wanted, prefix);
            }
            Err(OffloadError::TooBig { .. }) if header.gso == GsoType::None => {
                let mut whole = BytesMut::new();
                Segmenter::with_view(header, view, packet, mtu)
                    .map_err(|_| Refusal::TooBig { mtu })?
                    .next_into(&mut whole, ChecksumState::Full);
                let context = session.split.agreed().ok_or(Refusal::TooBig { mtu })?;
                self.push_fragments(&mut session.splitter, context, &whole)
                    .map_err(|CannotSplit| Refusal::TooBig { mtu })?;
                self.ingress.accepted += 1;
            }
            Err(OffloadError::TooBig { .. }) => return Err(Refusal::TooBig { mtu }),
            Err(_) => return Err(Refusal::Malformed),
        }
        Ok(Pushed::Plainly)
    }

    fn push_segments(&mut self, mut segmenter: Segmenter<'_>, wanted: ChecksumState, prefix: &[u8]) {
        let count = segmenter.count();
        self.ingress.accepted += count as u64;
        self.reserve((prefix.len() + segmenter.segment_bytes()) * count);
        let mut left = count as u64;
        while left > 0 {
            self.arena.extend_from_slice(prefix);
            if segmenter.next_into(self.arena, wanted).is_none() {
                break;
            }
            let bytes = self.arena.split().freeze();
            if let Err(reason) = self.make_room(bytes.len()) {
                // What follows in the same super-packet would find no room either.
                return self.ingress.drop(reason, left);
            }
            let patience = if self.flow.is_controlled {
                Patience::strict(limits::CONTROLLED_TIME_MAX)
            } else {
                Patience::whole(limits::PACKET_TIME_MAX)
            };
            self.push(bytes, patience);
            left -= 1;
        }
        debug_assert_eq!(left, 0, "a segmenter gives as many segments as it counts");
        self.ingress.drop(DropReason::Malformed, left);
    }

    /// Packets whose loss parity repairs; their checksums are finished (REPAIR-3).
    fn push_repairable(
        &mut self,
        mut segmenter: Segmenter<'_>,
        repairing: &mut Repairing,
        field: &mut Field,
    ) {
        let (count, bytes) = (segmenter.count(), segmenter.segment_bytes());
        self.ingress.accepted += count as u64;
        for _ in 0..count {
            self.push_source(repairing, field, bytes, |arena| {
                let segment = segmenter.next_into(arena, ChecksumState::Full);
                debug_assert!(
                    segment.is_some(),
                    "a segmenter gives as many segments as it counts"
                );
            });
        }
    }
}

fn checksum_state(is_partial: bool) -> ChecksumState {
    if is_partial {
        ChecksumState::Partial
    } else {
        ChecksumState::Full
    }
}
