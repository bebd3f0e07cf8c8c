//! Packets of one level of a visit: sealed, opened and acknowledged (RFC 9001 section 5, RFC 9000 section 13.2).

use packet::varint;
use rustls::quic::Keys;

use crate::limits::FLIGHT_PACKETS_MAX;
use crate::long_header::{LongPacket, VERSION_1};
use crate::protection::{self, NUMBER_BYTES_MAX, TAG_BYTES};

/// Each packet number has as many as it can.
const NUMBER_BYTES: usize = NUMBER_BYTES_MAX;

/// How a packet of ours begins: its type (0 Initial, 2 Handshake), or a short header.
#[derive(Clone, Copy, Debug)]
pub(super) enum Header<'a> {
    /// With the token of a Retry.
    Initial {
        token: &'a [u8],
    },
    Handshake,
    Short,
}

/// One level: its keys, and the numbers of its packets.
pub(super) struct Level {
    keys: Keys,
    next: u64,
    /// Numbers that came, in their order.
    received: Vec<u64>,
    pub(super) owes_ack: bool,
}

impl Level {
    pub(super) fn new(keys: Keys) -> Self {
        Self {
            keys,
            next: 0,
            received: Vec::new(),
            owes_ack: false,
        }
    }

    /// Other keys for the same packet numbers, after a Retry.
    pub(super) fn replace_keys(&mut self, keys: Keys) {
        self.keys = keys;
    }

    /// The frames of a packet; `None` where it was made with other keys, came before, or is one too many.
    pub(super) fn open(&mut self, packet: &LongPacket<'_>) -> Option<Vec<u8>> {
        let mut bytes = packet.bytes.to_vec();
        let remote = &self.keys.remote;
        let largest = self.received.iter().max().copied();
        let (number, payload) =
            protection::unmask(&*remote.header, &mut bytes, packet.number_offset, largest)?;
        let (head, sealed) = bytes.split_at_mut_checked(payload)?;
        let payload = remote
            .packet
            .decrypt_in_place(number, head, sealed)
            .ok()?
            .to_vec();
        if self.received.contains(&number) || self.received.len() >= FLIGHT_PACKETS_MAX {
            return None;
        }
        self.received.push(number);
        Some(payload)
    }

    /// An ACK frame of all that came; nothing where nothing did.
    pub(super) fn ack(&self) -> Vec<u8> {
        let mut numbers = self.received.clone();
        numbers.sort_unstable_by(|one, other| other.cmp(one));
        // Largest and smallest number of each range, from the largest on.
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for number in numbers {
            match ranges.last_mut() {
                Some((_, smallest)) if *smallest == number + 1 => *smallest = number,
                _ => ranges.push((number, number)),
            }
        }
        let Some(((largest, mut smallest), rest)) = ranges.split_first().map(|(first, rest)| (*first, rest))
        else {
            return Vec::new();
        };
        let mut frame = vec![2];
        for value in [largest, 0, rest.len() as u64, largest - smallest] {
            varint::write(value, &mut frame);
        }
        for (high, low) in rest {
            varint::write(smallest - high - 2, &mut frame);
            varint::write(high - low, &mut frame);
            smallest = *low;
        }
        frame
    }

    /// A packet to `destination` with an empty source ID. Its datagram gets `bytes` in all by PADDING where it is
    /// shorter.
    pub(super) fn seal(
        &mut self,
        header: Header<'_>,
        destination: &[u8],
        frames: &[u8],
        bytes: usize,
    ) -> Vec<u8> {
        let mut packet = match header {
            Header::Short => vec![0x43],
            Header::Initial { .. } | Header::Handshake => {
                let first = if matches!(header, Header::Handshake) {
                    0xe3
                } else {
                    0xc3
                };
                let mut packet = vec![first];
                packet.extend(VERSION_1.to_be_bytes());
                packet.push(destination.len() as u8);
                packet
            }
        };
        packet.extend_from_slice(destination);
        if !matches!(header, Header::Short) {
            packet.push(0);
        }
        if let Header::Initial { token } = header {
            varint::write(token.len() as u64, &mut packet);
            packet.extend_from_slice(token);
        }
        let is_long = !matches!(header, Header::Short);
        let before = packet.len() + if is_long { 2 } else { 0 };
        let room = bytes.saturating_sub(before + NUMBER_BYTES + TAG_BYTES);
        let payload = frames.len().max(room);
        if is_long {
            let length = (NUMBER_BYTES + payload + TAG_BYTES) as u16;
            packet.extend((0x4000 | length).to_be_bytes());
        }
        let number_offset = packet.len();
        packet.extend((self.next as u32).to_be_bytes());
        let payload_offset = packet.len();
        packet.extend_from_slice(frames);
        packet.resize(payload_offset + payload, 0);
        protection::protect(
            &self.keys.local,
            &mut packet,
            self.next,
            number_offset..payload_offset,
        );
        self.next += 1;
        packet
    }
}

/// A CRYPTO frame.
pub(super) fn crypto_frame(offset: usize, data: &[u8]) -> Vec<u8> {
    let mut frame = vec![6];
    varint::write(offset as u64, &mut frame);
    varint::write(data.len() as u64, &mut frame);
    frame.extend_from_slice(data);
    frame
}

/// CONNECTION_CLOSE of the application, without a reason.
pub(super) fn close_frame(code: u64) -> Vec<u8> {
    let mut frame = vec![0x1d];
    varint::write(code, &mut frame);
    frame.push(0);
    frame
}
