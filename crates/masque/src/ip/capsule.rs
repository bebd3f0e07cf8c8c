//! The capsules of a CONNECT-IP stream (RFC 9484 section 4.7): reading them within bounds, and writing them.
//!
//! A capsule that breaks a rule makes the message malformed (RFC 9297 section 3.3); one beyond our bounds is
//! H3_EXCESSIVE_LOAD. Either costs the request. Unknown capsules are skipped.

use std::net::IpAddr;

use bytes::Bytes;
use packet::varint;

use super::address::{AddressEntry, ENTRY_BYTES_MAX, take_address, take_byte, take_version, write_address};
use super::dns::{self, DNS_ASSIGN};
use super::routes::{IpRange, Routes};
use crate::capsule::{DATAGRAM, Raw, RawReader};
use crate::limits::{ADDRESSES_MAX, CAPSULE_BYTES_MAX, DNS_BYTES_MAX, ROUTES_MAX};
use crate::{Code, MessageError};

const ADDRESS_ASSIGN: u64 = 0x01;
const ADDRESS_REQUEST: u64 = 0x02;
const ROUTE_ADVERTISEMENT: u64 = 0x03;

/// Bytes of the longest range: version, two IPv6 addresses, protocol.
const RANGE_BYTES_MAX: usize = 1 + 16 + 16 + 1;

/// A capsule of interest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IpCapsule {
    /// The HTTP Datagram of a DATAGRAM capsule; see [`crate::capsule::split_context`].
    Datagram(Bytes),
    /// A DATAGRAM capsule of so many bytes, above [`CAPSULE_BYTES_MAX`], is being skipped: one drop.
    Oversized(u64),
    /// All addresses that the peer lets us use; addresses of earlier capsules that are missing are gone.
    AddressAssign(Vec<AddressEntry>),
    /// The peer asks for addresses, one or more; each entry wants an answer.
    AddressRequest(Vec<AddressEntry>),
    /// All ranges that the peer routes for us; what earlier capsules said is over.
    RouteAdvertisement(Routes),
    /// All name servers that the peer offers; those of earlier capsules are over.
    DnsAssign(Vec<IpAddr>),
}

/// Reads the capsules of one stream.
#[derive(Debug, Default)]
pub struct IpCapsuleReader {
    raw: RawReader,
}

impl IpCapsuleReader {
    /// A reader at the start of the stream's content.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Consumes from `input`, content of DATA frames, up to the next capsule of interest; `None` when all of it is
    /// consumed.
    ///
    /// # Errors
    /// The stream fails: a malformed capsule, or one with more entries than [`ADDRESSES_MAX`] or [`ROUTES_MAX`].
    pub fn next(&mut self, input: &mut Bytes) -> Result<Option<IpCapsule>, MessageError> {
        loop {
            let (kind, value) = match self.raw.next(input, bytes_max) {
                None => return Ok(None),
                Some(Raw::TooLong(DATAGRAM, length)) => return Ok(Some(IpCapsule::Oversized(length))),
                // A company's list of domains may be long, and says nothing that is used here.
                Some(Raw::TooLong(DNS_ASSIGN, _)) => continue,
                Some(Raw::TooLong(..)) => {
                    return Err(MessageError::stream(
                        Code::ExcessiveLoad,
                        "capsule with too many addresses or routes",
                    ));
                }
                Some(Raw::Whole(kind, value)) => (kind, value),
            };
            let capsule = match kind {
                DATAGRAM => Ok(IpCapsule::Datagram(value)),
                ADDRESS_ASSIGN => read_addresses(&value).map(IpCapsule::AddressAssign),
                ADDRESS_REQUEST => read_request(&value).map(IpCapsule::AddressRequest),
                DNS_ASSIGN => dns::read(&value).map(IpCapsule::DnsAssign),
                _ => read_routes(&value).map(IpCapsule::RouteAdvertisement),
            };
            return capsule.map(Some);
        }
    }

    /// The content ended.
    ///
    /// # Errors
    /// H3_MESSAGE_ERROR for the stream inside a capsule (RFC 9297 section 3.3).
    pub fn finish(&self) -> Result<(), MessageError> {
        self.raw.finish()
    }
}

/// Bytes of the longest capsule of this type that is taken; `None` for what is skipped.
const fn bytes_max(kind: u64) -> Option<u64> {
    match kind {
        DATAGRAM => Some(CAPSULE_BYTES_MAX),
        ADDRESS_ASSIGN | ADDRESS_REQUEST => Some((ADDRESSES_MAX * ENTRY_BYTES_MAX) as u64),
        ROUTE_ADVERTISEMENT => Some((ROUTES_MAX * RANGE_BYTES_MAX) as u64),
        DNS_ASSIGN => Some(DNS_BYTES_MAX),
        _ => None,
    }
}

/// Reads entries up to the end of `value`, at most `count_max`.
fn read_all<T>(
    mut value: &[u8],
    count_max: usize,
    take: impl Fn(&mut &[u8]) -> Result<T, &'static str>,
) -> Result<Vec<T>, MessageError> {
    let mut entries = Vec::new();
    while !value.is_empty() {
        if entries.len() == count_max {
            let reason = "capsule with too many addresses or routes";
            return Err(MessageError::stream(Code::ExcessiveLoad, reason));
        }
        entries.push(take(&mut value).map_err(MessageError::malformed)?);
    }
    Ok(entries)
}

fn read_addresses(value: &[u8]) -> Result<Vec<AddressEntry>, MessageError> {
    read_all(value, ADDRESSES_MAX, AddressEntry::take)
}

fn read_request(value: &[u8]) -> Result<Vec<AddressEntry>, MessageError> {
    let entries = read_addresses(value)?;
    if entries.is_empty() {
        return Err(MessageError::malformed("ADDRESS_REQUEST asks for nothing"));
    }
    for (index, entry) in entries.iter().enumerate() {
        let is_used = entries[..index]
            .iter()
            .any(|before| before.request_id == entry.request_id);
        if entry.request_id == 0 || is_used {
            return Err(MessageError::malformed(
                "ADDRESS_REQUEST with a request ID that is 0 or used twice",
            ));
        }
    }
    Ok(entries)
}

fn read_routes(value: &[u8]) -> Result<Routes, MessageError> {
    let ranges = read_all(value, ROUTES_MAX, |input| {
        let is_ipv6 = take_version(input)?;
        let start = take_address(input, is_ipv6)?;
        let end = take_address(input, is_ipv6)?;
        let protocol = take_byte(input)?;
        IpRange::new(start, end, protocol).map_err(|_| "range of addresses ends before it starts")
    })?;
    Routes::checked(ranges)
        .map_err(|_| MessageError::malformed("ROUTE_ADVERTISEMENT with ranges out of order, or overlapping"))
}

/// An ADDRESS_ASSIGN capsule: all addresses that the peer may use, and refusals of what it has just asked for.
///
/// # Panics
/// When a request ID is above [`varint::MAX`].
#[must_use]
pub fn address_assign(entries: &[AddressEntry]) -> Vec<u8> {
    capsule_of_addresses(ADDRESS_ASSIGN, entries)
}

/// An ADDRESS_REQUEST capsule.
///
/// # Panics
/// When it asks for nothing, or a request ID is 0 or above [`varint::MAX`].
#[must_use]
pub fn address_request(entries: &[AddressEntry]) -> Vec<u8> {
    assert!(!entries.is_empty(), "ADDRESS_REQUEST asks for something");
    assert!(
        entries.iter().all(|entry| entry.request_id != 0),
        "request IDs are not 0"
    );
    capsule_of_addresses(ADDRESS_REQUEST, entries)
}

/// A ROUTE_ADVERTISEMENT capsule.
#[must_use]
pub fn route_advertisement(routes: &Routes) -> Vec<u8> {
    let mut value = Vec::with_capacity(routes.ranges().len() * RANGE_BYTES_MAX);
    for range in routes.ranges() {
        write_address(range.start(), true, &mut value);
        write_address(range.end(), false, &mut value);
        value.push(range.protocol());
    }
    capsule(ROUTE_ADVERTISEMENT, &value)
}

/// A DNS_ASSIGN capsule: these name servers for all names (SESSION-16).
#[must_use]
pub fn dns_assign(servers: &[IpAddr]) -> Vec<u8> {
    capsule(DNS_ASSIGN, &dns::write(servers))
}

fn capsule_of_addresses(kind: u64, entries: &[AddressEntry]) -> Vec<u8> {
    let mut value = Vec::with_capacity(entries.len() * ENTRY_BYTES_MAX);
    for entry in entries {
        entry.write(&mut value);
    }
    capsule(kind, &value)
}

fn capsule(kind: u64, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 * varint::LEN_MAX + value.len());
    varint::write(kind, &mut out);
    varint::write(value.len() as u64, &mut out);
    out.extend_from_slice(value);
    out
}
