//! Variable-length integers of QUIC (RFC 9000 section 16).

/// Largest value that a varint can hold.
pub const MAX: u64 = (1 << 62) - 1;

/// Bytes of the longest encoding.
pub const LEN_MAX: usize = 8;

/// Bytes that the shortest encoding of `value` takes: 1, 2, 4 or 8.
///
/// # Panics
/// When `value` is above [`MAX`].
#[must_use]
pub fn len(value: u64) -> usize {
    match value {
        0..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0x3fff_ffff => 4,
        0x4000_0000..=MAX => 8,
        _ => panic!("{value} does not fit a varint"),
    }
}

/// Encodes `value` in its shortest form: the bytes and how many of them count.
///
/// # Panics
/// When `value` is above [`MAX`].
#[must_use]
pub fn encode(value: u64) -> ([u8; LEN_MAX], usize) {
    let used = len(value);
    let mut bytes = [0; LEN_MAX];
    bytes[..used].copy_from_slice(&value.to_be_bytes()[LEN_MAX - used..]);
    bytes[0] |= (used.trailing_zeros() as u8) << 6;
    (bytes, used)
}

/// Appends the shortest encoding of `value`.
///
/// # Panics
/// When `value` is above [`MAX`].
pub fn write(value: u64, out: &mut Vec<u8>) {
    let (bytes, used) = encode(value);
    out.extend_from_slice(&bytes[..used]);
}

/// Reads a varint at the start of `input`: its value and length, or `None` where `input` ends inside it.
#[must_use]
pub fn read(input: &[u8]) -> Option<(u64, usize)> {
    let first = *input.first()?;
    let used = 1_usize << (first >> 6);
    let bytes = input.get(1..used)?;
    let value = bytes.iter().fold(u64::from(first & 0x3f), |value, byte| {
        value << 8 | u64::from(*byte)
    });
    Some((value, used))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9000 appendix A.1.
    #[test]
    fn the_examples_of_the_rfc_decode() {
        assert_eq!(
            read(&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c]),
            Some((151_288_809_941_952_652, 8))
        );
        assert_eq!(read(&[0x9d, 0x7f, 0x3e, 0x7d]), Some((494_878_333, 4)));
        assert_eq!(read(&[0x7b, 0xbd]), Some((15_293, 2)));
        assert_eq!(read(&[0x25]), Some((37, 1)));
        assert_eq!(read(&[0x40, 0x25]), Some((37, 2)));
    }

    #[test]
    fn every_size_boundary_survives_a_round_trip() {
        for value in [0, 0x3f, 0x40, 0x3fff, 0x4000, 0x3fff_ffff, 0x4000_0000, MAX] {
            let mut out = Vec::new();
            write(value, &mut out);
            assert_eq!(read(&out), Some((value, len(value))));
            for cut in 0..out.len() {
                assert_eq!(read(&out[..cut]), None);
            }
        }
    }
}
