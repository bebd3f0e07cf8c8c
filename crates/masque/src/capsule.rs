//! Capsules (RFC 9297 section 3.2) in the content of a CONNECT-UDP stream: DATAGRAM ones are delivered, others
//! skipped.

use bytes::{Buf, Bytes};
use packet::varint;

use crate::{MessageError, frame::HeaderReader, limits::CAPSULE_BYTES_MAX};

/// Capsule type DATAGRAM (RFC 9297 section 3.5).
const DATAGRAM: u64 = 0x00;

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

#[derive(Debug)]
enum State {
    Header,
    Skip(u64),
    Datagram(Vec<u8>, u64),
}

/// Reads the capsules of one stream.
#[derive(Debug)]
pub struct CapsuleReader {
    header: HeaderReader,
    state: State,
}

impl Default for CapsuleReader {
    fn default() -> Self {
        Self::new()
    }
}

impl CapsuleReader {
    /// A reader at the start of the stream's content.
    #[must_use]
    pub fn new() -> Self {
        Self {
            header: HeaderReader::default(),
            state: State::Header,
        }
    }

    /// Consumes from `input`, content of DATA frames, up to the next capsule of interest; `None` when all of it is
    /// consumed. A capsule that lies whole in `input` is a slice of it.
    pub fn next(&mut self, input: &mut Bytes) -> Option<Capsule> {
        loop {
            match &mut self.state {
                State::Header => match self.header.read(input)? {
                    (DATAGRAM, length) if length > CAPSULE_BYTES_MAX => {
                        self.state = State::Skip(length);
                        return Some(Capsule::Oversized(length));
                    }
                    (DATAGRAM, length) => self.state = State::Datagram(Vec::new(), length),
                    (_, length) => self.state = State::Skip(length),
                },
                State::Skip(0) => self.state = State::Header,
                State::Skip(_) if input.is_empty() => return None,
                State::Skip(left) => {
                    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                    *left -= taken as u64;
                    input.advance(taken);
                }
                State::Datagram(buffer, left) => {
                    let part = input.split_to(input.len().min(*left as usize));
                    *left -= part.len() as u64;
                    let is_whole = *left == 0;
                    if is_whole && buffer.is_empty() {
                        self.state = State::Header;
                        return Some(Capsule::Datagram(part));
                    }
                    buffer.extend_from_slice(&part);
                    if !is_whole {
                        return None;
                    }
                    let datagram = Bytes::from(std::mem::take(buffer));
                    self.state = State::Header;
                    return Some(Capsule::Datagram(datagram));
                }
            }
        }
    }

    /// The content ended.
    ///
    /// # Errors
    /// H3_MESSAGE_ERROR for the stream inside a capsule (RFC 9297 section 3.3).
    pub fn finish(&self) -> Result<(), MessageError> {
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
