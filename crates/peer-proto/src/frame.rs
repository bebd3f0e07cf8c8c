//! The frames of `specs/peer.md`: reading what came, and writing what leaves.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use packet::varint;

use crate::limits::ACK_RANGES_MAX;

const ACK: u8 = 0x00;
const PROBE: u8 = 0x01;
const SKIP: u8 = 0x02;
const UNORDERED: u8 = 0x10;
const ORDERED: u8 = 0x11;
const LATEST: u8 = 0x12;
/// Set in the type of a stream whose message has a number.
const NUMBERED: u8 = 0x08;

/// Type of a stream that belongs to the program.
pub const PROGRAM_STREAM: u8 = 0x20;

/// What a frame says of a message's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// None.
    Unordered,
    /// In a channel (PEER-7).
    Ordered(Place),
    /// The newest of a key (PEER-9).
    Latest {
        /// Which.
        key: u32,
        /// Counts from 1.
        version: u64,
    },
}

/// A place in an ordered channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which.
    pub channel: u32,
    /// Counts from 1.
    pub position: u64,
    /// How far back the message lies that this one waits for; 0 for none.
    pub distance: u64,
}

/// What a DATAGRAM frame holds (PEER-4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// What has come.
    Ack(Ack),
    /// Asks for an ACK.
    Probe,
    /// A message that was given up.
    Skip {
        /// Its own number.
        number: u64,
        /// Which message.
        place: Place,
    },
    /// A message.
    Message {
        /// Its number.
        number: u64,
        /// Its order.
        head: Head,
        /// Its bytes.
        body: Bytes,
    },
}

/// Which numbers have come, and which may be sent (PEER-10, PEER-12).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// The lowest number that there is no room for.
    pub credit: u64,
    /// Runs of numbers that have come, from first to behind last, highest first, with gaps between them.
    pub runs: Vec<(u64, u64)>,
}

/// What stands before a message's body on a stream, or says that the stream is the program's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamHead {
    /// The number that it had in a DATAGRAM frame before.
    pub number: Option<u64>,
    /// Its order.
    pub head: Head,
    /// Bytes of body.
    pub length: u64,
}

/// Why the head of a stream cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// More bytes may complete it.
    Incomplete,
    /// No bytes can.
    Malformed,
}

impl Frame {
    /// Reads the content of a DATAGRAM frame; `None` where it breaks PEER-4, PEER-6 or PEER-10.
    #[must_use]
    pub fn read(mut datagram: Bytes) -> Option<Self> {
        let mut input = Input(&datagram);
        let kind = input.byte().ok()?;
        let frame = match kind {
            ACK => Self::Ack(Ack::read(&mut input)?),
            PROBE => Self::Probe,
            SKIP => {
                let number = input.number().ok()?;
                let Head::Ordered(place) = Head::read(ORDERED, &mut input).ok()? else {
                    return None;
                };
                Self::Skip { number, place }
            }
            UNORDERED | ORDERED | LATEST => {
                let number = input.number().ok()?;
                let head = Head::read(kind, &mut input).ok()?;
                let used = datagram.len() - input.0.len();
                datagram.advance(used);
                return Some(Self::Message {
                    number,
                    head,
                    body: datagram,
                });
            }
            _ => return None,
        };
        input.0.is_empty().then_some(frame)
    }

    /// Appends the frame.
    pub fn write(&self, out: &mut BytesMut) {
        match self {
            Self::Ack(ack) => ack.write(out),
            Self::Probe => out.put_u8(PROBE),
            Self::Skip { number, place } => {
                out.put_u8(SKIP);
                put(*number, out);
                place.write(out);
            }
            Self::Message { number, head, body } => {
                out.put_u8(head.kind());
                put(*number, out);
                head.write(out);
                out.put_slice(body);
            }
        }
    }
}

impl Head {
    fn kind(self) -> u8 {
        match self {
            Self::Unordered => UNORDERED,
            Self::Ordered(_) => ORDERED,
            Self::Latest { .. } => LATEST,
        }
    }

    fn read(kind: u8, input: &mut Input<'_>) -> Result<Self, Unread> {
        Ok(match kind {
            UNORDERED => Self::Unordered,
            ORDERED => {
                let place = Place {
                    channel: input.short()?,
                    position: input.number()?,
                    distance: input.number()?,
                };
                if place.position == 0 || place.distance >= place.position {
                    return Err(Unread::Malformed);
                }
                Self::Ordered(place)
            }
            LATEST => {
                let (key, version) = (input.short()?, input.number()?);
                if version == 0 {
                    return Err(Unread::Malformed);
                }
                Self::Latest { key, version }
            }
            _ => return Err(Unread::Malformed),
        })
    }

    fn write(self, out: &mut BytesMut) {
        match self {
            Self::Unordered => {}
            Self::Ordered(place) => place.write(out),
            Self::Latest { key, version } => {
                put(u64::from(key), out);
                put(version, out);
            }
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Unordered => 0,
            Self::Ordered(place) => {
                varint::len(u64::from(place.channel))
                    + varint::len(place.position)
                    + varint::len(place.distance)
            }
            Self::Latest { key, version } => varint::len(u64::from(key)) + varint::len(version),
        }
    }

    /// Bytes of a MESSAGE frame with this number besides its body.
    #[must_use]
    pub fn frame_bytes(self, number: u64) -> usize {
        1 + varint::len(number) + self.bytes()
    }
}

impl Place {
    /// The position that has to be delivered or skipped before this one; 0 for none.
    #[must_use]
    pub fn waits_for(self) -> u64 {
        if self.distance == 0 {
            0
        } else {
            self.position - self.distance
        }
    }

    fn write(self, out: &mut BytesMut) {
        put(u64::from(self.channel), out);
        put(self.position, out);
        put(self.distance, out);
    }
}

impl Ack {
    fn read(input: &mut Input<'_>) -> Option<Self> {
        let (credit, end) = (input.number().ok()?, input.number().ok()?);
        let first = input.number().ok()?;
        let count = usize::try_from(input.number().ok()?).ok()?;
        if end == 0 {
            let is_empty = first == 0 && count == 0;
            return is_empty.then_some(Self {
                credit,
                runs: Vec::new(),
            });
        }
        if first == 0 || count > ACK_RANGES_MAX {
            return None;
        }
        let mut runs = Vec::with_capacity(count + 1);
        let mut start = end.checked_sub(first)?;
        runs.push((start, end));
        for _ in 0..count {
            let (gap, length) = (input.number().ok()?, input.number().ok()?);
            if gap == 0 || length == 0 {
                return None;
            }
            let end = start.checked_sub(gap)?;
            start = end.checked_sub(length)?;
            runs.push((start, end));
        }
        Some(Self { credit, runs })
    }

    pub(crate) fn write(&self, out: &mut BytesMut) {
        out.put_u8(ACK);
        put(self.credit, out);
        let Some(((first_start, end), rest)) = self.runs.split_first() else {
            out.put_bytes(0, 3);
            return;
        };
        put(*end, out);
        put(end - first_start, out);
        put(rest.len() as u64, out);
        let mut start = *first_start;
        for (next_start, next_end) in rest {
            put(start - next_end, out);
            put(next_end - next_start, out);
            start = *next_start;
        }
    }
}

impl StreamHead {
    /// Reads what stands at the begin of a message's stream, whose type is `kind`, and how many bytes of `bytes` it
    /// has.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn read(kind: u8, bytes: &[u8]) -> Result<(Self, usize), Unread> {
        let mut input = Input(bytes);
        let number = if kind & NUMBERED == 0 {
            None
        } else {
            Some(input.number()?)
        };
        let head = Head::read(kind & !NUMBERED, &mut input)?;
        let length = input.number()?;
        let read = Self { number, head, length };
        Ok((read, bytes.len() - input.0.len()))
    }

    /// Appends it with its type.
    pub fn write(&self, out: &mut BytesMut) {
        let numbered = if self.number.is_some() { NUMBERED } else { 0 };
        out.put_u8(self.head.kind() | numbered);
        if let Some(number) = self.number {
            put(number, out);
        }
        self.head.write(out);
        put(self.length, out);
    }
}

fn put(value: u64, out: &mut BytesMut) {
    let (bytes, used) = varint::encode(value);
    out.put_slice(&bytes[..used]);
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Result<u8, Unread> {
        let (first, rest) = self.0.split_first().ok_or(Unread::Incomplete)?;
        self.0 = rest;
        Ok(*first)
    }

    fn number(&mut self) -> Result<u64, Unread> {
        let (value, used) = varint::read(self.0).ok_or(Unread::Incomplete)?;
        self.0 = &self.0[used..];
        Ok(value)
    }

    /// A number below 2^32 (PEER-6).
    fn short(&mut self) -> Result<u32, Unread> {
        u32::try_from(self.number()?).map_err(|_| Unread::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(frame: &Frame) -> Bytes {
        let mut out = BytesMut::new();
        frame.write(&mut out);
        out.freeze()
    }

    const PLACE: Place = Place {
        channel: 9,
        position: 70_000,
        distance: 3,
    };

    /// PEER-4.
    #[test]
    fn every_frame_is_read_as_it_was_written_and_never_with_bytes_left_over() {
        let skip = Frame::Skip {
            number: 77,
            place: PLACE,
        };
        let ack = Frame::Ack(Ack {
            credit: 1 << 40,
            runs: vec![(900, 1_000), (10, 800), (0, 1)],
        });
        for frame in [skip, ack, Frame::Probe, Frame::Ack(Ack::default())] {
            let bytes = written(&frame);
            assert_eq!(Frame::read(bytes.clone()), Some(frame));
            let longer = [&bytes[..], &[0]].concat();
            assert_eq!(Frame::read(longer.into()), None);
            for cut in 0..bytes.len() {
                assert_eq!(Frame::read(bytes.slice(..cut)), None);
            }
        }
        for head in [
            Head::Unordered,
            Head::Ordered(PLACE),
            Head::Latest { key: 5, version: 1 },
        ] {
            let message = Frame::Message {
                number: 20_000,
                head,
                body: Bytes::from_static(b"body"),
            };
            let bytes = written(&message);
            assert_eq!(bytes.len(), head.frame_bytes(20_000) + 4);
            assert_eq!(Frame::read(bytes), Some(message));
        }
    }

    /// PEER-6, PEER-10.
    #[test]
    fn numbers_that_contradict_each_other_are_malformed() {
        let beyond_a_channel = b"\x11\x00\xc0\x00\x00\x01\x00\x00\x00\x00\x01\x00";
        let position_0 = b"\x11\x00\x01\x00\x00";
        let waits_for_itself = b"\x11\x00\x01\x02\x02";
        let version_0 = b"\x12\x00\x01\x00";
        let negative_run = b"\x00\x05\x03\x04\x00";
        let gap_of_none = b"\x00\x05\x08\x01\x01\x00\x01";
        let empty_run = b"\x00\x05\x08\x00\x00";
        let too_many_ranges = b"\x00\x05\x08\x01\x40\x41";
        for bytes in [
            &beyond_a_channel[..],
            position_0,
            waits_for_itself,
            version_0,
            negative_run,
            gap_of_none,
            empty_run,
            too_many_ranges,
            b"\x03",
        ] {
            assert_eq!(Frame::read(Bytes::copy_from_slice(bytes)), None, "{bytes:x?}");
        }
    }

    #[test]
    fn the_head_of_a_stream_is_read_byte_by_byte() {
        for number in [None, Some(4_000)] {
            let head = StreamHead {
                number,
                head: Head::Ordered(PLACE),
                length: 100_000,
            };
            let mut out = BytesMut::new();
            head.write(&mut out);
            let kind = out[0];
            assert!(out.len() <= crate::limits::STREAM_HEAD_BYTES_MAX);
            for cut in 1..out.len() {
                assert_eq!(StreamHead::read(kind, &out[1..cut]), Err(Unread::Incomplete));
            }
            let used = out.len() - 1;
            out.put_slice(b"body");
            assert_eq!(StreamHead::read(kind, &out[1..]), Ok((head, used)));
        }
        assert_eq!(StreamHead::read(0x13, &[0; 9]), Err(Unread::Malformed));
    }

    proptest! {
        #[test]
        fn what_is_read_from_any_bytes_is_written_back_alike(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Some(frame) = Frame::read(bytes.into()) {
                prop_assert_eq!(Frame::read(written(&frame)), Some(frame));
            }
        }
    }
}
