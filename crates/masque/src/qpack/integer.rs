//! Prefixed integers of QPACK (RFC 9204 section 4.1.1, RFC 7541 section 5.1).

/// Largest integer that is taken: QPACK needs 62 bits (RFC 9204 section 4.1.1).
const MAX: u64 = packet::varint::MAX;

/// Appends `value` with a prefix of `bits` bits, the rest of the first byte being `flags`.
pub(super) fn write(value: u64, bits: u32, flags: u8, out: &mut Vec<u8>) {
    let full = (1_u64 << bits) - 1;
    if value < full {
        out.push(flags | value as u8);
        return;
    }
    out.push(flags | full as u8);
    let mut rest = value - full;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Takes an integer with a prefix of `bits` bits from `input`; `None` where it is truncated or above 2^62 - 1.
pub(super) fn take(input: &mut &[u8], bits: u32) -> Option<u64> {
    let (first, mut rest) = input.split_first()?;
    let full = (1_u64 << bits) - 1;
    let mut value = u64::from(*first) & full;
    if value == full {
        let mut shift = 0;
        loop {
            let (byte, after) = rest.split_first()?;
            rest = after;
            value = value
                .checked_add(u64::from(byte & 0x7f) << shift)
                .filter(|value| *value <= MAX)?;
            if byte & 0x80 == 0 {
                break;
            }
            // Nine bytes hold 63 bits: enough for MAX, and no bit is lost by the shift.
            shift += 7;
            if shift > 56 {
                return None;
            }
        }
    }
    *input = rest;
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7541 appendix C.1.
    #[test]
    fn the_examples_of_the_rfc_hold() {
        for (value, bits, expected) in [
            (10, 5, &[0x0a][..]),
            (1337, 5, &[0x1f, 0x9a, 0x0a]),
            (42, 8, &[0x2a]),
        ] {
            let mut out = Vec::new();
            write(value, bits, 0, &mut out);
            assert_eq!(out, expected);
            assert_eq!(take(&mut &out[..], bits), Some(value));
        }
    }

    #[test]
    fn every_boundary_survives_a_round_trip_and_no_truncation_does() {
        for value in [
            0,
            1,
            30,
            31,
            32,
            127,
            128,
            158,
            159,
            254,
            255,
            256,
            1 << 32,
            MAX - 1,
            MAX,
        ] {
            for bits in 3..=8 {
                let mut out = Vec::new();
                write(value, bits, 0, &mut out);
                let mut input = &out[..];
                assert_eq!((take(&mut input, bits), input), (Some(value), &[][..]));
                for cut in 0..out.len() {
                    assert_eq!(take(&mut &out[..cut], bits), None);
                }
            }
        }
    }

    #[test]
    fn an_integer_beyond_62_bits_is_refused_without_overflow() {
        let mut out = Vec::new();
        write(MAX + 1, 5, 0, &mut out);
        assert_eq!(take(&mut &out[..], 5), None);
        assert_eq!(take(&mut &[0xff; 32][..], 8), None);
        assert_eq!(
            take(
                &mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f][..],
                8
            ),
            None
        );
    }
}
