//! The engine's events and packets as a client treats them.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use masque::bind::BindCapsule;
use masque::ip::{IpCapsule, Prefix, Routes};
use masque::{HeaderList, HeldBack, MessageError, ServerShard};
use packet::icmp;
use packet::ip::IpView;
use quic::{AcceptParameters, CloseReason, ConnectionKey, ConnectionReport, Counters, Incoming, StreamId};
use slab::Slab;

use super::Client;
use crate::drops::DropReason;
use crate::engine::ip::is_confined;
use crate::engine::ip::session::IpSession;
use crate::engine::request::{Kind, Request, RequestId};
use crate::engine::role::Side;
use crate::engine::{Action, ClientAction, Deliver, Engine, State};

impl Side for Client {
    type Action = ClientAction;

    const HTTP: masque::Role = masque::Role::Client;

    fn set_shard(&mut self, shard: ServerShard) {
        self.asks_to_keep = shard.count > 1;
    }

    fn connecting(&self) -> Vec<ConnectionKey> {
        self.attempts.iter().map(|attempt| attempt.connection).collect()
    }

    /// Nobody connects to a client.
    fn acceptance(_: &mut Engine<Self>, _: &Incoming) -> Option<AcceptParameters> {
        None
    }

    fn redirected(state: &mut State<Self>, connection: ConnectionKey) {
        if let Some(attempt) = state.role.attempt_of(connection) {
            let redirected = ClientAction::Redirected { attempt };
            state.actions.push_back(Action::Role(redirected));
        }
    }

    fn connected(state: &mut State<Self>, connection: ConnectionKey) {
        if let Some(attempt) = state.role.attempt_of(connection) {
            let connected = ClientAction::Connected { attempt };
            state.actions.push_back(Action::Role(connected));
        }
    }

    /// A server opens none (RFC 9114 section 6.1).
    fn request_stream_opened(_: &mut State<Self>, _: Instant, _: ConnectionKey, _: StreamId) {}

    fn settings_received(engine: &mut Engine<Self>, now: Instant, connection: ConnectionKey) {
        engine.begin_session(now, connection);
    }

    fn goaway_received(engine: &mut Engine<Self>, now: Instant, connection: ConnectionKey, first: u64) {
        engine.going_away(now, connection, first);
    }

    fn held_back(state: &mut State<Self>, now: Instant, connection: ConnectionKey, held_back: HeldBack) {
        if state.role.current == Some(connection) {
            state.role.server_held_back = Some((now, held_back));
        }
    }

    /// The driver wakes a client's services itself.
    fn service_to_wake(_: &mut State<Self>) -> Option<RequestId> {
        None
    }

    fn bind_capsule(
        engine: &mut Engine<Self>,
        now: Instant,
        id: RequestId,
        capsule: &BindCapsule,
    ) -> Result<(), MessageError> {
        engine.hear_of_context(now, id, capsule)
    }

    fn take_relayed(
        state: &mut State<Self>,
        _: Instant,
        id: RequestId,
        context: u64,
        payload: &[u8],
        deliver: &mut impl Deliver,
    ) {
        state.deliver_relayed(id, context, payload, deliver);
    }

    /// It is the server that relays.
    fn relay(_: &mut Engine<Self>, _: Instant) {}

    fn streams_available(engine: &mut Engine<Self>, now: Instant, connection: ConnectionKey) {
        engine.send_queued_requests(now, connection);
    }

    fn connection_lost(
        state: &mut State<Self>,
        connection: ConnectionKey,
        reason: CloseReason,
        _: &Counters,
    ) {
        if let Some(attempt) = state.role.forget(connection) {
            let lost = ClientAction::Lost { attempt, reason };
            state.actions.push_back(Action::Role(lost));
        }
    }

    fn headers_received(
        engine: &mut Engine<Self>,
        now: Instant,
        id: RequestId,
        list: &HeaderList,
        deliver: &mut impl Deliver,
    ) {
        engine.answered(now, id, list, deliver);
    }

    /// Addresses and routes that came together are told together.
    fn content_read(state: &mut State<Self>, now: Instant, id: RequestId) {
        state.tell_news(now, id);
    }

    fn next_due(engine: &Engine<Self>) -> Option<Instant> {
        engine.state.role.news_due
    }

    fn handle_due(engine: &mut Engine<Self>, now: Instant) {
        let state = &mut engine.state;
        if state.role.news_due.take_if(|due| *due <= now).is_some() {
            for id in state.ip_requests() {
                state.tell_news(now, id);
            }
        }
    }

    fn connection_reported(_: &mut Engine<Self>, _: Instant, _: ConnectionKey, _: &ConnectionReport) {}

    fn sweep(engine: &mut Engine<Self>, now: Instant) {
        engine.end_quiet_moves(now);
        engine.leave_empty_connections();
    }

    fn ip_sessions(&self) -> Vec<RequestId> {
        self.ip_session.into_iter().collect()
    }

    fn request_ended(state: &mut State<Self>, id: RequestId) {
        if state.role.ip_session == Some(id) {
            state.role.ip_session = None;
            state.actions.push_back(Action::Role(ClientAction::IpLost));
        }
    }

    fn ip_capsule(engine: &mut Engine<Self>, id: RequestId, capsule: IpCapsule) {
        let request = engine.state.requests.get_mut(id.0);
        let Some(Kind::Ip(session)) = request.map(|request| &mut request.kind) else {
            return;
        };
        match capsule {
            IpCapsule::AddressAssign(entries) => {
                let assigned = entries.iter().filter(|entry| !entry.is_refusal());
                let assigned: Vec<Prefix> = assigned.map(|entry| entry.prefix).collect();
                session.has_news |= session.addresses.is_none() || session.assigned != assigned;
                session.assigned = assigned;
                session.accept_addresses(&engine.state.role.acceptance);
            }
            IpCapsule::RouteAdvertisement(routes) => {
                let routes = Some(routes);
                session.has_news |= session.routes != routes;
                session.routes = routes;
                session.accept_routes(&engine.state.role.acceptance);
            }
            IpCapsule::DnsAssign(mut servers) => {
                servers.retain(|server| !is_confined(*server));
                session.has_news |= session.name_servers != servers;
                session.name_servers = servers;
            }
            // A client gives the server no addresses.
            IpCapsule::AddressRequest(_) | IpCapsule::Datagram(_) | IpCapsule::Oversized(_) => {}
        }
    }

    fn tun_address(&self, is_ipv4: bool, requests: &Slab<Request>) -> Option<IpAddr> {
        let Some(Kind::Ip(session)) = requests.get(self.ip_session?.0).map(|request| &request.kind) else {
            return None;
        };
        let mut addresses = session.addresses().iter().map(Prefix::address);
        let own = addresses.find(|address| address.is_ipv4() == is_ipv4)?;
        Some(if is_ipv4 { beyond(&session.sources) } else { own })
    }

    fn may_enter(&self, session: &IpSession, view: &IpView) -> Result<(), DropReason> {
        if !session.is_of_client(view.source) {
            Err(DropReason::SourceSpoofed)
        } else if !session.has_route(view.destination, view.protocol) {
            Err(DropReason::NoRoute)
        } else {
            Ok(())
        }
    }

    fn may_leave(&self, session: &mut IpSession, view: &IpView, packet: &[u8]) -> Result<(), DropReason> {
        let from = (view.source, view.protocol);
        if session.accepted_last != Some(from) {
            if !session.has_route(view.source, view.protocol) || session.is_of_client(view.source) {
                return Err(DropReason::SourceSpoofed);
            }
            if self.acceptance.takes_from(&session.sources, view.source) {
                session.accepted_last = Some(from);
            } else if !self.is_of_router(session, view, packet) {
                return Err(DropReason::SourceSpoofed);
            }
        }
        if session.is_of_client(view.destination) {
            Ok(())
        } else {
            Err(DropReason::NoRoute)
        }
    }

    /// A client sends the server no ICMP of its own.
    fn packet_refused(_: &mut State<Self>, _: Instant, _: RequestId, _: &[u8], _: DropReason) {}
}

impl Client {
    /// A router on the way may answer with an ICMP error, wherever it is: it quotes a packet that this end may have sent.
    fn is_of_router(&self, session: &IpSession, view: &IpView, packet: &[u8]) -> bool {
        if is_confined(view.source) || self.acceptance.is_local(view.source) {
            return false;
        }
        icmp::quoted_addresses(view, packet).is_some_and(|(from, to)| {
            session.is_of_client(from) && self.acceptance.takes_from(&session.sources, to)
        })
    }
}

/// An IPv4 address behind the tunnel: from one of its own the machine takes no packet (`accept_local`). That for routers
/// without an address (RFC 7600 section 4.8), else the first host of the first network, often the server.
fn beyond(sources: &Routes) -> IpAddr {
    const DUMMY: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 0, 8));
    let first = sources.ranges().first().filter(|_| !sources.allows(DUMMY, 0));
    match first.map(|range| (range.start(), range.end())) {
        Some((IpAddr::V4(start), end)) if IpAddr::V4(start) < end => {
            Ipv4Addr::from_bits(start.to_bits() + 1).into()
        }
        Some((start @ IpAddr::V4(_), _)) => start,
        _ => DUMMY,
    }
}
