//! The engine's events and packets as a client treats them.

use std::net::IpAddr;
use std::time::Instant;

use masque::ip::{IpCapsule, Prefix};
use masque::{HeaderList, ServerShard};
use packet::ip::IpView;
use quic::{CloseReason, ConnectionKey, Counters, StreamId};
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

    fn goaway_received(state: &mut State<Self>, connection: ConnectionKey) {
        if state.role.current == Some(connection) {
            state.actions.push_back(Action::Role(ClientAction::GoingAway));
        }
    }

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
    fn content_read(state: &mut State<Self>, id: RequestId) {
        state.tell_news(id);
    }

    fn next_due(_: &Engine<Self>) -> Option<Instant> {
        None
    }

    fn handle_due(_: &mut Engine<Self>, _: Instant) {}

    fn connection_reported(_: &mut Engine<Self>, _: Instant, _: ConnectionKey, _: &Counters) {}

    fn sweep(_: &mut Engine<Self>, _: Instant) {}

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
                let addresses: Vec<Prefix> = assigned.map(|entry| entry.prefix).collect();
                let addresses = Some(addresses);
                session.has_news |= session.addresses != addresses;
                session.addresses = addresses;
            }
            IpCapsule::RouteAdvertisement(routes) => {
                let routes = Some(routes);
                session.has_news |= session.routes != routes;
                session.routes = routes;
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
        addresses.find(|address| address.is_ipv4() == is_ipv4)
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

    fn may_leave(&self, session: &mut IpSession, view: &IpView, _: &[u8]) -> Result<(), DropReason> {
        if is_confined(view.source) || !session.has_route(view.source, view.protocol) {
            Err(DropReason::SourceSpoofed)
        } else if session.is_of_client(view.destination) {
            Ok(())
        } else {
            Err(DropReason::NoRoute)
        }
    }

    /// A client sends the server no ICMP of its own.
    fn packet_refused(_: &mut State<Self>, _: Instant, _: RequestId, _: &[u8], _: DropReason) {}
}
