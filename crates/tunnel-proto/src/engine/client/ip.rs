//! A client's IP session: asked for, told to the driver, and the packets of its TUN.

use std::net::IpAddr;
use std::time::Instant;

use masque::ip::{CHECKSUM_CONTEXT_ID, ClientId, Prefix};
use packet::vnet::VNET_HEADER_BYTES;

use super::Client;
use crate::client::{Acceptance, LocalNetworks};
use crate::config::Oversize;
use crate::engine::ip::session::IpSession;
use crate::engine::life::Life;
use crate::engine::request::{Kind, Request, RequestId};
use crate::engine::role::Side;
use crate::engine::{Action, ClientAction, Deliver, Engine, State};

/// What a client's end was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Our addresses, possibly none.
    pub addresses: Vec<Prefix>,
    /// Addresses that were assigned and are not taken.
    pub refused: Vec<Prefix>,
    /// What is reachable through the tunnel, the networks that the server leases from first; `None` where the server has
    /// not said it yet.
    pub routes: Option<Vec<Prefix>>,
    /// The server gives the same addresses to all sessions under our name; else each has its own (SESSION-12).
    pub is_by_name: bool,
    /// Another client uses our name, so the server goes by another one (SESSION-14).
    pub is_name_taken: bool,
    /// Another client has asked by our name, and the server goes by another one for it (SESSION-15).
    pub is_name_shared: bool,
    /// Name servers that the server offers for all names (SESSION-17).
    pub name_servers: Vec<IpAddr>,
    /// Packets larger than one datagram can be split, so that IPv6's least MTU holds on every path.
    pub can_split: bool,
}

impl Engine<Client> {
    /// A client asks for an IP session on every connection, under this name and the number of this run, and takes of
    /// it what `acceptance` does; `flow_seed` spreads flows.
    pub fn use_ip(&mut self, name: ClientId, run: u32, flow_seed: u64, acceptance: Acceptance) {
        self.state.role.ip = Some((name, run));
        self.state.role.acceptance = acceptance;
        self.state.ip.flow_seed = flow_seed;
    }

    /// What the machine reaches past the tunnel has changed: addresses and routes are told anew.
    pub fn set_local(&mut self, local: &LocalNetworks) {
        if !self.state.role.acceptance.set_local(local) {
            return;
        }
        for id in self.state.ip_requests() {
            let request = self.state.requests.get_mut(id.0);
            if let Some(Kind::Ip(session)) = request.map(|request| &mut request.kind) {
                session.accept_routes(&self.state.role.acceptance);
                if session.addresses.is_some() {
                    session.accept_addresses(&self.state.role.acceptance);
                }
            }
            self.state.tell(id);
        }
    }

    /// Asks for an IP session where none is open or asked for: after [`Engine::keep_connection`], or again.
    pub fn ask_for_ip(&mut self, now: Instant) {
        if let Some(connection) = self.state.role.current {
            self.open_ip(now);
            self.send_queued_requests(now, connection);
        }
    }

    /// This end has another address: the connection moves to it (RFC 9000 section 9.2).
    pub fn local_address_changed(&mut self) {
        if let Some(connection) = self.state.role.current {
            self.endpoint.local_address_changed(connection);
        }
    }

    /// A request for an IP session, sent when the connection takes requests.
    pub(in crate::engine) fn open_ip(&mut self, now: Instant) {
        let former = &self.state.role.former;
        let is_under_way = |request: &Request| {
            let stream = request.stream();
            matches!(request.kind, Kind::Ip(_))
                && !stream.is_some_and(|stream| former.contains(&stream.connection))
                && matches!(request.life, Life::Queued(_) | Life::Sent(_) | Life::Open(_))
        };
        let mut requests = self.state.requests.iter();
        if self.state.role.ip.is_none() || requests.any(|(_, request)| is_under_way(request)) {
            return;
        }
        let split = (self.state.config.oversize == Oversize::Split).then_some(masque::split::CONTEXT_ID);
        let mut session = IpSession::new(split, Some(CHECKSUM_CONTEXT_ID), self.state.repair_offer());
        session.asked_as = self.state.role.ip;
        session.accept_routes(&self.state.role.acceptance);
        let kind = Kind::Ip(Box::new(session));
        let request = Request::new(Client::HTTP, kind, Life::Queued(None), now);
        self.state.insert_request(request);
    }

    /// Takes one packet or super-packet that the TUN gave, with its header; it is changed on the way.
    ///
    /// What cannot be sent is dropped and counted; its sender may get an ICMP answer through `deliver`.
    pub fn send_packet(
        &mut self,
        now: Instant,
        header: &[u8; VNET_HEADER_BYTES],
        packet: &mut [u8],
        deliver: &mut impl Deliver,
    ) {
        let Some(parsed) = self.state.parse_packet(header, packet) else {
            return;
        };
        if let Some(id) = self.state.role.ip_session {
            return self.send_packet_of(now, id, &parsed, packet, deliver);
        }
        self.state.drop_without_session(&parsed, packet);
    }
}

impl State<Client> {
    /// The requests for IP sessions, whatever became of them.
    pub(super) fn ip_requests(&self) -> Vec<RequestId> {
        let requests = self.requests.iter();
        requests
            .filter_map(|(id, request)| matches!(request.kind, Kind::Ip(_)).then_some(RequestId(id)))
            .collect()
    }

    /// Reports new addresses and routes to the driver, as often as a server may change them. Routes are withheld until
    /// addresses arrive.
    pub(in crate::engine) fn tell_news(&mut self, now: Instant, id: RequestId) {
        let Some(Kind::Ip(session)) = self.requests.get(id.0).map(|request| &request.kind) else {
            return;
        };
        if session.addresses.is_none() || !session.has_news {
            return;
        }
        if self.role.news.take(now) {
            self.tell(id);
        } else {
            self.role.news_due = self.role.news.next();
        }
    }

    /// Reports addresses and routes, where there are addresses.
    fn tell(&mut self, id: RequestId) {
        let Some(Kind::Ip(session)) = self.requests.get_mut(id.0).map(|request| &mut request.kind) else {
            return;
        };
        let Some(addresses) = &session.addresses else {
            return;
        };
        session.has_news = false;
        let is_refused = |assigned: &&Prefix| !addresses.contains(assigned);
        let assignment = Assignment {
            addresses: addresses.clone(),
            refused: session.assigned.iter().filter(is_refused).copied().collect(),
            routes: session.advertised(),
            name_servers: session.name_servers.clone(),
            can_split: session.split.agreed().is_some(),
            is_by_name: session.is_by_name,
            is_name_taken: session.is_name_taken,
            is_name_shared: session.is_name_shared,
        };
        let takes_packets = !assignment.addresses.is_empty();
        self.role.ip_session = takes_packets.then_some(id);
        self.actions
            .push_back(Action::Role(ClientAction::Assigned { assignment }));
    }
}
