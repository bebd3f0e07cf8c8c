//! Capsules (RFC 9297 section 3.2): cutting a stream's content into them, and those of CONNECT-UDP, where DATAGRAM
//! ones are delivered and others skipped.

use bytes::{Buf, Bytes};
use packet::varint;

use crate::{MessageError, frame::HeaderReader, limits::CAPSULE_BYTES_MAX};

/// Capsule type DATAGRAM (RFC 9297 section 3.5).
pub(crate) const DATAGRAM: u64 = 0x00;

/// What precedes a UDP payload in a DATAGRAM capsule: type, length, context ID.
pub const PREFIX_BYTES_MAX: usize = 3 * varint::LEN_MAX;

/// A capsule of interest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Capsule {
    /// The HTTP Datagram of a DATAGRAM capsule; see [`split_context`].
    Datagram(Bytes),
    /// A DATAGRAM capsule of so many bytes, above [`CAPSULE_BYTES_MAX`], is being skipped: one drop.
    Oversized(u64),
}

/// Reads the capsules of a CONNECT-UDP stream.
#[derive(Debug, Default)]
pub struct CapsuleReader {
    raw: RawReader,
}

impl CapsuleReader {
    /// A reader at the start of the stream's content.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Consumes from `input`, content of DATA frames, up to the next capsule of interest; `None` when all of it is
    /// consumed. A capsule that lies whole in `input` is a slice of it.
    pub fn next(&mut self, input: &mut Bytes) -> Option<Capsule> {
        let raw = self
            .raw
            .next(input, |kind| (kind == DATAGRAM).then_some(CAPSULE_BYTES_MAX))?;
        Some(match raw {
            Raw::Whole(_, datagram) => Capsule::Datagram(datagram),
            Raw::TooLong(_, length) => Capsule::Oversized(length),
        })
    }

    /// The content ended.
    ///
    /// # Errors
    /// H3_MESSAGE_ERROR for the stream inside a capsule (RFC 9297 section 3.3).
    pub fn finish(&self) -> Result<(), MessageError> {
        self.raw.finish()
    }
}

/// A capsule of a type that its reader asked for.
#[derive(Debug)]
pub(crate) enum Raw {
    /// Type and value.
    Whole(u64, Bytes),
    /// Type and bytes of one that is being skipped.
    TooLong(u64, u64),
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Header,
    Skip(u64),
    /// Inside a value that is kept: its type, what came of it, and the bytes to come.
    Value(u64, Vec<u8>, u64),
}

/// Cuts content into capsules.
#[derive(Debug, Default)]
pub(crate) struct RawReader {
    header: HeaderReader,
    state: State,
}

impl RawReader {
    /// Consumes from `input` up to the next capsule of a type for which `bytes_max` names the longest value that is
    /// kept; others are skipped.
    pub(crate) fn next(&mut self, input: &mut Bytes, bytes_max: impl Fn(u64) -> Option<u64>) -> Option<Raw> {
        loop {
            match &mut self.state {
                State::Header => {
                    let (kind, length) = self.header.read(input)?;
                    match bytes_max(kind) {
                        Some(most) if length <= most => self.state = State::Value(kind, Vec::new(), length),
                        Some(_) => {
                            self.state = State::Skip(length);
                            return Some(Raw::TooLong(kind, length));
                        }
                        None => self.state = State::Skip(length),
                    }
                }
                State::Skip(0) => self.state = State::Header,
                State::Skip(_) if input.is_empty() => return None,
                State::Skip(left) => {
                    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                    *left -= taken as u64;
                    input.advance(taken);
                }
                State::Value(kind, buffer, left) => {
                    let part = input.split_to(input.len().min(*left as usize));
                    *left -= part.len() as u64;
                    if *left > 0 {
                        buffer.extend_from_slice(&part);
                        return None;
                    }
                    let value = if buffer.is_empty() {
                        part
                    } else {
                        buffer.extend_from_slice(&part);
                        Bytes::from(std::mem::take(buffer))
                    };
                    let kind = *kind;
                    self.state = State::Header;
                    return Some(Raw::Whole(kind, value));
                }
            }
        }
    }

    /// The content ended.
    pub(crate) fn finish(&self) -> Result<(), MessageError> {
        match self.state {
            State::Header if self.header.is_empty() => Ok(()),
            State::Skip(0) => Ok(()),
            _ => Err(MessageError::malformed("content ended inside a capsule")),
        }
    }
}

/// Context ID and payload of an HTTP Datagram; `None` where it ends inside the context ID.
#[must_use]
pub fn split_context(mut datagram: Bytes) -> Option<(u64, Bytes)> {
    let (context_id, used) = varint::read(&datagram)?;
    datagram.advance(used);
    Some((context_id, datagram))
}

/// What precedes `payload_bytes` of a DATAGRAM capsule with this context ID: the bytes, and how many of them count.
///
/// # Panics
/// When `context_id` or the length is above [`varint::MAX`].
#[must_use]
pub fn datagram_prefix(context_id: u64, payload_bytes: usize) -> ([u8; PREFIX_BYTES_MAX], usize) {
    let length = varint::len(context_id) as u64 + payload_bytes as u64;
    let mut bytes = [0; PREFIX_BYTES_MAX];
    let mut used = 0;
    for value in [DATAGRAM, length, context_id] {
        let (encoded, encoded_used) = varint::encode(value);
        bytes[used..used + encoded_used].copy_from_slice(&encoded[..encoded_used]);
        used += encoded_used;
    }
    (bytes, used)
}
