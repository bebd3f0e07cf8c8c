//! The link that the owner of a server shares: `gramway://TOKEN@HOST:PORT[,HOST:PORT…]?pin=sha256-…[#name]`, or with
//! `?!cover=…&!name=HOST` or `?!trust=web` in place of the pin.
//!
//! `&tcp=PORT` names the port at which all hosts listen in TCP's shape as well (specs/fake-tcp.md).
//!
//! It contains what a client needs to connect, and no local settings. The pin is the SHA-256 of the server's
//! SubjectPublicKeyInfo in base64url. A server with a cover is known by its X25519 key, in base64url, and asked for the
//! name of the cover (specs/qr1.md, QR1-1). One with an ordinary certificate is known by it. Names and parameter values
//! are percent-encoded (RFC 3986 section 2.1). Unknown parameters are ignored, but one whose name starts with `!` must
//! be understood, so an unknown one of these is refused. Errors name a position and never repeat text of the part that
//! holds the token.

mod endpoint;
mod parameters;
#[cfg(test)]
mod tests;

use std::fmt;

use data_encoding::BASE64URL_NOPAD;

use crate::Token;
use crate::limits::{LINK_BYTES_MAX, LINK_ENDPOINTS_MAX, LINK_NAME_CHARACTERS_MAX};
use parameters::Parameters;

pub use endpoint::{Endpoint, EndpointError, parse_optional_port, parse_port, shown_name};

/// What every link begins with, in any case of letters.
pub const SCHEME: &str = "gramway://";
const PIN_PREFIX: &str = "sha256-";
/// Of a server with an ordinary certificate.
const WEB: &str = "web";

/// What a link says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The user's.
    pub token: Token,
    /// At least one, in order of preference.
    pub endpoints: Vec<Endpoint>,
    /// What the server is known by.
    pub proof: Proof,
    /// The port in TCP's shape, where there is one.
    pub tcp_port: Option<u16>,
    /// What the owner calls the server; may be empty.
    pub name: String,
}

/// What a client knows the server by.
#[derive(Clone, PartialEq, Eq)]
pub enum Proof {
    /// SHA-256 of its SubjectPublicKeyInfo.
    Pin([u8; 32]),
    /// A certificate for its name, of the authorities of the web.
    WebPki,
    /// It has a cover.
    Cover {
        /// The public half of its X25519 key, which is secret as well.
        key: [u8; 32],
        /// The name to ask for.
        name: String,
    },
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pin(pin) => f.debug_tuple("Pin").field(pin).finish(),
            Self::WebPki => f.write_str("WebPki"),
            Self::Cover { name, .. } => f
                .debug_struct("Cover")
                .field("name", name)
                .finish_non_exhaustive(),
        }
    }
}

/// Where a link is broken, and how.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the link is broken at character {position}: {what}")]
pub struct LinkError {
    /// Counted in characters from 1.
    position: usize,
    what: String,
}

fn broken<T>(offset: usize, what: impl Into<String>) -> Result<T, LinkError> {
    Err(LinkError {
        position: offset + 1,
        what: what.into(),
    })
}

impl Link {
    /// Reads a link; white space around it is ignored.
    ///
    /// # Errors
    /// [`LinkError`]; it repeats nothing that is secret.
    pub fn parse(text: &str) -> Result<Self, LinkError> {
        let text = text.trim();
        if text.len() > LINK_BYTES_MAX {
            return broken(
                LINK_BYTES_MAX,
                format!("a link has at most {LINK_BYTES_MAX} characters"),
            );
        }
        if let Some((offset, _)) = text.chars().enumerate().find(|(_, c)| !c.is_ascii_graphic()) {
            return broken(offset, "a link is one line without spaces; copy it again");
        }
        if text
            .get(..SCHEME.len())
            .is_none_or(|scheme| !scheme.eq_ignore_ascii_case(SCHEME))
        {
            return broken(0, "it does not start with gramway://");
        }
        let (rest, fragment) = split_at_mark(text, '#');
        let (authority, query) = split_at_mark(rest, '?');
        let (token, endpoints) = parse_authority(SCHEME.len(), authority)?;
        let query_start = query.unwrap_or(rest.len());
        let parameters = Parameters::parse(query_start, &rest[query_start..])?;
        let tcp_port = parameters.tcp.map(|(_, port)| port);
        let proof = parameters.proof(rest.len())?;
        let name = fragment.map_or(Ok(String::new()), |start| parse_name(start, &text[start..]))?;
        Ok(Self {
            token,
            endpoints,
            proof,
            tcp_port,
            name,
        })
    }

    /// The text form. It holds the token: secret; never log.
    #[must_use]
    pub fn reveal(&self) -> String {
        let endpoints: Vec<_> = self.endpoints.iter().map(ToString::to_string).collect();
        let proof = match &self.proof {
            Proof::Pin(pin) => format!("pin={PIN_PREFIX}{}", BASE64URL_NOPAD.encode(pin)),
            Proof::WebPki => format!("!trust={WEB}"),
            Proof::Cover { key, name } => {
                format!(
                    "!cover={}&!name={}",
                    BASE64URL_NOPAD.encode(key),
                    percent_encode(name)
                )
            }
        };
        let mut text = format!("{SCHEME}{}@{}?{proof}", self.token.reveal(), endpoints.join(","));
        if let Some(port) = self.tcp_port {
            text.push_str(&format!("&tcp={port}"));
        }
        if !self.name.is_empty() {
            text.push('#');
            text.push_str(&percent_encode(&self.name));
        }
        text
    }
}

/// Splits before `mark`; the second part is given as the offset just behind it.
fn split_at_mark(text: &str, mark: char) -> (&str, Option<usize>) {
    match text.find(mark) {
        Some(offset) => (&text[..offset], Some(offset + 1)),
        None => (text, None),
    }
}

fn parse_authority(start: usize, text: &str) -> Result<(Token, Vec<Endpoint>), LinkError> {
    let Some(at) = text.rfind('@') else {
        return broken(start, "the part TOKEN@HOST:PORT has no @");
    };
    let Ok(token) = Token::parse(&text[start..at]) else {
        return broken(
            start,
            "the token is not 43 characters of base64url; the link may have been cut",
        );
    };
    // Programs that take a link for a web address add a slash.
    let hosts = text[at + 1..].strip_suffix('/').unwrap_or(&text[at + 1..]);
    let mut endpoints = Vec::new();
    let mut offset = at + 1;
    for host in hosts.split(',') {
        match Endpoint::parse(host) {
            Ok(_) if endpoints.len() == LINK_ENDPOINTS_MAX => {
                return broken(
                    offset,
                    format!("a link names at most {LINK_ENDPOINTS_MAX} servers"),
                );
            }
            Ok(endpoint) => endpoints.push(endpoint),
            Err(error) => return broken(offset, error.to_string()),
        }
        offset += host.len() + 1;
    }
    Ok((token, endpoints))
}

fn parse_name(offset: usize, text: &str) -> Result<String, LinkError> {
    let name = percent_decode(offset, text)?;
    if name.chars().any(|c| c.is_control() || is_direction_mark(c)) {
        return broken(offset, "the name holds control characters");
    }
    if name.chars().count() > LINK_NAME_CHARACTERS_MAX {
        return broken(
            offset,
            format!("the name has more than {LINK_NAME_CHARACTERS_MAX} characters"),
        );
    }
    Ok(name)
}

/// Characters that reorder or break the line in which they are shown.
#[must_use]
pub fn is_direction_mark(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn percent_decode(offset: usize, text: &str) -> Result<String, LinkError> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        if bytes[index] != b'%' {
            decoded.push(bytes[index]);
            index += 1;
            continue;
        }
        let digit = |at: usize| bytes.get(at).and_then(|&byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(index + 1), digit(index + 2)) else {
            return broken(offset + index, "a % is not followed by two hexadecimal digits");
        };
        decoded.push((high * 16 + low) as u8);
        index += 3;
    }
    String::from_utf8(decoded).or_else(|_| broken(offset, "the percent-encoded text is not UTF-8"))
}

fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}
