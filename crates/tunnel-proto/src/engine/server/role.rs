//! The engine's events and packets as a server treats them.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::time::Instant;

use masque::bind::BindCapsule;
use masque::ip::IpCapsule;
use masque::{HeaderList, HeldBack, MessageError, ServerShard};
use packet::icmp::{self, Unreachable};
use packet::ip::{IpView, flow_key};
use packet::vnet::VnetHeader;
use quic::{AcceptParameters, CloseReason, ConnectionKey, ConnectionReport, Counters, Incoming, StreamId};
use slab::Slab;

use super::{Server, WrongTokens};
use crate::drops::DropReason;
use crate::engine::handler::Undecided;
use crate::engine::ip::session::IpSession;
use crate::engine::ip::{PacketTarget, is_confined, is_congestion_controlled};
use crate::engine::life::{Life, RequestStream};
use crate::engine::queue::FlowId;
use crate::engine::request::{Kind, Request, RequestId};
use crate::engine::role::Side;
use crate::engine::{Action, Deliver, Engine, ServerAction, State, masque_code};
use crate::limits;

/// Bits of the number of a client without a name below those of the shard that gave it.
const NAMELESS_BITS: u32 = u64::BITS - u8::BITS;

impl Side for Server {
    type Action = ServerAction;

    const HTTP: masque::Role = masque::Role::Server;

    fn set_shard(&mut self, shard: ServerShard) {
        self.shard = shard;
        // Shards share the leases, so no two of them give a client without a name the same number.
        self.nameless = u64::from(shard.index) << NAMELESS_BITS;
        self.wrong_tokens = WrongTokens::new(shard.count);
        self.access.divide(shard.count);
    }

    /// Connections that a client makes are peers, or nothing.
    fn connecting(&self) -> Vec<ConnectionKey> {
        Vec::new()
    }

    fn acceptance(engine: &mut Engine<Self>, new: &Incoming) -> Option<AcceptParameters> {
        engine.acceptance_of(new)
    }

    /// A server does not connect.
    fn redirected(_: &mut State<Self>, _: ConnectionKey) {}

    fn connected(_: &mut State<Self>, _: ConnectionKey) {}

    fn request_stream_opened(
        state: &mut State<Self>,
        now: Instant,
        connection: ConnectionKey,
        stream: StreamId,
    ) {
        // A connection that ends as soon as it is there is no peer, and its streams are none's.
        if state.peer(connection).is_none() {
            return;
        }
        let stream = RequestStream {
            connection,
            id: stream,
        };
        let request = Request::new(Self::HTTP, Kind::Undecided(Undecided), Life::Headers(stream), now);
        let id = state.insert_request(request);
        if let Some(peer) = state.peer(connection) {
            peer.accept(stream.quarter(), id);
        }
    }

    fn settings_received(_: &mut Engine<Self>, _: Instant, _: ConnectionKey) {}

    /// A server pushes nothing, so that there is nothing to stop.
    fn goaway_received(_: &mut Engine<Self>, _: Instant, _: ConnectionKey, _: u64) {}

    /// A client sees for itself what becomes of what it sends.
    fn held_back(_: &mut State<Self>, _: Instant, _: ConnectionKey, _: HeldBack) {}

    fn service_to_wake(state: &mut State<Self>) -> Option<RequestId> {
        let mut services = state.role.services.values_mut();
        services.find_map(|provider| provider.poll_wake())
    }

    fn bind_capsule(
        engine: &mut Engine<Self>,
        now: Instant,
        id: RequestId,
        capsule: &BindCapsule,
    ) -> Result<(), MessageError> {
        engine.judge_context(now, id, capsule)
    }

    fn take_relayed(
        state: &mut State<Self>,
        now: Instant,
        id: RequestId,
        context: u64,
        payload: &[u8],
        _: &mut impl Deliver,
    ) {
        state.take_for_relay(now, id, context, payload);
    }

    fn relay(engine: &mut Engine<Self>, now: Instant) {
        engine.relay_payloads(now);
    }

    /// A server opens no requests.
    fn streams_available(_: &mut Engine<Self>, _: Instant, _: ConnectionKey) {}

    fn connection_lost(
        state: &mut State<Self>,
        connection: ConnectionKey,
        reason: CloseReason,
        counters: &Counters,
    ) {
        state.role.forget_proof(connection);
        if let Some((user, remote)) = state.role.access.connection_lost(connection, counters) {
            let exclusion = user.exclusion().filter(|_| reason == CloseReason::LocallyClosed);
            let left = ServerAction::Left {
                user: user.id(),
                remote,
                reason,
                exclusion,
            };
            state.actions.push_back(Action::Role(left));
        }
    }

    fn headers_received(
        engine: &mut Engine<Self>,
        now: Instant,
        id: RequestId,
        list: &HeaderList,
        deliver: &mut impl Deliver,
    ) {
        engine.judge(now, id, list);
        engine.take_early_of_open(now, id, deliver);
    }

    fn content_read(_: &mut State<Self>, _: Instant, _: RequestId) {}

    fn next_due(engine: &Engine<Self>) -> Option<Instant> {
        engine.next_deadline()
    }

    fn handle_due(engine: &mut Engine<Self>, now: Instant) {
        engine.put_off_unanswered(now);
    }

    fn connection_reported(
        engine: &mut Engine<Self>,
        now: Instant,
        connection: ConnectionKey,
        report: &ConnectionReport,
    ) {
        engine.count_bytes(now, connection, &report.counters);
        engine.tell_held_back(connection, report);
    }

    /// Closes connections that have shown too many wrong tokens, and ends TCP connections that are idle.
    fn sweep(engine: &mut Engine<Self>, now: Instant) {
        engine.end_idle_tcp(now);
        if let Some(relay) = &engine.state.role.relay {
            relay.sweep(now);
        }
        for peer in engine.state.peers.iter().flatten() {
            if peer.wrong_tokens >= limits::WRONG_TOKENS_PER_CONNECTION {
                engine
                    .endpoint
                    .close(now, peer.connection, masque_code(masque::Code::NoError), b"");
            }
        }
    }

    fn ip_sessions(&self) -> Vec<RequestId> {
        self.ip_by_address.values().flatten().copied().collect()
    }

    fn request_ended(state: &mut State<Self>, id: RequestId) {
        let Some(request) = state.requests.get_mut(id.0) else {
            return;
        };
        if matches!(request.life, Life::Identifying(_)) {
            state.role.access.forget(id);
        }
        if let (true, Some(stream)) = (std::mem::take(&mut request.is_counted), request.stream()) {
            state.role.access.session_ended(stream.connection);
        }
        if let Kind::Tcp(_) = request.kind {
            return state.role.tcp.remove(id);
        }
        let Kind::Ip(session) = &mut request.kind else {
            return;
        };
        if let Some(owner) = session.owner {
            take_out(&mut state.role.ip_by_client, &owner.client, id);
        }
        for prefix in session.addresses() {
            take_out(&mut state.role.ip_by_address, &prefix.address(), id);
        }
        if let (Some(owner), Some(lease)) = (session.owner, session.lease.take()) {
            state.return_lease(owner, lease);
        }
    }

    fn ip_capsule(engine: &mut Engine<Self>, id: RequestId, capsule: IpCapsule) {
        match capsule {
            IpCapsule::AddressRequest(entries) => engine.send_assignment(id, &entries),
            // A client neither routes for the server nor gives it addresses and names: nothing follows from these.
            IpCapsule::AddressAssign(_)
            | IpCapsule::DnsAssign(_)
            | IpCapsule::RouteAdvertisement(_)
            | IpCapsule::Datagram(_)
            | IpCapsule::Oversized(_) => {}
        }
    }

    fn tun_address(&self, is_ipv4: bool, _: &Slab<Request>) -> Option<IpAddr> {
        self.ip_service.as_ref()?.own_address(is_ipv4)
    }

    /// The destination is the client's, or the session had not been found.
    fn may_enter(&self, _: &IpSession, view: &IpView) -> Result<(), DropReason> {
        let may_answer = |service: &super::IpService| service.may_answer(view.source, view.protocol);
        if is_confined(view.source) || !self.ip_service.as_ref().is_some_and(may_answer) {
            Err(DropReason::SourceSpoofed)
        } else {
            Ok(())
        }
    }

    fn may_leave(&self, session: &mut IpSession, view: &IpView, packet: &[u8]) -> Result<(), DropReason> {
        let Some(service) = &self.ip_service else {
            return Err(DropReason::UnknownSession);
        };
        if !session.is_of_client(view.source) {
            return Err(DropReason::SourceSpoofed);
        }
        let target = PacketTarget::of(view, packet);
        if session.allowed_last != Some(target) {
            service.admits(&target, &session.reach)?;
            session.allowed_last = Some(target);
        }
        Ok(())
    }

    /// The client is told why its packet goes no further.
    fn packet_refused(
        state: &mut State<Self>,
        now: Instant,
        id: RequestId,
        packet: &[u8],
        reason: DropReason,
    ) {
        let why = match reason {
            DropReason::NoRoute => Unreachable::NoRoute,
            DropReason::PolicyDenied => Unreachable::Prohibited,
            _ => return,
        };
        let is_ipv4 = packet[0] >> 4 == 4;
        let Some(from) = state.role.tun_address(is_ipv4, &state.requests) else {
            return;
        };
        if !state.ip.bucket.take(now) {
            return;
        }
        let Some(mut answer) = icmp::unreachable(packet, why, from) else {
            return;
        };
        let Ok(view) = IpView::parse(&answer) else {
            return;
        };
        let flow = FlowId {
            hash: flow_key(&view, &answer).hash(state.ip.flow_seed),
            is_controlled: is_congestion_controlled(view.protocol),
        };
        // It is only an answer: where it does not fit, the packet was dropped in silence.
        let _ = state.enqueue_packet(now, id, flow, &VnetHeader::default(), &view, &mut answer);
    }
}

/// Takes a session out of a table, and its key with the last one.
pub(super) fn take_out<K: Eq + Hash>(table: &mut HashMap<K, Vec<RequestId>>, key: &K, id: RequestId) {
    if let Some(sessions) = table.get_mut(key) {
        sessions.retain(|other| *other != id);
        if sessions.is_empty() {
            table.remove(key);
        }
    }
}
