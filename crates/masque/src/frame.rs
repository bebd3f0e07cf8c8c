//! The layout of HTTP/3 frames (RFC 9114 section 7): types, the reader of their headers, and the two frames we send
//! on requests.

use bytes::Buf;
use packet::varint;

use crate::{HeaderList, qpack};

/// Bytes of the longest frame header: two varints.
pub(crate) const HEADER_BYTES_MAX: usize = 2 * varint::LEN_MAX;

/// Frame types of RFC 9114 section 11.2.1, and one of our own.
pub(crate) mod kind {
    pub(crate) const DATA: u64 = 0x00;
    pub(crate) const HEADERS: u64 = 0x01;
    pub(crate) const CANCEL_PUSH: u64 = 0x03;
    pub(crate) const SETTINGS: u64 = 0x04;
    pub(crate) const PUSH_PROMISE: u64 = 0x05;
    pub(crate) const GOAWAY: u64 = 0x07;
    pub(crate) const MAX_PUSH_ID: u64 = 0x0d;
    /// Of our own, chosen at random (specs/path.md).
    pub(crate) const HELD_BACK: u64 = 0x1ace_11ed;

    /// Types of HTTP/2 frames without a counterpart: their receipt is H3_FRAME_UNEXPECTED (RFC 9114 section 7.2.8).
    pub(crate) const fn is_reserved(kind: u64) -> bool {
        matches!(kind, 0x02 | 0x06 | 0x08 | 0x09)
    }
}

/// Collects the two varints, type and length, that open a frame or a capsule, however they are cut into chunks.
#[derive(Debug, Default)]
pub(crate) struct HeaderReader {
    bytes: [u8; HEADER_BYTES_MAX],
    used: usize,
}

impl HeaderReader {
    /// Takes from `input` until type and length are known; `None` where it ends before.
    pub(crate) fn read(&mut self, input: &mut impl Buf) -> Option<(u64, u64)> {
        if self.used == 0
            && let Some((kind, length, used)) = parse(input.chunk())
        {
            input.advance(used);
            return Some((kind, length));
        }
        while input.has_remaining() {
            self.bytes[self.used] = input.get_u8();
            self.used += 1;
            if let Some((kind, length, _)) = parse(&self.bytes[..self.used]) {
                self.used = 0;
                return Some((kind, length));
            }
        }
        None
    }

    /// Whether nothing of a header has come yet.
    pub(crate) const fn is_empty(&self) -> bool {
        self.used == 0
    }
}

fn parse(input: &[u8]) -> Option<(u64, u64, usize)> {
    let (kind, kind_used) = varint::read(input)?;
    let (length, length_used) = varint::read(&input[kind_used..])?;
    Some((kind, length, kind_used + length_used))
}

/// A whole frame.
pub(crate) fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES_MAX + payload.len());
    varint::write(kind, &mut out);
    varint::write(payload.len() as u64, &mut out);
    out.extend_from_slice(payload);
    out
}

/// A HEADERS frame (RFC 9114 section 7.2.2) with `list`.
#[must_use]
pub fn headers_frame(list: &HeaderList) -> Vec<u8> {
    frame(kind::HEADERS, &qpack::encode(list))
}

/// The header of a DATA frame (RFC 9114 section 7.2.1) whose payload of `length` bytes follows: the bytes, and how
/// many count.
///
/// # Panics
/// When `length` is above [`varint::MAX`].
#[must_use]
pub fn data_frame_header(length: u64) -> ([u8; 9], usize) {
    let (encoded, used) = varint::encode(length);
    let mut bytes = [0; 9];
    bytes[0] = kind::DATA as u8;
    bytes[1..].copy_from_slice(&encoded);
    (bytes, 1 + used)
}
