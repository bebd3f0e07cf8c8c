//! The DNS_ASSIGN capsule (draft-ietf-masque-connect-ip-dns-05): name servers that the peer may ask.
//!
//! Of what it can say, plain name servers for every name are of use here. A configuration for some domains only, and
//! servers that need an encrypted transport, are read past.

use std::net::IpAddr;

use packet::varint;

use super::address::{take_address, take_byte, write_address};
use crate::MessageError;
use crate::limits::NAME_SERVERS_MAX;

/// The type that the draft uses until one is assigned.
pub(super) const DNS_ASSIGN: u64 = 0x1ace_79ec;

/// The priority of a server like any other (RFC 9460 section 2.4.1); 0 is an alias, which names no server.
const PRIORITY: u16 = 1;

const SHORT: &str = "DNS_ASSIGN ends inside an entry";

/// The value of a capsule that names these servers for all names.
pub(super) fn write(servers: &[IpAddr]) -> Vec<u8> {
    let mut out = Vec::new();
    varint::write(servers.len() as u64, &mut out);
    for server in servers {
        out.extend(PRIORITY.to_be_bytes());
        // One address of its version, and none of the other.
        match server {
            IpAddr::V4(_) => {
                out.push(1);
                write_address(*server, false, &mut out);
                out.push(0);
            }
            IpAddr::V6(_) => {
                out.extend([0, 1]);
                write_address(*server, false, &mut out);
            }
        }
        // No name to authenticate it by, and no parameters: plain DNS at port 53.
        out.extend([0, 0]);
    }
    // One internal domain, the root, and no search domain.
    out.extend([1, 0, 0]);
    out
}

/// The plain name servers that a capsule names for all names, at most [`NAME_SERVERS_MAX`].
pub(super) fn read(mut value: &[u8]) -> Result<Vec<IpAddr>, MessageError> {
    read_all(&mut value).map_err(MessageError::malformed)
}

fn read_all(input: &mut &[u8]) -> Result<Vec<IpAddr>, &'static str> {
    let mut servers = Vec::new();
    for _ in 0..take_number(input)? {
        let addresses = take_server(input)?;
        let room = NAME_SERVERS_MAX - servers.len();
        servers.extend(addresses.into_iter().take(room));
    }
    let internal_domains = take_number(input)?;
    let mut is_for_all_names = internal_domains == 0;
    for _ in 0..internal_domains {
        is_for_all_names |= take_bytes(input)?.is_empty();
    }
    for _ in 0..take_number(input)? {
        take_bytes(input)?;
    }
    if !input.is_empty() {
        return Err("DNS_ASSIGN goes on behind its configuration");
    }
    Ok(if is_for_all_names { servers } else { Vec::new() })
}

/// The addresses of one entry; none where it is no plain name server.
fn take_server(input: &mut &[u8]) -> Result<Vec<IpAddr>, &'static str> {
    let priority = [take_byte(input)?, take_byte(input)?];
    let mut addresses = Vec::new();
    for is_ipv6 in [false, true] {
        for _ in 0..take_number(input)? {
            addresses.push(take_address(input, is_ipv6)?);
        }
    }
    let (name, parameters) = (take_bytes(input)?, take_bytes(input)?);
    let is_plain = priority != [0, 0] && name.is_empty() && parameters.is_empty();
    Ok(if is_plain { addresses } else { Vec::new() })
}

fn take_number(input: &mut &[u8]) -> Result<u64, &'static str> {
    let (number, used) = varint::read(input).ok_or(SHORT)?;
    *input = &input[used..];
    Ok(number)
}

/// What stands behind its length.
fn take_bytes<'a>(input: &mut &'a [u8]) -> Result<&'a [u8], &'static str> {
    let length = usize::try_from(take_number(input)?).map_err(|_| SHORT)?;
    let (bytes, rest) = input.split_at_checked(length).ok_or(SHORT)?;
    *input = rest;
    Ok(bytes)
}
