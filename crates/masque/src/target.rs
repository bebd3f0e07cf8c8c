//! Where a forward goes: host and port, in the forms of an authority (RFC 9114 section 4.4) and of a path (RFC 9298
//! section 3).

use std::{
    fmt::{self, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use crate::limits::{LABEL_BYTES_MAX, NAME_BYTES_MAX};

/// A host, by name or address, and a port. Its text form is `HOST:PORT`, `[V6]:PORT` for IPv6.
///
/// ```
/// let target: masque::Target = "[2001:db8::42]:443".parse().unwrap();
/// assert_eq!(target.path(), "2001%3Adb8%3A%3A42/443");
/// assert_eq!(target.to_string(), "[2001:db8::42]:443");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    host: String,
    port: u16,
}

/// A text that names no target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Not of the form HOST:PORT.
    #[error("not of the form HOST:PORT, or [V6]:PORT for an IPv6 address")]
    Form,
    /// The host is neither an address nor a name.
    #[error(
        "host is neither an IP address nor a domain name of at most {NAME_BYTES_MAX} letters, digits, '-', '_' and '.'"
    )]
    Host,
    /// The port is not a number of 1 to 65535.
    #[error("port is not a number from 1 to 65535")]
    Port,
}

impl Target {
    /// A target at `host`: a domain name, an IPv4 address, or an IPv6 address without brackets.
    ///
    /// # Errors
    /// [`TargetError::Host`], [`TargetError::Port`] for port 0.
    pub fn new(host: &str, port: u16) -> Result<Self, TargetError> {
        if port == 0 {
            return Err(TargetError::Port);
        }
        let is_address = host.parse::<IpAddr>().is_ok();
        if !is_address && !is_name(host) {
            return Err(TargetError::Host);
        }
        Ok(Self {
            host: host.to_ascii_lowercase(),
            port,
        })
    }

    /// The host as a resolver takes it: no brackets, lower case.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, 1 to 65535.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The address where the host is one: nothing to resolve then.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// `{target_host}/{target_port}` of a URI template: whatever is not unreserved (RFC 3986 section 2.3) is
    /// percent-encoded, so an IPv6 address's colons become `%3A` (RFC 9298 section 3).
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}/{}", percent_encode(&self.host), self.port)
    }

    /// The reverse of [`Target::path`]: two path segments.
    ///
    /// # Errors
    /// As [`Target::new`]; a zone identifier is no part of an address (RFC 9298 section 3).
    pub fn from_path(host: &str, port: &str) -> Result<Self, TargetError> {
        let host = percent_decode(host).ok_or(TargetError::Host)?;
        let port = percent_decode(port).ok_or(TargetError::Port)?;
        Self::new(&host, parse_port(&port)?)
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let (host, port) = text.rsplit_once(':').ok_or(TargetError::Form)?;
        if let Some(literal) = host.strip_prefix('[') {
            let literal = literal.strip_suffix(']').ok_or(TargetError::Form)?;
            literal.parse::<Ipv6Addr>().map_err(|_| TargetError::Host)?;
            return Self::new(literal, parse_port(port)?);
        }
        if host.is_empty() || host.contains(':') {
            return Err(TargetError::Form);
        }
        Self::new(host, parse_port(port)?)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "[{}]:{}", self.host, self.port)
        } else {
            write!(formatter, "{}:{}", self.host, self.port)
        }
    }
}

/// Letters, digits, hyphens and underscores in labels; an all-numeric last label is an address or nothing (RFC 3696
/// section 2).
pub(crate) fn is_name(host: &str) -> bool {
    let labels = host.strip_suffix('.').unwrap_or(host);
    let last = labels.rsplit('.').next().unwrap_or_default();
    host.len() <= NAME_BYTES_MAX
        && labels
            .split('.')
            .all(|label| (1..=LABEL_BYTES_MAX).contains(&label.len()))
        && labels
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        && !(last.bytes().all(|byte| byte.is_ascii_digit()) && host.parse::<Ipv4Addr>().is_err())
}

fn parse_port(text: &str) -> Result<u16, TargetError> {
    // `u16::from_str` also takes a sign.
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(TargetError::Port);
    }
    text.parse().map_err(|_| TargetError::Port)
}

/// Escapes whatever is not unreserved (RFC 3986 section 2.3).
pub(crate) fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => write!(encoded, "%{byte:02X}").expect("writing to a String cannot fail"),
        }
    }
    encoded
}

/// `None` for a broken escape or a result that is not UTF-8.
pub(crate) fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            plain.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        plain.push((high << 4 | low) as u8);
    }
    String::from_utf8(plain).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_kinds_of_host_survive_path_and_authority() {
        for (text, path) in [
            ("192.0.2.6:443", "192.0.2.6/443"),
            ("target.example.com:53", "target.example.com/53"),
            ("[2001:db8::42]:443", "2001%3Adb8%3A%3A42/443"),
            ("_dns.a-b.example.:1", "_dns.a-b.example./1"),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!(
                (target.to_string().as_str(), target.path().as_str()),
                (text, path)
            );
            let (host, port) = path.split_once('/').unwrap();
            assert_eq!(Target::from_path(host, port), Ok(target));
        }
    }

    #[test]
    fn a_lower_case_escape_is_the_same_host() {
        assert_eq!(
            Target::from_path("2001%3adb8%3a%3a42", "443"),
            Target::new("2001:db8::42", 443)
        );
    }

    #[test]
    fn what_is_no_target_says_why() {
        for (text, error) in [
            ("example.com", TargetError::Form),
            (":80", TargetError::Form),
            ("::1:80", TargetError::Form),
            ("[::1:80", TargetError::Form),
            ("[fe80::1%eth0]:80", TargetError::Host),
            ("[example.com]:80", TargetError::Host),
            ("exa mple:80", TargetError::Host),
            ("a..b:80", TargetError::Host),
            ("127.1:80", TargetError::Host),
            ("1.2.3.256:80", TargetError::Host),
            ("example.com:0", TargetError::Port),
            ("example.com:+1", TargetError::Port),
            ("example.com:65536", TargetError::Port),
            ("example.com:", TargetError::Port),
        ] {
            assert_eq!(text.parse::<Target>(), Err(error), "{text}");
        }
        assert_eq!(Target::from_path("%zz", "1"), Err(TargetError::Host));
        assert_eq!(Target::from_path("a%2", "1"), Err(TargetError::Host));
        assert_eq!(Target::from_path("a%2Fb", "1"), Err(TargetError::Host));
        assert_eq!(Target::from_path("%FF", "1"), Err(TargetError::Host));
        assert!(Target::new(&"a".repeat(300), 1).is_err());
    }
}
