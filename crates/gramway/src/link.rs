//! The link that the owner of a server shares: `gramway://TOKEN@HOST:PORT[,HOST:PORT…]?pin=sha256-…[#name]`.
//!
//! It contains what a client needs to connect, and no local settings. The pin is the SHA-256 of the server's
//! SubjectPublicKeyInfo in base64url. Names and parameter values are percent-encoded (RFC 3986 section 2.1). Unknown
//! parameters are ignored, but one whose name starts with `!` must be understood, so an unknown one of these is
//! refused. Errors name a position and never repeat text of the part that holds the token.

use std::ffi::OsStr;
use std::fmt;

use data_encoding::BASE64URL_NOPAD;
use tunnel_proto::Token;

use crate::endpoint::Endpoint;
use crate::limits::{LINK_BYTES_MAX, LINK_ENDPOINTS_MAX, LINK_NAME_CHARACTERS_MAX, SECRET_CHARACTERS_MIN};

const SCHEME: &str = "gramway://";
const PIN_PREFIX: &str = "sha256-";

/// What a link says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) token: Token,
    /// At least one, in order of preference.
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) pin: [u8; 32],
    /// What the owner calls the server; may be empty.
    pub(crate) name: String,
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
        let pin = match query {
            Some(start) => parse_query(start, &rest[start..])?,
            None => None,
        };
        let Some(pin) = pin else {
            return broken(
                rest.len(),
                "the server's pin is missing (?pin=sha256-…); the link may have been cut",
            );
        };
        let name = fragment.map_or(Ok(String::new()), |start| parse_name(start, &text[start..]))?;
        Ok(Self {
            token,
            endpoints,
            pin,
            name,
        })
    }

    /// The text form. It holds the token: secret; never log.
    pub(crate) fn reveal(&self) -> String {
        let endpoints: Vec<_> = self.endpoints.iter().map(ToString::to_string).collect();
        let mut text = format!(
            "{SCHEME}{}@{}?pin={PIN_PREFIX}{}",
            self.token.reveal(),
            endpoints.join(","),
            BASE64URL_NOPAD.encode(&self.pin)
        );
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

fn parse_query(start: usize, query: &str) -> Result<Option<[u8; 32]>, LinkError> {
    let mut pin = None;
    let mut offset = start;
    for parameter in query.split('&') {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let value_offset = offset + name.len() + 1;
        match (name.strip_prefix('!'), name.strip_prefix('!').unwrap_or(name)) {
            (_, "pin") if pin.is_some() => return broken(offset, "the pin is given twice"),
            (_, "pin") => pin = Some(parse_pin(value_offset, value)?),
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
    Ok(pin)
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
fn is_direction_mark(c: char) -> bool {
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
            pin: [3; 32],
            name: String::new(),
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
            v6: u128,
        ) {
            let mut endpoints: Vec<_> = hosts.into_iter().map(|(host, port)| Endpoint { host, port }).collect();
            endpoints.push(Endpoint { host: std::net::Ipv6Addr::from(v6).to_string(), port: 1 });
            let link = Link { token: Token::from_bytes(token), endpoints, pin, name };
            prop_assert_eq!(Link::parse(&link.reveal()), Ok(link));
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
