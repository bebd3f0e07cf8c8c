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

use std::ffi::OsStr;
use std::fmt;

use data_encoding::BASE64URL_NOPAD;
use tunnel_proto::Token;

use crate::endpoint::{self, Endpoint};
use crate::limits::{LINK_BYTES_MAX, LINK_ENDPOINTS_MAX, LINK_NAME_CHARACTERS_MAX, SECRET_CHARACTERS_MIN};

const SCHEME: &str = "gramway://";
const PIN_PREFIX: &str = "sha256-";
/// Of a server with an ordinary certificate.
const WEB: &str = "web";

/// What a link says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) token: Token,
    /// At least one, in order of preference.
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) proof: Proof,
    /// The port in TCP's shape, where there is one.
    pub(crate) tcp_port: Option<u16>,
    /// What the owner calls the server; may be empty.
    pub(crate) name: String,
}

/// What a client knows the server by.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Proof {
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

/// Whether a text is a link, or the beginning of one: it is a secret wherever it stands.
pub(crate) fn is_link(text: &OsStr) -> bool {
    let start = text.as_encoded_bytes().get(..SCHEME.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(SCHEME.as_bytes()))
}

/// The text without what stands behind each `gramway://` up to the next white space or quotation mark.
fn without_links(text: &str) -> String {
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(start) = rest.to_ascii_lowercase().find(SCHEME) {
        let secret = start + SCHEME.len();
        shown.push_str(&rest[..secret]);
        let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'');
        let end = rest[secret..].find(ends).unwrap_or(rest.len() - secret);
        if end > 0 {
            shown.push('…');
        }
        rest = &rest[secret + end..];
    }
    shown + rest
}

/// The text without links, and without what looks like a token or a pin: a link that was mistyped, or a part of one.
pub(crate) fn without_secrets(text: &str) -> String {
    let is_of_secrets = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let text = without_links(text);
    let mut shown = String::with_capacity(text.len());
    for part in text.split_inclusive(|c| !is_of_secrets(c)) {
        let word = part.trim_end_matches(|c| !is_of_secrets(c));
        // Words have no capitals in them, and other random names seldom have both.
        let is_random = word.contains(|c: char| c.is_ascii_lowercase())
            && word.contains(|c: char| c.is_ascii_uppercase());
        if word.len() >= SECRET_CHARACTERS_MIN && is_random {
            shown.push('…');
            shown.push_str(&part[word.len()..]);
        } else {
            shown.push_str(part);
        }
    }
    shown
}

/// Where a link is broken, and how.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LinkError {
    /// Counted in characters from 1.
    position: usize,
    what: String,
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the link is broken at character {}: {}",
            self.position, self.what
        )
    }
}

fn broken<T>(offset: usize, what: impl Into<String>) -> Result<T, LinkError> {
    Err(LinkError {
        position: offset + 1,
        what: what.into(),
    })
}

impl Link {
    /// Reads a link; white space around it is ignored.
    pub(crate) fn parse(text: &str) -> Result<Self, LinkError> {
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
    pub(crate) fn reveal(&self) -> String {
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

/// What the parameters say, each with where it begins.
#[derive(Default)]
struct Parameters {
    pin: Option<(usize, [u8; 32])>,
    cover: Option<(usize, [u8; 32])>,
    /// Where the authorities of the web are named.
    web: Option<usize>,
    /// The name to ask for.
    shown: Option<(usize, String)>,
    /// The port in TCP's shape.
    tcp: Option<(usize, u16)>,
}

impl Parameters {
    fn parse(start: usize, query: &str) -> Result<Self, LinkError> {
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
    fn proof(self, end: usize) -> Result<Proof, LinkError> {
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
pub(crate) fn is_direction_mark(c: char) -> bool {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn example() -> Link {
        Link {
            token: Token::from_bytes([9; 32]),
            endpoints: vec![Endpoint {
                host: "example.org".to_owned(),
                port: 443,
            }],
            proof: Proof::Pin([3; 32]),
            tcp_port: None,
            name: String::new(),
        }
    }

    fn with_cover() -> Link {
        Link {
            proof: Proof::Cover {
                key: [7; 32],
                name: "www.example.net".to_owned(),
            },
            ..example()
        }
    }

    fn error_of(text: &str) -> LinkError {
        Link::parse(text).unwrap_err()
    }

    #[test]
    fn a_link_survives_its_text_form() {
        let mut link = example();
        link.endpoints.push(Endpoint {
            host: "2001:db8::1".to_owned(),
            port: 8443,
        });
        link.name = "home & away, naïve #1".to_owned();
        link.tcp_port = Some(443);
        let text = link.reveal();
        assert!(
            text.contains("@example.org:443,[2001:db8::1]:8443?pin=sha256-"),
            "{text}"
        );
        assert!(
            text.ends_with("#home%20%26%20away%2C%20na%C3%AFve%20%231"),
            "{text}"
        );
        assert_eq!(Link::parse(&format!(" {text}\n")).unwrap(), link);
    }

    #[test]
    fn a_link_to_a_server_with_a_cover_has_its_key_and_the_name_to_show() {
        let link = with_cover();
        let text = link.reveal();
        let key = BASE64URL_NOPAD.encode(&[7; 32]);
        assert!(
            text.ends_with(&format!("@example.org:443?!cover={key}&!name=www.example.net")),
            "{text}"
        );
        assert_eq!(Link::parse(&text).unwrap(), link);
        assert!(!format!("{link:?}").contains("7, 7"));
        assert_eq!(Link::parse(&text.replace('!', "")).unwrap(), link);
    }

    #[test]
    fn broken_links_to_a_server_with_a_cover_name_the_position_and_the_cure() {
        let good = with_cover().reveal();
        let (cover, name) = (good.find("!cover").unwrap() + 1, good.find("!name").unwrap() + 1);
        let value = |of: usize, parameter: &str| of + parameter.len();
        for (text, position, part) in [
            (
                good.replace("&!name=www.example.net", ""),
                name - 1,
                "name to show is missing",
            ),
            (
                good.replace("!cover", "future"),
                name,
                "without the key behind the cover",
            ),
            (
                good[..cover + 30].to_owned(),
                value(cover, "!cover="),
                "43 characters",
            ),
            (format!("{good}&!cover=x"), good.len() + 2, "given twice"),
            (format!("{good}&!name=x"), good.len() + 2, "given twice"),
            (
                good.replace("?!", &format!("?pin=sha256-{}&!", "A".repeat(43))),
                cover + 4 + 7 + 43 + 1,
                "a server has one of them",
            ),
            (
                good.replace("www.example.net", ""),
                value(name, "!name="),
                "host is missing",
            ),
            (
                good.replace("www.example.net", "192.0.2.1"),
                value(name, "!name="),
                "is an address",
            ),
            (
                good.replace("www.example.net", "a:443"),
                value(name, "!name="),
                "has a port",
            ),
        ] {
            let error = error_of(&text);
            assert!(error.what.contains(part), "{error}");
            assert_eq!(error.position, position, "{error}");
        }
    }

    #[test]
    fn a_slash_before_the_parameters_and_an_upper_case_scheme_are_accepted() {
        let text = example()
            .reveal()
            .replace(":443?", ":443/?")
            .replace("gramway", "GRAMWAY");
        assert_eq!(Link::parse(&text).unwrap(), example());
    }

    #[test]
    fn unknown_parameters_are_ignored_and_unknown_critical_ones_refused() {
        let text = example().reveal();
        assert_eq!(Link::parse(&format!("{text}&color=red&x")).unwrap(), example());
        assert_eq!(Link::parse(&text.replace("?pin", "?!pin")).unwrap(), example());
        let error = error_of(&format!("{text}&!carrier=tcp"));
        assert_eq!(error.position, text.len() + 2);
        assert!(error.what.contains("update gramway"));
    }

    #[test]
    fn a_link_to_a_server_with_an_ordinary_certificate_says_so_and_has_nothing_else() {
        let link = Link {
            proof: Proof::WebPki,
            ..example()
        };
        let text = link.reveal();
        assert!(text.ends_with("@example.org:443?!trust=web"), "{text}");
        assert!(
            error_of(text.split('?').next().unwrap())
                .what
                .contains("pin is missing")
        );
        assert!(
            error_of(&format!("{text}&!trust=web"))
                .what
                .contains("given twice")
        );
        assert!(
            error_of(&text.replace("web", "own"))
                .what
                .contains("update gramway")
        );
        let pinned = example().reveal();
        assert!(
            error_of(&format!("{pinned}&!trust=web"))
                .what
                .contains("has one of them")
        );
    }

    #[test]
    fn broken_links_name_the_position_and_the_cure() {
        let good = example().reveal();
        let token = example().token.reveal();
        for (text, position, part) in [
            (String::new(), 1, "does not start with gramway://"),
            (
                "https://example.org".to_owned(),
                1,
                "does not start with gramway://",
            ),
            ("gramway://".to_owned(), 11, "has no @"),
            ("gramway://short@example.org:443".to_owned(), 11, "the token"),
            (good.replace(":443", ""), 55, "has no port"),
            (good.replace(":443", ":443,"), 71, "host is missing"),
            (good.replace("example.org", "exam ple.org"), 59, "without spaces"),
            (
                good.replace("?pin", "?pen"),
                54 + 16 + 4 + 7 + 43 + 1,
                "pin is missing",
            ),
            (good[..good.len() - 1].to_owned(), 75, "the pin is not"),
            (good.replace("sha256-", "sha1-"), 75, "the pin is not"),
            (format!("{good}&pin=x"), good.len() + 2, "given twice"),
            (format!("{good}#%zz"), good.len() + 2, "two hexadecimal digits"),
            (format!("{good}#%ff"), good.len() + 2, "not UTF-8"),
            (format!("{good}#a%1b[2J"), good.len() + 2, "control characters"),
            (
                format!("{good}#{}", "x".repeat(65)),
                good.len() + 2,
                "more than 64",
            ),
            ("x".repeat(LINK_BYTES_MAX + 1), LINK_BYTES_MAX + 1, "at most"),
        ] {
            let error = error_of(&text);
            assert!(error.what.contains(part), "{error}");
            assert_eq!(error.position, position, "{error}");
            assert!(!error.to_string().contains(&token), "{error}");
        }
        let many = vec!["a:1"; LINK_ENDPOINTS_MAX + 1].join(",");
        assert!(
            error_of(&good.replace("example.org:443", &many))
                .what
                .contains("at most 16 servers")
        );
    }

    #[test]
    fn a_link_in_a_message_loses_everything_that_is_secret() {
        let link = example().reveal();
        let text = format!("unexpected argument '{link}' found; GRAMWAY://x and \"{link}\"");
        assert_eq!(
            without_links(&text),
            "unexpected argument 'gramway://…' found; GRAMWAY://… and \"gramway://…\""
        );
        let plain = "it does not start with gramway:// — ärger";
        assert_eq!(without_links(plain), plain);
        assert!(is_link(OsStr::new(&link)) && !is_link(OsStr::new("./link")));
    }

    #[test]
    fn a_mistyped_link_or_a_part_of_one_is_not_shown() {
        let (link, token) = (example().reveal(), example().token.reveal());
        let mistyped = link.replacen("gramway://", "gramwya:/", 1);
        for text in [
            &mistyped,
            &token,
            &token[..40],
            &format!("{token}x"),
            &format!("--{token}=1"),
        ] {
            let shown = without_secrets(&format!("unexpected argument '{text}' found"));
            assert!(!shown.contains(&token[..20]) && shown.contains('…'), "{shown}");
        }
        let plain =
            "cannot read /nix/store/l3c4aaaaaaaaaaaaaaaaaaaaaaaaaaaa-gramway/LongNameOfAFile-1.2.3: denied";
        assert_eq!(without_secrets(plain), plain);
    }

    #[test]
    fn debug_output_does_not_show_the_token() {
        assert!(!format!("{:?}", example()).contains(&example().token.reveal()));
    }

    proptest! {
        #[test]
        fn every_link_survives_its_text_form(
            token: [u8; 32], pin: [u8; 32], name in "[^\\p{C}\\p{Zl}\\p{Zp}]{0,64}",
            hosts in prop::collection::vec(("[a-z][a-z0-9-]{0,20}(\\.[a-z]{1,9}){0,3}", 1u16..), 1..5),
            v6: u128, tcp_port in prop::option::of(1u16..), shown in "[a-z][a-z0-9-]{0,20}(\\.[a-z]{1,9}){0,3}",
        ) {
            let mut endpoints: Vec<_> = hosts.into_iter().map(|(host, port)| Endpoint { host, port }).collect();
            endpoints.push(Endpoint { host: std::net::Ipv6Addr::from(v6).to_string(), port: 1 });
            for proof in [Proof::Pin(pin), Proof::WebPki, Proof::Cover { key: pin, name: shown.clone() }] {
                let (endpoints, name) = (endpoints.clone(), name.clone());
                let link = Link { token: Token::from_bytes(token), endpoints, proof, tcp_port, name };
                prop_assert_eq!(Link::parse(&link.reveal()), Ok(link));
            }
        }

        #[test]
        fn hostile_text_is_an_error_and_never_a_panic(text in "\\PC*", cut in 0usize..150) {
            let _ = Link::parse(&text);
            let _ = Link::parse(&format!("gramway://{text}"));
            let good = example().reveal();
            let cut = cut.min(good.len());
            let _ = Link::parse(&format!("{}{text}{}", &good[..cut], &good[cut..]));
        }
    }
}
