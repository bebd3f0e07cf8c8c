//! Retry packets (RFC 9000 section 17.2.5): taken where their integrity tag is right.

use aws_lc_rs::aead;

use crate::long_header::LongPacket;

/// Of a Retry's integrity tag in version 1 (RFC 9001 section 5.8).
const KEY: [u8; 16] = *b"\xbe\x0c\x69\x0b\x9f\x66\x57\x5a\x1d\x76\x6b\x54\xe3\x68\xc8\x4e";
const NONCE: [u8; 12] = *b"\x46\x15\x99\xd3\x5d\x63\x2b\xf2\x23\x98\x25\xbb";
const TAG_BYTES: usize = 16;

/// The token of a Retry that answers an Initial to `first_id`; `None` where somebody else made it.
pub(super) fn token<'a>(packet: &LongPacket<'a>, first_id: &[u8]) -> Option<&'a [u8]> {
    let (before, tag) = packet.bytes.split_last_chunk::<TAG_BYTES>()?;
    let token = before
        .get(packet.number_offset..)
        .filter(|token| !token.is_empty())?;
    let pseudo = [&[first_id.len() as u8], first_id, before].concat();
    let key = aead::UnboundKey::new(&aead::AES_128_GCM, &KEY).expect("16 bytes");
    let nonce = aead::Nonce::assume_unique_for_key(NONCE);
    let mut tag = tag.to_vec();
    let opened = aead::LessSafeKey::new(key).open_in_place(nonce, aead::Aad::from(pseudo), &mut tag);
    opened.ok().map(|_| token)
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;

    use super::*;
    use crate::long_header::{Part, parts};

    /// RFC 9001 appendix A.4.
    const RETRY: &str = "ff000000010008f067a5502a4262b5746f6b656e04a265ba2eff4d829058fb3f0f2496ba";
    const FIRST_ID: &str = "8394c8f03e515708";

    fn token_of(bytes: &[u8], first_id: &[u8]) -> Option<Vec<u8>> {
        let Some(Part::Long(packet)) = parts(bytes).next() else {
            return None;
        };
        token(&packet, first_id).map(<[u8]>::to_vec)
    }

    #[test]
    fn a_genuine_retry_gives_its_token_and_another_one_nothing() {
        let bytes = HEXLOWER.decode(RETRY.as_bytes()).unwrap();
        let first_id = HEXLOWER.decode(FIRST_ID.as_bytes()).unwrap();
        assert_eq!(token_of(&bytes, &first_id).as_deref(), Some(&b"token"[..]));
        assert_eq!(token_of(&bytes, &first_id[1..]), None);
        for place in 0..bytes.len() {
            let mut other = bytes.clone();
            other[place] ^= 1;
            assert_eq!(token_of(&other, &first_id), None, "byte {place}");
            assert_eq!(token_of(&bytes[..place], &first_id), None, "{place} bytes");
        }
    }
}
