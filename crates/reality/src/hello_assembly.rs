//! Puts a ClientHello together from the Initials of a client's first flight (QR1-6).
//!
//! It takes only what a client of ours sends before it has heard anything: datagrams of nothing but Initials, with one
//! pair of connection IDs and no token, which hold CRYPTO, PING and PADDING. Anything else is a stranger's.

use std::ops::Range;

use crate::client_hello::{ClientHello, message_bytes};
use crate::frames::{Frame, frames};
use crate::initial::{InitialKeys, Sender};
use crate::limits;
use crate::long_header::{ConnectionId, Kind, LongPacket, Part, counted, parts};

/// Transport parameter `initial_source_connection_id` (RFC 9000 section 18.2).
const INITIAL_SOURCE_ID: u64 = 0x0f;
/// Extension `quic_transport_parameters` (RFC 9001 section 8.2).
const TRANSPORT_PARAMETERS: u16 = 57;

/// How far the hello is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More has to come.
    Incomplete,
    /// [`HelloAssembly::message`] is a whole message.
    Complete,
    /// It will be none of ours.
    Refused,
}

/// The hello of one connection, as far as it came.
#[derive(Debug)]
pub struct HelloAssembly {
    keys: InitialKeys,
    destination_id: ConnectionId,
    source_id: ConnectionId,
    largest: Option<u64>,
    initials: usize,
    data: Vec<u8>,
    /// Which parts of `data` came, in order, none touching another.
    came: Vec<Range<usize>>,
}

/// The Initial that a datagram begins with, where it may begin a connection of ours (QR1-3): version 1, no token, and
/// the sizes of RFC 9000 sections 7.2 and 14.1.
#[must_use]
pub fn first_initial(datagram: &[u8]) -> Option<LongPacket<'_>> {
    if datagram.len() < limits::INITIAL_DATAGRAM_BYTES_MIN {
        return None;
    }
    match parts(datagram).next() {
        Some(Part::Long(packet)) if packet.kind == Kind::Initial && packet.token.is_empty() => {
            (packet.destination_id.len() >= limits::FIRST_ID_BYTES_MIN).then_some(packet)
        }
        _ => None,
    }
}

impl HelloAssembly {
    /// For the connection that begins with `initial`, of which nothing is taken yet.
    #[must_use]
    pub fn new(initial: &LongPacket<'_>) -> Self {
        Self {
            keys: InitialKeys::new(initial.destination_id),
            destination_id: ConnectionId::new(initial.destination_id),
            source_id: ConnectionId::new(initial.source_id),
            largest: None,
            initials: 0,
            data: Vec::new(),
            came: Vec::new(),
        }
    }

    /// Takes a datagram of the same sender; `space` is for what is opened.
    pub fn push(&mut self, datagram: &[u8], space: &mut Vec<u8>) -> Progress {
        if first_initial(datagram).is_none() {
            return Progress::Refused;
        }
        for part in parts(datagram) {
            let Part::Long(packet) = part else {
                return Progress::Refused;
            };
            if self.take(&packet, space).is_none() {
                return Progress::Refused;
            }
        }
        self.progress()
    }

    fn take(&mut self, packet: &LongPacket<'_>, space: &mut Vec<u8>) -> Option<()> {
        let is_of_it = *packet.destination_id == *self.destination_id && *packet.source_id == *self.source_id;
        if !is_of_it || !packet.token.is_empty() || self.initials == limits::HELLO_INITIALS_MAX {
            return None;
        }
        self.initials += 1;
        let opened = self.keys.open(Sender::Client, packet, self.largest, space)?;
        self.largest = self.largest.max(Some(opened.number));
        if opened.payload.is_empty() {
            return None;
        }
        for frame in frames(opened.payload) {
            match frame {
                Ok(Frame::Padding | Frame::Ping) => {}
                Ok(Frame::Crypto { offset, data }) => self.insert(usize::try_from(offset).ok()?, data)?,
                // It cannot have heard of a packet yet.
                Ok(Frame::Ack { .. }) | Err(_) => return None,
            }
        }
        Some(())
    }

    /// `None` where it reaches too far, contradicts what came before, or leaves too many holes.
    fn insert(&mut self, start: usize, data: &[u8]) -> Option<()> {
        let end = start
            .checked_add(data.len())
            .filter(|end| *end <= limits::HELLO_BYTES_MAX)?;
        if data.is_empty() {
            return Some(());
        }
        if self.data.len() < end {
            self.data.resize(end, 0);
        }
        let first = self.came.partition_point(|range| range.end < start);
        let behind = self.came.partition_point(|range| range.start <= end);
        let touched = &self.came[first..behind];
        for range in touched {
            let common = range.start.max(start)..range.end.min(end);
            if self.data[common.clone()] != data[common.start - start..common.end - start] {
                return None;
            }
        }
        let union = touched.iter().fold(start..end, |all, range| {
            all.start.min(range.start)..all.end.max(range.end)
        });
        self.data[start..end].copy_from_slice(data);
        self.came.splice(first..behind, [union]);
        (self.came.len() <= limits::HELLO_PIECES_MAX).then_some(())
    }

    fn progress(&self) -> Progress {
        let beginning = match self.came.first() {
            Some(range) if range.start == 0 => &self.data[range.clone()],
            _ => return Progress::Incomplete,
        };
        match message_bytes(beginning) {
            Some(Ok(bytes)) if bytes < self.data.len() => Progress::Refused,
            Some(Ok(bytes)) if bytes == beginning.len() => match self.is_consistent() {
                true => Progress::Complete,
                false => Progress::Refused,
            },
            Some(Ok(_)) | None => Progress::Incomplete,
            Some(Err(_)) => Progress::Refused,
        }
    }

    /// Whether the hello names the source ID of its packets (RFC 9000 section 7.3), which the authenticator thereby
    /// covers.
    fn is_consistent(&self) -> bool {
        let Ok(hello) = ClientHello::parse(&self.data) else {
            return false;
        };
        let mut parameters = hello
            .extensions()
            .filter(|(kind, _)| *kind == TRANSPORT_PARAMETERS)
            .map(|(_, data)| data);
        let (Some(mut rest), None) = (parameters.next(), parameters.next()) else {
            return false;
        };
        let mut named = None;
        while !rest.is_empty() {
            let Some((id, used)) = packet::varint::read(rest) else {
                return false;
            };
            let Some((value, behind)) = counted(&rest[used..]) else {
                return false;
            };
            if id == INITIAL_SOURCE_ID && named.replace(value).is_some() {
                return false;
            }
            rest = behind;
        }
        named == Some(&*self.source_id)
    }

    /// The message, once it is complete.
    #[must_use]
    pub fn message(&self) -> &[u8] {
        &self.data
    }

    /// Destination connection ID of its Initials.
    #[must_use]
    pub fn destination_id(&self) -> &ConnectionId {
        &self.destination_id
    }

    /// Source connection ID of its Initials.
    #[must_use]
    pub fn source_id(&self) -> &ConnectionId {
        &self.source_id
    }

    /// What the filter of a handshake that is taken over goes on with.
    pub(crate) fn into_parts(self) -> (InitialKeys, Vec<u8>, Option<u64>) {
        (self.keys, self.data, self.largest)
    }
}

#[cfg(test)]
mod tests;
