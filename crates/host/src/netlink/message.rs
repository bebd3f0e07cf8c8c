//! Netlink messages as bytes: a builder for requests, bounded readers for answers.
//!
//! The layout is the same for routing and netfilter: a header of 16 bytes in host order, a header of the subsystem,
//! then attributes (length, kind, payload), everything aligned to 4 bytes.

/// The kernel's answer to a request: an error number, zero for success.
pub(super) const ERROR: u16 = 2;

/// The end of a listing.
pub(super) const DONE: u16 = 3;

/// It is a request.
const REQUEST: u16 = 0x1;

/// An answer is wanted even when all is well.
pub(crate) const ACKNOWLEDGE: u16 = 0x4;

/// A listing changed while it was read.
pub(super) const INTERRUPTED: u16 = 0x10;

/// List everything.
pub(crate) const DUMP: u16 = 0x300;

/// Replace what exists.
pub(crate) const REPLACE: u16 = 0x100;

/// Fail where it exists.
pub(crate) const EXCLUSIVE: u16 = 0x200;

/// Create it where it does not exist.
pub(crate) const CREATE: u16 = 0x400;

const HEADER_BYTES: usize = 16;
const ATTRIBUTE_HEADER_BYTES: usize = 4;
const NESTED: u16 = 0x8000;
const KIND_MASK: u16 = 0x3fff;

/// A request under construction, or several that are sent together.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

impl Messages {
    /// One message.
    pub(crate) fn one(
        kind: u16,
        flags: u16,
        header: &[u8],
        attributes: impl FnOnce(&mut Attributes<'_>),
    ) -> Self {
        let mut messages = Self::default();
        messages.push(kind, flags, header, attributes);
        messages
    }

    /// Appends a message.
    pub(crate) fn push(
        &mut self,
        kind: u16,
        flags: u16,
        header: &[u8],
        attributes: impl FnOnce(&mut Attributes<'_>),
    ) {
        let start = self.bytes.len();
        self.starts.push(start);
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&(flags | REQUEST).to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 8]);
        self.bytes.extend_from_slice(header);
        pad(&mut self.bytes);
        attributes(&mut Attributes(&mut self.bytes));
        let length = u32::try_from(self.bytes.len() - start).expect("requests are a few hundred bytes");
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    /// Numbers the messages from `first` on and gives the bytes and how many messages ask for an answer.
    pub(super) fn numbered(&mut self, first: u32) -> (&[u8], usize) {
        let mut answers = 0;
        for (offset, &start) in (0_u32..).zip(&self.starts) {
            let number = first.wrapping_add(offset);
            self.bytes[start + 8..start + 12].copy_from_slice(&number.to_ne_bytes());
            let flags = u16::from_ne_bytes([self.bytes[start + 6], self.bytes[start + 7]]);
            answers += usize::from(flags & (ACKNOWLEDGE | DUMP) != 0);
        }
        (&self.bytes, answers)
    }

    /// How many messages there are.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.starts.len()).expect("a request is a few messages")
    }
}

/// Appends attributes to a message.
pub(crate) struct Attributes<'a>(&'a mut Vec<u8>);

impl Attributes<'_> {
    /// An attribute with this payload.
    pub(crate) fn put(&mut self, kind: u16, payload: &[u8]) {
        let start = self.begin(kind);
        self.0.extend_from_slice(payload);
        self.end(start);
    }

    /// A text with its closing zero.
    pub(crate) fn put_text(&mut self, kind: u16, text: &str) {
        let start = self.begin(kind);
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(0);
        self.end(start);
    }

    /// An attribute that holds attributes.
    pub(crate) fn nest(&mut self, kind: u16, attributes: impl FnOnce(&mut Attributes<'_>)) {
        let start = self.begin(kind | NESTED);
        attributes(&mut Attributes(self.0));
        self.end(start);
    }

    fn begin(&mut self, kind: u16) -> usize {
        let start = self.0.len();
        self.0.extend_from_slice(&[0; 2]);
        self.0.extend_from_slice(&kind.to_ne_bytes());
        start
    }

    fn end(&mut self, start: usize) {
        let length = u16::try_from(self.0.len() - start).expect("attributes are a few hundred bytes");
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        pad(self.0);
    }
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// A received message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    /// What it is about.
    pub(crate) kind: u16,
    pub(super) flags: u16,
    pub(super) number: u32,
    /// What follows the netlink header.
    pub(crate) payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// Attributes behind the subsystem's header of so many bytes.
    pub(crate) fn attributes(&self, header_bytes: usize) -> AttributeReader<'a> {
        AttributeReader(
            self.payload
                .get(header_bytes.next_multiple_of(4)..)
                .unwrap_or_default(),
        )
    }

    /// The error number of an answer; zero for success.
    pub(super) fn error(&self) -> i32 {
        number(self.payload.get(..4)).map_or(0, |value| value.cast_signed().wrapping_neg())
    }
}

/// The messages of one received datagram; what does not fit its own length ends them.
pub(super) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = usize::try_from(number(bytes.get(..4))?).ok()?;
        let payload = bytes.get(HEADER_BYTES..length)?;
        let message = Message {
            kind: u16::from_ne_bytes([bytes[4], bytes[5]]),
            flags: u16::from_ne_bytes([bytes[6], bytes[7]]),
            number: number(bytes.get(8..12))?,
            payload,
        };
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// Iterates over attributes as (kind, payload); what does not fit its own length ends them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttributeReader<'a>(pub(crate) &'a [u8]);

impl<'a> AttributeReader<'a> {
    /// The first attribute of this kind.
    pub(crate) fn find(self, kind: u16) -> Option<&'a [u8]> {
        { self }.find_map(|(found, payload)| (found == kind).then_some(payload))
    }

    /// The first attribute of this kind as a number in host order.
    pub(crate) fn find_number(self, kind: u16) -> Option<u32> {
        number(self.find(kind))
    }
}

impl<'a> Iterator for AttributeReader<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let header = self.0.get(..ATTRIBUTE_HEADER_BYTES)?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & KIND_MASK;
        let payload = self.0.get(ATTRIBUTE_HEADER_BYTES..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, payload))
    }
}

/// Four bytes in host order.
pub(crate) fn number(bytes: Option<&[u8]>) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes?.get(..4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_is_read_back() {
        let mut built = Messages::one(16, CREATE | ACKNOWLEDGE, &[1, 2, 3, 4, 5, 6], |attributes| {
            attributes.put(1, &7_u32.to_ne_bytes());
            attributes.nest(8, |inner| inner.put_text(2, "tun"));
        });
        built.push(17, 0, &[], |_| ());
        let (bytes, answers) = built.numbered(40);
        assert_eq!(answers, 1);
        let read: Vec<_> = messages(bytes).collect();
        assert_eq!(
            (read[0].kind, read[0].number, read[1].kind, read[1].number),
            (16, 40, 17, 41)
        );
        let attributes = read[0].attributes(6);
        assert_eq!(attributes.find_number(1), Some(7));
        let inner = AttributeReader(attributes.find(8).unwrap());
        assert_eq!(inner.find(2), Some(&b"tun\0"[..]));
        assert_eq!(read.len(), 2);
    }

    #[test]
    fn lengths_that_lie_end_the_reading() {
        for length in [0_u32, 3, 15, 17, u32::MAX] {
            let mut bytes = [0; HEADER_BYTES];
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(messages(&bytes).count(), 0);
        }
        for length in [0_u16, 3, 9, u16::MAX] {
            let mut bytes = [0; 8];
            bytes[..2].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(AttributeReader(&bytes).count(), 0);
        }
    }
}
