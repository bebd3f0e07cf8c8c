//! Requests for connections that come to a port of the server (`specs/listen.md`): their `:protocol`, their path, and
//! the byte that says that a connection has come.

use std::net::SocketAddr;

use crate::Target;

/// `:protocol` of such a request (LISTEN-1).
pub const PROTOCOL: &str = "gramway-listen";

/// The first byte of the response's content: a connection has come, and what follows is its own (LISTEN-5).
pub const CAME: u8 = 1;

/// Where a client wants the server to listen.
///
/// ```
/// use masque::listen::ListenPath;
///
/// let path = ListenPath { client: 7, address: "[::1]:8080".parse().unwrap() };
/// assert_eq!(path.to_string(), "/0000000000000007/tcp/%3A%3A1/8080/");
/// assert_eq!(path.to_string().parse(), Ok(path));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenPath {
    /// A number that the client has drawn for as long as it runs.
    pub client: u64,
    /// The address and port of the listener.
    pub address: SocketAddr,
}

/// A path that asks for no listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the path is not /CLIENT/tcp/ADDRESS/PORT/")]
pub struct NotAListenPath;

impl std::fmt::Display for ListenPath {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let address = self.address;
        let target = Target::new(&address.ip().to_string(), address.port()).map_err(|_| std::fmt::Error)?;
        write!(formatter, "/{:016x}/tcp/{}/", self.client, target.path())
    }
}

impl std::str::FromStr for ListenPath {
    type Err = NotAListenPath;

    fn from_str(text: &str) -> Result<Self, NotAListenPath> {
        let parts: Vec<_> = text.split('/').collect();
        let ["", client, "tcp", host, port, ""] = parts[..] else {
            return Err(NotAListenPath);
        };
        let is_hexadecimal = client.len() == 16 && client.bytes().all(|byte| byte.is_ascii_hexdigit());
        let client = u64::from_str_radix(client, 16).ok().filter(|_| is_hexadecimal);
        let target = Target::from_path(host, port).map_err(|_| NotAListenPath)?;
        let address = target.address().ok_or(NotAListenPath)?;
        Ok(Self {
            client: client.ok_or(NotAListenPath)?,
            address: SocketAddr::new(address, target.port()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LISTEN-1.
    #[test]
    fn a_path_names_client_address_and_port_or_is_none() {
        for address in ["127.0.0.1:1", "0.0.0.0:65535", "[::]:80", "[2001:db8::1]:8080"] {
            let path = ListenPath {
                client: u64::MAX,
                address: address.parse().unwrap(),
            };
            assert_eq!(path.to_string().parse(), Ok(path));
        }
        for text in [
            "",
            "/",
            "/0000000000000007/tcp/127.0.0.1/80",
            "/0000000000000007/udp/127.0.0.1/80/",
            "/0000000000000007/tcp/localhost/80/",
            "/0000000000000007/tcp/127.0.0.1/0/",
            "/0000000000000007/tcp/127.0.0.1/65536/",
            "/0000000000000007/tcp/127.0.0.1/80/x/",
            "/7/tcp/127.0.0.1/80/",
            "/+000000000000007/tcp/127.0.0.1/80/",
            "/000000000000000g/tcp/127.0.0.1/80/",
            "/\u{e9}00000000000007/tcp/127.0.0.1/80/",
        ] {
            assert_eq!(text.parse::<ListenPath>(), Err(NotAListenPath), "{text}");
        }
    }
}
