//! For tests: first flights of clients.

use std::ops::Range;

use packet::varint;

use crate::initial::{InitialKeys, Sender};
use crate::test_hellos::SOURCE_ID;

/// The destination connection ID that clients of tests begin with.
pub(crate) const DESTINATION_ID: [u8; 8] = [0xd1, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8];

/// A CRYPTO frame with a part of `message`.
pub(crate) fn crypto(message: &[u8], part: Range<usize>) -> Vec<u8> {
    let mut frame = vec![6];
    varint::write(part.start as u64, &mut frame);
    varint::write(part.len() as u64, &mut frame);
    frame.extend_from_slice(&message[part]);
    frame
}

/// A datagram of 1,200 bytes at least with one Initial of these frames.
pub(crate) fn initial(number: u64, frames: &[u8]) -> Vec<u8> {
    initial_with(&DESTINATION_ID, &SOURCE_ID, &[], number, frames)
}

/// The same with other connection IDs and a token.
pub(crate) fn initial_with(
    destination: &[u8],
    source: &[u8],
    token: &[u8],
    number: u64,
    frames: &[u8],
) -> Vec<u8> {
    let mut frames = frames.to_vec();
    if frames.len() < 1_180 {
        frames.resize(1_180, 0);
    }
    InitialKeys::new(destination).seal(Sender::Client, (destination, source), token, number, 1, &frames)
}

/// `message` in two datagrams, cut in the middle.
pub(crate) fn two_initials(message: &[u8]) -> [Vec<u8>; 2] {
    let middle = message.len() / 2;
    [
        initial(0, &crypto(message, 0..middle)),
        initial(1, &crypto(message, middle..message.len())),
    ]
}
