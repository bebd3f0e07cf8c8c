//! Fields of messages, records and journals: varints (RFC 9000 section 16), byte strings behind their length, texts.

use packet::varint;

/// A read that failed: the input ended, or a value is above its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// What is still to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    /// A number.
    pub(crate) fn number(&mut self) -> Result<u64, Malformed> {
        let (value, used) = varint::read(self.0).ok_or(Malformed)?;
        self.0 = &self.0[used..];
        Ok(value)
    }

    /// A number of at most `max`.
    pub(crate) fn bounded(&mut self, max: u64) -> Result<u64, Malformed> {
        self.number()
            .and_then(|value| if value <= max { Ok(value) } else { Err(Malformed) })
    }

    /// How many of something follow, at most `max`.
    pub(crate) fn count(&mut self, max: usize) -> Result<usize, Malformed> {
        Ok(self.bounded(max as u64)? as usize)
    }

    /// A number with a sign: eight bytes, big-endian.
    pub(crate) fn signed(&mut self) -> Result<i64, Malformed> {
        let bytes: [u8; 8] = self.array()?;
        Ok(i64::from_be_bytes(bytes))
    }

    /// The next `length` bytes.
    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    /// A byte string of at most `max` bytes.
    pub(crate) fn bytes(&mut self, max: usize) -> Result<&'a [u8], Malformed> {
        let length = self.count(max)?;
        self.take(length)
    }

    /// A text for people.
    pub(crate) fn text(&mut self, max: usize) -> Result<String, Malformed> {
        let bytes = self.bytes(max)?;
        str::from_utf8(bytes).map(str::to_owned).map_err(|_| Malformed)
    }

    /// Bytes of a fixed number.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        Ok(self.take(N)?.try_into().expect("N bytes were taken"))
    }
}

/// Appends a number.
pub(crate) fn put(value: u64, out: &mut Vec<u8>) {
    varint::write(value, out);
}

/// Appends a number with a sign.
pub(crate) fn put_signed(value: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Appends a byte string behind its length.
pub(crate) fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Appends what of a text fits `max` bytes.
pub(crate) fn put_text(text: &str, max: usize, out: &mut Vec<u8>) {
    put_bytes(&text.as_bytes()[..text.floor_char_boundary(max)], out);
}
