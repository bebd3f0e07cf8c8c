//! `-L udp:LISTEN=TARGET` and `-L tcp:LISTEN=TARGET`.
//!
//! LISTEN is `PORT` (on 127.0.0.1), `ADDR:PORT` or `[V6]:PORT`; TARGET is `HOST:PORT` or `[V6]:PORT` and is resolved
//! at the server. UDP and TCP may share a port; the same listener twice is refused.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tunnel::config::Forward;
use tunnel_proto::Protocol;

use crate::endpoint::{Endpoint, EndpointError, parse_port};

/// Why forwards cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ForwardError {
    #[error("\"{text}\" is not a forward: {part}")]
    Broken { text: String, part: PartError },
    #[error("\"{text}\" listens on {protocol} {listen}, which another forward does already")]
    Twice {
        text: String,
        protocol: &'static str,
        listen: SocketAddr,
    },
}

/// What is wrong with a part of a forward.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PartError {
    #[error("write udp:LISTEN=TARGET or tcp:LISTEN=TARGET, for example udp:5353=10.0.0.1:53")]
    Shape,
    #[error("cannot listen on \"{0}\"; write PORT (on 127.0.0.1), ADDRESS:PORT or [V6]:PORT")]
    Listen(String),
    #[error("a listener needs a port from 1 to 65535")]
    ListenPort,
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
}

/// Reads one forward.
pub(crate) fn parse(text: &str) -> Result<Forward, ForwardError> {
    parse_parts(text).map_err(|part| ForwardError::Broken {
        text: text.to_owned(),
        part,
    })
}

fn parse_parts(text: &str) -> Result<Forward, PartError> {
    let (protocol, rest) = text.split_once(':').ok_or(PartError::Shape)?;
    let protocol = match protocol {
        "udp" => Protocol::Udp,
        "tcp" => Protocol::Tcp,
        _ => return Err(PartError::Shape),
    };
    let (listen, target) = rest.split_once('=').ok_or(PartError::Shape)?;
    let listen = parse_listen(listen)?;
    let Endpoint { host, port } = Endpoint::parse(target)?;
    Ok(Forward {
        protocol,
        listen,
        host,
        port,
    })
}

/// Reads several and refuses a listener that is named twice.
pub(crate) fn parse_all(texts: &[String]) -> Result<Vec<Forward>, ForwardError> {
    let mut forwards: Vec<Forward> = Vec::with_capacity(texts.len());
    for text in texts {
        let forward = parse(text)?;
        if forwards
            .iter()
            .any(|other| other.protocol == forward.protocol && other.listen == forward.listen)
        {
            return Err(ForwardError::Twice {
                text: text.clone(),
                protocol: protocol_name(forward.protocol),
                listen: forward.listen,
            });
        }
        forwards.push(forward);
    }
    Ok(forwards)
}

/// `udp 127.0.0.1:5353 -> 10.0.0.1:53`, for lines that people read.
pub(crate) fn describe(forward: &Forward) -> String {
    let target = Endpoint {
        host: forward.host.clone(),
        port: forward.port,
    };
    format!(
        "{} {} -> {target}",
        protocol_name(forward.protocol),
        forward.listen
    )
}

fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Udp => "udp",
        Protocol::Tcp => "tcp",
    }
}

fn parse_listen(text: &str) -> Result<SocketAddr, PartError> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(SocketAddr::new(
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            parse_port(text)?,
        ));
    }
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() == 0 => Err(PartError::ListenPort),
        Ok(address) => Ok(address),
        Err(_) => Err(PartError::Listen(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_port_listens_on_loopback() {
        let forward = parse("udp:5353=10.0.0.1:53").unwrap();
        assert_eq!(forward.listen, "127.0.0.1:5353".parse().unwrap());
        assert_eq!((forward.host.as_str(), forward.port), ("10.0.0.1", 53));
        assert_eq!(describe(&forward), "udp 127.0.0.1:5353 -> 10.0.0.1:53");
    }

    #[test]
    fn addresses_and_names_are_read_on_both_sides() {
        let forward = parse("tcp:[::1]:80=[2001:db8::1]:8080").unwrap();
        assert_eq!(forward.protocol, Protocol::Tcp);
        assert_eq!(describe(&forward), "tcp [::1]:80 -> [2001:db8::1]:8080");
        assert_eq!(
            describe(&parse("tcp:0.0.0.0:80=web.internal:81").unwrap()),
            "tcp 0.0.0.0:80 -> web.internal:81"
        );
    }

    #[test]
    fn udp_and_tcp_share_a_port_and_the_same_listener_twice_does_not() {
        let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        assert_eq!(
            parse_all(&texts(&["udp:53=a:53", "tcp:53=a:53"])).unwrap().len(),
            2
        );
        let error = parse_all(&texts(&["udp:53=a:53", "udp:127.0.0.1:53=b:53"])).unwrap_err();
        assert!(matches!(error, ForwardError::Twice { .. }), "{error}");
    }

    #[test]
    fn broken_forwards_are_refused_with_the_shape_or_the_part() {
        for (text, part) in [
            ("", "write udp:LISTEN=TARGET"),
            ("53=a:53", "write udp:LISTEN=TARGET"),
            ("sctp:53=a:53", "write udp:LISTEN=TARGET"),
            ("UDP:53=a:53", "write udp:LISTEN=TARGET"),
            ("udp:53", "write udp:LISTEN=TARGET"),
            ("udp:=a:53", "cannot listen on"),
            ("udp:localhost:53=a:53", "cannot listen on"),
            ("udp:0=a:53", "port from 1"),
            ("udp:127.0.0.1:0=a:53", "port from 1"),
            ("udp:70000=a:53", "port from 1"),
            ("udp:53=a", "has no port"),
            ("udp:53=::1:53", "[ADDRESS]:PORT"),
            ("udp:53=::1:x:53", "brackets"),
            ("udp:53=a:53=b", "port from 1"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
