//! Entries of ADDRESS_ASSIGN and ADDRESS_REQUEST (RFC 9484 sections 4.7.1 and 4.7.2), which have one form.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packet::varint;

use super::prefix::Prefix;

/// Bytes of the longest entry: request ID, version, IPv6 address, prefix length.
pub(super) const ENTRY_BYTES_MAX: usize = varint::LEN_MAX + 1 + 16 + 1;

/// An address that is asked for or assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AddressEntry {
    /// In a request: its number, not 0, never used twice. In an assignment: the number of the request that it
    /// answers, or 0.
    pub request_id: u64,
    /// What is assigned. In a request the address 0.0.0.0 or :: stands for any address of that version.
    pub prefix: Prefix,
}

impl AddressEntry {
    /// An assignment that nobody asked for.
    #[must_use]
    pub const fn unasked(prefix: Prefix) -> Self {
        Self {
            request_id: 0,
            prefix,
        }
    }

    /// The answer to a request that no address was found: 0.0.0.0/32 or ::/128.
    #[must_use]
    pub const fn refusing(request: &Self) -> Self {
        let address = match request.prefix.address() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        Self {
            request_id: request.request_id,
            prefix: Prefix::host(address),
        }
    }

    /// Whether, in an assignment, it says that no address was found.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        self.prefix.is_host() && self.prefix.address().is_unspecified()
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        varint::write(self.request_id, out);
        write_address(self.prefix.address(), true, out);
        out.push(self.prefix.length());
    }

    /// Takes an entry from the front of `input`.
    pub(super) fn take(input: &mut &[u8]) -> Result<Self, &'static str> {
        let (request_id, used) = varint::read(input).ok_or("address capsule ends inside a request ID")?;
        *input = &input[used..];
        let is_ipv6 = take_version(input)?;
        let address = take_address(input, is_ipv6)?;
        let length = take_byte(input)?;
        let prefix = Prefix::new(address, length)
            .map_err(|_| "address has bits beyond its prefix length, or too few")?;
        Ok(Self { request_id, prefix })
    }
}

/// Writes an address, with its version in front where it is the first of its entry.
pub(crate) fn write_address(address: IpAddr, with_version: bool, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => {
            out.extend(with_version.then_some(4));
            out.extend(address.octets());
        }
        IpAddr::V6(address) => {
            out.extend(with_version.then_some(6));
            out.extend(address.octets());
        }
    }
}

/// Whether the version in front of an entry is 6.
pub(super) fn take_version(input: &mut &[u8]) -> Result<bool, &'static str> {
    match take_byte(input)? {
        4 => Ok(false),
        6 => Ok(true),
        _ => Err("IP version is neither 4 nor 6"),
    }
}

pub(super) fn take_address(input: &mut &[u8], is_ipv6: bool) -> Result<IpAddr, &'static str> {
    const SHORT: &str = "address capsule ends inside an address";
    if is_ipv6 {
        let (octets, rest) = input.split_first_chunk::<16>().ok_or(SHORT)?;
        *input = rest;
        return Ok(Ipv6Addr::from_octets(*octets).into());
    }
    let (octets, rest) = input.split_first_chunk::<4>().ok_or(SHORT)?;
    *input = rest;
    Ok(Ipv4Addr::from_octets(*octets).into())
}

pub(super) fn take_byte(input: &mut &[u8]) -> Result<u8, &'static str> {
    let (byte, rest) = input
        .split_first()
        .ok_or("address capsule ends inside an entry")?;
    *input = rest;
    Ok(*byte)
}
