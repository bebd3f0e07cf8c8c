//! `-L udp:LISTEN=TARGET` and `-L tcp:LISTEN=TARGET`.
//!
//! LISTEN is `PORT` or `localhost:PORT` (127.0.0.1), `ADDR:PORT`, `[V6]:PORT`, or `:PORT` (every address); TARGET is
//! `HOST:PORT` or `[V6]:PORT` and is resolved at the server. Where both have a range of ports, `FIRST-LAST`, of the
//! same length, there is a forward for each port. UDP and TCP may share a port; the same listener twice is refused.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use tunnel::config::Forward;
use tunnel_proto::Protocol;
use tunnel_proto::link::{Endpoint, EndpointError, parse_port};

use crate::addresses;
use crate::limits::FORWARD_RANGE_MAX;

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
    #[error(
        "cannot listen on \"{0}\"; write PORT (on 127.0.0.1), ADDRESS:PORT, [V6]:PORT or :PORT (on all addresses)"
    )]
    Listen(String),
    #[error("\"{0}\" is not a range of ports, FIRST-LAST, of at most {FORWARD_RANGE_MAX}")]
    Range(String),
    #[error("{0} ports to listen on and {1} ports of the target; give ranges of the same length")]
    RangeLengths(usize, usize),
    #[error("-R takes only TCP; write tcp:LISTEN=TARGET, for example tcp:8080=127.0.0.1:80")]
    NotRemote,
    #[error("the target cannot be used: {0}")]
    Target(String),
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
}

/// Reads one forward, or a range of them.
pub(crate) fn parse(text: &str) -> Result<Vec<Forward>, ForwardError> {
    parse_parts(text).map_err(|part| ForwardError::Broken {
        text: text.to_owned(),
        part,
    })
}

fn parse_parts(text: &str) -> Result<Vec<Forward>, PartError> {
    let (protocol, rest) = text.split_once(':').ok_or(PartError::Shape)?;
    let protocol = match protocol {
        "udp" => Protocol::Udp,
        "tcp" => Protocol::Tcp,
        _ => return Err(PartError::Shape),
    };
    let (listen, target) = rest.split_once('=').ok_or(PartError::Shape)?;
    let (listen, listen_ports) = parse_listen(listen)?;
    let (host, target_ports) = parse_target(target)?;
    if listen_ports.len() != target_ports.len() {
        return Err(PartError::RangeLengths(listen_ports.len(), target_ports.len()));
    }
    let ports = listen_ports.zip(target_ports);
    let forward = |(listen_port, port)| Forward {
        protocol,
        listen: SocketAddr::new(listen, listen_port),
        host: host.clone(),
        port,
    };
    Ok(ports.map(forward).collect())
}

/// `PORT`, or `FIRST-LAST`.
fn parse_ports(text: &str) -> Result<RangeInclusive<u16>, PartError> {
    let Some((first, last)) = text.split_once('-') else {
        let port = parse_port(text)?;
        return Ok(port..=port);
    };
    let ports = parse_port(first)?..=parse_port(last)?;
    if (1..=FORWARD_RANGE_MAX).contains(&ports.len()) {
        Ok(ports)
    } else {
        Err(PartError::Range(text.to_owned()))
    }
}

/// Whether this is meant as ports, and not as a part of a host's name or of a URL.
fn is_ports(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
}

/// `HOST:PORTS`.
fn parse_target(text: &str) -> Result<(String, RangeInclusive<u16>), PartError> {
    match text.rsplit_once(':') {
        Some((host, ports)) if is_ports(ports) && ports.contains('-') && !host.is_empty() => {
            let ports = parse_ports(ports)?;
            let Endpoint { host, .. } = Endpoint::parse(&format!("{host}:{}", ports.start()))?;
            Ok((host, ports))
        }
        _ => {
            let Endpoint { host, port } = Endpoint::parse(text)?;
            Ok((host, port..=port))
        }
    }
}

/// Reads several and refuses a listener that is named twice.
pub(crate) fn parse_all(texts: &[String]) -> Result<Vec<Forward>, ForwardError> {
    let mut forwards: Vec<Forward> = Vec::with_capacity(texts.len());
    for text in texts {
        for forward in parse(text)? {
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

/// Where one listener is: `PORT` on this machine, `ADDR:PORT`, `[V6]:PORT` or `:PORT`.
pub(crate) fn parse_listener(text: &str) -> Result<SocketAddr, PartError> {
    let (address, ports) = parse_listen(text)?;
    if ports.len() != 1 {
        return Err(PartError::Listen(text.to_owned()));
    }
    Ok(SocketAddr::new(address, *ports.start()))
}

fn parse_listen(text: &str) -> Result<(IpAddr, RangeInclusive<u16>), PartError> {
    let wrong = || PartError::Listen(text.to_owned());
    let (address, ports) = text.rsplit_once(':').unwrap_or(("localhost", text));
    if !is_ports(ports) {
        return Err(wrong());
    }
    let address = addresses::of_listener(address).ok_or_else(wrong)?;
    Ok((address, parse_ports(ports)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Forward {
        let [forward] = <[Forward; 1]>::try_from(parse(text).unwrap()).unwrap();
        forward
    }

    #[test]
    fn local_names_all_addresses_and_ranges_are_listeners() {
        assert_eq!(
            one("udp:localhost:53=a:53").listen,
            "127.0.0.1:53".parse().unwrap()
        );
        let all = one("tcp::80=a:81");
        assert!(all.listen.ip().is_unspecified() && all.listen.port() == 80);
        let range = parse("tcp:[::1]:8000-8002=web.internal:80-82").unwrap();
        let texts: Vec<_> = range.iter().map(describe).collect();
        assert_eq!(
            texts,
            [
                "tcp [::1]:8000 -> web.internal:80",
                "tcp [::1]:8001 -> web.internal:81",
                "tcp [::1]:8002 -> web.internal:82",
            ]
        );
        for (text, part) in [
            ("udp:5-7=a:5-6", "3 ports to listen on and 2 ports of the target"),
            ("udp:5-7=a:5", "ranges of the same length"),
            ("udp:7-5=a:7-5", "not a range of ports"),
            ("udp:1-1000=a:1-1000", "of at most 256"),
            ("udp:0-5=a:0-5", "port from 1"),
            ("udp:5-=a:5-6", "port from 1"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        let twice = ["tcp:8000-8002=a:80-82".to_owned(), "tcp:8001=b:1".to_owned()];
        assert!(matches!(parse_all(&twice), Err(ForwardError::Twice { .. })));
    }

    #[test]
    fn a_bare_port_listens_on_loopback() {
        let forward = one("udp:5353=10.0.0.1:53");
        assert_eq!(forward.listen, "127.0.0.1:5353".parse().unwrap());
        assert_eq!((forward.host.as_str(), forward.port), ("10.0.0.1", 53));
        assert_eq!(describe(&forward), "udp 127.0.0.1:5353 -> 10.0.0.1:53");
    }

    #[test]
    fn addresses_and_names_are_read_on_both_sides() {
        let forward = one("tcp:[::1]:80=[2001:db8::1]:8080");
        assert_eq!(forward.protocol, Protocol::Tcp);
        assert_eq!(describe(&forward), "tcp [::1]:80 -> [2001:db8::1]:8080");
        assert_eq!(
            describe(&one("tcp:0.0.0.0:80=web.internal:81")),
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
            ("udp:example.org:53=a:53", "cannot listen on"),
            ("udp:0=a:53", "port from 1"),
            ("udp:127.0.0.1:0=a:53", "port from 1"),
            ("udp:70000=a:53", "port from 1"),
            ("udp:53=a", "has no port"),
            ("udp:53=https://my-host.org/", "give a host, not a URL"),
            ("udp:53=::1:53", "[ADDRESS]:PORT"),
            ("udp:53=::1:x:53", "brackets"),
            ("udp:53=a:53=b", "port from 1"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
