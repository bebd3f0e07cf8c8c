//! A reader of TLS ClientHello messages (RFC 8446 section 4.1.2): what the authenticator covers, and what a cover is
//! chosen by.
//!
//! It checks lengths of everything and the contents of what it tells; it takes messages that a TLS library would refuse
//! for other reasons. Nothing is copied.

use std::ops::Range;

use crate::limits::HELLO_BYTES_MAX;

/// Group X25519MLKEM768: the encapsulation key of ML-KEM-768, and an X25519 key behind it.
pub const X25519MLKEM768: u16 = 0x11ec;
/// Group X25519 (RFC 8446 section 4.2.7).
pub const X25519: u16 = 0x001d;

const CLIENT_HELLO: u8 = 1;
/// Type and length of a handshake message (RFC 8446 section 4).
pub const HEADER_BYTES: usize = 4;
/// Behind the header and `legacy_version`.
const RANDOM: Range<usize> = HEADER_BYTES + 2..HEADER_BYTES + 34;
const X25519_BYTES: usize = 32;
const HYBRID_BYTES: usize = 1184 + X25519_BYTES;

const SERVER_NAME: u16 = 0;
const SUPPORTED_GROUPS: u16 = 10;
const ALPN: u16 = 16;
const KEY_SHARE: u16 = 51;

/// Why a message is no ClientHello that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// Another message.
    #[error("the message is no ClientHello")]
    NotAHello,
    /// Longer than [`HELLO_BYTES_MAX`].
    #[error("the ClientHello is longer than {HELLO_BYTES_MAX} bytes")]
    TooLong,
    /// A field reaches beyond what holds it, or does not fill it.
    #[error("a length in the ClientHello is wrong")]
    Length,
    /// An extension that is read comes twice.
    #[error("an extension of the ClientHello is given twice")]
    Duplicate,
    /// It has no X25519 key, or one of another length.
    #[error("the ClientHello has no X25519 key")]
    NoShare,
}

/// Length of the whole message that begins with `start`, header included; `None` before the header is complete.
pub fn message_bytes(start: &[u8]) -> Option<Result<usize, HelloError>> {
    let [kind, high, middle, low] = *start.first_chunk::<HEADER_BYTES>()?;
    let bytes = HEADER_BYTES + u32::from_be_bytes([0, high, middle, low]) as usize;
    Some(match kind {
        CLIENT_HELLO if bytes <= HELLO_BYTES_MAX => Ok(bytes),
        CLIENT_HELLO => Err(HelloError::TooLong),
        _ => Err(HelloError::NotAHello),
    })
}

/// One ClientHello.
#[derive(Clone, Copy, Debug)]
pub struct ClientHello<'a> {
    message: &'a [u8],
    suites: &'a [u8],
    extensions: &'a [u8],
    server_name: Option<&'a [u8]>,
    groups: &'a [u8],
    alpn: &'a [u8],
    key_shares: &'a [u8],
}

impl<'a> ClientHello<'a> {
    /// Reads a whole message: type, length, body, and nothing behind it.
    pub fn parse(message: &'a [u8]) -> Result<Self, HelloError> {
        match message_bytes(message) {
            Some(Ok(bytes)) if bytes == message.len() => {}
            Some(Ok(_)) | None => return Err(HelloError::Length),
            Some(Err(error)) => return Err(error),
        }
        let mut body = Reader(message.get(RANDOM.end..).ok_or(HelloError::Length)?);
        let session = body.vector_u8()?;
        let suites = body.vector_u16()?;
        let compression = body.vector_u8()?;
        let extensions = body.vector_u16()?;
        let is_whole = body.0.is_empty() && session.len() <= 32 && !compression.is_empty();
        if !is_whole || suites.is_empty() || suites.len() % 2 != 0 {
            return Err(HelloError::Length);
        }
        let mut hello = Self {
            message,
            suites,
            extensions,
            server_name: None,
            groups: &[],
            alpn: &[],
            key_shares: &[],
        };
        hello.read_extensions()?;
        Ok(hello)
    }

    fn read_extensions(&mut self) -> Result<(), HelloError> {
        let read = [SERVER_NAME, SUPPORTED_GROUPS, ALPN, KEY_SHARE];
        let mut seen = [false; 4];
        let mut extensions = Reader(self.extensions);
        while !extensions.0.is_empty() {
            let (kind, data) = (extensions.u16()?, extensions.vector_u16()?);
            let Some(place) = read.iter().position(|known| *known == kind) else {
                continue;
            };
            if std::mem::replace(&mut seen[place], true) {
                return Err(HelloError::Duplicate);
            }
            let mut data = Reader(data);
            let list = data.vector_u16()?;
            if !data.0.is_empty() || list.is_empty() && kind != KEY_SHARE {
                return Err(HelloError::Length);
            }
            match kind {
                SERVER_NAME => self.server_name = host_name(list)?,
                SUPPORTED_GROUPS if list.len() % 2 == 0 => self.groups = list,
                ALPN => self.alpn = every(list, |names| names.vector_u8().map(drop))?,
                KEY_SHARE => self.key_shares = every(list, |shares| shares.share().map(drop))?,
                _ => return Err(HelloError::Length),
            }
        }
        Ok(())
    }

    /// The message.
    #[must_use]
    pub fn message(&self) -> &'a [u8] {
        self.message
    }

    /// Where its random lies in the message.
    #[must_use]
    pub fn random_range(&self) -> Range<usize> {
        RANDOM
    }

    /// Its random.
    #[must_use]
    pub fn random(&self) -> &'a [u8; 32] {
        self.message[RANDOM].first_chunk().expect("32 bytes")
    }

    /// The X25519 key that stands for the client (QR1-4): the end of the first hybrid share, or else the X25519 share.
    /// `None` where there is neither, or where that share has a wrong length.
    #[must_use]
    pub fn x25519_share(&self) -> Option<&'a [u8; X25519_BYTES]> {
        let of_group = |wanted| self.key_shares().find(|(group, _)| *group == wanted);
        let (key, bytes) = match of_group(X25519MLKEM768) {
            Some((_, share)) => (share, HYBRID_BYTES),
            None => (of_group(X25519)?.1, X25519_BYTES),
        };
        (key.len() == bytes).then(|| key.last_chunk()).flatten()
    }

    /// Groups and keys of the shares, in the client's order.
    pub fn key_shares(&self) -> impl Iterator<Item = (u16, &'a [u8])> + use<'a> {
        let mut shares = Reader(self.key_shares);
        std::iter::from_fn(move || shares.share().ok())
    }

    /// The name of the server that is asked for.
    #[must_use]
    pub fn server_name(&self) -> Option<&'a [u8]> {
        self.server_name
    }

    /// The application protocols on offer.
    pub fn alpn(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut names = Reader(self.alpn);
        std::iter::from_fn(move || names.vector_u8().ok())
    }

    /// The cipher suites on offer.
    pub fn cipher_suites(&self) -> impl Iterator<Item = u16> + use<'a> {
        numbers(self.suites)
    }

    /// The key-exchange groups on offer.
    pub fn groups(&self) -> impl Iterator<Item = u16> + use<'a> {
        numbers(self.groups)
    }

    /// Types and contents of all extensions, in the client's order.
    pub fn extensions(&self) -> impl Iterator<Item = (u16, &'a [u8])> + use<'a> {
        let mut extensions = Reader(self.extensions);
        std::iter::from_fn(move || Some((extensions.u16().ok()?, extensions.vector_u16().ok()?)))
    }
}

/// The host name of a list of server names (RFC 6066 section 3); other kinds of names have no length that is known.
fn host_name(list: &[u8]) -> Result<Option<&[u8]>, HelloError> {
    let Some((0, rest)) = list.split_first() else {
        return Ok(None);
    };
    Reader(rest).vector_u16().map(Some)
}

/// The list, where `entry` reads all of it.
fn every<'a>(
    list: &'a [u8],
    entry: impl Fn(&mut Reader<'a>) -> Result<(), HelloError>,
) -> Result<&'a [u8], HelloError> {
    let mut entries = Reader(list);
    while !entries.0.is_empty() {
        entry(&mut entries)?;
    }
    Ok(list)
}

fn numbers(list: &[u8]) -> impl Iterator<Item = u16> + use<'_> {
    list.chunks_exact(2)
        .map(|number| u16::from_be_bytes([number[0], number[1]]))
}

/// What is left to read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], HelloError> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(HelloError::Length)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u16(&mut self) -> Result<u16, HelloError> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// What a length of one byte stands before.
    fn vector_u8(&mut self) -> Result<&'a [u8], HelloError> {
        let bytes = self.take(1)?[0];
        self.take(bytes.into())
    }

    /// What a length of two bytes stands before.
    fn vector_u16(&mut self) -> Result<&'a [u8], HelloError> {
        let bytes = self.u16()?;
        self.take(bytes.into())
    }

    /// A KeyShareEntry (RFC 8446 section 4.2.8).
    fn share(&mut self) -> Result<(u16, &'a [u8]), HelloError> {
        Ok((self.u16()?, self.vector_u16()?))
    }
}

#[cfg(test)]
mod tests;
