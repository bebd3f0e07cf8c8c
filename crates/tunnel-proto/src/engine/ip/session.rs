//! One CONNECT-IP request at either end: its addresses, its routes, its contexts.

use std::net::IpAddr;

use masque::ip::{IpCapsuleReader, Prefix, Routes};
use masque::repair::RepairOffer;
use masque::split::Splitter;

use crate::engine::offer::{ContextOffer, Offer};
use crate::engine::repair::Repair;
use crate::engine::server::lease::{ClientIdentity, Lease};

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
    /// Server: whose it is.
    pub(crate) owner: Option<Owner>,
    /// Server: what the driver leased for it, and gets back when it is over.
    pub(crate) lease: Option<Lease>,
    /// The addresses of the client's end, once they are known.
    pub(crate) addresses: Option<Vec<Prefix>>,
    /// Where the client may send packets to, and what may answer, once it is known.
    pub(crate) routes: Option<Routes>,
    /// Client: the server leases by our name, so that all our sessions have the same addresses (SESSION-12).
    pub(crate) is_by_name: bool,
    /// Client: something was assigned or advertised that the driver has not heard of.
    pub(crate) has_news: bool,
    /// Server: the destination and port that were found allowed last.
    pub(crate) allowed_last: Option<(IpAddr, u16)>,
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
            owner: None,
            lease: None,
            addresses: None,
            routes: None,
            is_by_name: false,
            has_news: false,
            allowed_last: None,
        }
    }

    /// The addresses of the client's end that are known.
    pub(crate) fn addresses(&self) -> &[Prefix] {
        self.addresses.as_deref().unwrap_or_default()
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

    /// The longest packet, in bytes, that goes to the peer, where `room` bytes fit one datagram. Never below what IPv6
    /// needs where the client has an IPv6 address and packets can be split (RFC 9484 section 7.1).
    pub(crate) fn mtu(&self, room: usize) -> usize {
        let has_ipv6 = self.addresses().iter().any(|prefix| prefix.address().is_ipv6());
        if has_ipv6 && self.split.agreed().is_some() {
            room.max(IPV6_MTU_MIN)
        } else {
            room
        }
    }
}
