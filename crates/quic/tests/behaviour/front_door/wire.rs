//! Initial packets as a watcher opens and makes them, who needs nothing but the client's first connection ID for that (RFC 9001
//! section 5.2); by nothing of ours.

use std::collections::BTreeMap;

use rustls::Side;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::quic::{Keys, Version};

/// One Initial packet.
pub(crate) struct Initial {
    pub(crate) destination_id: Vec<u8>,
    pub(crate) source_id: Vec<u8>,
    pub(crate) token: Vec<u8>,
    /// Offsets and pieces of CRYPTO frames.
    pub(crate) crypto: BTreeMap<u64, Vec<u8>>,
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let (value, used) = packet::varint::read(bytes).unwrap();
    *bytes = &bytes[used..];
    value
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(count);
    *bytes = rest;
    taken
}

fn keys(destination_id: &[u8], side: Side) -> Keys {
    let suite = TLS13_AES_128_GCM_SHA256.tls13().unwrap();
    Keys::initial(Version::V1, suite, suite.quic.unwrap(), destination_id, side)
}

impl Initial {
    /// The packet that a client's datagram begins with, where it is an Initial of version 1.
    pub(crate) fn open(datagram: &[u8]) -> Option<Self> {
        Self::open_with(datagram, None)
    }

    /// The same of a server's datagram, to a client that first sent to `destination_id`.
    pub(crate) fn of_server(datagram: &[u8], destination_id: &[u8]) -> Option<Self> {
        Self::open_with(datagram, Some(keys(destination_id, Side::Client)))
    }

    fn open_with(datagram: &[u8], keys_of_server: Option<Keys>) -> Option<Self> {
        if datagram[0] & 0xf0 != 0xc0 || datagram[1..5] != [0, 0, 0, 1] {
            return None;
        }
        let mut rest = &datagram[5..];
        let [destination_id, source_id] = [(); 2].map(|()| {
            let length = usize::from(take(&mut rest, 1)[0]);
            take(&mut rest, length).to_vec()
        });
        let length = varint(&mut rest);
        let token = take(&mut rest, length as usize).to_vec();
        let length = varint(&mut rest) as usize;
        let number_at = datagram.len() - rest.len();
        let mut packet = datagram[..number_at + length].to_vec();
        let keys = keys_of_server.unwrap_or_else(|| keys(&destination_id, Side::Server));
        let (header, sample) = packet.split_at_mut(number_at + 4);
        let (first, number) = header.split_at_mut(1);
        let header_key = &keys.remote.header;
        header_key
            .decrypt_in_place(
                &sample[..header_key.sample_len()],
                &mut first[0],
                &mut number[number_at - 1..],
            )
            .unwrap();
        let number_bytes = 1 + usize::from(packet[0] & 3);
        let (header, payload) = packet.split_at_mut(number_at + number_bytes);
        let number = header[number_at..]
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte));
        let payload = keys
            .remote
            .packet
            .decrypt_in_place(number, header, payload)
            .unwrap();
        Some(Self {
            destination_id,
            source_id,
            token,
            crypto: crypto(payload),
        })
    }
}

/// Of a payload with PADDING, PING, ACK and CRYPTO only; what comes behind another frame is not read.
fn crypto(mut payload: &[u8]) -> BTreeMap<u64, Vec<u8>> {
    let mut pieces = BTreeMap::new();
    while let [kind, rest @ ..] = payload {
        payload = rest;
        match kind {
            0 | 1 => {}
            2 | 3 => {
                let [_largest, _delay, ranges, _first] = [(); 4].map(|()| varint(&mut payload));
                let of_ecn = if *kind == 3 { 3 } else { 0 };
                for _ in 0..2 * ranges + of_ecn {
                    varint(&mut payload);
                }
            }
            6 => {
                let (offset, length) = (varint(&mut payload), varint(&mut payload));
                pieces.insert(offset, take(&mut payload, length as usize).to_vec());
            }
            _ => break,
        }
    }
    pieces
}

/// A client's Initial to `destination_id` with these frames, which anybody can make.
pub(crate) fn forge(destination_id: &[u8], number: u8, frames: &[u8]) -> Vec<u8> {
    let keys = keys(destination_id, Side::Client);
    seal(0xc0, keys, destination_id, number, frames)
}

/// A server's Initial with reserved bits set (RFC 9000 section 17.2), which anybody can make who saw this one.
pub(crate) fn illegal_answer(to: &Initial) -> Vec<u8> {
    let keys = keys(&to.destination_id, Side::Server);
    seal(0xcc, keys, &to.source_id, 0, &[1])
}

/// An Initial without a source ID and a token, with this first byte.
fn seal(first: u8, keys: Keys, destination_id: &[u8], number: u8, frames: &[u8]) -> Vec<u8> {
    const PACKET_BYTES: usize = 1_200;
    let mut packet = [&[first, 0, 0, 0, 1, destination_id.len() as u8], destination_id].concat();
    // What is left of the packet, from its number on.
    let rest = PACKET_BYTES - packet.len() - 4;
    packet.extend_from_slice(&[0, 0, 0x40 | (rest >> 8) as u8, rest as u8, number]);
    let number_at = packet.len() - 1;
    let mut payload = frames.to_vec();
    payload.resize(rest - 1 - 16, 0);
    let local = keys.local;
    let tag = local
        .packet
        .encrypt_in_place(number.into(), &packet, &mut payload)
        .unwrap();
    packet.extend_from_slice(&payload);
    packet.extend_from_slice(tag.as_ref());
    let (header, sample) = packet.split_at_mut(number_at + 4);
    let (first, number) = header.split_at_mut(1);
    let sample = &sample[..local.header.sample_len()];
    local
        .header
        .encrypt_in_place(sample, &mut first[0], &mut number[number_at - 1..number_at])
        .unwrap();
    packet
}

/// The hello in a client's first datagrams.
pub(crate) fn hello(datagrams: &[Vec<u8>]) -> Vec<u8> {
    let initials = datagrams.iter().filter_map(|datagram| Initial::open(datagram));
    messages(initials)
}

/// The bytes of TLS that these packets carry.
pub(crate) fn messages(initials: impl Iterator<Item = Initial>) -> Vec<u8> {
    let mut pieces = BTreeMap::new();
    for initial in initials {
        pieces.extend(initial.crypto);
    }
    let mut hello = Vec::new();
    for (offset, piece) in pieces {
        let known = hello.len() - offset as usize;
        hello.extend_from_slice(piece.get(known..).unwrap_or_default());
    }
    hello
}
