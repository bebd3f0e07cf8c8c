//! HTTP/1.1 as proxies speak it: CONNECT (RFC 9110 section 9.3.6), and requests with a target in absolute form (RFC 9112
//! section 3.2.2), of which each has a connection of its own.

use std::fmt::Write as _;

use bytes::BytesMut;
use masque::Target;

use crate::client::negotiation::{Negotiation, NotOpened, Progress};
use crate::limits::HTTP_FIELDS_MAX;

/// Fields that concern only the way to the proxy (RFC 9110 section 7.6.1). `Host` is made anew from the target.
const NOT_PASSED_ON: [&str; 6] = [
    "connection",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "keep-alive",
    "host",
];

/// One connection of a program that speaks HTTP.
#[derive(Debug, Default)]
pub struct Http {
    /// The target is told nothing by us but that it is open; otherwise it answers itself.
    is_connect: bool,
}

/// A head that was read.
struct Head {
    target: Target,
    /// For the target instead of the head; `None` for CONNECT.
    rewritten: Option<String>,
    bytes: usize,
}

impl Negotiation for Http {
    fn handle_received(&mut self, received: &mut BytesMut, answer: &mut BytesMut) -> Progress {
        match read(received) {
            Ok(None) => Progress::Unfinished,
            Ok(Some(head)) => {
                let rest = received.split_off(head.bytes);
                received.clear();
                self.is_connect = head.rewritten.is_none();
                received.extend_from_slice(head.rewritten.unwrap_or_default().as_bytes());
                received.extend_from_slice(&rest);
                Progress::Named(head.target)
            }
            Err(reason) => {
                respond(answer, 400, None, reason);
                Progress::Refused
            }
        }
    }

    fn handle_opened(&mut self, answer: &mut BytesMut) {
        if self.is_connect {
            answer.extend_from_slice(b"HTTP/1.1 200 Connection established\r\n\r\n");
        }
    }

    fn handle_failed(&mut self, failure: NotOpened, answer: &mut BytesMut) {
        match failure {
            NotOpened::TooLong => respond(answer, 431, None, "the request's head is too long"),
            NotOpened::TooLate => respond(answer, 408, None, "no request came in time"),
            NotOpened::NoTunnel => respond(
                answer,
                503,
                None,
                "the tunnel is down; it connects again by itself",
            ),
            NotOpened::NoRelay => respond(answer, 503, None, "there is no relay for datagrams"),
            NotOpened::Refused { status, error } => {
                let token = error.map(|error| error.token());
                // What is the tunnel's own affair, such as a token, is none of the program's.
                let status = match status {
                    403 | 429 | 500..=599 => status,
                    _ => 502,
                };
                let reason = match token {
                    Some(token) => format!("the server could not reach the target: {token}"),
                    None => "the server refused the target".to_owned(),
                };
                respond(answer, status, token, &reason);
            }
        }
    }
}

/// The head of a request; `None` while it is not whole. The error says what is wrong with it.
fn read(received: &[u8]) -> Result<Option<Head>, &'static str> {
    let mut fields = [httparse::EMPTY_HEADER; HTTP_FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let bytes = match request.parse(received) {
        Ok(httparse::Status::Complete(bytes)) => bytes,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err("the request has too many fields"),
        Err(_) => return Err("this is no request of HTTP/1.1"),
    };
    let (method, path) = (
        request.method.unwrap_or_default(),
        request.path.unwrap_or_default(),
    );
    if method == "CONNECT" {
        let target = path
            .parse()
            .map_err(|_| "CONNECT needs a target of the form HOST:PORT")?;
        return Ok(Some(Head {
            target,
            rewritten: None,
            bytes,
        }));
    }
    let (target, authority, path) = absolute(path)?;
    let rewritten = rewrite(method, authority, &path, request.headers)?;
    Ok(Some(Head {
        target,
        rewritten: Some(rewritten),
        bytes,
    }))
}

/// Target, authority as it is written, and path of an absolute-form URI.
fn absolute(uri: &str) -> Result<(Target, &str, String), &'static str> {
    let (scheme, rest) = uri
        .split_once("://")
        .ok_or("this is a proxy: the request's target has to be of the form http://HOST/PATH")?;
    if !scheme.eq_ignore_ascii_case("http") {
        return Err("only http:// is asked for in clear; others use CONNECT");
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    // A name and a password in a URI are never sent on (RFC 9110 section 4.2.4).
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let has_port = authority
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()));
    let target = if has_port {
        authority.parse()
    } else {
        format!("{}:80", authority.trim_end_matches(':')).parse()
    };
    let path = path.split('#').next().unwrap_or_default();
    let path = if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    };
    let target = target.map_err(|_| "the request's target names no host")?;
    Ok((target, authority, path))
}

/// The head for the target: origin form, and the connection ends with the response, because the program's next request may
/// be for somebody else. A request to upgrade (a WebSocket) keeps its connection.
fn rewrite(
    method: &str,
    authority: &str,
    path: &str,
    fields: &[httparse::Header<'_>],
) -> Result<String, &'static str> {
    let values = |wanted: &'static str| {
        fields
            .iter()
            .filter(move |field| field.name.eq_ignore_ascii_case(wanted))
            .filter_map(|field| std::str::from_utf8(field.value).ok())
    };
    let named: Vec<&str> = values("connection")
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .collect();
    let upgrades = named.iter().any(|name| name.eq_ignore_ascii_case("upgrade"));
    let is_passed_on = |name: &str| {
        let is_upgrade = name.eq_ignore_ascii_case("upgrade");
        let is_ours = NOT_PASSED_ON.iter().any(|ours| name.eq_ignore_ascii_case(ours));
        let is_named = named.iter().any(|named| name.eq_ignore_ascii_case(named));
        if is_upgrade {
            upgrades
        } else {
            !is_ours && !is_named
        }
    };
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {authority}\r\n");
    for field in fields.iter().filter(|field| is_passed_on(field.name)) {
        let value = std::str::from_utf8(field.value).map_err(|_| "a field of the request is no text")?;
        let _ = write!(head, "{}: {value}\r\n", field.name);
    }
    let connection = if upgrades { "Upgrade" } else { "close" };
    let _ = write!(head, "Connection: {connection}\r\n\r\n");
    Ok(head)
}

/// A response of our own, for a person. Its Proxy-Status is of RFC 9209.
fn respond(answer: &mut BytesMut, status: u16, error: Option<&str>, reason: &str) {
    let name = match status {
        400 => "Bad Request",
        403 => "Forbidden",
        408 => "Request Timeout",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        502 => "Bad Gateway",
        _ => "Error",
    };
    let proxy_status = error.map_or_else(String::new, |error| {
        format!("Proxy-Status: gramway; error={error}\r\n")
    });
    let text = format!("gramway: {reason}\n");
    let head = format!(
        "HTTP/1.1 {status} {name}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: \
         close\r\n{proxy_status}\r\n{text}",
        text.len()
    );
    answer.extend_from_slice(head.as_bytes());
}

#[cfg(test)]
mod tests {
    use masque::response::ProxyError;

    use super::*;

    fn given(text: &str) -> (Progress, String, String, Http) {
        let (mut received, mut answer) = (BytesMut::from(text), BytesMut::new());
        let mut http = Http::default();
        let progress = http.handle_received(&mut received, &mut answer);
        let text = |bytes: &BytesMut| String::from_utf8(bytes.to_vec()).unwrap();
        (progress, text(&received), text(&answer), http)
    }

    fn named(target: &str) -> Progress {
        Progress::Named(target.parse().unwrap())
    }

    #[test]
    fn connect_names_its_target_and_is_answered() {
        let (progress, left, _, mut http) =
            given("CONNECT [2001:db8::9]:443 HTTP/1.1\r\nHost: x\r\nProxy-Connection: keep-alive\r\n\r\nTLS");
        assert_eq!(progress, named("[2001:db8::9]:443"));
        assert_eq!(left, "TLS");
        let mut answer = BytesMut::new();
        http.handle_opened(&mut answer);
        assert_eq!(answer, "HTTP/1.1 200 Connection established\r\n\r\n");
    }

    #[test]
    fn a_request_goes_to_its_origin_without_what_was_for_the_proxy() {
        let (progress, left, answer, mut http) = given(
            "POST http://Example.org/a?b=c#d HTTP/1.1\r\nHost: wrong\r\nProxy-Authorization: Basic x\r\nConnection: \
             keep-alive, X-Hop\r\nX-Hop: 1\r\nContent-Length: 4\r\n\r\nbody",
        );
        assert_eq!(progress, named("example.org:80"));
        assert_eq!(
            left,
            "POST /a?b=c HTTP/1.1\r\nHost: Example.org\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody"
        );
        assert!(answer.is_empty());
        // The origin answers itself.
        let mut answer = BytesMut::new();
        http.handle_opened(&mut answer);
        assert!(answer.is_empty());
    }

    #[test]
    fn every_form_of_authority_is_understood() {
        for (uri, target, line) in [
            ("http://host", "host:80", "GET / HTTP/1.1\r\nHost: host\r\n"),
            (
                "http://host:8080?q",
                "host:8080",
                "GET /?q HTTP/1.1\r\nHost: host:8080\r\n",
            ),
            (
                "HTTP://user:secret@host:/",
                "host:80",
                "GET / HTTP/1.1\r\nHost: host:\r\n",
            ),
            (
                "http://[::1]:81/x",
                "[::1]:81",
                "GET /x HTTP/1.1\r\nHost: [::1]:81\r\n",
            ),
            (
                "http://[2001:db8::1]/",
                "[2001:db8::1]:80",
                "GET / HTTP/1.1\r\nHost: [2001:db8::1]\r\n",
            ),
        ] {
            let (progress, left, _, _) = given(&format!("GET {uri} HTTP/1.1\r\n\r\n"));
            assert_eq!(progress, named(target), "{uri}");
            assert!(left.starts_with(line), "{left}");
            assert!(!left.contains("secret"), "{left}");
        }
    }

    #[test]
    fn a_websocket_keeps_its_connection() {
        let (_, left, _, _) = given(
            "GET http://host/chat HTTP/1.1\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Key: \
             k\r\n\r\n",
        );
        assert!(left.contains("Upgrade: websocket\r\n"), "{left}");
        assert!(
            left.ends_with("Sec-WebSocket-Key: k\r\nConnection: Upgrade\r\n\r\n"),
            "{left}"
        );
    }

    #[test]
    fn what_is_no_request_to_a_proxy_is_answered_with_what_is_wrong() {
        for (text, reason) in [
            ("GET / HTTP/1.1\r\nHost: here\r\n\r\n", "this is a proxy"),
            ("GET https://host/ HTTP/1.1\r\n\r\n", "only http://"),
            ("GET http:///x HTTP/1.1\r\n\r\n", "names no host"),
            ("CONNECT host HTTP/1.1\r\n\r\n", "HOST:PORT"),
            ("\u{16}\u{3}\u{1}\r\n\r\n", "no request of HTTP/1.1"),
        ] {
            let (progress, _, answer, _) = given(text);
            assert_eq!(progress, Progress::Refused, "{text}");
            assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
            assert!(answer.contains(reason), "{answer}");
        }
        let many = "X: y\r\n".repeat(HTTP_FIELDS_MAX + 1);
        let (progress, _, answer, _) = given(&format!("CONNECT a:1 HTTP/1.1\r\n{many}\r\n"));
        assert_eq!(progress, Progress::Refused);
        assert!(answer.contains("too many fields"), "{answer}");
    }

    #[test]
    fn a_program_hears_why_its_target_is_not_open() {
        for (failure, line) in [
            (NotOpened::NoTunnel, "503 Service Unavailable"),
            (NotOpened::TooLate, "408 Request Timeout"),
            (NotOpened::TooLong, "431 Request Header Fields Too Large"),
            (
                NotOpened::Refused {
                    status: 502,
                    error: Some(ProxyError::ConnectionRefused),
                },
                "502 Bad Gateway",
            ),
            (
                NotOpened::Refused {
                    status: 407,
                    error: None,
                },
                "502 Bad Gateway",
            ),
        ] {
            let mut answer = BytesMut::new();
            Http::default().handle_failed(failure, &mut answer);
            let text = String::from_utf8(answer.to_vec()).unwrap();
            assert!(text.starts_with(&format!("HTTP/1.1 {line}\r\n")), "{text}");
            let told = text.contains("Proxy-Status: gramway; error=connection_refused\r\n");
            assert_eq!(told, matches!(failure, NotOpened::Refused { error: Some(_), .. }));
        }
    }
}
