//! Headers of source and parity datagrams (REPAIR-4, REPAIR-6).

use crate::limits::COUNT_MAX;
use crate::symbol::LENGTH_BYTES;

/// Bytes before the payload of a source datagram: its number, big-endian (REPAIR-4).
pub const SOURCE_HEADER_BYTES: usize = 3;

/// Bytes before the symbol of a parity datagram: last number (3, big-endian), count (1), index (1) (REPAIR-6).
pub const PARITY_HEADER_BYTES: usize = 5;

/// Bytes of a parity datagram that covers payloads of up to `payload_bytes`.
#[must_use]
pub const fn parity_bytes(payload_bytes: usize) -> usize {
    PARITY_HEADER_BYTES + symbol_bytes(payload_bytes)
}

/// Bytes of a symbol: whole elements.
pub(crate) const fn symbol_bytes(payload_bytes: usize) -> usize {
    (LENGTH_BYTES + payload_bytes).next_multiple_of(2)
}

/// The header of a source datagram.
pub(crate) fn source_header(number: u64) -> [u8; SOURCE_HEADER_BYTES] {
    let [.., a, b, c] = number.to_be_bytes();
    [a, b, c]
}

/// Number and payload of a source datagram; `None` where it has no header.
pub(crate) fn source(datagram: &[u8]) -> Option<(u32, &[u8])> {
    let ([a, b, c], payload) = datagram.split_first_chunk::<SOURCE_HEADER_BYTES>()?;
    Some((u32::from_be_bytes([0, *a, *b, *c]), payload))
}

/// A parity datagram's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParityView<'a> {
    /// Number of the last payload that it covers, modulo 2^24.
    pub(crate) last: u32,
    /// Payloads that it covers: 1 to [`COUNT_MAX`].
    pub(crate) count: usize,
    pub(crate) index: u8,
    pub(crate) symbol: &'a [u8],
}

pub(crate) fn parity_header(last: u64, count: usize, index: u8) -> [u8; PARITY_HEADER_BYTES] {
    debug_assert!(
        (1..=COUNT_MAX).contains(&count),
        "a window holds 1 to 128 payloads"
    );
    let [a, b, c] = source_header(last);
    [a, b, c, count as u8, index]
}

/// `None` where it is no parity datagram.
pub(crate) fn parity(datagram: &[u8]) -> Option<ParityView<'_>> {
    let ([a, b, c, count, index], symbol) = datagram.split_first_chunk::<PARITY_HEADER_BYTES>()?;
    let view = ParityView {
        last: u32::from_be_bytes([0, *a, *b, *c]),
        count: usize::from(*count),
        index: *index,
        symbol,
    };
    let is_whole = (1..=COUNT_MAX).contains(&view.count)
        && symbol.len() >= LENGTH_BYTES
        && symbol.len().is_multiple_of(2);
    is_whole.then_some(view)
}

/// The full number that `number` stands for, nearest to `near` (REPAIR-4).
pub(crate) fn unwrapped(number: u32, near: u64) -> u64 {
    // The difference modulo 2^24, from -2^23 to 2^23 - 1.
    let difference = (number.wrapping_sub(near as u32) << 8).cast_signed() >> 8;
    near.saturating_add_signed(i64::from(difference))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unwrapped_to_the_nearest() {
        let near = (5_u64 << 24) + 3;
        for (number, expected) in [
            (3, near),
            (4, near + 1),
            (0, near - 3),
            (0xff_ffff, near - 4),
            (3 + (1 << 23) - 1, near + (1 << 23) - 1),
            (3 + (1 << 23), near - (1 << 23)),
        ] {
            assert_eq!(unwrapped(number, near), expected);
        }
        assert_eq!(unwrapped(0xff_ffff, 0), 0);
    }

    /// REPAIR-4, REPAIR-6.
    #[test]
    fn headers_have_the_layout_of_the_specification() {
        assert_eq!(source_header(0x12_3456_789a), [0x56, 0x78, 0x9a]);
        assert_eq!(source(&[1, 2, 3, 9]), Some((0x1_0203, &[9][..])));
        assert_eq!(source(&[1, 2]), None);
        let header = parity_header(0x1_0000_0007, 128, 200);
        assert_eq!(header, [0, 0, 7, 128, 200]);
        let datagram = [&header[..], &[0, 1, 9, 9]].concat();
        let view = parity(&datagram).unwrap();
        assert_eq!(
            (view.last, view.count, view.index, view.symbol.len()),
            (7, 128, 200, 4)
        );
        for broken in [
            &datagram[..5],
            &datagram[..6],
            &datagram[..8],
            &[0, 0, 0, 0, 0, 0, 0],
            &[0, 0, 0, 129, 0, 0, 0],
        ] {
            assert_eq!(parity(broken), None);
        }
        assert_eq!((parity_bytes(160), parity_bytes(161)), (167, 169));
    }
}
