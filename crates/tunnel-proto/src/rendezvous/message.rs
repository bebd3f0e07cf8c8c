//! What clients and a rendezvous say to each other: a type, a length, a value (RDV-6).

use std::net::{IpAddr, SocketAddr};

use bytes::{Buf, Bytes, BytesMut};
use packet::varint;

use super::PeerKeyBytes;
use crate::limits::{RENDEZVOUS_ADDRESSES_MAX, RENDEZVOUS_MESSAGE_BYTES_MAX};

/// Why a callee cannot be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is not registered at this server.
    Absent,
    /// It has too much to do, or the caller calls too often.
    Busy,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Server: where the client's packets come from.
    Observed(SocketAddr),
    /// Client: where it is reached besides.
    Addresses(Vec<SocketAddr>),
    /// Client: wants to connect to a peer.
    Call {
        /// To whom.
        callee: PeerKeyBytes,
        /// Names the meeting.
        transaction: [u8; 12],
        /// Proves its checks.
        key: [u8; 16],
    },
    /// Server: somebody wants to connect.
    Called {
        /// Who.
        caller: PeerKeyBytes,
        /// Names the meeting.
        transaction: [u8; 12],
        /// Proves its checks.
        key: [u8; 16],
        /// Where the caller is.
        addresses: Vec<SocketAddr>,
        /// Its socket at the server, where it has one.
        relayed: Option<SocketAddr>,
    },
    /// Client: the caller may connect, and checks are on their way.
    Answer {
        /// Who called.
        caller: PeerKeyBytes,
        /// Names the meeting.
        transaction: [u8; 12],
    },
    /// Server: the callee expects the caller.
    Answered {
        /// Names the meeting.
        transaction: [u8; 12],
        /// Who was called.
        callee: PeerKeyBytes,
        /// Where the callee is.
        addresses: Vec<SocketAddr>,
        /// Its socket at the server, where it has one.
        relayed: Option<SocketAddr>,
    },
    /// Server: the callee cannot be met.
    Unreachable {
        /// Names the meeting.
        transaction: [u8; 12],
        /// Why.
        reason: Reason,
    },
    /// Client: a guest is to be let in.
    Invite,
    /// Server: the number of the guest; `None` where there is to be none.
    Invited {
        /// For the guest to show, within [`crate::limits::INVITATION_TIME_MAX`].
        number: Option<u32>,
    },
    /// Server, to a guest: whose number it came by.
    Inviter {
        /// The peer that asked for the number.
        peer: PeerKeyBytes,
    },
    /// Client: who asked for this number?
    Find {
        /// What somebody was told.
        number: u32,
    },
    /// Server: who did; `None` where nobody did, or it is over.
    Found {
        /// The peer that asked for the number.
        peer: Option<PeerKeyBytes>,
    },
}

/// A peer broke a rule of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl Message {
    /// Its bytes on the stream.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut value = Vec::new();
        let kind = match self {
            Self::Observed(address) => {
                write_address(*address, &mut value);
                1
            }
            Self::Addresses(addresses) => {
                write_addresses(addresses, &mut value);
                2
            }
            Self::Call {
                callee,
                transaction,
                key,
            } => {
                value.extend([&callee[..], transaction, key].concat());
                3
            }
            Self::Called {
                caller,
                transaction,
                key,
                addresses,
                relayed,
            } => {
                value.extend([&caller[..], transaction, key].concat());
                write_addresses(addresses, &mut value);
                write_relayed(*relayed, &mut value);
                4
            }
            Self::Answer { caller, transaction } => {
                value.extend([&caller[..], transaction].concat());
                5
            }
            Self::Answered {
                callee,
                transaction,
                addresses,
                relayed,
            } => {
                value.extend([&callee[..], transaction].concat());
                write_addresses(addresses, &mut value);
                write_relayed(*relayed, &mut value);
                6
            }
            Self::Unreachable { transaction, reason } => {
                value.extend(transaction);
                value.push(match reason {
                    Reason::Absent => 0,
                    Reason::Busy => 1,
                });
                7
            }
            Self::Invite => 8,
            Self::Invited { number } => {
                value.extend(number.unwrap_or(0).to_be_bytes());
                9
            }
            Self::Inviter { peer } => {
                value.extend(peer);
                10
            }
            Self::Find { number } => {
                value.extend(number.to_be_bytes());
                11
            }
            Self::Found { peer } => {
                value.extend(peer.iter().flatten());
                12
            }
        };
        let mut bytes = Vec::with_capacity(2 * varint::LEN_MAX + value.len());
        varint::write(kind, &mut bytes);
        varint::write(value.len() as u64, &mut bytes);
        bytes.extend(value);
        bytes.into()
    }

    /// The message of a type and a value; `None` where nobody here knows the type.
    fn read(kind: u64, mut value: Bytes) -> Result<Option<Self>, Malformed> {
        let value = &mut value;
        let message = match kind {
            1 => Self::Observed(read_address(value)?),
            2 => match read_addresses(value)? {
                (addresses, None) => Self::Addresses(addresses),
                // It is the server that says so (RDV-11).
                (_, Some(_)) => return Err(Malformed),
            },
            3 => Self::Call {
                callee: take(value)?,
                transaction: take(value)?,
                key: take(value)?,
            },
            4 => {
                let (caller, transaction, key) = (take(value)?, take(value)?, take(value)?);
                let (addresses, relayed) = read_addresses(value)?;
                Self::Called {
                    caller,
                    transaction,
                    key,
                    addresses,
                    relayed,
                }
            }
            5 => Self::Answer {
                caller: take(value)?,
                transaction: take(value)?,
            },
            6 => {
                let (callee, transaction) = (take(value)?, take(value)?);
                let (addresses, relayed) = read_addresses(value)?;
                Self::Answered {
                    callee,
                    transaction,
                    addresses,
                    relayed,
                }
            }
            7 => Self::Unreachable {
                transaction: take(value)?,
                reason: match take::<1>(value)? {
                    [0] => Reason::Absent,
                    _ => Reason::Busy,
                },
            },
            8 => Self::Invite,
            9 => Self::Invited {
                number: Some(u32::from_be_bytes(take(value)?)).filter(|number| *number != 0),
            },
            10 => Self::Inviter { peer: take(value)? },
            11 => Self::Find {
                number: u32::from_be_bytes(take(value)?),
            },
            12 => Self::Found {
                peer: match value.is_empty() {
                    true => None,
                    false => Some(take(value)?),
                },
            },
            _ => return Ok(None),
        };
        if value.is_empty() {
            Ok(Some(message))
        } else {
            Err(Malformed)
        }
    }
}

fn take<const BYTES: usize>(value: &mut Bytes) -> Result<[u8; BYTES], Malformed> {
    let taken = value.first_chunk().copied().ok_or(Malformed)?;
    value.advance(BYTES);
    Ok(taken)
}

/// What the first byte of an address has besides its version where it is a socket at the server (RDV-11).
const RELAYED: u8 = 0x20;

fn write_address(address: SocketAddr, value: &mut Vec<u8>) {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => {
            value.push(4);
            value.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            value.push(6);
            value.extend(ip.octets());
        }
    }
    value.extend(address.port().to_be_bytes());
}

fn write_relayed(address: Option<SocketAddr>, value: &mut Vec<u8>) {
    let Some(address) = address else { return };
    let kind = value.len();
    write_address(address, value);
    value[kind] |= RELAYED;
}

/// What the bounds of a message leave out, no reader would take.
fn write_addresses(addresses: &[SocketAddr], value: &mut Vec<u8>) {
    for address in addresses.iter().take(RENDEZVOUS_ADDRESSES_MAX) {
        write_address(*address, value);
    }
}

fn read_address(value: &mut Bytes) -> Result<SocketAddr, Malformed> {
    match read_any_address(value)? {
        (address, false) => Ok(address),
        (_, true) => Err(Malformed),
    }
}

/// With it, whether it is a socket at the server.
fn read_any_address(value: &mut Bytes) -> Result<(SocketAddr, bool), Malformed> {
    let [kind] = take(value)?;
    let ip = match kind & !RELAYED {
        4 => IpAddr::from(take::<4>(value)?),
        6 => IpAddr::from(take::<16>(value)?).to_canonical(),
        _ => return Err(Malformed),
    };
    let address = SocketAddr::new(ip, u16::from_be_bytes(take(value)?));
    Ok((address, kind & RELAYED != 0))
}

/// All to the end of the value, and the one that is a socket at the server.
fn read_addresses(value: &mut Bytes) -> Result<(Vec<SocketAddr>, Option<SocketAddr>), Malformed> {
    let (mut addresses, mut relayed) = (Vec::new(), None);
    while !value.is_empty() {
        match read_any_address(value)? {
            (address, true) if relayed.is_none() => relayed = Some(address),
            (address, false) if addresses.len() < RENDEZVOUS_ADDRESSES_MAX => addresses.push(address),
            _ => return Err(Malformed),
        }
    }
    Ok((addresses, relayed))
}

/// Cuts content into messages.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// The beginning of a message.
    begun: BytesMut,
}

impl Reader {
    /// The next message that is known here; `None` once all of `content` is taken.
    pub(super) fn next(&mut self, content: &mut Bytes) -> Result<Option<Message>, Malformed> {
        loop {
            if let Some((kind, value)) = self.cut()? {
                if let Some(message) = Message::read(kind, value)? {
                    return Ok(Some(message));
                }
                continue;
            }
            if content.is_empty() {
                return Ok(None);
            }
            let room = RENDEZVOUS_MESSAGE_BYTES_MAX + 2 * varint::LEN_MAX - self.begun.len();
            self.begun
                .extend_from_slice(&content.split_to(content.len().min(room)));
        }
    }

    /// The first message of what has come, if it is whole.
    fn cut(&mut self) -> Result<Option<(u64, Bytes)>, Malformed> {
        let Some((kind, kind_bytes)) = varint::read(&self.begun) else {
            return Ok(None);
        };
        let Some((length, length_bytes)) = varint::read(&self.begun[kind_bytes..]) else {
            return Ok(None);
        };
        let length = usize::try_from(length).map_err(|_| Malformed)?;
        if length > RENDEZVOUS_MESSAGE_BYTES_MAX {
            return Err(Malformed);
        }
        let head = kind_bytes + length_bytes;
        if self.begun.len() < head + length {
            return Ok(None);
        }
        self.begun.advance(head);
        Ok(Some((kind, self.begun.split_to(length).freeze())))
    }
}

/// Reads the content of a registration, for the fuzz target: the first byte says in how large pieces it comes, which
/// makes no difference. What is read is read back alike after it was written.
pub fn fuzz(input: &[u8]) {
    let Some((piece, content)) = input.split_first() else {
        return;
    };
    let whole = fuzz_read(content, content.len().max(1));
    assert_eq!(fuzz_read(content, usize::from(*piece).max(1)), whole);
    for message in whole.0 {
        let written = message.encode();
        assert_eq!(fuzz_read(&written, written.len()), (vec![message], true));
    }
}

/// The messages of content that comes in such pieces, and whether nothing was wrong.
fn fuzz_read(content: &[u8], piece_bytes: usize) -> (Vec<Message>, bool) {
    let (mut reader, mut messages) = (Reader::default(), Vec::new());
    for piece in content.chunks(piece_bytes) {
        let mut piece = Bytes::copy_from_slice(piece);
        loop {
            match reader.next(&mut piece) {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(Malformed) => return (messages, false),
            }
        }
        let begun_bytes_max = RENDEZVOUS_MESSAGE_BYTES_MAX + 2 * varint::LEN_MAX;
        assert!(reader.begun.len() <= begun_bytes_max, "a message is never longer");
    }
    (messages, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(count: u16) -> Vec<SocketAddr> {
        (0..count)
            .map(|port| match port % 2 {
                0 => SocketAddr::from(([192, 0, 2, 1], port)),
                _ => SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], port)),
            })
            .collect()
    }

    fn all() -> Vec<Message> {
        let (transaction, key) = ([5; 12], [6; 16]);
        let most = addresses(RENDEZVOUS_ADDRESSES_MAX as u16);
        vec![
            Message::Observed(most[0]),
            Message::Addresses(most.clone()),
            Message::Call {
                callee: [1; 32],
                transaction,
                key,
            },
            Message::Called {
                caller: [2; 32],
                transaction,
                key,
                addresses: most.clone(),
                relayed: Some(most[1]),
            },
            Message::Answer {
                caller: [2; 32],
                transaction,
            },
            Message::Answered {
                callee: [1; 32],
                transaction,
                addresses: most.clone(),
                relayed: None,
            },
            Message::Answered {
                callee: [1; 32],
                transaction,
                addresses: Vec::new(),
                relayed: Some(most[0]),
            },
            Message::Unreachable {
                transaction,
                reason: Reason::Busy,
            },
            Message::Unreachable {
                transaction,
                reason: Reason::Absent,
            },
            Message::Invite,
            Message::Invited { number: None },
            Message::Invited { number: Some(99_999) },
            Message::Inviter { peer: [3; 32] },
            Message::Find { number: 4_711 },
            Message::Found { peer: None },
            Message::Found { peer: Some([3; 32]) },
        ]
    }

    fn read(mut content: Bytes, pieces: usize) -> Result<Vec<Message>, Malformed> {
        let mut reader = Reader::default();
        let mut messages = Vec::new();
        while !content.is_empty() {
            let mut piece = content.split_to(content.len().min(pieces));
            while let Some(message) = reader.next(&mut piece)? {
                messages.push(message);
            }
        }
        Ok(messages)
    }

    /// RDV-6.
    #[test]
    fn messages_are_read_back_in_any_pieces_and_unknown_ones_are_skipped() {
        let mut content: Vec<u8> = vec![0x3f, 2, 0, 0];
        for message in all() {
            let bytes = message.encode();
            assert!(bytes.len() <= RENDEZVOUS_MESSAGE_BYTES_MAX);
            content.extend(bytes);
            content.extend([0x40, 0x99, 1, 7]);
        }
        for pieces in [1, 3, 100, 10_000] {
            assert_eq!(read(content.clone().into(), pieces), Ok(all()));
        }
    }

    /// RDV-6.
    #[test]
    fn a_message_that_is_cut_short_longer_or_too_long_is_an_error() {
        let of = |kind: u8, value: &[u8]| Bytes::from([&[kind, value.len() as u8][..], value].concat());
        let mut too_many = Vec::new();
        for address in addresses(RENDEZVOUS_ADDRESSES_MAX as u16 + 1) {
            write_address(address, &mut too_many);
        }
        for bad in [
            of(1, &[4, 192, 0, 2, 1, 0]),
            of(1, &[4, 192, 0, 2, 1, 0, 80, 0]),
            of(1, &[5, 192, 0, 2, 1, 0, 80]),
            of(3, &[0; 59]),
            of(5, &[0; 45]),
            of(7, &[0; 12]),
            of(8, &[0]),
            of(9, &[0; 3]),
            of(10, &[0; 31]),
            of(11, &[0; 5]),
            of(12, &[0; 33]),
            // A client says that it has a socket here, and a server says it twice (RDV-11).
            of(2, &[36, 192, 0, 2, 1, 0, 80]),
            of(1, &[36, 192, 0, 2, 1, 0, 80]),
            of(
                6,
                &[&[0; 44][..], &[36, 192, 0, 2, 1, 0, 80, 36, 192, 0, 2, 1, 0, 80]].concat(),
            ),
        ] {
            assert_eq!(read(bad, 1_000), Err(Malformed));
        }
        let mut long = vec![2];
        varint::write(too_many.len() as u64, &mut long);
        assert_eq!(read([long, too_many].concat().into(), 1_000), Err(Malformed));
        let mut endless = vec![9];
        varint::write(RENDEZVOUS_MESSAGE_BYTES_MAX as u64 + 1, &mut endless);
        assert_eq!(read(endless.into(), 1_000), Err(Malformed));
    }
}
