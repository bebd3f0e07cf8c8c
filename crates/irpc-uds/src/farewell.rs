//! What the socket layer reports to QUIC when a peer is gone, and to a client that is refused.
//!
//! The end of a socket is known at once, but noq only learns from packets. Since packets are plain, the layer writes
//! the one that the peer did not: a CONNECTION_CLOSE (RFC 9000 section 19.19) in a packet that continues the last one
//! that the peer sent, or, if it sent none, that answers what was sent to it. It reaches no other machine or process:
//! it is handed to this endpoint as if received.
//!
//! A refusal travels to the client as a *notice*: a first byte without QUIC's fixed bit, then text.

use std::borrow::Cow;

use crate::limits::{
    CLOSING_BYTES_MAX, CONNECTION_ID_BYTES, CONNECTION_ID_BYTES_MAX, REASON_BYTES_MAX, SHORT_HEADER_BYTES,
};

/// First byte of a refusal: neither a long header nor QUIC's fixed bit.
const NOTICE: u8 = 0;

/// RFC 9000 section 19.19: CONNECTION_CLOSE of the transport.
const FRAME_CONNECTION_CLOSE: u8 = 0x1c;

/// RFC 9000 section 17.2: the type bits of long headers.
const LONG_HEADER: u8 = 0x80;
const FIXED_BIT: u8 = 0x40;
const TYPE_MASK: u8 = 0x30;
const TYPE_INITIAL: u8 = 0x00;
const TYPE_HANDSHAKE: u8 = 0x20;

/// Why a connection ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Code {
    /// RFC 9000 section 20.1, INTERNAL_ERROR: the peer cannot go on.
    Gone = 0x1,
    /// CONNECTION_REFUSED.
    Refused = 0x2,
    /// PROTOCOL_VIOLATION.
    Violation = 0xa,
}

/// An end with its reason.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct End {
    pub(crate) code: Code,
    pub(crate) reason: Cow<'static, str>,
}

impl End {
    pub(crate) const GONE: Self = Self {
        code: Code::Gone,
        reason: Cow::Borrowed(
            "the peer's end of the Unix socket is closed: its process has ended or let go of it",
        ),
    };

    pub(crate) fn violation(reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code: Code::Violation,
            reason: reason.into(),
        }
    }
}

/// Cuts `text` to what a reason may have.
fn short(text: &str) -> &str {
    &text[..text.floor_char_boundary(REASON_BYTES_MAX)]
}

/// The datagram that tells a client why it is refused.
pub(crate) fn notice(reason: &str) -> Vec<u8> {
    [&[NOTICE], short(reason).as_bytes()].concat()
}

/// The refusal in `datagram`, if it is one.
pub(crate) fn read_notice(datagram: &[u8]) -> Option<End> {
    let (first, text) = datagram.split_first()?;
    (*first == NOTICE).then(|| End {
        code: Code::Refused,
        reason: short(&String::from_utf8_lossy(text)).to_owned().into(),
    })
}

/// Whether a datagram starts with a long header, as in a handshake.
pub(crate) fn is_long(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first & LONG_HEADER != 0)
}

/// The destination connection ID of an Initial packet.
pub(crate) fn initial_destination(datagram: &[u8]) -> Option<&[u8]> {
    let first = *datagram.first()?;
    if first & (LONG_HEADER | TYPE_MASK) != LONG_HEADER | TYPE_INITIAL {
        return None;
    }
    let mut reader = Reader(datagram.get(5..)?);
    reader.connection_id()
}

/// Reads from the front of a packet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    /// RFC 9000 section 16.
    fn varint(&mut self) -> Option<usize> {
        let first = *self.0.first()?;
        let bytes = self.take(1 << (first >> 6))?;
        let value = bytes[1..].iter().fold(u64::from(first & 0x3f), |value, byte| {
            value << 8 | u64::from(*byte)
        });
        usize::try_from(value).ok()
    }

    fn connection_id(&mut self) -> Option<&'a [u8]> {
        let len = usize::from(self.take(1)?[0]);
        if len > CONNECTION_ID_BYTES_MAX {
            return None;
        }
        self.take(len)
    }

    fn packet(&mut self) -> Option<Last<'a>> {
        let first = self.take(1)?[0];
        // Zeros after the packets are padding.
        if first & FIXED_BIT == 0 {
            return None;
        }
        let number_bytes = usize::from(first & 0x03) + 1;
        if first & LONG_HEADER == 0 {
            let destination = self.take(CONNECTION_ID_BYTES)?;
            let number = self.take(number_bytes)?;
            // It has no length: it is all of the rest.
            self.0 = &[];
            return Some(Last {
                first,
                version: &[],
                destination,
                source: &[],
                number,
            });
        }
        let version = self.take(4)?;
        let destination = self.connection_id()?;
        let source = self.connection_id()?;
        match first & TYPE_MASK {
            TYPE_INITIAL => {
                let token_bytes = self.varint()?;
                self.take(token_bytes)?;
            }
            TYPE_HANDSHAKE => {}
            _ => return None,
        }
        let len = self.varint()?;
        let number = self.take(len)?.get(..number_bytes)?;
        Some(Last {
            first,
            version,
            destination,
            source,
            number,
        })
    }
}

/// What a closing packet needs of the packet it follows.
struct Last<'a> {
    first: u8,
    version: &'a [u8],
    destination: &'a [u8],
    source: &'a [u8],
    number: &'a [u8],
}

/// The packets of a datagram, up to the first that cannot be understood (RFC 9000 sections 12.2 and 17).
fn packets(datagram: &[u8]) -> impl Iterator<Item = Last<'_>> {
    let mut reader = Reader(datagram);
    std::iter::from_fn(move || reader.packet())
}

fn last_packet(datagram: &[u8]) -> Option<Last<'_>> {
    packets(datagram).last()
}

/// A packet number beyond all that a peer reaches during a handshake, for packets with keys whose last number is not
/// known.
const FAR_NUMBER: [u8; 4] = [0x3f, 0, 0, 0];

/// A packet number of the same length that follows `number`: the receiver expands it next to the largest it has seen
/// (RFC 9000 section 17.1), which is this one, since nothing is reordered.
fn next_number(number: &[u8]) -> Vec<u8> {
    let mut next = number.to_vec();
    for byte in next.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            break;
        }
    }
    next
}

/// The datagram by which the sender of `last`, its last datagram or the start of it, closes the connection.
///
/// The packet that continues the last one comes first. After one of the handshake, those of the later keys follow: what
/// was received last may have made this endpoint forget the keys that it came with (RFC 9001 section 4.9).
pub(crate) fn closing_packet(last: &[u8], end: &End) -> Option<Vec<u8>> {
    let last = last_packet(last)?;
    let mut datagram = build(
        last.first,
        last.version,
        last.destination,
        last.source,
        &next_number(last.number),
        end,
    );
    let is_long = last.first & LONG_HEADER != 0;
    if is_long && last.first & TYPE_MASK == TYPE_INITIAL {
        let first = LONG_HEADER | FIXED_BIT | TYPE_HANDSHAKE;
        datagram.extend(build(
            first,
            last.version,
            last.destination,
            last.source,
            &FAR_NUMBER,
            end,
        ));
    }
    // The destination is this endpoint's choice, whose length it knows, except in a client's first packets.
    if is_long && last.destination.len() == CONNECTION_ID_BYTES {
        datagram.extend(build(FIXED_BIT, &[], last.destination, &[], &FAR_NUMBER, end));
    }
    Some(datagram)
}

/// The packet by which the receiver of `sent`, a client's first datagram, would have refused it.
pub(crate) fn refusing_packet(sent: &[u8], end: &End) -> Option<Vec<u8>> {
    let sent = last_packet(sent)?;
    if sent.first & (LONG_HEADER | TYPE_MASK) != LONG_HEADER | TYPE_INITIAL {
        return None;
    }
    let first = LONG_HEADER | FIXED_BIT | TYPE_INITIAL;
    Some(build(
        first,
        sent.version,
        sent.source,
        sent.destination,
        &[0],
        end,
    ))
}

fn build(first: u8, version: &[u8], destination: &[u8], source: &[u8], number: &[u8], end: &End) -> Vec<u8> {
    let reason = short(&end.reason).as_bytes();
    let two_bytes = |value: usize| (0x4000 | (value & 0x3fff) as u16).to_be_bytes();
    let mut frame = vec![FRAME_CONNECTION_CLOSE, end.code as u8, 0];
    frame.extend(two_bytes(reason.len()));
    frame.extend(reason);

    let mut packet = Vec::with_capacity(SHORT_HEADER_BYTES + 2 * CONNECTION_ID_BYTES_MAX + 16 + frame.len());
    packet.push(first & (LONG_HEADER | FIXED_BIT | TYPE_MASK) | (number.len() as u8 - 1));
    if first & LONG_HEADER == 0 {
        // Of a short header, spin bit, reserved bits and key phase.
        packet[0] = FIXED_BIT | first & 0x04 | (number.len() as u8 - 1);
        packet.extend(destination);
    } else {
        packet.extend(version);
        for id in [destination, source] {
            packet.push(id.len() as u8);
            packet.extend(id);
        }
        if first & TYPE_MASK == TYPE_INITIAL {
            packet.push(0);
        }
        packet.extend(two_bytes(number.len() + frame.len()));
    }
    packet.extend(number);
    packet.extend(frame);
    packet
}

/// Takes `input` for a datagram, closes its last packet, answers it, and reads both again.
#[doc(hidden)]
pub fn fuzz(input: &[u8]) {
    if let Some(notice) = read_notice(input) {
        assert!(
            notice.reason.len() <= REASON_BYTES_MAX,
            "what a peer says is bounded"
        );
    }
    if let Some(destination) = initial_destination(input) {
        assert!(
            destination.len() <= CONNECTION_ID_BYTES_MAX,
            "RFC 9000 section 17.2"
        );
    }
    let last = last_packet(input);
    let closing = closing_packet(input, &End::GONE);
    assert_eq!(last.is_some(), closing.is_some());
    let Some(last) = last else { return };
    let closing = closing.unwrap_or_default();
    assert!(closing.len() <= CLOSING_BYTES_MAX, "{} bytes", closing.len());
    let written = packets(&closing).next().expect("just written");
    assert!(packets(&closing).all(|packet| packet.destination == last.destination));
    assert_eq!(
        (written.version, written.destination, written.source),
        (last.version, last.destination, last.source)
    );
    assert_eq!(written.number, next_number(last.number));
    if let Some(refusal) = refusing_packet(input, &End::GONE) {
        assert!(refusal.len() <= CLOSING_BYTES_MAX, "{} bytes", refusal.len());
        let written = last_packet(&refusal).expect("just written");
        assert_eq!(
            (written.destination, written.source),
            (last.source, last.destination)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn long(kind: u8, number: &[u8], rest: usize) -> Vec<u8> {
        let end = End {
            code: Code::Gone,
            reason: "x".repeat(rest).into(),
        };
        build(
            LONG_HEADER | FIXED_BIT | kind,
            b"uds\x01",
            b"destined",
            b"origin",
            number,
            &end,
        )
    }

    #[test]
    fn the_last_of_several_packets_is_continued() {
        let short_packet = build(FIXED_BIT | 0x04, &[], b"12345678", &[], &[0xff, 0xff], &End::GONE);
        let datagram = [
            long(TYPE_INITIAL, &[7], 30),
            long(TYPE_HANDSHAKE, &[0, 9], 20),
            short_packet,
        ]
        .concat();
        let closing = closing_packet(&datagram, &End::GONE).expect("three packets");
        assert_eq!(
            closing[0],
            FIXED_BIT | 0x04 | 1,
            "the same key phase, two bytes of number"
        );
        assert_eq!(closing[1..9], *b"12345678");
        assert_eq!(closing[9..11], [0, 0], "the number after 65,535");

        let initial = closing_packet(&datagram[..datagram.len() / 2], &End::GONE).expect("two packets");
        let continued = packets(&initial).next().expect("an Initial");
        assert_eq!(
            continued.first & TYPE_MASK,
            TYPE_INITIAL,
            "a packet that was cut does not count"
        );
    }

    #[test]
    fn padding_after_the_packets_is_no_packet() {
        let datagram = [long(TYPE_HANDSHAKE, &[4], 10), vec![0; 900]].concat();
        let closing = closing_packet(&datagram, &End::GONE).expect("one packet");
        let continued = packets(&closing).next().expect("a packet");
        assert_eq!(
            (continued.first & TYPE_MASK, continued.number),
            (TYPE_HANDSHAKE, &[5][..])
        );
        assert!(closing_packet(&[0; 50], &End::GONE).is_none());
    }

    #[test]
    fn a_connection_whose_keys_have_moved_on_is_closed_as_well() {
        let kinds = |datagram: &[u8]| -> Vec<u8> {
            packets(datagram)
                .map(|packet| packet.first & (LONG_HEADER | TYPE_MASK))
                .collect()
        };
        let after = |kind| closing_packet(&long(kind, &[0], 10), &End::GONE).expect("one packet");
        let (initial, handshake) = (LONG_HEADER | TYPE_INITIAL, LONG_HEADER | TYPE_HANDSHAKE);
        assert_eq!(kinds(&after(TYPE_INITIAL)), [initial, handshake, 0]);
        assert_eq!(kinds(&after(TYPE_HANDSHAKE)), [handshake, 0]);
        let wordy = End::violation("y".repeat(2 * REASON_BYTES_MAX));
        let longest = closing_packet(&long(TYPE_INITIAL, &[0], 10), &wordy).expect("one packet");
        assert!(longest.len() <= CLOSING_BYTES_MAX);
    }

    #[test]
    fn a_refusal_answers_the_client() {
        let refusal = refusing_packet(&long(TYPE_INITIAL, &[0], 10), &End::GONE).expect("an Initial");
        let answer = last_packet(&refusal).expect("one packet");
        assert_eq!(
            (answer.destination, answer.source),
            (&b"origin"[..], &b"destined"[..])
        );
        assert!(refusing_packet(&long(TYPE_HANDSHAKE, &[0], 10), &End::GONE).is_none());
    }

    #[test]
    fn a_notice_carries_its_text_and_no_packet_is_one() {
        let end = read_notice(&notice("uid 7 is not allowed")).expect("a notice");
        assert_eq!((end.code, &*end.reason), (Code::Refused, "uid 7 is not allowed"));
        assert_eq!(
            read_notice(&notice(&"ä".repeat(400))).expect("cut").reason.len(),
            REASON_BYTES_MAX
        );
        assert!(read_notice(&long(TYPE_INITIAL, &[0], 10)).is_none());
        assert!(read_notice(&[]).is_none());
    }

    proptest! {
        #[test]
        fn no_datagram_panics(input in prop::collection::vec(any::<u8>(), 0..300)) {
            fuzz(&input);
        }

        #[test]
        fn no_cut_or_changed_packet_panics(cut in 0_usize..200, at in 0_usize..200, to in any::<u8>()) {
            let mut datagram = [long(TYPE_INITIAL, &[7], 30), long(TYPE_HANDSHAKE, &[0, 9], 20)].concat();
            datagram.truncate(cut);
            if let Some(byte) = datagram.get_mut(at) {
                *byte = to;
            }
            fuzz(&datagram);
        }
    }
}
