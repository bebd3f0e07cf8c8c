//! Initial packets, whose keys everybody knows who saw the first one (RFC 9001 sections 5.2 to 5.4).

use packet::varint;
use rustls::Side;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::quic::{DirectionalKeys, Keys, Version};

use crate::limits::UDP_PAYLOAD_MAX;
use crate::long_header::{Kind, LongPacket, VERSION_1};
use crate::protection::{self, NUMBER_BYTES_MAX, TAG_BYTES};

/// Bits of the first byte that are 0 in every long header (RFC 9000 section 17.2).
const RESERVED_BITS: u8 = 0x0c;

/// Which end made a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The client.
    Client,
    /// The server.
    Server,
}

/// Keys of the Initial packets of a connection of version 1, for one side of it.
pub(crate) fn keys(destination_id: &[u8], side: Side) -> Keys {
    let suite = TLS13_AES_128_GCM_SHA256
        .tls13()
        .and_then(|suite| suite.quic_suite());
    let suite = suite.expect("AES-128-GCM is a suite of QUIC");
    Keys::initial(Version::V1, suite.suite, suite.quic, destination_id, side)
}

/// Keys of one connection's Initial packets, of version 1.
pub struct InitialKeys {
    client: DirectionalKeys,
    server: DirectionalKeys,
}

/// A packet that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened<'a> {
    /// Its packet number.
    pub number: u64,
    /// Its frames.
    pub payload: &'a [u8],
}

impl InitialKeys {
    /// Of the destination connection ID of the client's first Initial.
    #[must_use]
    pub fn new(destination_id: &[u8]) -> Self {
        let Keys { local, remote } = keys(destination_id, Side::Server);
        Self {
            client: remote,
            server: local,
        }
    }

    fn of(&self, sender: Sender) -> &DirectionalKeys {
        match sender {
            Sender::Client => &self.client,
            Sender::Server => &self.server,
        }
    }

    /// Opens a copy of `packet` in `space`. `largest` is the highest number that came from that sender before. `None`
    /// where it is no Initial, was made with other keys, or has a reserved bit.
    pub fn open<'a>(
        &self,
        sender: Sender,
        packet: &LongPacket<'_>,
        largest: Option<u64>,
        space: &'a mut Vec<u8>,
    ) -> Option<Opened<'a>> {
        let (number, payload) = self.unmask(sender, packet, largest, space)?;
        let (header, sealed) = space.split_at_mut(payload);
        let keys = &self.of(sender).packet;
        let payload = keys.decrypt_in_place(number, header, sealed).ok()?;
        Some(Opened { number, payload })
    }

    /// The number of a packet that is known to be genuine.
    pub(crate) fn number(
        &self,
        sender: Sender,
        packet: &LongPacket<'_>,
        largest: Option<u64>,
        space: &mut Vec<u8>,
    ) -> Option<u64> {
        self.unmask(sender, packet, largest, space)
            .map(|(number, _)| number)
    }

    /// Copies `packet` into `space` and removes its header protection; its number, and where its payload begins.
    fn unmask(
        &self,
        sender: Sender,
        packet: &LongPacket<'_>,
        largest: Option<u64>,
        space: &mut Vec<u8>,
    ) -> Option<(u64, usize)> {
        if packet.kind != Kind::Initial || packet.bytes.len() > UDP_PAYLOAD_MAX {
            return None;
        }
        space.clear();
        space.extend_from_slice(packet.bytes);
        let key = &*self.of(sender).header;
        let found = protection::unmask(key, space, packet.number_offset, largest)?;
        (space[0] & RESERVED_BITS == 0).then_some(found)
    }

    /// A sealed Initial packet around `frames`: number in `number_bytes` bytes, 1 to 4. Frames are filled up with
    /// PADDING where a packet would be too short for header protection.
    #[must_use]
    pub fn seal(
        &self,
        sender: Sender,
        ids: (&[u8], &[u8]),
        token: &[u8],
        number: u64,
        number_bytes: usize,
        frames: &[u8],
    ) -> Vec<u8> {
        let number_bytes = number_bytes.clamp(1, NUMBER_BYTES_MAX);
        let payload = frames.len().max(NUMBER_BYTES_MAX - number_bytes);
        let mut packet = vec![0xc0 | (number_bytes as u8 - 1)];
        packet.extend_from_slice(&VERSION_1.to_be_bytes());
        for id in [ids.0, ids.1] {
            packet.push(id.len() as u8);
            packet.extend_from_slice(id);
        }
        varint::write(token.len() as u64, &mut packet);
        packet.extend_from_slice(token);
        varint::write((number_bytes + payload + TAG_BYTES) as u64, &mut packet);
        let number_offset = packet.len();
        packet.extend_from_slice(&number.to_be_bytes()[8 - number_bytes..]);
        let header = packet.len();
        packet.extend_from_slice(frames);
        packet.resize(header + payload, 0);
        protection::protect(self.of(sender), &mut packet, number, number_offset..header);
        packet
    }
}

impl std::fmt::Debug for InitialKeys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("InitialKeys")
    }
}

#[cfg(test)]
mod tests;
