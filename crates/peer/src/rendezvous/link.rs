//! Which server: the link that its owner shares.

use data_encoding::BASE64URL_NOPAD;
use tunnel_proto::Token;

use crate::limits::{LINK_BYTES_MAX, LINK_SERVERS_MAX};

const SCHEME: &str = "gramway://";
const PIN_PREFIX: &str = "sha256-";

/// A Gramway server at which an endpoint is registered, so that peers reach it behind a router.
#[derive(Clone, Debug)]
pub struct Rendezvous {
    pub(super) token: Token,
    /// Hosts and ports, in order of preference.
    pub(super) servers: Vec<(String, u16)>,
    /// SHA-256 of the server's SubjectPublicKeyInfo.
    pub(super) pin: [u8; 32],
}

/// Why a link names no server that can be used. Nothing of the link is repeated, because it is secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// It has another form.
    #[error("this is no link of the form gramway://TOKEN@HOST:PORT?pin=sha256-…; copy it again")]
    Malformed,
    /// The server is known by something else than its key.
    #[error(
        "the server of this link has a cover or an ordinary certificate; peers need one that is known by its pin"
    )]
    NotPinned,
}

impl Rendezvous {
    /// The server of a link as `gramway up` prints it.
    ///
    /// # Errors
    /// [`LinkError`].
    ///
    /// ```
    /// use peer::{LinkError, Rendezvous};
    ///
    /// let token = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    /// let link = format!("gramway://{token}@192.0.2.1:443,[2001:db8::1]:443?pin=sha256-{token}#home");
    /// assert!(Rendezvous::from_link(&link).is_ok());
    /// assert_eq!(Rendezvous::from_link("https://example.org").err(), Some(LinkError::Malformed));
    /// ```
    pub fn from_link(link: &str) -> Result<Self, LinkError> {
        let rest = link.trim().strip_prefix(SCHEME);
        let rest = rest
            .filter(|_| link.len() <= LINK_BYTES_MAX)
            .ok_or(LinkError::Malformed)?;
        let rest = rest.split('#').next().unwrap_or(rest);
        let (authority, query) = rest.split_once('?').ok_or(LinkError::Malformed)?;
        let (token, hosts) = authority.split_once('@').ok_or(LinkError::Malformed)?;
        let servers: Option<Vec<_>> = hosts.split(',').map(server).collect();
        let servers = servers.filter(|servers| servers.len() <= LINK_SERVERS_MAX);
        // What must be understood begins with an exclamation mark: covers and ordinary certificates.
        if query.split('&').any(|parameter| parameter.starts_with('!')) {
            return Err(LinkError::NotPinned);
        }
        let pin = query
            .split('&')
            .find_map(|parameter| parameter.strip_prefix("pin="))
            .and_then(|pin| pin.strip_prefix(PIN_PREFIX))
            .and_then(|pin| BASE64URL_NOPAD.decode(pin.as_bytes()).ok())
            .and_then(|pin| pin.try_into().ok());
        Ok(Self {
            token: Token::parse(token).map_err(|_| LinkError::Malformed)?,
            servers: servers.ok_or(LinkError::Malformed)?,
            pin: pin.ok_or(LinkError::Malformed)?,
        })
    }
}

/// `HOST:PORT`, where an IPv6 address stands in brackets.
fn server(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']')?,
        None => host,
    };
    let port = port.parse().ok().filter(|port| *port != 0)?;
    let is_name = !host.is_empty() && !host.contains(['/', '@', '[', ']']);
    is_name.then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_read_and_others_are_refused_by_reason() {
        let (token, pin) = ("A".repeat(43), "A".repeat(43));
        let read = |text: &str| Rendezvous::from_link(text);
        let link =
            format!("gramway://{token}@one.example:443,[2001:db8::1]:8443?tcp=443&pin=sha256-{pin}#a%20b");
        let rendezvous = read(&format!("  {link}\n")).unwrap();
        let expected = [("one.example".to_owned(), 443), ("2001:db8::1".to_owned(), 8443)];
        assert_eq!(rendezvous.servers, expected);
        assert_eq!(rendezvous.pin, [0; 32]);
        assert!(!format!("{rendezvous:?}").contains(&token));
        let cover = format!("gramway://{token}@one.example:443?!cover={pin}&!name=b.example");
        assert_eq!(read(&cover).err(), Some(LinkError::NotPinned));
        for text in [
            String::new(),
            link.replace("gramway", "https"),
            link.replace(":443,", ","),
            link.replace(":443,", ":0,"),
            link.replace("one.example", ""),
            link.replace("sha256-", "sha1-"),
            link.replace(&format!("{token}@"), "short@"),
            format!("{link}{}", "x".repeat(LINK_BYTES_MAX)),
        ] {
            assert_eq!(read(&text).err(), Some(LinkError::Malformed), "{text}");
        }
    }
}
