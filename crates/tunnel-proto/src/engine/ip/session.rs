//! One CONNECT-IP request at either end: its addresses, its routes, its contexts.

use std::net::IpAddr;

use masque::ip::{IpCapsuleReader, Prefix, Routes};
use masque::repair::RepairOffer;
use masque::split::Splitter;

use crate::engine::repair::Repair;
use crate::engine::server::lease::ClientIdentity;

/// Bytes that every IPv6 link carries (RFC 8200 section 5).
const IPV6_MTU_MIN: usize = packet::limits::IPV6_MTU_MIN;

#[derive(Debug)]
pub struct IpSession {
    pub(crate) capsules: IpCapsuleReader,
    pub(crate) splitter: Splitter,
    /// The context of packets in pieces: offered while the request is not answered, then agreed on or `None`.
    pub(crate) split: Option<u64>,
    /// The context of packets with unfinished checksums, likewise.
    pub(crate) checksum: Option<u64>,
    /// The repair of packets that ask for little delay, likewise.
    pub(crate) repair: Repair,
    /// Server: whose it is.
    pub(crate) owner: Option<Owner>,
    /// The addresses of the client's end.
    pub(crate) addresses: Vec<Prefix>,
    /// Where the client may send packets to, and what may answer.
    pub(crate) routes: Routes,
    /// Client: the server leases by our name, so that all our sessions have the same addresses (SESSION-12).
    pub(crate) is_by_name: bool,
    /// Client: an ADDRESS_ASSIGN has come.
    pub(crate) addresses_known: bool,
    /// Client: a ROUTE_ADVERTISEMENT has come.
    pub(crate) routes_known: bool,
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
            split,
            checksum,
            repair: Repair::offered(repair),
            owner: None,
            addresses: Vec::new(),
            routes: Routes::none(),
            is_by_name: false,
            addresses_known: false,
            routes_known: false,
            has_news: false,
            allowed_last: None,
        }
    }

    /// Whether `address` is the client's.
    pub(crate) fn is_of_client(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|prefix| prefix.contains(address))
    }

    /// The longest packet, in bytes, that goes to the peer, where `room` bytes fit one datagram. Never below what IPv6
    /// needs where the client has an IPv6 address and packets can be split (RFC 9484 section 7.1).
    pub(crate) fn mtu(&self, room: usize) -> usize {
        let has_ipv6 = self.addresses.iter().any(|prefix| prefix.address().is_ipv6());
        if has_ipv6 && self.split.is_some() {
            room.max(IPV6_MTU_MIN)
        } else {
            room
        }
    }
}
