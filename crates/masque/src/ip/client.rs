//! The name that a Gramway client gives itself, so that all its requests get one lease (specs/ip-session.md).

use std::fmt;

use data_encoding::BASE64URL_NOPAD;

/// 16 random bytes that a client keeps; base64url without padding as text. It names, and proves nothing: a server looks
/// at it only beside a valid token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub [u8; 16]);

impl ClientId {
    /// From its text of 22 characters; `None` for anything else (SESSION-1).
    ///
    /// ```
    /// use masque::ip::ClientId;
    /// let id = ClientId([7; 16]);
    /// assert_eq!(ClientId::parse(id.to_string().as_bytes()), Some(id));
    /// ```
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let bytes = BASE64URL_NOPAD.decode(text).ok()?;
        bytes.try_into().ok().map(Self)
    }

    /// From the field: the name, and perhaps `;run=NUMBER` (SESSION-1).
    pub(crate) fn parse_field(value: &[u8]) -> Option<(Self, Option<u32>)> {
        let Some(end) = value.iter().position(|byte| *byte == b';') else {
            return Some((Self::parse(value)?, None));
        };
        let digits = value[end + 1..].trim_ascii_start().strip_prefix(b"run=")?;
        let is_plain = digits.iter().all(u8::is_ascii_digit);
        let run = std::str::from_utf8(digits)
            .ok()?
            .parse()
            .ok()
            .filter(|_| is_plain)?;
        Some((Self::parse(&value[..end])?, Some(run)))
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&BASE64URL_NOPAD.encode(&self.0))
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}
