//! What stands behind a link's question mark.

use data_encoding::BASE64URL_NOPAD;

use super::{LinkError, PIN_PREFIX, Proof, WEB, broken, endpoint, percent_decode};

/// What the parameters say, each with where it begins.
#[derive(Default)]
pub(super) struct Parameters {
    pin: Option<(usize, [u8; 32])>,
    cover: Option<(usize, [u8; 32])>,
    /// Where the authorities of the web are named.
    web: Option<usize>,
    /// The name to ask for.
    shown: Option<(usize, String)>,
    /// The port in TCP's shape.
    pub(super) tcp: Option<(usize, u16)>,
}

impl Parameters {
    pub(super) fn parse(start: usize, query: &str) -> Result<Self, LinkError> {
        let mut found = Self::default();
        let mut offset = start;
        for parameter in query.split('&') {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let value_offset = offset + name.len() + 1;
            match (name.strip_prefix('!'), name.strip_prefix('!').unwrap_or(name)) {
                (_, "pin") if found.pin.is_some() => return broken(offset, "the pin is given twice"),
                (_, "cover") if found.cover.is_some() => {
                    return broken(offset, "the key behind the cover is given twice");
                }
                (_, "trust") if found.web.is_some() => return broken(offset, "whom to trust is given twice"),
                (_, "name") if found.shown.is_some() => {
                    return broken(offset, "the name to show is given twice");
                }
                (_, "tcp") if found.tcp.is_some() => return broken(offset, "the TCP port is given twice"),
                (_, "tcp") => found.tcp = Some((offset, parse_port(value_offset, value)?)),
                (_, "trust") if value == WEB => found.web = Some(offset),
                (_, "pin") => found.pin = Some((offset, parse_pin(value_offset, value)?)),
                (_, "cover") => found.cover = Some((offset, parse_cover(value_offset, value)?)),
                (_, "name") => found.shown = Some((offset, parse_shown(value_offset, value)?)),
                (Some(_), _) => {
                    return broken(
                        offset,
                        "it asks for something that this version does not know; update gramway",
                    );
                }
                (None, _) => {}
            }
            offset += parameter.len() + 1;
        }
        Ok(found)
    }

    /// What proves the server; `end` is where the parameters end.
    pub(super) fn proof(self, end: usize) -> Result<Proof, LinkError> {
        if let Some(offset) = self.web {
            return match (self.pin, self.cover) {
                (None, None) => Ok(Proof::WebPki),
                _ => broken(
                    offset,
                    "it trusts the authorities of the web and has a pin or a key behind a cover, and a server has one of \
                     them",
                ),
            };
        }
        match (self.pin, self.cover, self.shown) {
            (Some(_), Some((offset, _)), _) => broken(
                offset,
                "it has a pin and a key behind a cover, and a server has one of them",
            ),
            (None, Some((_, key)), Some((_, name))) => Ok(Proof::Cover { key, name }),
            (None, Some(_), None) => broken(
                end,
                "the name to show is missing (&!name=HOST); the link may have been cut",
            ),
            (_, None, Some((offset, _))) => broken(
                offset,
                "a name to show stands without the key behind the cover (?!cover=…); the link may have been cut",
            ),
            (Some((_, pin)), None, None) => Ok(Proof::Pin(pin)),
            (None, None, None) => broken(
                end,
                "the server's pin is missing (?pin=sha256-…); the link may have been cut",
            ),
        }
    }
}

fn parse_cover(offset: usize, value: &str) -> Result<[u8; 32], LinkError> {
    let value = percent_decode(offset, value)?;
    let bytes = BASE64URL_NOPAD.decode(value.as_bytes()).ok();
    match bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok()) {
        Some(key) => Ok(key),
        None => broken(
            offset,
            "the key behind the cover is not 43 characters of base64url; the link may have been cut",
        ),
    }
}

fn parse_port(offset: usize, value: &str) -> Result<u16, LinkError> {
    match percent_decode(offset, value)?.parse() {
        Ok(port) if port != 0 => Ok(port),
        _ => broken(offset, "the TCP port is not a number from 1 to 65535"),
    }
}

fn parse_shown(offset: usize, value: &str) -> Result<String, LinkError> {
    let value = percent_decode(offset, value)?;
    match endpoint::parse_optional_port(&value) {
        Ok((host, None)) => endpoint::shown_name(&host).map_or_else(
            || {
                broken(
                    offset,
                    "the name to show is an address; it is the host name of a web site",
                )
            },
            Ok,
        ),
        Ok((_, Some(_))) => broken(offset, "the name to show has a port; it is a host name"),
        Err(error) => broken(offset, format!("the name to show: {error}")),
    }
}

fn parse_pin(offset: usize, value: &str) -> Result<[u8; 32], LinkError> {
    let value = percent_decode(offset, value)?;
    let bytes = value
        .strip_prefix(PIN_PREFIX)
        .and_then(|text| BASE64URL_NOPAD.decode(text.as_bytes()).ok())
        .and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    match bytes {
        Some(pin) => Ok(pin),
        None => broken(
            offset,
            "the pin is not sha256- and 43 characters of base64url; the link may have been cut",
        ),
    }
}
