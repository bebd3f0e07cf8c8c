//! A server's IP sessions: judged, leased, accepted, and the packets that its TUN has for them.

use std::net::IpAddr;
use std::time::Instant;

use masque::ip::{self, AddressEntry, ClientId, ConnectIp, Prefix, Scope};
use masque::response::{self, ProxyError};
use packet::icmp::{self, Unreachable};
use packet::vnet::{VNET_HEADER_BYTES, VnetHeader};

use super::Server;
use super::ip_service::IpService;
use super::lease::{ClientIdentity, Lease};
use super::role::take_out;
use crate::access::Rights;
use crate::config::Oversize;
use crate::drops::DropReason;
use crate::engine::handler::Handler;
use crate::engine::ip::control::push_capsule;
use crate::engine::ip::is_confined;
use crate::engine::ip::session::{IpSession, Owner};
use crate::engine::life::{Cause, Life, RequestStream};
use crate::engine::request::{Kind, Request, RequestId};
use crate::engine::{Action, Deliver, Engine, ServerAction, State};
use crate::own_addresses::OwnAddresses;
use crate::target_rules::AllowedTarget;

/// A packet that this shard cannot send on: its destination has no session here. Another shard may have one; else it
/// goes back to [`Engine::refuse_packet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// Whose it is.
    pub destination: IpAddr,
    /// The same for all packets of a flow.
    pub flow: u64,
}

impl Engine<Server> {
    /// A server offers IP sessions from here on; `flow_seed` spreads flows.
    pub fn serve_ip(&mut self, service: IpService, flow_seed: u64) {
        self.state.role.ip_service = Some(service);
        self.state.ip.flow_seed = flow_seed;
    }

    /// What leads to this machine at present, for the rules of a server; until this is told, nothing is open.
    pub fn set_own_addresses(&mut self, addresses: OwnAddresses) {
        let is_new = self
            .state
            .role
            .ip_service
            .as_mut()
            .is_some_and(|service| service.set_own_addresses(addresses));
        if is_new {
            self.judge_targets_again();
        }
    }

    /// Replaces the explicit permissions of packets' targets.
    pub fn allow_targets(&mut self, allowed: Vec<AllowedTarget>) {
        if let Some(service) = &mut self.state.role.ip_service {
            service.allow(allowed);
            self.judge_targets_again();
        }
    }

    /// Sessions remember the target that was allowed last: not beyond a change of the rules.
    fn judge_targets_again(&mut self) {
        for (_, request) in &mut self.state.requests {
            if let Kind::Ip(session) = &mut request.kind {
                session.allowed_last = None;
            }
        }
    }

    /// A user asks for an IP session.
    pub(super) fn admit_ip(&mut self, now: Instant, stream: RequestStream, id: RequestId, asked: &ConnectIp) {
        let Ok(scope) = &asked.scope else {
            return self.answer_and_end(id, &response::response(400));
        };
        // One tunnel for everything is what we have; a narrower one is not made wider.
        if self.state.role.ip_service.is_none() || *scope != Scope::ANY {
            return self.answer_and_end(id, &response::response(501));
        }
        if self.state.draining {
            return self.answer_and_end(id, &response::failure(ProxyError::DestinationUnavailable));
        }
        let Some((user, leases_max)) = self.lease_holder(stream.connection) else {
            return;
        };
        // Packets carry whatever is in them.
        let right = |rights: &Rights| rights.ip && rights.udp && rights.tcp;
        if !self.take_user_session(id, stream.connection, right) {
            return;
        }
        let owner = match asked.extensions.client {
            Some(ClientId(name)) => Owner {
                client: ClientIdentity::Named(user, name),
                run: asked.extensions.run,
            },
            None => {
                self.state.role.nameless += 1;
                Owner {
                    client: ClientIdentity::Nameless(user, self.state.role.nameless),
                    run: None,
                }
            }
        };
        let reach = self.reach_of(stream.connection);
        let Some(request) = self.state.requests.get_mut(id.0) else {
            return;
        };
        let split = asked
            .extensions
            .split
            .filter(|_| self.state.config.oversize == Oversize::Split);
        let mut session = IpSession::new(split, asked.extensions.checksum, asked.extensions.repair);
        (session.owner, session.reach) = (Some(owner), reach);
        request.kind = Kind::Ip(Box::new(session));
        request.life = Life::Opening(stream);
        request.last_active = now;
        let by_client = &mut self.state.role.ip_by_client;
        by_client.entry(owner.client).or_default().push(id);
        self.state.actions.push_back(Action::Role(ServerAction::Lease {
            request: id,
            owner,
            leases_max,
        }));
    }

    /// The driver has a lease for the session. It is given back after [`ServerAction::LeaseOver`], also where the request
    /// has ended meanwhile.
    pub fn accept_ip(
        &mut self,
        now: Instant,
        id: RequestId,
        owner: Owner,
        lease: Lease,
        deliver: &mut impl Deliver,
    ) {
        let service = self.state.role.ip_service.as_ref();
        let Some((request, service)) = self.state.requests.get_mut(id.0).zip(service) else {
            return self.state.return_lease(owner, lease);
        };
        let (Life::Opening(stream), Kind::Ip(session)) = (&request.life, &mut request.kind) else {
            return self.state.return_lease(owner, lease);
        };
        session.lease = Some(lease);
        request.life = Life::Open(*stream);
        request.last_active = now;
        let mut accepted = session.accept();
        if matches!(owner.client, ClientIdentity::Named(..)) {
            // Without that, a client could not tell them from everything else that is reachable.
            ip::push_pools(&mut accepted, service.pools());
            if session.is_name_shared {
                ip::push_shared_name(&mut accepted);
            }
        }
        // Without the split context a path of less than 1,280 bytes could not carry IPv6 (RFC 9484 section 7.1).
        let can_split = session.split.agreed().is_some();
        let takes = |address: &IpAddr| address.is_ipv4() || can_split;
        let addresses: Vec<IpAddr> = lease.addresses().filter(takes).collect();
        session.addresses = Some(addresses.iter().copied().map(Prefix::host).collect());
        session.routes = Some(service.routes().clone());
        let repair = session.repair.offer();
        for address in addresses {
            self.state.role.ip_by_address.entry(address).or_default().push(id);
        }
        if let Some(offer) = repair {
            self.state.agree_on_repair(now, id, offer);
        }
        self.send_headers(id, &accepted);
        self.send_assignment(id, &[]);
        self.state.take_early(now, id, deliver);
    }

    /// Another client asks by the name of this session's, which is to hear of it (SESSION-15).
    pub fn tell_shared_name(&mut self, id: RequestId) {
        if let Some(Request {
            kind: Kind::Ip(session),
            ..
        }) = self.state.requests.get_mut(id.0)
        {
            session.is_name_shared = true;
        }
    }

    /// The session goes by another name than the one it was asked for by (SESSION-14).
    pub fn rename_owner(&mut self, id: RequestId, owner: Owner) {
        // One that has ended meanwhile is in no table any more.
        let Some(Request {
            kind: Kind::Ip(session),
            life: Life::Opening(_),
            ..
        }) = self.state.requests.get_mut(id.0)
        else {
            return;
        };
        let by_client = &mut self.state.role.ip_by_client;
        if let Some(before) = session.owner.replace(owner) {
            take_out(by_client, &before.client, id);
        }
        by_client.entry(owner.client).or_default().push(id);
    }

    /// Ends the sessions of a client's earlier runs; whoever sent this run's request knows of no other.
    pub fn end_older_runs(&mut self, owner: Owner) {
        let requests = &self.state.requests;
        let is_older = |id: &RequestId| match requests.get(id.0).map(|request| &request.kind) {
            Some(Kind::Ip(session)) => session.owner.is_some_and(|other| other.run != owner.run),
            _ => false,
        };
        let sessions = self.state.role.ip_by_client.get(&owner.client);
        let old: Vec<RequestId> = sessions.into_iter().flatten().copied().filter(is_older).collect();
        for id in old {
            self.end_for(id, Cause::Finished);
        }
    }

    /// Tells the client its addresses, refusals of what it asked for beside them, and the routes.
    pub(in crate::engine) fn send_assignment(&mut self, id: RequestId, asked: &[AddressEntry]) {
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
        for prefix in session.addresses() {
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
        let service = self.state.role.ip_service.as_ref();
        let name_servers = service.map_or(&[][..], IpService::name_servers);
        if asked.is_empty() && !name_servers.is_empty() {
            push_capsule(output, ip::dns_assign(name_servers));
        }
        push_capsule(output, ip::address_assign(&entries));
        if let (true, Some(routes)) = (asked.is_empty(), &session.routes) {
            push_capsule(output, ip::route_advertisement(routes));
        }
        self.pump(id);
    }

    /// Takes one packet or super-packet that the TUN gave, with its header; it is changed on the way.
    ///
    /// What cannot be sent is dropped and counted; its sender may get an ICMP answer through `deliver`. Without a
    /// session for the destination it comes back untouched and uncounted.
    pub fn send_packet(
        &mut self,
        now: Instant,
        header: &[u8; VNET_HEADER_BYTES],
        packet: &mut [u8],
        deliver: &mut impl Deliver,
    ) -> Option<Elsewhere> {
        let parsed = self.state.parse_packet(header, packet)?;
        let destination = parsed.view.destination;
        let role = &self.state.role;
        let session = role
            .ip_by_address
            .get(&destination)
            .and_then(|sessions| sessions.last());
        if let Some(id) = session.copied() {
            self.send_packet_of(now, id, &parsed, packet, deliver);
            return None;
        }
        if role.ip_service.is_some() && !is_confined(destination) {
            return Some(Elsewhere {
                destination,
                flow: parsed.flow,
            });
        }
        self.state.drop_without_session(&parsed, packet);
        None
    }

    /// Nobody in the process has a session for this packet's destination: its sender is told.
    pub fn refuse_packet(
        &mut self,
        now: Instant,
        header: &[u8; VNET_HEADER_BYTES],
        packet: &[u8],
        deliver: &mut impl Deliver,
    ) {
        let header = VnetHeader::decode(header).unwrap_or_default();
        self.state
            .drop_super_packet(&header, packet.len(), DropReason::NoRoute);
        self.state.answer(now, packet, deliver, |packet, from| {
            icmp::unreachable(packet, Unreachable::Address, from)
        });
    }

    /// A packet could not be given to the shard that has its destination's session.
    pub fn drop_handed_over(&mut self, header: &[u8; VNET_HEADER_BYTES], packet: &[u8]) {
        let header = VnetHeader::decode(header).unwrap_or_default();
        self.state
            .drop_super_packet(&header, packet.len(), DropReason::QueueFull);
    }
}

impl State<Server> {
    /// The driver gets a lease back.
    pub(super) fn return_lease(&mut self, owner: Owner, lease: Lease) {
        let addresses = lease.addresses().collect();
        let over = ServerAction::LeaseOver { owner, addresses };
        self.actions.push_back(Action::Role(over));
    }
}
