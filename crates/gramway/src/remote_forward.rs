//! `-R tcp:LISTEN=TARGET`: a port of the server whose connections lead to a target that this machine reaches.
//!
//! It is written like `-L`, with the two ends exchanged: `PORT` is on the loopback address of the server.

use tunnel::config::{Forward, RemoteForward};
use tunnel_proto::{Protocol, Target};

use crate::forward::{self, ForwardError, PartError};

/// Reads several and refuses a listener that is named twice.
pub(crate) fn parse_all(texts: &[String]) -> Result<Vec<RemoteForward>, ForwardError> {
    // A listener that is named twice.
    forward::parse_all(texts).map_err(for_tcp)?;
    let mut forwards = Vec::new();
    for text in texts {
        for forward in forward::parse(text)? {
            let remote = remote(&forward).map_err(|part| ForwardError::Broken {
                text: text.clone(),
                part,
            });
            forwards.push(remote?);
        }
    }
    Ok(forwards)
}

/// A text that is no forward at all: the example is one for `-R`.
fn for_tcp(error: ForwardError) -> ForwardError {
    match error {
        ForwardError::Broken {
            text,
            part: PartError::Shape,
        } => ForwardError::Broken {
            text,
            part: PartError::NotRemote,
        },
        other => other,
    }
}

fn remote(forward: &Forward) -> Result<RemoteForward, PartError> {
    if forward.protocol != Protocol::Tcp {
        return Err(PartError::NotRemote);
    }
    let target =
        Target::new(&forward.host, forward.port).map_err(|error| PartError::Target(error.to_string()))?;
    Ok(RemoteForward {
        listen: forward.listen,
        target,
    })
}

/// `tcp 127.0.0.1:8080 at the server -> localhost:80`, for lines that people read.
pub(crate) fn describe(forward: &RemoteForward) -> String {
    format!("tcp {} at the server -> {}", forward.listen, forward.target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<RemoteForward>, ForwardError> {
        parse_all(&[text.to_owned()])
    }

    #[test]
    fn a_bare_port_is_on_the_servers_loopback_address_and_ranges_are_several() {
        let one = parse("tcp:8080=localhost:80").unwrap();
        assert_eq!(
            describe(&one[0]),
            "tcp 127.0.0.1:8080 at the server -> localhost:80"
        );
        let range = parse("tcp:[2001:db8::1]:8000-8001=[::1]:80-81").unwrap();
        let texts: Vec<_> = range.iter().map(describe).collect();
        assert_eq!(
            texts,
            [
                "tcp [2001:db8::1]:8000 at the server -> [::1]:80",
                "tcp [2001:db8::1]:8001 at the server -> [::1]:81",
            ]
        );
        assert!(parse("tcp::80=a:80").unwrap()[0].listen.ip().is_unspecified());
    }

    #[test]
    fn what_no_port_of_a_server_can_be_is_refused_with_the_cure() {
        for (text, part) in [
            ("udp:53=a:53", "write tcp:LISTEN=TARGET"),
            (
                "tcp:80",
                "-R takes only TCP; write tcp:LISTEN=TARGET, for example tcp:",
            ),
            ("tcp:80=a b:80", "a b"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        let twice = ["tcp:80=a:80".to_owned(), "tcp:localhost:80=b:80".to_owned()];
        assert!(matches!(parse_all(&twice), Err(ForwardError::Twice { .. })));
    }
}
