//! Where SOCKS leads: an address of IPv4 or IPv6, or a name, and a port (RFC 1928 section 5).

use std::net::{Ipv4Addr, Ipv6Addr};

use masque::{Target, TargetError};

/// Kinds of address.
pub(super) const IPV4: u8 = 1;
const NAME: u8 = 3;
pub(super) const IPV6: u8 = 4;

/// An address as it was written, from its kind to its port.
#[derive(Clone, Copy)]
pub(super) struct Address<'a> {
    host: Host<'a>,
    port: u16,
}

#[derive(Clone, Copy)]
enum Host<'a> {
    V4(Ipv4Addr),
    V6(Ipv6Addr),
    Name(&'a [u8]),
}

/// Why bytes begin with no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadError {
    /// More bytes have to come.
    Short,
    /// A kind that RFC 1928 does not have.
    Kind,
}

impl<'a> Address<'a> {
    /// The address that `bytes` begin with, and what follows it.
    pub(super) fn read(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), ReadError> {
        let (kind, rest) = bytes.split_first().ok_or(ReadError::Short)?;
        let (host, rest) = match *kind {
            IPV4 => {
                let (octets, rest) = rest.split_first_chunk::<4>().ok_or(ReadError::Short)?;
                (Host::V4(Ipv4Addr::from(*octets)), rest)
            }
            IPV6 => {
                let (octets, rest) = rest.split_first_chunk::<16>().ok_or(ReadError::Short)?;
                (Host::V6(Ipv6Addr::from(*octets)), rest)
            }
            NAME => {
                let (length, rest) = rest.split_first().ok_or(ReadError::Short)?;
                let name = rest.split_at_checked(usize::from(*length));
                let (name, rest) = name.ok_or(ReadError::Short)?;
                (Host::Name(name), rest)
            }
            _ => return Err(ReadError::Kind),
        };
        let (port, rest) = rest.split_first_chunk::<2>().ok_or(ReadError::Short)?;
        let port = u16::from_be_bytes(*port);
        Ok((Self { host, port }, rest))
    }

    /// Where it leads.
    pub(super) fn target(&self) -> Result<Target, TargetError> {
        let host = match self.host {
            Host::V4(address) => address.to_string(),
            Host::V6(address) => address.to_string(),
            // What is no name is lossy here and no target.
            Host::Name(name) => String::from_utf8_lossy(name).into_owned(),
        };
        Target::new(&host, self.port)
    }
}
