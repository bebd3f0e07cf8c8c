//! The life of IP sessions: requests, leases, addresses and routes, on both roles.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use bytes::Bytes;
use masque::ip::{
    self, AddressEntry, CHECKSUM_CONTEXT_ID, ClientId, ConnectIp, Extensions, IpCapsule, Prefix, Scope,
};
use masque::request::PathKind;
use masque::response::{self, ProxyError};
use masque::{HeaderList, MessageError, Role};
use packet::checksum::ChecksumState;
use quic::ConnectionKey;

use super::session::{IpSession, Owner};
use crate::config::Oversize;
use crate::drops::DropReason;
use crate::engine::request::{Kind, Phase, Request, RequestId};
use crate::engine::server::ip_service::IpService;
use crate::engine::server::lease::{Client, Lease};
use crate::engine::{Action, Deliver, Engine, State, owned, quarter};

/// What a client's end was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Our addresses, possibly none.
    pub addresses: Vec<Prefix>,
    /// What is reachable through the tunnel; `None` where the server has not said it yet.
    pub routes: Option<Vec<Prefix>>,
    /// The server gives the same addresses to all sessions under our name; else each has its own (SESSION-12).
    pub is_by_name: bool,
    /// Packets larger than one datagram can be split, so that IPv6's least MTU holds on every path.
    pub can_split: bool,
}

impl Engine {
    /// A server offers IP sessions from here on; `flow_seed` spreads flows.
    pub fn serve_ip(&mut self, service: IpService, flow_seed: u64) {
        self.state.ip.service = Some(service);
        self.state.ip.flow_seed = flow_seed;
    }

    /// A client asks for an IP session on every connection, under this name and the number of this run; `flow_seed`
    /// spreads flows.
    pub fn use_ip(&mut self, name: ClientId, run: u32, flow_seed: u64) {
        self.state.ip.client = Some((name, run));
        self.state.ip.flow_seed = flow_seed;
    }

    /// Every address of this machine at present, for the rules of a server.
    pub fn set_host_addresses(&mut self, addresses: Vec<IpAddr>) {
        let is_new = self
            .state
            .ip
            .service
            .as_mut()
            .is_some_and(|service| service.set_host_addresses(addresses));
        if is_new {
            for (_, request) in &mut self.state.requests {
                if let Kind::Ip(session) = &mut request.kind {
                    session.allowed_last = None;
                }
            }
        }
    }

    /// The longest packet, in bytes, that sessions take at present: a client's session, the best of a server's; `None`
    /// where there is none.
    #[must_use]
    pub fn packet_max_at_most(&mut self) -> Option<usize> {
        let ids: Vec<RequestId> = match &self.state.ip.service {
            None => self.state.ip.current.into_iter().collect(),
            Some(_) => self.state.ip.by_address.values().flatten().copied().collect(),
        };
        let connections: Vec<ConnectionKey> = ids
            .iter()
            .filter_map(|id| self.state.requests.get(id.0)?.connection)
            .collect();
        for connection in connections {
            let datagram_max = self.endpoint.datagram_max(connection).unwrap_or(0);
            if let Some(peer) = self.state.peer(connection) {
                peer.datagram_max = datagram_max;
            }
        }
        ids.into_iter().map(|id| self.state.packet_max(id)).max()
    }

    /// IP sessions that are open here.
    #[must_use]
    pub fn ip_sessions(&self) -> usize {
        let is_open = |request: &Request| request.phase == Phase::Open && matches!(request.kind, Kind::Ip(_));
        self.state
            .requests
            .iter()
            .filter(|(_, request)| is_open(request))
            .count()
    }

    /// Client: asks for an IP session where none is open or asked for: after [`Engine::stay`], or again.
    pub fn ask_for_ip(&mut self, now: Instant) {
        if let Some(connection) = self.current {
            self.open_ip(now);
            self.send_queued_requests(now, connection);
        }
    }

    /// Client: this end has another address: the connection moves to it (RFC 9000 section 9.2).
    pub fn local_address_changed(&mut self) {
        if let Some(connection) = self.current {
            self.endpoint.local_address_changed(connection);
        }
    }

    /// Client: a request for an IP session, sent when the connection takes requests.
    pub(in crate::engine) fn open_ip(&mut self, now: Instant) {
        let is_under_way = |request: &Request| {
            matches!(request.kind, Kind::Ip(_))
                && matches!(request.phase, Phase::Queued | Phase::Sent | Phase::Open)
        };
        let mut requests = self.state.requests.iter();
        if self.state.ip.client.is_none() || requests.any(|(_, request)| is_under_way(request)) {
            return;
        }
        let split = (self.state.config.oversize == Oversize::Split).then_some(masque::split::CONTEXT_ID);
        let session = IpSession::new(split, Some(CHECKSUM_CONTEXT_ID), self.state.repair_offer());
        let request = Request::new(Role::Client, Kind::Ip(Box::new(session)), Phase::Queued, now);
        self.state.insert_request(request);
    }

    /// Client: the server has accepted the session.
    pub(in crate::engine) fn ip_accepted(&mut self, id: RequestId, list: &HeaderList) {
        let Some(Request {
            kind: Kind::Ip(session),
            output,
            ..
        }) = self.state.requests.get_mut(id.0)
        else {
            return;
        };
        let echoed = masque::request::split_context(list);
        session.split = session.split.filter(|offered| echoed == Some(*offered));
        let echoed = ip::checksum_context(list);
        session.checksum = session.checksum.filter(|offered| echoed == Some(*offered));
        let own = self.state.ip.client.map(|(name, _)| name);
        session.is_by_name = own.is_some() && ip::client_name(list) == own;
        let any = [
            IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        ];
        let wanted: Vec<AddressEntry> = any
            .into_iter()
            .zip(1..)
            .map(|(address, request_id)| AddressEntry {
                request_id,
                prefix: Prefix::host(address),
            })
            .collect();
        push_capsule(output, ip::address_request(&wanted));
        self.pump(id);
    }

    /// Server: a request for an IP session.
    pub(in crate::engine) fn judge_connect_ip(
        &mut self,
        now: Instant,
        connection: ConnectionKey,
        id: RequestId,
        asked: &ConnectIp,
    ) {
        match &asked.path {
            PathKind::Segment(segment) if !self.has_path_segment(segment) => {
                return self.turn_away(id, &response::response(404), 404);
            }
            PathKind::WellKnown if !self.holds_token(&asked.credential) => {
                self.turn_away(id, &response::unauthorized(), 401);
                return self.count_wrong_token(now, connection, &asked.credential);
            }
            PathKind::Segment(_) | PathKind::WellKnown => {}
        }
        self.recognise(connection);
        let Ok(scope) = &asked.scope else {
            return self.answer_and_end(id, &response::response(400));
        };
        // One tunnel for everything is what we have; a narrower one is not made wider.
        if self.state.ip.service.is_none() || *scope != Scope::ANY {
            return self.answer_and_end(id, &response::response(501));
        }
        if self.state.draining {
            return self.answer_and_end(id, &response::failure(ProxyError::DestinationUnavailable));
        }
        let owner = match asked.extensions.client {
            Some(ClientId(name)) => Owner {
                client: Client::Named(name),
                run: asked.extensions.run,
            },
            None => {
                self.state.ip.nameless += 1;
                Owner {
                    client: Client::Nameless(self.state.ip.nameless),
                    run: None,
                }
            }
        };
        let Some(request) = self.state.requests.get_mut(id.0) else {
            return;
        };
        let split = asked
            .extensions
            .split
            .filter(|_| self.state.config.oversize == Oversize::Split);
        let mut session = IpSession::new(split, asked.extensions.checksum, asked.extensions.repair);
        session.owner = Some(owner);
        request.kind = Kind::Ip(Box::new(session));
        request.phase = Phase::Opening;
        request.known_to_driver = true;
        request.last_active = now;
        self.state.actions.push_back(Action::Lease { request: id, owner });
    }

    /// Server: the driver has a lease for the session. It is given back after [`Action::LeaseOver`].
    pub fn accept_ip(&mut self, now: Instant, id: RequestId, lease: Lease, deliver: &mut impl Deliver) {
        let Some(service) = &self.state.ip.service else {
            return;
        };
        let routes = service.routes().clone();
        let Some(request) = self.state.requests.get_mut(id.0) else {
            return;
        };
        let (Phase::Opening, Kind::Ip(session)) = (request.phase, &mut request.kind) else {
            return;
        };
        request.phase = Phase::Open;
        request.last_active = now;
        // Without the split context a path of less than 1,280 bytes could not carry IPv6 (RFC 9484 section 7.1).
        let takes = |address: &IpAddr| address.is_ipv4() || session.split.is_some();
        session.addresses = lease.addresses().filter(takes).map(Prefix::host).collect();
        session.routes = routes;
        let client = session.owner.and_then(|owner| match owner.client {
            Client::Named(name) => Some(ClientId(name)),
            Client::Nameless(_) => None,
        });
        let repair = session.repair.offer();
        let accepted = ip::accepted(&Extensions {
            client,
            run: None,
            split: session.split,
            checksum: session.checksum,
            repair,
        });
        let addresses: Vec<IpAddr> = session.addresses.iter().map(Prefix::address).collect();
        for address in addresses {
            self.state.ip.by_address.entry(address).or_default().push(id);
        }
        if let Some(offer) = repair {
            self.state.agree_on_repair(now, id, offer);
        }
        self.send_headers(id, &accepted);
        self.send_assignment(id, &[]);
        self.state.take_early(now, id, deliver);
    }

    /// Server: ends the sessions of a client's earlier runs; whoever sent this run's request knows of no other.
    pub fn end_older_runs(&mut self, owner: Owner) {
        let old: Vec<RequestId> = self
            .state
            .requests
            .iter()
            .filter(|(_, request)| match &request.kind {
                Kind::Ip(session) => session
                    .owner
                    .is_some_and(|other| other.client == owner.client && other.run != owner.run),
                _ => false,
            })
            .map(|(id, _)| RequestId(id))
            .collect();
        for id in old {
            self.close_stream(id);
            self.state.end(id, crate::engine::Ending::Finished);
        }
    }

    /// Tells the client its addresses, refusals of what it asked for beside them, and the routes.
    fn send_assignment(&mut self, id: RequestId, asked: &[AddressEntry]) {
        let Some(Request {
            kind: Kind::Ip(session),
            output,
            ..
        }) = self.state.requests.get_mut(id.0)
        else {
            return;
        };
        let mut unanswered: Vec<&AddressEntry> = asked.iter().collect();
        let mut entries: Vec<AddressEntry> = Vec::new();
        for prefix in &session.addresses {
            // Its first request of this version is the one that this address answers.
            let answered = unanswered
                .iter()
                .position(|entry| entry.prefix.address().is_ipv4() == prefix.address().is_ipv4())
                .map(|index| unanswered.remove(index).request_id);
            entries.push(AddressEntry {
                request_id: answered.unwrap_or(0),
                prefix: *prefix,
            });
        }
        entries.extend(unanswered.into_iter().map(AddressEntry::refusing));
        push_capsule(output, ip::address_assign(&entries));
        if asked.is_empty() {
            push_capsule(output, ip::route_advertisement(&session.routes));
        }
        self.pump(id);
    }

    /// Content of an IP session's stream.
    ///
    /// # Errors
    /// A capsule that breaks the rules costs the request.
    pub(in crate::engine) fn take_capsules(
        &mut self,
        now: Instant,
        id: RequestId,
        mut bytes: Bytes,
        deliver: &mut impl Deliver,
    ) -> Result<(), MessageError> {
        loop {
            let Some(Request {
                kind: Kind::Ip(session),
                phase: Phase::Open,
                ..
            }) = self.state.requests.get_mut(id.0)
            else {
                return Ok(());
            };
            let Some(capsule) = session.capsules.next(&mut bytes)? else {
                break;
            };
            match (capsule, self.state.role) {
                (IpCapsule::Datagram(datagram), _) => {
                    self.state.ledger.egress.accepted += 1;
                    match masque::capsule::split_context(datagram) {
                        Some((ip::PACKET_CONTEXT_ID, packet)) => {
                            self.state
                                .take_packet(now, id, &packet, ChecksumState::Full, deliver);
                        }
                        Some(_) => self.state.ledger.egress.drop(DropReason::UnknownContext, 1),
                        None => self.state.ledger.egress.drop(DropReason::Malformed, 1),
                    }
                }
                (IpCapsule::Oversized(_), _) => {
                    self.state.ledger.egress.accepted += 1;
                    self.state.ledger.egress.drop(DropReason::PacketTooBig, 1);
                }
                (IpCapsule::AddressAssign(entries), Role::Client) => {
                    let assigned = entries.iter().filter(|entry| !entry.is_refusal());
                    let addresses: Vec<Prefix> = assigned.map(|entry| entry.prefix).collect();
                    session.has_news |= !session.addresses_known || session.addresses != addresses;
                    session.addresses = addresses;
                    session.addresses_known = true;
                }
                (IpCapsule::RouteAdvertisement(routes), Role::Client) => {
                    session.has_news |= !session.routes_known || session.routes != routes;
                    session.routes = routes;
                    session.routes_known = true;
                }
                (IpCapsule::AddressRequest(entries), Role::Server) => self.send_assignment(id, &entries),
                // A client neither routes for the server nor gives it addresses: nothing follows from these.
                (IpCapsule::AddressRequest(_), Role::Client)
                | (IpCapsule::AddressAssign(_) | IpCapsule::RouteAdvertisement(_), Role::Server) => {}
            }
        }
        Ok(())
    }
}

impl State {
    /// Client: the headers of the request for a session.
    pub(in crate::engine) fn ip_request(&self, authority: &str, id: RequestId) -> Option<HeaderList> {
        let Kind::Ip(session) = &self.requests.get(id.0)?.kind else {
            return None;
        };
        let (client, run) = self.ip.client.unzip();
        let extensions = Extensions {
            client,
            run,
            split: session.split,
            checksum: session.checksum,
            repair: session.repair.offer(),
        };
        Some(ip::connect_ip(authority, &Scope::ANY, &self.bearer, &extensions))
    }

    /// Client: the driver hears of addresses and routes that are new; of routes that come first only with the addresses,
    /// which they are of no use without.
    pub(in crate::engine) fn tell_news(&mut self, id: RequestId) {
        let Some(Kind::Ip(session)) = self.requests.get_mut(id.0).map(|request| &mut request.kind) else {
            return;
        };
        if !session.addresses_known || !std::mem::take(&mut session.has_news) {
            return;
        }
        let routes = session.routes_known.then(|| {
            session
                .routes
                .prefixes()
                .take(crate::limits::IP_ROUTES_MAX)
                .collect()
        });
        let assignment = Assignment {
            addresses: session.addresses.clone(),
            routes,
            can_split: session.split.is_some(),
            is_by_name: session.is_by_name,
        };
        let takes_packets = !assignment.addresses.is_empty();
        self.ip.current = takes_packets.then_some(id);
        self.actions.push_back(Action::Assigned { assignment });
    }

    /// A session has ended: nothing finds it any more.
    pub(in crate::engine) fn forget_ip(&mut self, id: RequestId) {
        let Some(Kind::Ip(session)) = self.requests.get_mut(id.0).map(|request| &mut request.kind) else {
            return;
        };
        for prefix in &session.addresses {
            let address = prefix.address();
            if let Some(sessions) = self.ip.by_address.get_mut(&address) {
                sessions.retain(|other| *other != id);
                if sessions.is_empty() {
                    self.ip.by_address.remove(&address);
                }
            }
        }
        if let (Some(owner), false) = (session.owner, session.addresses.is_empty()) {
            let addresses = session.addresses.iter().map(Prefix::address).collect();
            self.actions.push_back(Action::LeaseOver { owner, addresses });
        }
        if self.ip.current == Some(id) {
            self.ip.current = None;
            self.actions.push_back(Action::IpLost);
        }
    }

    /// The longest packet, in bytes, that a session takes at present.
    pub(super) fn packet_max(&mut self, id: RequestId) -> usize {
        let Some(request) = self.requests.get(id.0) else {
            return 0;
        };
        let (Some(connection), Some(stream)) = (request.connection, request.stream) else {
            return 0;
        };
        let Some(Some(peer)) = self.peers.get(connection.index()) else {
            return 0;
        };
        let (_, prefix_bytes) = masque::datagram::prefix(quarter(stream), ip::PACKET_CONTEXT_ID);
        let room = peer.datagram_max.saturating_sub(prefix_bytes);
        match &request.kind {
            Kind::Ip(session) => session.mtu(room),
            _ => 0,
        }
    }
}

fn push_capsule(output: &mut std::collections::VecDeque<Bytes>, capsule: Vec<u8>) {
    let (header, used) = masque::data_frame_header(capsule.len() as u64);
    output.push_back(Bytes::copy_from_slice(&header[..used]));
    output.push_back(owned(capsule));
}
