//! `HOST:PORT` as people write it: names, IPv4 addresses, IPv6 addresses in brackets.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::limits::HOST_BYTES_MAX;

/// A host name or address (IPv6 without brackets), and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// A name, or an address in its canonical spelling.
    pub host: String,
    /// From 1 on.
    pub port: u16,
}

/// What is wrong with a host or its port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// An IPv6 address alone.
    #[error("\"{0}\" is an IPv6 address without a port; write [ADDRESS]:PORT")]
    V6WithoutPort(String),
    /// A host alone.
    #[error("\"{text}\" has no port; write {host}:PORT")]
    WithoutPort {
        /// What was given.
        text: String,
        /// The host in it.
        host: String,
    },
    /// A bracket without its counterpart.
    #[error("\"{0}\" opens a bracket and does not close it")]
    OpenBracket(String),
    /// Something else in brackets.
    #[error("\"{0}\" is not an IPv6 address; only these stand in brackets")]
    NotV6(String),
    /// Something else than a port behind brackets.
    #[error("\"{0}\" has something other than :PORT after the bracket")]
    AfterBracket(String),
    /// It may be an IPv6 address without brackets.
    #[error("\"{0}\" has several colons; write IPv6 addresses in brackets, [::1]:443")]
    SeveralColons(String),
    /// No port.
    #[error("\"{0}\" is not a port from 1 to 65535")]
    Port(String),
    /// An address of the web.
    #[error("\"{0}\" is a URL; give a host, not a URL")]
    Url(String),
    /// Nothing before the port.
    #[error("the host is missing")]
    NoHost,
    /// An international name as people read it.
    #[error("\"{0}\" is not ASCII; write an international name in its xn-- form")]
    NotAscii(String),
    /// Characters or lengths that no host has.
    #[error("\"{0}\" is neither a host name nor an address")]
    NotAHost(String),
    /// Numbers and dots that are no address.
    #[error("\"{0}\" is not an IPv4 address; it needs four numbers from 0 to 255")]
    NotV4(String),
}

impl Endpoint {
    /// Reads `HOST:PORT` or `[V6]:PORT`; port 0 is refused.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        match parse_optional_port(text)? {
            (host, Some(port)) => Ok(Self { host, port }),
            (host, None) if host.contains(':') => Err(EndpointError::V6WithoutPort(text.to_owned())),
            (host, None) => Err(EndpointError::WithoutPort {
                text: text.to_owned(),
                host,
            }),
        }
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self {
            host: address.ip().to_string(),
            port: address.port(),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Reads `HOST[:PORT]`, `[V6][:PORT]` or a bare IPv6 address. Addresses are returned in their canonical spelling.
///
/// # Errors
/// [`EndpointError`].
pub fn parse_optional_port(text: &str) -> Result<(String, Option<u16>), EndpointError> {
    if text.parse::<Ipv6Addr>().is_ok() {
        return Ok((canonical_host(text)?, None));
    }
    if text.contains("://") {
        return Err(EndpointError::Url(text.to_owned()));
    }
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let Some((address, rest)) = rest.split_once(']') else {
            return Err(EndpointError::OpenBracket(text.to_owned()));
        };
        if address.parse::<Ipv6Addr>().is_err() {
            return Err(EndpointError::NotV6(address.to_owned()));
        }
        match rest.strip_prefix(':') {
            Some(port) => (address, Some(port)),
            None if rest.is_empty() => (address, None),
            None => return Err(EndpointError::AfterBracket(text.to_owned())),
        }
    } else {
        match text.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err(EndpointError::SeveralColons(text.to_owned()));
            }
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    let port = port.map(parse_port).transpose()?;
    Ok((canonical_host(host)?, port))
}

/// Reads a port, 1 to 65535, in plain digits.
///
/// # Errors
/// [`EndpointError::Port`].
pub fn parse_port(text: &str) -> Result<u16, EndpointError> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<u16>() {
        Ok(port) if digits && port > 0 => Ok(port),
        _ => Err(EndpointError::Port(text.to_owned())),
    }
}

/// A host as a client names it in its hello: in lower case, without a final dot (RFC 6066 section 3); `None` where it
/// is an address.
#[must_use]
pub fn shown_name(host: &str) -> Option<String> {
    let is_address = host.parse::<IpAddr>().is_ok();
    (!is_address).then(|| host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase())
}

/// Checks the characters and lengths of a name (RFC 1123 section 2.1, and the underscore that practice allows);
/// it is resolved later. Addresses get their canonical spelling.
fn canonical_host(host: &str) -> Result<String, EndpointError> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    if host.is_empty() {
        return Err(EndpointError::NoHost);
    }
    if !host.is_ascii() {
        return Err(EndpointError::NotAscii(host.to_owned()));
    }
    let labels_fit = host
        .strip_suffix('.')
        .unwrap_or(host)
        .split('.')
        .all(|label| (1..=63).contains(&label.len()) && label.bytes().all(is_label_byte));
    if host.len() > HOST_BYTES_MAX || !labels_fit {
        return Err(EndpointError::NotAHost(host.to_owned()));
    }
    if host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(EndpointError::NotV4(host.to_owned()));
    }
    Ok(host.to_owned())
}

fn is_label_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_survive_their_text_form() {
        for text in [
            "example.org:443",
            "10.0.0.1:1",
            "[::1]:65535",
            "[2001:db8::1]:53",
            "a_b.internal:9",
        ] {
            assert_eq!(Endpoint::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Endpoint::parse("[0:0::1]:80").unwrap().host, "::1");
    }

    #[test]
    fn a_port_may_be_left_out_only_where_that_is_asked_for() {
        assert_eq!(
            parse_optional_port("example.org").unwrap(),
            ("example.org".to_owned(), None)
        );
        assert_eq!(parse_optional_port("::1").unwrap(), ("::1".to_owned(), None));
        assert_eq!(parse_optional_port("[::1]").unwrap(), ("::1".to_owned(), None));
        assert!(
            Endpoint::parse("::1")
                .unwrap_err()
                .to_string()
                .contains("[ADDRESS]:PORT")
        );
        assert!(
            Endpoint::parse("example.org")
                .unwrap_err()
                .to_string()
                .contains("example.org:PORT")
        );
    }

    #[test]
    fn broken_endpoints_say_what_is_wrong() {
        for (text, part) in [
            ("", "host is missing"),
            (":80", "host is missing"),
            ("a:0", "port from 1"),
            ("a:+80", "port from 1"),
            ("a:65536", "port from 1"),
            ("a:", "port from 1"),
            ("a b:1", "neither"),
            ("a..b:1", "neither"),
            ("1.2.3:1", "four numbers"),
            ("1.2.3.400:1", "four numbers"),
            ("::1:x:2", "several colons"),
            ("[::1:2", "does not close"),
            ("[::1]2", "after the bracket"),
            ("[a]:1", "not an IPv6"),
            ("https://example.org/", "give a host, not a URL"),
            ("https://example.org:443", "give a host, not a URL"),
            ("bücher.example:1", "xn--"),
        ] {
            let error = Endpoint::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(Endpoint::parse(&format!("{}:1", "a.".repeat(200))).is_err());
    }
}
