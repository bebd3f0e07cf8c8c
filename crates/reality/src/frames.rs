//! The frames of an Initial packet that a genuine client sends in it: PADDING, PING, ACK and CRYPTO (RFC 9000 sections
//! 12.4 and 19). Everything else ends the walk.

use packet::varint;

use crate::long_header::counted;

const PADDING: u8 = 0;
const PING: u8 = 1;
const ACK: u8 = 2;
const ACK_ECN: u8 = 3;
const CRYPTO: u8 = 6;

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A run of PADDING frames.
    Padding,
    /// Section 19.2.
    Ping,
    /// Section 19.3.
    Ack {
        /// The highest packet number that it acknowledges.
        largest: u64,
    },
    /// Section 19.6.
    Crypto {
        /// Where `data` belongs in the stream of handshake messages.
        offset: u64,
        /// A piece of the stream.
        data: &'a [u8],
    },
}

/// There was another frame, or one that is cut off or contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unexpected;

/// The frames of a payload; after an error there is nothing.
pub fn frames(payload: &[u8]) -> impl Iterator<Item = Result<Frame<'_>, Unexpected>> {
    let mut rest = payload;
    std::iter::from_fn(move || {
        let (kind, body) = rest.split_first()?;
        let frame = match *kind {
            PADDING => {
                let end = body.iter().position(|byte| *byte != PADDING);
                Some((Frame::Padding, &body[end.unwrap_or(body.len())..]))
            }
            PING => Some((Frame::Ping, body)),
            ACK | ACK_ECN => ack(body, *kind == ACK_ECN),
            CRYPTO => crypto(body),
            _ => None,
        };
        rest = frame.map_or(&[], |(_, rest)| rest);
        Some(frame.map(|(frame, _)| frame).ok_or(Unexpected))
    })
}

fn ack(mut rest: &[u8], has_counts: bool) -> Option<(Frame<'_>, &[u8])> {
    let largest = number(&mut rest)?;
    let _delay = number(&mut rest)?;
    let ranges = number(&mut rest)?;
    let mut smallest = largest.checked_sub(number(&mut rest)?)?;
    // Each takes two bytes at least, so that the payload bounds them.
    for _ in 0..ranges {
        let next = smallest.checked_sub(number(&mut rest)?)?.checked_sub(2)?;
        smallest = next.checked_sub(number(&mut rest)?)?;
    }
    if has_counts {
        for _mark in ["ECT(0)", "ECT(1)", "CE"] {
            number(&mut rest)?;
        }
    }
    Some((Frame::Ack { largest }, rest))
}

fn crypto(mut rest: &[u8]) -> Option<(Frame<'_>, &[u8])> {
    let offset = number(&mut rest)?;
    let (data, rest) = counted(rest)?;
    Some((Frame::Crypto { offset, data }, rest))
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let (value, used) = varint::read(rest)?;
    *rest = &rest[used..];
    Some(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(payload: &[u8]) -> Result<Vec<Frame<'_>>, Unexpected> {
        frames(payload).collect()
    }

    #[test]
    fn the_four_frames_are_read_in_any_order() {
        let payload = b"\x06\x02\x03abc\0\0\0\x01\x02\x09\x40\x00\x01\x02\x03\x01\x06\x00\x00\x03\x05\0\0\0\x01\x02\x03\0";
        let crypto = |offset, data: &'static [u8]| Frame::Crypto { offset, data };
        let expected = [
            crypto(2, b"abc"),
            Frame::Padding,
            Frame::Ping,
            Frame::Ack { largest: 9 },
            crypto(0, b""),
            Frame::Ack { largest: 5 },
            Frame::Padding,
        ];
        assert_eq!(all(payload).as_deref(), Ok(&expected[..]));
        assert_eq!(all(b"").as_deref(), Ok(&[][..]));
    }

    /// QR1-6, QR1-22.
    #[test]
    fn every_other_frame_ends_the_walk() {
        for kind in 0..=255 {
            let payload = [PING, kind, 0, 0, 0, 0, 0, 0, PING];
            let is_known = [PADDING, PING, ACK, ACK_ECN, CRYPTO].contains(&kind);
            assert_eq!(all(&payload).is_ok(), is_known, "frame {kind:#x}");
            if !is_known {
                let found: Vec<_> = frames(&payload).collect();
                assert_eq!(found, [Ok(Frame::Ping), Err(Unexpected)]);
            }
        }
    }

    #[test]
    fn frames_that_are_cut_off_or_contradict_themselves_are_unexpected() {
        let ack = b"\x03\x09\x40\x00\x01\x02\x03\x01\x01\x02\x03";
        for end in 1..ack.len() {
            assert_eq!(all(&ack[..end]), Err(Unexpected), "{end} bytes");
        }
        let crypto = b"\x06\x40\x02\x03abc";
        for end in 1..crypto.len() {
            assert_eq!(all(&crypto[..end]), Err(Unexpected), "{end} bytes");
        }
        // Below packet 0: by the first range, by a gap, by a range. More ranges than there are.
        for ack in [
            &b"\x02\x01\0\0\x02"[..],
            b"\x02\x05\0\x01\x02\x02\0",
            b"\x02\x05\0\x01\0\0\x04",
            b"\x02\x05\0\xff\xff\xff\xff\xff\xff\xff\xff\0",
        ] {
            assert_eq!(all(ack), Err(Unexpected), "{ack:02x?}");
        }
        assert_eq!(
            all(b"\x02\x05\0\x01\0\0\x03"),
            Ok(vec![Frame::Ack { largest: 5 }])
        );
    }

    proptest! {
        #[test]
        fn no_payload_makes_the_walk_panic_or_go_on_for_ever(payload in proptest::collection::vec(0_u8..8, 0..200)) {
            prop_assert!(frames(&payload).count() <= payload.len());
            let bytes: usize = frames(&payload).map(|frame| match frame {
                Ok(Frame::Crypto { data, .. }) => data.len(),
                _ => 0,
            }).sum();
            prop_assert!(bytes <= payload.len());
        }
    }
}
