//! Connectivity checks: STUN Binding indications (RFC 8489 section 6) that an end sends to open its own router for the
//! other end, and by which the other end learns an address that works (RDV-1, RDV-2).
//!
//! Their first byte tells them from QUIC packets (RFC 9443). MESSAGE-INTEGRITY-SHA256 by the meeting's key is the only
//! attribute.

use std::fmt;

use aws_lc_rs::hmac;

use crate::limits::CHECK_BYTES;

/// Binding, indication (RFC 8489 section 5).
const BINDING_INDICATION: u16 = 0x0011;
const MAGIC_COOKIE: u32 = 0x2112_a442;
const HEADER_BYTES: usize = 20;
/// RFC 8489 section 14.6.
const MESSAGE_INTEGRITY_SHA256: u16 = 0x001c;
const INTEGRITY_BYTES: usize = 32;

const _: () = assert!(CHECK_BYTES == HEADER_BYTES + 4 + INTEGRITY_BYTES);

/// What two ends know of a connection that one of them is about to begin. Whoever knows it may name addresses, at which
/// the peer's key is asked for all the same.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Meeting {
    /// Names it; the transaction ID of its checks.
    pub transaction: [u8; 12],
    /// Proves that a check belongs to it.
    pub key: [u8; 16],
}

/// Shows nothing of the key.
impl fmt::Debug for Meeting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Meeting").field(&self.transaction).finish()
    }
}

impl Meeting {
    fn hmac_key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.key)
    }

    /// The check of this meeting.
    pub(crate) fn check(&self) -> Vec<u8> {
        let mut check = Vec::with_capacity(CHECK_BYTES);
        check.extend(BINDING_INDICATION.to_be_bytes());
        check.extend(((CHECK_BYTES - HEADER_BYTES) as u16).to_be_bytes());
        check.extend(MAGIC_COOKIE.to_be_bytes());
        check.extend(self.transaction);
        let tag = hmac::sign(&self.hmac_key(), &check);
        check.extend(MESSAGE_INTEGRITY_SHA256.to_be_bytes());
        check.extend((INTEGRITY_BYTES as u16).to_be_bytes());
        check.extend(tag.as_ref());
        check
    }

    /// Whether these bytes are the check of this meeting.
    pub(crate) fn is_check(&self, bytes: &[u8]) -> bool {
        // Whoever sends anything costs a comparison.
        if bytes.len() != CHECK_BYTES || bytes[8..HEADER_BYTES] != self.transaction {
            return false;
        }
        let (covered, attribute) = bytes.split_at(HEADER_BYTES);
        let expected = self.check();
        covered == &expected[..HEADER_BYTES]
            && attribute[..4] == expected[HEADER_BYTES..HEADER_BYTES + 4]
            && hmac::verify(&self.hmac_key(), covered, &attribute[4..]).is_ok()
    }
}

/// Whether a datagram may be a check rather than a packet of QUIC (RFC 9443 section 3).
pub(crate) fn is_stun(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|byte| *byte < 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEETING: Meeting = Meeting {
        transaction: *b"one of many!",
        key: [7; 16],
    };

    /// RDV-1.
    #[test]
    fn a_check_is_a_binding_indication_that_only_its_meeting_takes() {
        let check = MEETING.check();
        assert_eq!(check[..8], [0x00, 0x11, 0x00, 0x24, 0x21, 0x12, 0xa4, 0x42]);
        assert!(is_stun(&check) && MEETING.is_check(&check));
        let others = [
            Meeting {
                key: [8; 16],
                ..MEETING
            },
            Meeting {
                transaction: [0; 12],
                ..MEETING
            },
        ];
        assert!(others.iter().all(|other| !other.is_check(&check)));
        for bit in 0..check.len() * 8 {
            let mut damaged = check.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!MEETING.is_check(&damaged), "bit {bit}");
        }
        for length in 0..check.len() {
            assert!(!MEETING.is_check(&check[..length]));
        }
        assert!(!is_stun(&[0x40]) && !is_stun(&[0xc0]) && !is_stun(&[]));
    }
}
