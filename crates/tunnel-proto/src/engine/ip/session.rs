//! One CONNECT-IP request at either end: its addresses, its routes, its contexts.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::Bytes;
use masque::ip::{self, AddressEntry, ClientId, Extensions, IpCapsuleReader, Prefix, Routes, Scope};
use masque::repair::RepairOffer;
use masque::response::ProxyError;
use masque::split::Splitter;
use masque::{HeaderList, MessageError};

use super::PacketTarget;
use super::control::push_capsule;
use crate::access::Reach;
use crate::client::Acceptance;
use crate::engine::ClientAction;
use crate::engine::handler::{Asker, Handler};
use crate::engine::offer::{ContextOffer, Offer};
use crate::engine::repair::Repair;
use crate::engine::server::lease::{ClientIdentity, Lease};
use crate::limits;

/// Bytes that every IPv6 link carries (RFC 8200 section 5).
const IPV6_MTU_MIN: usize = packet::limits::IPV6_MTU_MIN;

#[derive(Debug)]
pub struct IpSession {
    pub(crate) capsules: IpCapsuleReader,
    pub(crate) splitter: Splitter,
    /// The context of packets in pieces.
    pub(crate) split: ContextOffer,
    /// The context of packets with unfinished checksums.
    pub(crate) checksum: ContextOffer,
    /// The repair of packets that ask for little delay.
    pub(crate) repair: Repair,
    /// Client: the name and run that it is asked for with.
    pub(crate) asked_as: Option<(ClientId, u32)>,
    /// Server: whose it is.
    pub(crate) owner: Option<Owner>,
    /// Server: what the driver leased for it, and gets back when it is over.
    pub(crate) lease: Option<Lease>,
    /// Client: what the server has assigned.
    pub(crate) assigned: Vec<Prefix>,
    /// Client: where packets of the server may come from.
    pub(crate) sources: Routes,
    /// The addresses of the client's end, once they are known.
    pub(crate) addresses: Option<Vec<Prefix>>,
    /// Where the client may send packets to, and what may answer, once it is known.
    pub(crate) routes: Option<Routes>,
    /// Client: the server leases by our name, so that all our sessions have the same addresses (SESSION-12).
    pub(crate) is_by_name: bool,
    /// Client: the server goes by another name, because somebody else uses ours (SESSION-14).
    pub(crate) is_name_taken: bool,
    /// Another client that runs has asked by the same name, and goes by another one (SESSION-15).
    pub(crate) is_name_shared: bool,
    /// Client: the networks that the server leases from, as far as it says (SESSION-13).
    pub(crate) pools: Vec<Prefix>,
    /// Client: the name servers that the server offers.
    pub(crate) name_servers: Vec<IpAddr>,
    /// Client: something was assigned or advertised that the driver has not heard of.
    pub(crate) has_news: bool,
    /// Client: the source and protocol that were found acceptable last.
    pub(crate) accepted_last: Option<(IpAddr, u8)>,
    /// Server: what its user may reach.
    pub(crate) reach: Reach,
    /// Server: the target that was found allowed last.
    pub(crate) allowed_last: Option<PacketTarget>,
}

/// Who holds the lease of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The client.
    pub client: ClientIdentity,
    /// A number that the client draws when it starts; a new one says that its older sessions are dead (SESSION-6).
    pub run: Option<u32>,
}

impl IpSession {
    pub(crate) fn new(split: Option<u64>, checksum: Option<u64>, repair: Option<RepairOffer>) -> Self {
        Self {
            capsules: IpCapsuleReader::new(),
            splitter: Splitter::new(),
            split: Offer::offered(split),
            checksum: Offer::offered(checksum),
            repair: Repair::offered(repair),
            asked_as: None,
            owner: None,
            lease: None,
            assigned: Vec::new(),
            sources: Routes::none(),
            addresses: None,
            routes: None,
            is_by_name: false,
            is_name_taken: false,
            is_name_shared: false,
            pools: Vec::new(),
            name_servers: Vec::new(),
            has_news: false,
            accepted_last: None,
            reach: Reach::default(),
            allowed_last: None,
        }
    }

    /// The addresses of the client's end that are known.
    pub(crate) fn addresses(&self) -> &[Prefix] {
        self.addresses.as_deref().unwrap_or_default()
    }

    /// Client: what is reachable through the tunnel, the networks that the server leases from first; `None` where the
    /// server has not said it yet.
    pub(crate) fn advertised(&self) -> Option<Vec<Prefix>> {
        let routes = self.routes.as_ref()?;
        let others = routes.prefixes().filter(|prefix| !self.pools.contains(prefix));
        let all = self.pools.iter().copied().chain(others);
        Some(all.take(limits::IP_ROUTES_MAX).collect())
    }

    /// Client: of what the server assigned, only what `acceptance` takes is used.
    pub(crate) fn accept_addresses(&mut self, acceptance: &Acceptance) {
        let assigned = self.assigned.iter();
        let taken = assigned.filter(|assigned| acceptance.takes_address(assigned));
        self.addresses = Some(taken.take(limits::CLIENT_ADDRESSES_MAX).copied().collect());
        self.accepted_last = None;
    }

    /// Client: packets come only from where the routes lead that `acceptance` takes.
    pub(crate) fn accept_routes(&mut self, acceptance: &Acceptance) {
        self.sources = acceptance.sources(&self.advertised().unwrap_or_default());
        self.accepted_last = None;
    }

    /// Whether the routes let packets to or from `address` pass.
    pub(crate) fn has_route(&self, address: IpAddr, protocol: u8) -> bool {
        let routes = self.routes.as_ref();
        routes.is_some_and(|routes| routes.allows(address, protocol))
    }

    /// Whether `address` is the client's.
    pub(crate) fn is_of_client(&self, address: IpAddr) -> bool {
        self.addresses().iter().any(|prefix| prefix.contains(address))
    }

    /// The longest packet, in bytes, that goes to the peer, where `room` bytes fit one datagram. Where packets can be split
    /// it is never below what IPv6 needs (RFC 9484 section 7.1), nor with IPv4 alone: a path that QUIC takes for narrower
    /// for a while is nothing that senders have to know.
    pub(crate) fn mtu(&self, room: usize) -> usize {
        if self.split.agreed().is_some() {
            room.max(IPV6_MTU_MIN)
        } else {
            room
        }
    }
}

impl Handler for IpSession {
    fn ask(&self, asker: &Asker<'_>) -> Option<HeaderList> {
        let (client, run) = self.asked_as.unzip();
        let extensions = Extensions {
            client,
            run,
            split: self.split.any(),
            checksum: self.checksum.any(),
            repair: self.repair.offer(),
        };
        let list = ip::connect_ip(asker.authority, &Scope::ANY, asker.bearer, &extensions);
        Some(list)
    }

    /// A client asks for an address of each version.
    fn accepted(&mut self, answer: &HeaderList, output: &mut VecDeque<Bytes>) {
        self.split.answered(masque::request::split_context(answer));
        self.checksum.answered(ip::checksum_context(answer));
        let own = self.asked_as.map(|(name, _)| name);
        let told = ip::client_name(answer);
        self.is_by_name = own.is_some() && told == own;
        self.is_name_taken = own.is_some() && told.is_some_and(|told| Some(told) != own);
        self.is_name_shared = self.is_by_name && ip::shares_name(answer);
        self.pools = ip::pools(answer);
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
    }

    fn refusal(&self, status: u16, error: Option<ProxyError>) -> Option<ClientAction> {
        Some(ClientAction::IpRefused { status, error })
    }

    /// A server has a lease for it.
    fn accept(&mut self) -> HeaderList {
        let client = self.owner.and_then(|owner| match owner.client {
            ClientIdentity::Named(_, name) => Some(ClientId(name)),
            ClientIdentity::Nameless(..) => None,
        });
        ip::accepted(&Extensions {
            client,
            run: None,
            split: self.split.accept(),
            checksum: self.checksum.accept(),
            repair: self.repair.offer(),
        })
    }

    /// A capsule that is cut is malformed (RFC 9297 section 3.3).
    fn check_end(&self) -> Result<(), MessageError> {
        self.capsules.finish()
    }

    /// Of a client's own session its driver hears in other words.
    fn is_of_driver(&self) -> bool {
        self.owner.is_some()
    }
}
