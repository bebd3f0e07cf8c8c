//! Protection of one packet, whatever its keys (RFC 9001 sections 5.3 and 5.4).

use std::ops::Range;

use rustls::quic::{DirectionalKeys, HeaderProtectionKey};

/// Bytes of a packet number at most (RFC 9000 section 17.1).
pub(crate) const NUMBER_BYTES_MAX: usize = 4;
/// Bytes by which a sealed payload is longer: the tag of each AEAD of TLS 1.3.
pub(crate) const TAG_BYTES: usize = 16;
/// Of a header protection sample.
const SAMPLE_BYTES: usize = 16;

/// Removes the header protection of a packet whose number begins at `number_offset`; the number, and where the payload
/// begins. `largest` is the highest number that came from that sender before. `None` where the packet is too short.
pub(crate) fn unmask(
    key: &dyn HeaderProtectionKey,
    packet: &mut [u8],
    number_offset: usize,
    largest: Option<u64>,
) -> Option<(u64, usize)> {
    let (head, masked) = packet.split_at_mut_checked(number_offset)?;
    let (number, sample) = masked.split_first_chunk_mut::<NUMBER_BYTES_MAX>()?;
    let first = head.first_mut()?;
    key.decrypt_in_place(sample.get(..SAMPLE_BYTES)?, first, number)
        .ok()?;
    let bytes = usize::from(*first & 3) + 1;
    let truncated = number[..bytes]
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte));
    let full = full_number(largest, truncated, 8 * bytes as u32);
    Some((full, number_offset + bytes))
}

/// Seals a packet in clear, whose number stands at `place`, and masks its header. The payload is long enough for a
/// sample: with the number it has 4 bytes at least.
pub(crate) fn protect(keys: &DirectionalKeys, packet: &mut Vec<u8>, number: u64, place: Range<usize>) {
    let (head, body) = packet.split_at_mut(place.end);
    let tag = keys.packet.encrypt_in_place(number, head, body);
    packet.extend_from_slice(tag.expect("few packets, shorter than the AEAD takes").as_ref());
    let (head, masked) = packet.split_at_mut(place.start);
    let (number, sample) = masked.split_at_mut(NUMBER_BYTES_MAX);
    keys.header
        .encrypt_in_place(&sample[..SAMPLE_BYTES], &mut head[0], &mut number[..place.len()])
        .expect("a sample and a number of their lengths");
}

/// The number that is nearest to the next one and ends with these bits (RFC 9000 appendix A.3).
fn full_number(largest: Option<u64>, truncated: u64, bits: u32) -> u64 {
    let expected = largest.map_or(0, |largest| largest + 1);
    let window = 1_u64 << bits;
    let candidate = expected & !(window - 1) | truncated;
    if candidate + window / 2 <= expected && candidate < (1 << 62) - window {
        candidate + window
    } else if candidate > expected + window / 2 && candidate >= window {
        candidate - window
    } else {
        candidate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9000 appendix A.3.
    #[test]
    fn a_number_is_the_one_nearest_to_the_next() {
        assert_eq!(full_number(Some(0xa82f_30ea), 0x9b32, 16), 0xa82f_9b32);
        assert_eq!(full_number(None, 0, 8), 0);
        assert_eq!(full_number(None, 0xff, 8), 0xff);
        assert_eq!(full_number(None, 0xffff_ffff, 32), 0xffff_ffff);
        assert_eq!(full_number(Some(254), 0xff, 8), 255);
        assert_eq!(full_number(Some(255), 0x00, 8), 256);
        assert_eq!(full_number(Some(300), 0xff, 8), 255);
        assert_eq!(full_number(Some((1 << 62) - 1), 0x00, 8), (1 << 62));
    }
}
