//! Bound UDP: one CONNECT-UDP request that reaches many addresses (draft-ietf-masque-connect-udp-listen): its headers
//! and its capsules.
//!
//! The target of such a request is `*`/`*`, and its context 0 is not used. A context is an address, which one end
//! assigns by a capsule and the other one acknowledges or closes. Both ends of ours know contexts of one address only.

use std::net::{IpAddr, SocketAddr};

use bytes::{Buf, Bytes};
use packet::varint;

use crate::capsule::{DATAGRAM, Raw, RawReader};
use crate::context_field::SPLIT_FIELD;
use crate::ip;
use crate::limits::{BIND_CAPSULE_BYTES_MAX, CAPSULE_BYTES_MAX};
use crate::request::WELL_KNOWN;
use crate::{HeaderList, MessageError, response};

/// Request and response field that asks for the extension and accepts it.
pub const FIELD: &str = "connect-udp-bind";

/// Response field with the address of the socket.
pub const ADDRESS_FIELD: &str = "proxy-public-address";

/// The first context ID that our clients assign: those before it are split payloads and, elsewhere, other extensions.
pub const FIRST_CONTEXT_ID: u64 = crate::repair::CONTEXT_ID + 4;

const COMPRESSION_ASSIGN: u64 = 0x11;
const COMPRESSION_ACK: u64 = 0x12;
const COMPRESSION_CLOSE: u64 = 0x13;

/// A request for a bound socket at the proxy at `authority`; `split` offers a context ID.
#[must_use]
pub fn bind(authority: &str, bearer: &str, split: Option<u64>) -> HeaderList {
    let mut list = HeaderList::new()
        .with(":method", "CONNECT")
        .with(":protocol", "connect-udp")
        .with(":scheme", "https")
        .with(":path", format!("{WELL_KNOWN}%2A/%2A/"))
        .with(":authority", authority)
        .with("capsule-protocol", "?1")
        .with("authorization", format!("Bearer {bearer}"))
        .with(FIELD, "?1");
    if let Some(context_id) = split {
        list.push(SPLIT_FIELD, context_id.to_string());
    }
    list
}

/// The acceptance of such a request: the socket has this address; `split` echoes the context ID that was offered.
#[must_use]
pub fn accepted(address: SocketAddr, split: Option<u64>) -> HeaderList {
    response::connect_udp_accepted(split)
        .with(FIELD, "?1")
        .with(ADDRESS_FIELD, format!("\"{address}\""))
}

/// The first address of the socket, where the server has accepted the extension.
#[must_use]
pub fn address_of(list: &HeaderList) -> Option<SocketAddr> {
    let text = std::str::from_utf8(list.only(ADDRESS_FIELD)?).ok()?;
    let (address, _) = text.trim_start_matches(' ').strip_prefix('"')?.split_once('"')?;
    let address = address.parse().ok()?;
    is_bind(list).then_some(address)
}

/// Whether the list asks for the extension, or accepts it.
pub(crate) fn is_bind(list: &HeaderList) -> bool {
    crate::request::is_true(list, FIELD)
}

/// Whether a variable of the path stands for no target.
pub(crate) fn is_any(variable: &str) -> bool {
    matches!(variable, "*" | "%2A" | "%2a")
}

/// A capsule of interest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BindCapsule {
    /// The HTTP Datagram of a DATAGRAM capsule; see [`crate::capsule::split_context`].
    Datagram(Bytes),
    /// A DATAGRAM capsule of so many bytes, above [`CAPSULE_BYTES_MAX`], is being skipped: one drop.
    Oversized(u64),
    /// A context is to stand for an address, or for none: then each datagram names its own.
    Assign {
        /// Which context; not 0.
        context_id: u64,
        /// What it stands for.
        address: Option<SocketAddr>,
    },
    /// The other end takes the context.
    Ack(u64),
    /// The context is refused, or over.
    Close(u64),
}

impl BindCapsule {
    /// Its bytes, where it is one of contexts.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        let mut value = Vec::with_capacity(BIND_CAPSULE_BYTES_MAX as usize);
        let kind = match self {
            Self::Assign { context_id, address } => {
                varint::write(*context_id, &mut value);
                match address {
                    Some(address) => {
                        ip::write_address(address.ip(), true, &mut value);
                        value.extend(address.port().to_be_bytes());
                    }
                    None => value.push(0),
                }
                COMPRESSION_ASSIGN
            }
            Self::Ack(context_id) => {
                varint::write(*context_id, &mut value);
                COMPRESSION_ACK
            }
            Self::Close(context_id) => {
                varint::write(*context_id, &mut value);
                COMPRESSION_CLOSE
            }
            Self::Datagram(_) | Self::Oversized(_) => return None,
        };
        let mut bytes = Vec::with_capacity(2 + value.len());
        varint::write(kind, &mut bytes);
        varint::write(value.len() as u64, &mut bytes);
        bytes.extend(value);
        Some(bytes)
    }
}

/// Reads the capsules of a bound request's stream.
#[derive(Debug, Default)]
pub struct BindCapsuleReader {
    raw: RawReader,
}

impl BindCapsuleReader {
    /// Consumes from `input`, content of DATA frames, up to the next capsule of interest; `None` when all of it is
    /// consumed.
    ///
    /// # Errors
    /// The stream fails by a malformed capsule.
    pub fn next(&mut self, input: &mut Bytes) -> Result<Option<BindCapsule>, MessageError> {
        let (kind, value) = match self.raw.next(input, bytes_max) {
            None => return Ok(None),
            Some(Raw::TooLong(DATAGRAM, length)) => return Ok(Some(BindCapsule::Oversized(length))),
            Some(Raw::TooLong(..)) => return Err(MALFORMED),
            Some(Raw::Whole(kind, value)) => (kind, value),
        };
        if kind == DATAGRAM {
            return Ok(Some(BindCapsule::Datagram(value)));
        }
        read(kind, value).map(Some).ok_or(MALFORMED)
    }

    /// The content ended.
    ///
    /// # Errors
    /// H3_MESSAGE_ERROR for the stream inside a capsule (RFC 9297 section 3.3).
    pub fn finish(&self) -> Result<(), MessageError> {
        self.raw.finish()
    }
}

/// A capsule breaks a rule of contexts: the request fails (RFC 9297 section 3.3).
pub const MALFORMED: MessageError = MessageError::malformed("capsule of a context that breaks a rule");

/// Bytes of the longest capsule of this type that is taken; `None` for what is skipped.
const fn bytes_max(kind: u64) -> Option<u64> {
    match kind {
        DATAGRAM => Some(CAPSULE_BYTES_MAX),
        COMPRESSION_ASSIGN | COMPRESSION_ACK | COMPRESSION_CLOSE => Some(BIND_CAPSULE_BYTES_MAX),
        _ => None,
    }
}

fn read(kind: u64, mut value: Bytes) -> Option<BindCapsule> {
    let (context_id, used) = varint::read(&value).filter(|(id, _)| *id != 0)?;
    value.advance(used);
    let capsule = match kind {
        COMPRESSION_ACK => BindCapsule::Ack(context_id),
        COMPRESSION_CLOSE => BindCapsule::Close(context_id),
        _ => BindCapsule::Assign {
            context_id,
            address: read_address(&mut value)?,
        },
    };
    value.is_empty().then_some(capsule)
}

/// `Some(None)` for no address; `None` where it cannot be read.
fn read_address(value: &mut Bytes) -> Option<Option<SocketAddr>> {
    let ip = match take::<1>(value)? {
        [0] => return Some(None),
        [4] => IpAddr::from(take::<4>(value)?),
        [6] => IpAddr::from(take::<16>(value)?),
        _ => return None,
    };
    Some(Some(SocketAddr::new(ip, u16::from_be_bytes(take(value)?))))
}

fn take<const BYTES: usize>(value: &mut Bytes) -> Option<[u8; BYTES]> {
    let taken = value.first_chunk().copied()?;
    value.advance(BYTES);
    Some(taken)
}
