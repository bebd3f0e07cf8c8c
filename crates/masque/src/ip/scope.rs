//! What a CONNECT-IP request is limited to: the variables `target` and `ipproto` of its template (RFC 9484 section
//! 4.6).

use super::prefix::Prefix;
use crate::target::{is_name, percent_decode, percent_encode};

/// The value that limits nothing.
const ANY: &str = "*";

/// Where packets of a request may go.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Scope {
    /// The other end of the packets.
    pub target: ScopeTarget,
    /// The only IP protocol; `None` for all. A receiver of packets finds it behind IPv6 extension headers.
    pub protocol: Option<u8>,
}

/// The variable `target`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum ScopeTarget {
    /// Everything that the server lets us reach.
    #[default]
    Any,
    /// One address or network.
    Prefix(Prefix),
    /// The addresses of this domain name, lower case: the server resolves it before it answers.
    Name(String),
}

/// Variables that no request may have: the server treats it as malformed (RFC 9484 section 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    /// `target` is neither `*` nor a name, an address or a prefix.
    #[error("target is neither '*' nor a domain name, an IP address or an IP prefix")]
    Target,
    /// `ipproto` is neither `*` nor a number.
    #[error("ipproto is neither '*' nor a number from 0 to 255")]
    Protocol,
}

impl Scope {
    /// No limits.
    pub const ANY: Self = Self {
        target: ScopeTarget::Any,
        protocol: None,
    };

    /// `{target}/{ipproto}` of a URI template.
    ///
    /// ```
    /// use masque::ip::{Scope, ScopeTarget};
    /// assert_eq!(Scope::ANY.path(), "*/*");
    /// let target = ScopeTarget::Prefix("2001:db8::/32".parse().unwrap());
    /// assert_eq!(Scope { target, protocol: Some(17) }.path(), "2001%3Adb8%3A%3A%2F32/17");
    /// ```
    #[must_use]
    pub fn path(&self) -> String {
        let target = match &self.target {
            ScopeTarget::Any => ANY.to_owned(),
            ScopeTarget::Prefix(prefix) if prefix.is_host() => percent_encode(&prefix.address().to_string()),
            ScopeTarget::Prefix(prefix) => percent_encode(&prefix.to_string()),
            ScopeTarget::Name(name) => percent_encode(name),
        };
        let protocol = self
            .protocol
            .map_or(ANY.to_owned(), |protocol| protocol.to_string());
        format!("{target}/{protocol}")
    }

    /// The reverse of [`Scope::path`]: two path segments.
    ///
    /// # Errors
    /// See [`ScopeError`].
    pub fn from_path(target: &str, protocol: &str) -> Result<Self, ScopeError> {
        let target = percent_decode(target).ok_or(ScopeError::Target)?;
        let protocol = percent_decode(protocol).ok_or(ScopeError::Protocol)?;
        Ok(Self {
            target: read_target(&target)?,
            protocol: read_protocol(&protocol)?,
        })
    }
}

fn read_target(text: &str) -> Result<ScopeTarget, ScopeError> {
    if text == ANY {
        return Ok(ScopeTarget::Any);
    }
    if let Ok(prefix) = text.parse() {
        return Ok(ScopeTarget::Prefix(prefix));
    }
    if is_name(text) {
        return Ok(ScopeTarget::Name(text.to_ascii_lowercase()));
    }
    Err(ScopeError::Target)
}

fn read_protocol(text: &str) -> Result<Option<u8>, ScopeError> {
    if text == ANY {
        return Ok(None);
    }
    // `u8::from_str` also takes a sign.
    if !(1..=3).contains(&text.len()) || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ScopeError::Protocol);
    }
    text.parse().map(Some).map_err(|_| ScopeError::Protocol)
}
