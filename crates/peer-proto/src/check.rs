//! Connectivity checks: STUN Binding indications (RFC 8489 section 6) that an end sends to open its own router for the
//! other end, and by which the other end learns an address that works (RDV-1, RDV-2).
//!
//! Their first byte tells them from QUIC packets (RFC 9443). MESSAGE-INTEGRITY-SHA256 by the meeting's key is the only
//! attribute.
//!
//! Once there is a connection, its ends ask each other for answers by Binding requests ([`PathCheck`], PEER-18), whose
//! transaction and key come from the handshake: no rendezvous knows them.

use std::fmt;

use aws_lc_rs::hmac;

use crate::limits::{CHECK_BYTES, PATH_CHECK_BYTES};

/// Binding, indication (RFC 8489 section 5).
const BINDING_INDICATION: u16 = 0x0011;
/// Binding, request and success response.
const BINDING_REQUEST: u16 = 0x0001;
const BINDING_RESPONSE: u16 = 0x0101;
const MAGIC_COOKIE: u32 = 0x2112_a442;
const HEADER_BYTES: usize = 20;
/// RFC 8489 section 14.6.
const MESSAGE_INTEGRITY_SHA256: u16 = 0x001c;
const INTEGRITY_BYTES: usize = 32;

/// RFC 8445 section 16.1: of the callee, and of the caller.
const ICE_CONTROLLED: u16 = 0x8029;
const ICE_CONTROLLING: u16 = 0x802a;
const NUMBER_BYTES: usize = 8;

const _: () = assert!(CHECK_BYTES == HEADER_BYTES + 4 + INTEGRITY_BYTES);
const _: () = assert!(PATH_CHECK_BYTES == CHECK_BYTES + 4 + NUMBER_BYTES);

/// A request for an answer on the path that it came by, or the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathCheck {
    pub(crate) is_answer: bool,
    /// The caller of the connection asks, or has asked.
    pub(crate) of_caller: bool,
    /// Of the request.
    pub(crate) number: u64,
}

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
    /// What both ends of a connection, and nobody else, know by its handshake.
    pub(crate) fn of_connection(secret: &[u8; 32]) -> Self {
        let mut meeting = Self {
            transaction: [0; 12],
            key: [0; 16],
        };
        meeting.transaction.copy_from_slice(&secret[..12]);
        meeting.key.copy_from_slice(&secret[12..28]);
        meeting
    }

    /// The bytes of a check of a path.
    pub(crate) fn path_check(&self, check: PathCheck) -> Vec<u8> {
        let kind = if check.is_answer {
            BINDING_RESPONSE
        } else {
            BINDING_REQUEST
        };
        let role = if check.of_caller {
            ICE_CONTROLLING
        } else {
            ICE_CONTROLLED
        };
        let mut bytes = Vec::with_capacity(PATH_CHECK_BYTES);
        bytes.extend(kind.to_be_bytes());
        bytes.extend(((PATH_CHECK_BYTES - HEADER_BYTES) as u16).to_be_bytes());
        bytes.extend(MAGIC_COOKIE.to_be_bytes());
        bytes.extend(self.transaction);
        bytes.extend(role.to_be_bytes());
        bytes.extend((NUMBER_BYTES as u16).to_be_bytes());
        bytes.extend(check.number.to_be_bytes());
        let tag = hmac::sign(&self.hmac_key(), &bytes);
        bytes.extend(MESSAGE_INTEGRITY_SHA256.to_be_bytes());
        bytes.extend((INTEGRITY_BYTES as u16).to_be_bytes());
        bytes.extend(tag.as_ref());
        bytes
    }

    /// The check of a path that these bytes are, if they are one of this connection.
    pub(crate) fn read_path_check(&self, bytes: &[u8]) -> Option<PathCheck> {
        // Whoever sends anything costs a comparison.
        if bytes.len() != PATH_CHECK_BYTES || bytes[8..HEADER_BYTES] != self.transaction {
            return None;
        }
        let number = &bytes[HEADER_BYTES + 4..HEADER_BYTES + 4 + NUMBER_BYTES];
        let check = PathCheck {
            is_answer: bytes[..2] == BINDING_RESPONSE.to_be_bytes(),
            of_caller: bytes[HEADER_BYTES..HEADER_BYTES + 2] == ICE_CONTROLLING.to_be_bytes(),
            number: u64::from_be_bytes(number.try_into().ok()?),
        };
        let (covered, tag) = bytes.split_at(PATH_CHECK_BYTES - INTEGRITY_BYTES);
        let expected = self.path_check(check);
        let is_alike = covered == &expected[..covered.len()];
        // The tag covers what stands before its attribute.
        let covered = &covered[..covered.len() - 4];
        (is_alike && hmac::verify(&self.hmac_key(), covered, tag).is_ok()).then_some(check)
    }

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

/// Whose check a datagram may be.
pub(crate) fn transaction_of(datagram: &[u8]) -> Option<[u8; 12]> {
    datagram.get(8..HEADER_BYTES)?.try_into().ok()
}

/// Reads a datagram as both kinds of checks, for the fuzz target: as it came, and with the tag of who knows the key, so
/// that what stands before the tag is judged, too. What is taken is what we would have written.
pub fn fuzz(datagram: &[u8]) {
    let Some(transaction) = transaction_of(datagram) else {
        return;
    };
    let meeting = Meeting {
        transaction,
        key: [7; 16],
    };
    let judge = |bytes: &[u8]| {
        assert!(!meeting.is_check(bytes) || bytes == meeting.check());
        let read = meeting.read_path_check(bytes);
        assert!(read.is_none_or(|check| bytes == meeting.path_check(check)));
    };
    judge(datagram);
    let mut signed = datagram.to_vec();
    let Some(covered) = signed.len().checked_sub(4 + INTEGRITY_BYTES) else {
        return;
    };
    let tag = hmac::sign(&meeting.hmac_key(), &signed[..covered]);
    signed[covered + 4..].copy_from_slice(tag.as_ref());
    judge(&signed);
}

/// One check of each kind, for the fuzz target.
#[must_use]
pub fn fuzz_seeds() -> Vec<Vec<u8>> {
    let meeting = Meeting {
        transaction: *b"one of many!",
        key: [7; 16],
    };
    let kinds = [(false, false), (false, true), (true, false), (true, true)];
    let path_checks = kinds.map(|(is_answer, of_caller)| {
        meeting.path_check(PathCheck {
            is_answer,
            of_caller,
            number: 0x0102_0304_0506_0708,
        })
    });
    let mut seeds = path_checks.to_vec();
    seeds.push(meeting.check());
    seeds
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

    /// PEER-18.
    #[test]
    fn a_check_of_a_path_is_a_binding_request_or_its_answer_and_nothing_else() {
        for (is_answer, of_caller) in [(false, false), (false, true), (true, false), (true, true)] {
            let check = PathCheck {
                is_answer,
                of_caller,
                number: 0x0102_0304_0506_0708,
            };
            let bytes = MEETING.path_check(check);
            assert_eq!(bytes[..2], if is_answer { [0x01, 0x01] } else { [0x00, 0x01] });
            assert_eq!(bytes[2..8], [0x00, 0x30, 0x21, 0x12, 0xa4, 0x42]);
            assert_eq!(bytes[20..22], [0x80, if of_caller { 0x2a } else { 0x29 }]);
            assert!(is_stun(&bytes) && !MEETING.is_check(&bytes));
            assert_eq!(transaction_of(&bytes), Some(MEETING.transaction));
            assert_eq!(MEETING.read_path_check(&bytes), Some(check));
            for bit in 0..bytes.len() * 8 {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(MEETING.read_path_check(&damaged), None, "bit {bit}");
            }
            for length in 0..bytes.len() {
                assert_eq!(MEETING.read_path_check(&bytes[..length]), None);
            }
        }
    }
}
