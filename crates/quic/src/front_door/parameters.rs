//! Transport parameters of a client as Chrome writes them (version 151): the same set, values and forms, in an order and
//! with a reserved parameter that are random for every connection.
//!
//! They promise less than our QUIC allows, so that a peer that keeps to them never meets a limit of ours, but for streams
//! that a server of HTTP/3 has no use for.

use packet::varint;
use rustls::crypto::{GetRandomFailed, SecureRandom};

/// RFC 9000 section 18.2.
const MAX_IDLE_TIMEOUT: (u64, u64) = (0x01, 30_000);
const MAX_UDP_PAYLOAD_SIZE: (u64, u64) = (0x03, 1_472);
const INITIAL_MAX_DATA: (u64, u64) = (0x04, 15 << 20);
const INITIAL_MAX_STREAM_DATA: [u64; 3] = [0x05, 0x06, 0x07];
const INITIAL_MAX_STREAM_DATA_BYTES: u64 = 6 << 20;
const INITIAL_MAX_STREAMS_BIDI: (u64, u64) = (0x08, 100);
const INITIAL_MAX_STREAMS_UNI: (u64, u64) = (0x09, 103);
const INITIAL_SOURCE_CONNECTION_ID: u64 = 0x0f;
/// RFC 9221 section 3.
const MAX_DATAGRAM_FRAME_SIZE: (u64, u64) = (0x20, 65_536);
/// RFC 9368 section 3.
const VERSION_INFORMATION: u64 = 0x11;
/// Google's options of a connection, and the one that Chrome asks for.
const CONNECTION_OPTIONS: (u64, [u8; 4]) = (0x3128, *b"ORIG");

/// Longest value of the reserved parameter, in bytes.
const RESERVED_BYTES_MAX: usize = 15;

/// The parameters of a client without connection IDs.
pub(super) fn encode(random: &dyn SecureRandom) -> Result<Vec<u8>, GetRandomFailed> {
    let mut parameters: Vec<(u64, Vec<u8>)> = [
        MAX_IDLE_TIMEOUT,
        MAX_UDP_PAYLOAD_SIZE,
        INITIAL_MAX_DATA,
        INITIAL_MAX_STREAMS_BIDI,
        INITIAL_MAX_STREAMS_UNI,
        MAX_DATAGRAM_FRAME_SIZE,
    ]
    .into_iter()
    .chain(INITIAL_MAX_STREAM_DATA.map(|id| (id, INITIAL_MAX_STREAM_DATA_BYTES)))
    .map(|(id, value)| (id, number(value)))
    .collect();
    parameters.push((INITIAL_SOURCE_CONNECTION_ID, Vec::new()));
    parameters.push((VERSION_INFORMATION, version_information(random)?));
    parameters.push((CONNECTION_OPTIONS.0, CONNECTION_OPTIONS.1.to_vec()));
    parameters.push(reserved(random)?);
    shuffle(&mut parameters, random)?;
    let mut encoded = Vec::new();
    for (id, value) in parameters {
        varint::write(id, &mut encoded);
        varint::write(value.len() as u64, &mut encoded);
        encoded.extend_from_slice(&value);
    }
    Ok(encoded)
}

fn number(value: u64) -> Vec<u8> {
    let mut encoded = Vec::new();
    varint::write(value, &mut encoded);
    encoded
}

/// Version 1, chosen among a reserved version (RFC 9000 section 15) and version 1.
fn version_information(random: &dyn SecureRandom) -> Result<Vec<u8>, GetRandomFailed> {
    let reserved = (draw::<4>(random)?).map(|byte| byte & 0xf0 | 0x0a);
    Ok([[0, 0, 0, 1], reserved, [0, 0, 0, 1]].concat())
}

/// A reserved parameter (RFC 9000 section 18.1): 31 N + 27.
fn reserved(random: &dyn SecureRandom) -> Result<(u64, Vec<u8>), GetRandomFailed> {
    // Identifiers have 62 bits.
    let id = u64::from_be_bytes(draw(random)?) % ((1 << 62) - 27) / 31 * 31 + 27;
    let mut value = draw::<RESERVED_BYTES_MAX>(random)?.to_vec();
    let length = draw::<1>(random)?[0];
    value.truncate(usize::from(length) % (RESERVED_BYTES_MAX + 1));
    Ok((id, value))
}

/// Fisher and Yates; what a remainder of 64 bits prefers is below what anybody can measure.
fn shuffle<T>(items: &mut [T], random: &dyn SecureRandom) -> Result<(), GetRandomFailed> {
    for last in (1..items.len()).rev() {
        let place = u64::from_be_bytes(draw(random)?) % (last as u64 + 1);
        items.swap(last, place as usize);
    }
    Ok(())
}

fn draw<const N: usize>(random: &dyn SecureRandom) -> Result<[u8; N], GetRandomFailed> {
    let mut bytes = [0; N];
    random.fill(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use rustls::crypto::aws_lc_rs::default_provider;

    use super::*;

    fn decode(mut encoded: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut parameters = Vec::new();
        while !encoded.is_empty() {
            let (id, used) = varint::read(encoded).unwrap();
            let (length, more) = varint::read(&encoded[used..]).unwrap();
            let (value, rest) = encoded[used + more..].split_at(length as usize);
            parameters.push((id, value.to_vec()));
            encoded = rest;
        }
        parameters
    }

    /// The values of a capture of Chrome.
    #[test]
    fn the_set_is_a_browsers_and_only_order_and_reserved_values_differ() {
        let provider = default_provider();
        let (mut orders, mut lengths) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..200 {
            let parameters = decode(&encode(provider.secure_random).unwrap());
            let is_reserved = |id: u64| id % 31 == 27;
            let known = |id: &u64| *id < 0x10 || [0x11, 0x20, 0x3128].contains(id);
            orders.insert(
                parameters
                    .iter()
                    .map(|(id, _)| *id)
                    .filter(known)
                    .collect::<Vec<_>>(),
            );
            let (mut fixed, reserved): (BTreeMap<_, _>, BTreeMap<_, _>) =
                parameters.into_iter().partition(|(id, _)| known(id));
            assert!(reserved.len() == 1 && reserved.keys().all(|id| is_reserved(*id) && *id < 1 << 62));
            lengths.extend(reserved.values().map(Vec::len));
            let versions = fixed.remove(&0x11).unwrap();
            assert!(versions[..4] == [0, 0, 0, 1] && versions[8..] == [0, 0, 0, 1]);
            assert!(versions[4..8].iter().all(|byte| byte & 0x0f == 0x0a));
            let expected: [(u64, &[u8]); 11] = [
                (0x01, &[0x80, 0x00, 0x75, 0x30]),
                (0x03, &[0x45, 0xc0]),
                (0x04, &[0x80, 0xf0, 0x00, 0x00]),
                (0x05, &[0x80, 0x60, 0x00, 0x00]),
                (0x06, &[0x80, 0x60, 0x00, 0x00]),
                (0x07, &[0x80, 0x60, 0x00, 0x00]),
                (0x08, &[0x40, 0x64]),
                (0x09, &[0x40, 0x67]),
                (0x0f, &[]),
                (0x20, &[0x80, 0x01, 0x00, 0x00]),
                (0x3128, b"ORIG"),
            ];
            assert!(fixed.iter().map(|(id, value)| (*id, &value[..])).eq(expected));
        }
        assert!(orders.len() > 190, "{} orders", orders.len());
        assert_eq!(lengths, (0..=RESERVED_BYTES_MAX).collect());
    }
}
