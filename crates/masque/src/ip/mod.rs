//! CONNECT-IP (RFC 9484): IP packets through a request.
//!
//! The client names a [`Scope`], the two ends tell each other addresses and routes in capsules ([`IpCapsule`]), and a
//! datagram in context [`PACKET_CONTEXT_ID`] is one IP packet. Between two Gramway peers there may be two contexts
//! more: packets in pieces (specs/split.md) and packets with unfinished checksums (specs/checksum.md), and two for
//! packets that parity repairs (specs/repair.md).

mod address;
mod capsule;
mod client;
mod dns;
mod prefix;
mod request;
mod routes;
mod scope;

pub use address::AddressEntry;
pub(crate) use address::write_address;
pub use capsule::{
    IpCapsule, IpCapsuleReader, address_assign, address_request, dns_assign, route_advertisement,
};
pub use client::ClientId;
pub use prefix::{Prefix, PrefixError};
pub(crate) use request::judge;
pub use request::{
    CHECKSUM_FIELD, CLIENT_FIELD, ConnectIp, Extensions, POOL_FIELD, SHARED_NAME_FIELD, accepted,
    checksum_context, client_name, connect_ip, pools, push_pools, push_shared_name, shares_name,
};
pub use routes::{IpRange, RouteError, Routes};
pub use scope::{Scope, ScopeError, ScopeTarget};

/// Context ID of whole IP packets (RFC 9484 section 6).
pub const PACKET_CONTEXT_ID: u64 = 0;

/// The context ID that our clients offer for packets with unfinished checksums: the next even one after that of the
/// split context.
pub const CHECKSUM_CONTEXT_ID: u64 = crate::split::CONTEXT_ID + 2;
