//! Messages of the control stream: their types, encoding, and the decoder that takes the stream's bytes as they come.

use std::net::{IpAddr, SocketAddr};

use packet::varint;
use thiserror::Error;

use crate::content::{Address, Root};
use crate::entry::{Entry, EntryId};
use crate::limits::{
    ADDRESSES_MAX, EXTENSIONS_MAX, HASHES_MAX, MESSAGE_BYTES_MAX, RANGES_MAX, TEXT_BYTES_MAX,
};
use crate::ranges::Ranges;
use crate::reason::{FailReason, SkipReason};
use crate::wire::{Input, Malformed, put, put_bytes, put_text};

/// The version of the protocol (FILE-2).
pub const VERSION: u64 = 1;

/// A message of the control stream, of either end (FILE-5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The first of each end.
    Hello(Hello),
    /// Sender: one thing that is offered.
    Entry(Entry),
    /// Sender: everything in a directory has been offered.
    DirectoryEnd {
        /// The directory.
        entry: EntryId,
    },
    /// Sender: everything has been offered.
    OfferEnd {
        /// How many entries there are.
        entries: u64,
        /// Bytes of all files.
        bytes: u64,
    },
    /// Sender: addresses of the chunks of a file, for ASK.
    Hashes {
        /// The file.
        entry: EntryId,
        /// The chunk that the first address is of.
        first: u64,
        /// Addresses of chunks one after the other.
        addresses: Vec<Address>,
    },
    /// Sender: the file has been read to its end.
    FileEnd {
        /// The file.
        entry: EntryId,
        /// Its bytes, when it was read.
        size: u64,
        /// Its hash.
        root: Root,
    },
    /// Receiver: chunks to send.
    Want {
        /// The file.
        entry: EntryId,
        /// Its chunks.
        chunks: Ranges,
    },
    /// Receiver: the entry is not wanted.
    Skip {
        /// Which.
        entry: EntryId,
        /// Why.
        reason: SkipReason,
    },
    /// Receiver: asks for the addresses of all chunks of a file.
    Ask {
        /// The file.
        entry: EntryId,
    },
    /// Receiver: chunks that were verified and written.
    Ack {
        /// The file.
        entry: EntryId,
        /// Its chunks.
        chunks: Ranges,
    },
    /// Receiver: entries that are complete in their places.
    Stored {
        /// Which.
        entries: Ranges,
    },
    /// Either: nothing more comes of this entry.
    Failed {
        /// Which.
        entry: EntryId,
        /// Why.
        reason: FailReason,
        /// What the system said, for people.
        text: String,
    },
    /// Sender: something was to be sent and is not offered (FILE-44).
    Unoffered {
        /// Why.
        reason: FailReason,
        /// Its path below what the user named, for people.
        path: String,
        /// What the system said, for people.
        text: String,
    },
    /// Either: this end has nothing left to do.
    Done(Totals),
    /// Either: the transfer ends here.
    Abort {
        /// Why, for people.
        text: String,
    },
    /// The end that can be reached: TCP connections are accepted.
    TcpOffer(TcpOffer),
    /// The other end: the key that it proves in TCP connections.
    TcpKey {
        /// An Ed25519 public key made for this transfer.
        key: [u8; 32],
    },
    /// Either: what a carrier did at this end since the last one.
    Measure(Measure),
    /// Sender: which carrier the chunks take from here.
    Choice {
        /// Which.
        carrier: CarrierKind,
        /// Why, for people.
        text: String,
    },
    /// Either: what holds this end up from here on.
    Held {
        /// What.
        by: Hindrance,
    },
}

/// What holds one end up (FILE-41).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hindrance {
    /// Nothing that is worth telling, or something that this version does not know.
    #[default]
    Nothing,
    /// The path to the other end, or the other end.
    Network,
    /// Reading or writing files or pipes.
    Disk,
    /// The rate that its user allows.
    Limit,
}

impl Hindrance {
    fn code(self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Network => 1,
            Self::Disk => 2,
            Self::Limit => 3,
        }
    }

    fn of(code: u64) -> Self {
        match code {
            1 => Self::Network,
            2 => Self::Disk,
            3 => Self::Limit,
            _ => Self::Nothing,
        }
    }
}

/// The first message of each end (FILE-2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The highest version that this end speaks; the lower one of both holds.
    pub version: u64,
    /// Whether this end sends files.
    pub sender: bool,
    /// What else it can do: number and value. Those that an end does not know are ignored.
    pub extensions: Vec<(u64, Vec<u8>)>,
}

/// Why two ends cannot transfer files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HelloError {
    /// Both send, or both receive.
    #[error("both ends {} files: start `gramway {}` at one of them", if *.senders { "send" } else { "receive" }, if *.senders { "receive" } else { "send" })]
    SameRole {
        /// What both do.
        senders: bool,
    },
    /// Version 0.
    #[error("the other end speaks version 0, which there is not: update it")]
    Version,
}

/// Extension of a receiver that passes a pipe on as it comes, and takes pieces of its chunks (FILE-39).
pub const PIECES: u64 = 1;

/// Extension of a receiver that only looks at what is offered, and wants nothing (FILE-40).
pub const LOOK: u64 = 2;

impl Hello {
    /// Whether this end has an extension, whatever its value.
    #[must_use]
    pub fn has(&self, extension: u64) -> bool {
        self.extensions.iter().any(|(number, _)| *number == extension)
    }

    /// The version that holds between this end and the `other` one (FILE-2).
    ///
    /// # Errors
    /// They cannot transfer files.
    pub fn agree(&self, other: &Self) -> Result<u64, HelloError> {
        if self.sender == other.sender {
            return Err(HelloError::SameRole { senders: self.sender });
        }
        match self.version.min(other.version) {
            0 => Err(HelloError::Version),
            version => Ok(version),
        }
    }
}

/// What an end did, for the other one's report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Files, links and directories that were stored.
    pub stored: u64,
    /// Those that were not wanted.
    pub skipped: u64,
    /// Those that failed.
    pub failed: u64,
    /// Bytes of files that were sent, before compression.
    pub bytes: u64,
    /// Bytes of files that were there already.
    pub bytes_there: u64,
}

/// Where and with which key TCP connections are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpOffer {
    /// Where.
    pub addresses: Vec<SocketAddr>,
    /// The Ed25519 public key that the accepting end proves, made for this transfer.
    pub key: [u8; 32],
}

/// What carries chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CarrierKind {
    /// QUIC streams of the peers' connection.
    Quic,
    /// TCP connections with TLS 1.3.
    Tcp,
}

/// What a carrier did at one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// Which.
    pub carrier: CarrierKind,
    /// Bytes of records.
    pub bytes: u64,
    /// In how many nanoseconds.
    pub elapsed_ns: u64,
    /// Nanoseconds of processor time that it took at this end.
    pub cpu_ns: u64,
}

/// A control stream that breaks FILE-3 or FILE-5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MessageError {
    /// A value above [`MESSAGE_BYTES_MAX`].
    #[error(
        "the other end sent a control message of {0} bytes, where {MESSAGE_BYTES_MAX} are the most: end the transfer"
    )]
    TooLong(u64),
    /// A value that does not hold what its type says.
    #[error("the other end sent a control message of type {0} that cannot be read: end the transfer")]
    Malformed(u64),
}

const HELLO: u64 = 0;
const ENTRY: u64 = 1;
const DIRECTORY_END: u64 = 2;
const OFFER_END: u64 = 3;
const HASHES: u64 = 4;
const FILE_END: u64 = 5;
const WANT: u64 = 7;
const SKIP: u64 = 8;
const ASK: u64 = 9;
const ACK: u64 = 10;
const STORED: u64 = 11;
const FAILED: u64 = 12;
const DONE: u64 = 13;
const ABORT: u64 = 14;
const TCP_OFFER: u64 = 15;
const TCP_KEY: u64 = 16;
const MEASURE: u64 = 17;
const CHOICE: u64 = 18;
const HELD: u64 = 19;
const UNOFFERED: u64 = 20;

impl Message {
    /// Appends type, length and value.
    ///
    /// # Panics
    /// When a field is above its bound of `limits`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut value = Vec::new();
        let kind = self.write_value(&mut value);
        assert!(
            value.len() <= MESSAGE_BYTES_MAX,
            "a message of ours is within the bounds of its fields"
        );
        put(kind, out);
        put_bytes(&value, out);
    }

    fn write_value(&self, out: &mut Vec<u8>) -> u64 {
        match self {
            Self::Hello(hello) => hello.write(out),
            Self::Entry(entry) => entry.write(out),
            Self::DirectoryEnd { entry } | Self::Ask { entry } => put(*entry, out),
            Self::OfferEnd { entries, bytes } => {
                put(*entries, out);
                put(*bytes, out);
            }
            Self::Hashes {
                entry,
                first,
                addresses,
            } => {
                put(*entry, out);
                put(*first, out);
                put(addresses.len() as u64, out);
                out.extend(addresses.iter().flatten());
            }
            Self::FileEnd { entry, size, root } => {
                put(*entry, out);
                put(*size, out);
                out.extend_from_slice(root);
            }
            Self::Want { entry, chunks } | Self::Ack { entry, chunks } => {
                put(*entry, out);
                write_ranges(chunks, out);
            }
            Self::Skip { entry, reason } => {
                put(*entry, out);
                put(reason.code(), out);
            }
            Self::Stored { entries } => write_ranges(entries, out),
            Self::Failed { entry, reason, text } => {
                put(*entry, out);
                put(reason.code(), out);
                put_text(text, TEXT_BYTES_MAX, out);
            }
            Self::Unoffered { reason, path, text } => {
                put(reason.code(), out);
                put_text(path, TEXT_BYTES_MAX, out);
                put_text(text, TEXT_BYTES_MAX, out);
            }
            Self::Done(totals) => totals.write(out),
            Self::Abort { text } => put_text(text, TEXT_BYTES_MAX, out),
            Self::TcpOffer(offer) => offer.write(out),
            Self::TcpKey { key } => out.extend_from_slice(key),
            Self::Measure(measure) => measure.write(out),
            Self::Choice { carrier, text } => {
                put(carrier.code(), out);
                put_text(text, TEXT_BYTES_MAX, out);
            }
            Self::Held { by } => put(by.code(), out),
        }
        self.kind()
    }

    fn kind(&self) -> u64 {
        match self {
            Self::Hello(_) => HELLO,
            Self::Entry(_) => ENTRY,
            Self::DirectoryEnd { .. } => DIRECTORY_END,
            Self::OfferEnd { .. } => OFFER_END,
            Self::Hashes { .. } => HASHES,
            Self::FileEnd { .. } => FILE_END,
            Self::Want { .. } => WANT,
            Self::Skip { .. } => SKIP,
            Self::Ask { .. } => ASK,
            Self::Ack { .. } => ACK,
            Self::Stored { .. } => STORED,
            Self::Failed { .. } => FAILED,
            Self::Done(_) => DONE,
            Self::Abort { .. } => ABORT,
            Self::TcpOffer(_) => TCP_OFFER,
            Self::TcpKey { .. } => TCP_KEY,
            Self::Measure(_) => MEASURE,
            Self::Choice { .. } => CHOICE,
            Self::Held { .. } => HELD,
            Self::Unoffered { .. } => UNOFFERED,
        }
    }

    /// Reads a value; `None` for a type that this version does not know. Bytes behind the known fields are ignored
    /// (FILE-4).
    fn read_value(kind: u64, value: &[u8]) -> Result<Option<Self>, Malformed> {
        let mut input = Input(value);
        let input = &mut input;
        Ok(Some(match kind {
            HELLO => Self::Hello(Hello::read(input)?),
            ENTRY => Self::Entry(Entry::read(input)?),
            DIRECTORY_END => Self::DirectoryEnd {
                entry: input.number()?,
            },
            OFFER_END => Self::OfferEnd {
                entries: input.number()?,
                bytes: input.number()?,
            },
            HASHES => Self::Hashes {
                entry: input.number()?,
                first: input.number()?,
                addresses: read_addresses(input)?,
            },
            FILE_END => Self::FileEnd {
                entry: input.number()?,
                size: input.bounded(crate::limits::FILE_BYTES_MAX)?,
                root: input.array()?,
            },
            WANT => Self::Want {
                entry: input.number()?,
                chunks: read_ranges(input)?,
            },
            SKIP => Self::Skip {
                entry: input.number()?,
                reason: SkipReason::of(input.number()?),
            },
            ASK => Self::Ask {
                entry: input.number()?,
            },
            ACK => Self::Ack {
                entry: input.number()?,
                chunks: read_ranges(input)?,
            },
            STORED => Self::Stored {
                entries: read_ranges(input)?,
            },
            FAILED => Self::Failed {
                entry: input.number()?,
                reason: FailReason::of(input.number()?),
                text: input.text(TEXT_BYTES_MAX)?,
            },
            UNOFFERED => Self::Unoffered {
                reason: FailReason::of(input.number()?),
                path: input.text(TEXT_BYTES_MAX)?,
                text: input.text(TEXT_BYTES_MAX)?,
            },
            DONE => Self::Done(Totals::read(input)?),
            ABORT => Self::Abort {
                text: input.text(TEXT_BYTES_MAX)?,
            },
            TCP_OFFER => Self::TcpOffer(TcpOffer::read(input)?),
            TCP_KEY => Self::TcpKey { key: input.array()? },
            MEASURE => Self::Measure(Measure::read(input)?),
            CHOICE => Self::Choice {
                carrier: CarrierKind::of(input.number()?)?,
                text: input.text(TEXT_BYTES_MAX)?,
            },
            HELD => Self::Held {
                by: Hindrance::of(input.number()?),
            },
            _ => return Ok(None),
        }))
    }
}

/// Ranges: how many, then of each its distance from the end of the one before, and its length.
fn write_ranges(ranges: &Ranges, out: &mut Vec<u8>) {
    assert!(
        ranges.iter().len() <= RANGES_MAX,
        "ranges are split before they are told"
    );
    put(ranges.iter().len() as u64, out);
    let mut end = 0;
    for range in ranges.iter() {
        put(range.start - end, out);
        put(range.end - range.start, out);
        end = range.end;
    }
}

fn read_ranges(input: &mut Input<'_>) -> Result<Ranges, Malformed> {
    let count = input.count(RANGES_MAX)?;
    let mut ranges = Ranges::new();
    let mut end = 0_u64;
    for place in 0..count {
        let distance = input.number()?;
        let length = input.number()?;
        // Ranges neither touch nor are empty, so that a set has one encoding.
        if length == 0 || (distance == 0 && place > 0) {
            return Err(Malformed);
        }
        let start = end + distance;
        end = start + length;
        if end > varint::MAX {
            return Err(Malformed);
        }
        ranges.insert(start..end);
    }
    Ok(ranges)
}

fn read_addresses(input: &mut Input<'_>) -> Result<Vec<Address>, Malformed> {
    let count = input.count(HASHES_MAX)?;
    (0..count).map(|_| input.array()).collect()
}

impl Hello {
    fn write(&self, out: &mut Vec<u8>) {
        put(self.version, out);
        put(u64::from(self.sender), out);
        put(self.extensions.len() as u64, out);
        for (number, value) in &self.extensions {
            put(*number, out);
            put_bytes(value, out);
        }
    }

    fn read(input: &mut Input<'_>) -> Result<Self, Malformed> {
        let version = input.number()?;
        let sender = input.bounded(1)? == 1;
        let count = input.count(EXTENSIONS_MAX)?;
        let extensions = (0..count)
            .map(|_| Ok((input.number()?, input.bytes(MESSAGE_BYTES_MAX)?.to_vec())))
            .collect::<Result<_, Malformed>>()?;
        Ok(Self {
            version,
            sender,
            extensions,
        })
    }
}

impl Totals {
    fn write(&self, out: &mut Vec<u8>) {
        for value in [
            self.stored,
            self.skipped,
            self.failed,
            self.bytes,
            self.bytes_there,
        ] {
            put(value, out);
        }
    }

    fn read(input: &mut Input<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            stored: input.number()?,
            skipped: input.number()?,
            failed: input.number()?,
            bytes: input.number()?,
            bytes_there: input.number()?,
        })
    }
}

impl TcpOffer {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.key);
        put(self.addresses.len() as u64, out);
        for address in &self.addresses {
            match address.ip() {
                IpAddr::V4(ip) => put_bytes(&ip.octets(), out),
                IpAddr::V6(ip) => put_bytes(&ip.octets(), out),
            }
            put(u64::from(address.port()), out);
        }
    }

    fn read(input: &mut Input<'_>) -> Result<Self, Malformed> {
        let key = input.array()?;
        let count = input.count(ADDRESSES_MAX)?;
        let addresses = (0..count)
            .map(|_| {
                let octets = input.bytes(16)?;
                let ip = if let Ok(octets) = <[u8; 4]>::try_from(octets) {
                    IpAddr::from(octets)
                } else {
                    IpAddr::from(<[u8; 16]>::try_from(octets).map_err(|_| Malformed)?)
                };
                Ok(SocketAddr::new(ip, input.bounded(u64::from(u16::MAX))? as u16))
            })
            .collect::<Result<_, Malformed>>()?;
        Ok(Self { addresses, key })
    }
}

impl Measure {
    fn write(&self, out: &mut Vec<u8>) {
        for value in [self.carrier.code(), self.bytes, self.elapsed_ns, self.cpu_ns] {
            put(value, out);
        }
    }

    fn read(input: &mut Input<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            carrier: CarrierKind::of(input.number()?)?,
            bytes: input.number()?,
            elapsed_ns: input.number()?,
            cpu_ns: input.number()?,
        })
    }
}

impl CarrierKind {
    fn code(self) -> u64 {
        match self {
            Self::Quic => 0,
            Self::Tcp => 1,
        }
    }

    fn of(code: u64) -> Result<Self, Malformed> {
        match code {
            0 => Ok(Self::Quic),
            1 => Ok(Self::Tcp),
            _ => Err(Malformed),
        }
    }
}

/// Takes the bytes of a control stream as they come, and gives its messages.
///
/// ```
/// use files_proto::message::{Decoder, Message};
///
/// let mut bytes = Vec::new();
/// Message::Ask { entry: 7 }.encode(&mut bytes);
/// let mut decoder = Decoder::default();
/// decoder.push(&bytes[..1]);
/// assert_eq!(decoder.next_message(), Ok(None));
/// decoder.push(&bytes[1..]);
/// assert_eq!(decoder.next_message(), Ok(Some(Message::Ask { entry: 7 })));
/// ```
#[derive(Debug, Default)]
pub struct Decoder {
    waiting: Vec<u8>,
    /// Bytes of `waiting` that have been read.
    used: usize,
}

impl Decoder {
    /// Takes bytes of the stream. What waits is at most what was pushed since the last message and one message.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.used > 0 {
            self.waiting.drain(..self.used);
            self.used = 0;
        }
        self.waiting.extend_from_slice(bytes);
    }

    /// The next message; `None` where more bytes are needed. Those of unknown types are passed over (FILE-4).
    ///
    /// # Errors
    /// The stream breaks FILE-3 or FILE-5; nothing can be read of it any more.
    pub fn next_message(&mut self) -> Result<Option<Message>, MessageError> {
        loop {
            let rest = &self.waiting[self.used..];
            let Some((kind, kind_bytes)) = varint::read(rest) else {
                return Ok(None);
            };
            let Some((length, length_bytes)) = varint::read(&rest[kind_bytes..]) else {
                return Ok(None);
            };
            if length > MESSAGE_BYTES_MAX as u64 {
                return Err(MessageError::TooLong(length));
            }
            let start = kind_bytes + length_bytes;
            let Some(value) = rest.get(start..start + length as usize) else {
                return Ok(None);
            };
            let message = Message::read_value(kind, value).map_err(|_| MessageError::Malformed(kind))?;
            self.used += start + length as usize;
            if message.is_some() {
                return Ok(message);
            }
        }
    }
}

#[cfg(test)]
mod tests;
