//! The smallest HTTP/1.1 server that serves one page: a request for each connection, one connection at a time, each
//! step within a time.
//!
//! On a loopback address it answers only to requests for an address or `localhost`. Otherwise a web page could give its
//! own name that address (DNS rebinding), and read the answer in the browser of whoever looks at it.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use httparse::{EMPTY_HEADER, Request, Status};

use crate::limits::{METRICS_HEAD_BYTES_MAX, METRICS_HEADERS_MAX, METRICS_PAUSE, METRICS_TRANSFER_LIMIT};

/// The only page.
const PATH: &str = "/metrics";

/// OpenMetrics 1.0 in text, as Prometheus asks for it.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What is served.
pub(super) struct Answer<F> {
    /// The listener's address is this machine's alone.
    pub(super) is_local: bool,
    /// The page; `None` where there is none at the moment.
    pub(super) text: F,
}

/// Status line, and headers beside those that every answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Page { has_body: bool },
    Failure(&'static str),
}

const MALFORMED: Verdict = Verdict::Failure("400 Bad Request");
const OTHER_HOST: Verdict = Verdict::Failure("403 Forbidden");
const OTHER_PATH: Verdict = Verdict::Failure("404 Not Found");
const OTHER_METHOD: Verdict = Verdict::Failure("405 Method Not Allowed\r\nallow: GET, HEAD");
const TOO_LONG: Verdict = Verdict::Failure("431 Request Header Fields Too Large");
const NO_COUNTERS: &str = "503 Service Unavailable";

/// Answers for ever.
pub(super) fn serve(listener: &TcpListener, answer: &Answer<impl Fn() -> Option<String>>) {
    loop {
        if let Ok((stream, _)) = listener.accept() {
            // Whoever went away or does not read gets no answer.
            let _ = converse(stream, answer);
        }
        // Also where there is no free file descriptor.
        thread::sleep(METRICS_PAUSE);
    }
}

fn converse(mut stream: TcpStream, answer: &Answer<impl Fn() -> Option<String>>) -> io::Result<()> {
    let Some(verdict) = read_request(&mut stream, answer.is_local)? else {
        return Ok(());
    };
    let (status, text, has_body) = match verdict {
        Verdict::Page { has_body } => match (answer.text)() {
            Some(text) => ("200 OK", text, has_body),
            None => (NO_COUNTERS, String::new(), true),
        },
        Verdict::Failure(status) => (status, String::new(), true),
    };
    let mut message = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {CONTENT_TYPE}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        text.len(),
    );
    if has_body {
        message.push_str(&text);
    }
    let deadline = Instant::now() + METRICS_TRANSFER_LIMIT;
    write_all(&mut stream, message.as_bytes(), deadline)?;
    stream.shutdown(Shutdown::Write)?;
    // What is still unread would reset the connection, and with it the answer.
    let mut rest = [0; 1_024];
    while read(&mut stream, &mut rest, deadline)? > 0 {}
    Ok(())
}

/// Reads up to the end of the request's head; `None` where the other side closes before.
fn read_request(stream: &mut TcpStream, is_local: bool) -> io::Result<Option<Verdict>> {
    let deadline = Instant::now() + METRICS_TRANSFER_LIMIT;
    let mut head = [0; METRICS_HEAD_BYTES_MAX];
    let mut length = 0;
    while length < head.len() {
        match read(stream, &mut head[length..], deadline)? {
            0 => return Ok(None),
            read => length += read,
        }
        if let Some(verdict) = judge(&head[..length], is_local) {
            return Ok(Some(verdict));
        }
    }
    Ok(Some(TOO_LONG))
}

/// What a request gets; `None` while it is incomplete.
fn judge(head: &[u8], is_local: bool) -> Option<Verdict> {
    let mut headers = [EMPTY_HEADER; METRICS_HEADERS_MAX];
    let mut request = Request::new(&mut headers);
    match request.parse(head) {
        Ok(Status::Partial) => return None,
        Ok(Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => return Some(TOO_LONG),
        Err(_) => return Some(MALFORMED),
    }
    let mut hosts = request
        .headers
        .iter()
        .filter(|header| header.name.eq_ignore_ascii_case("host"));
    if is_local && !hosts.all(|host| names_this_machine(host.value)) {
        return Some(OTHER_HOST);
    }
    let path = request.path.and_then(|path| path.split('?').next());
    Some(match (path, request.method) {
        (Some(PATH), Some("GET")) => Verdict::Page { has_body: true },
        (Some(PATH), Some("HEAD")) => Verdict::Page { has_body: false },
        (Some(PATH), _) => OTHER_METHOD,
        _ => OTHER_PATH,
    })
}

/// Whether `ADDRESS`, `[V6]` or `localhost`, with or without a port.
fn names_this_machine(host: &[u8]) -> bool {
    let Ok(host) = str::from_utf8(host) else {
        return false;
    };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    name.eq_ignore_ascii_case("localhost") || address.unwrap_or(name).parse::<IpAddr>().is_ok()
}

/// The time that is left.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

fn read(stream: &mut TcpStream, buffer: &mut [u8], deadline: Instant) -> io::Result<usize> {
    stream.set_read_timeout(Some(left(deadline)?))?;
    stream.read(buffer)
}

fn write_all(stream: &mut TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(bytes)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => bytes = &bytes[written..],
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(request: &str) -> Option<Verdict> {
        judge(request.as_bytes(), true)
    }

    #[test]
    fn only_the_page_is_served_and_only_to_readers() {
        let page = Some(Verdict::Page { has_body: true });
        assert_eq!(of("GET /metrics HTTP/1.1\r\nHost: localhost:9464\r\n\r\n"), page);
        assert_eq!(of("GET /metrics?name=x HTTP/1.0\r\n\r\n"), page);
        let head = Some(Verdict::Page { has_body: false });
        assert_eq!(of("HEAD /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"), head);
        assert_eq!(of("POST /metrics HTTP/1.1\r\n\r\n"), Some(OTHER_METHOD));
        assert_eq!(of("GET / HTTP/1.1\r\n\r\n"), Some(OTHER_PATH));
        assert_eq!(of("GET /metrics/ HTTP/1.1\r\n\r\n"), Some(OTHER_PATH));
        assert_eq!(of("GET /metrics HTTP/1.1\r\nHost: local"), None);
        assert_eq!(of("\u{0}\r\n\r\n"), Some(MALFORMED));
        let many = "A: b\r\n".repeat(METRICS_HEADERS_MAX + 1);
        assert_eq!(
            of(&format!("GET /metrics HTTP/1.1\r\n{many}\r\n")),
            Some(TOO_LONG)
        );
    }

    #[test]
    fn a_page_under_a_foreign_name_is_refused_on_loopback_alone() {
        for host in [
            "localhost",
            "LOCALHOST:1",
            "127.0.0.1:9464",
            "[::1]:9464",
            "[::1]",
        ] {
            assert!(names_this_machine(host.as_bytes()), "{host}");
        }
        for host in [
            "example.org",
            "localhost.example.org:9464",
            "",
            "127.0.0.1.example.org",
        ] {
            assert!(!names_this_machine(host.as_bytes()), "{host}");
            let request = format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n");
            assert_eq!(judge(request.as_bytes(), true), Some(OTHER_HOST), "{host}");
            assert_eq!(
                judge(request.as_bytes(), false),
                Some(Verdict::Page { has_body: true })
            );
        }
    }

    /// What a client receives that sends `request`.
    fn answered(request: &[u8], text: Option<&str>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let text = text.map(str::to_owned);
        let answer = Answer {
            is_local: true,
            text: move || text.clone(),
        };
        thread::scope(|scope| {
            scope.spawn(|| converse(stream, &answer));
            client.write_all(request).unwrap();
            let mut received = String::new();
            client.read_to_string(&mut received).unwrap();
            drop(client);
            received
        })
    }

    #[test]
    fn the_page_has_its_length_and_a_head_request_the_length_alone() {
        let text = answered(b"GET /metrics HTTP/1.1\r\n\r\n", Some("# EOF\n"));
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        assert!(
            text.contains("\r\ncontent-length: 6\r\n") && text.ends_with("\r\n\r\n# EOF\n"),
            "{text}"
        );
        let text = answered(b"HEAD /metrics HTTP/1.1\r\n\r\n", Some("# EOF\n"));
        assert!(
            text.contains("\r\ncontent-length: 6\r\n") && text.ends_with("\r\n\r\n"),
            "{text}"
        );
        let text = answered(b"GET /metrics HTTP/1.1\r\n\r\n", None);
        assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
        let text = answered(&[b'x'; METRICS_HEAD_BYTES_MAX], Some("# EOF\n"));
        assert!(text.starts_with("HTTP/1.1 431 "), "{text}");
    }

    #[test]
    fn whoever_sends_nothing_loses_the_connection() {
        let text = answered(b"GET /metrics", Some("# EOF\n"));
        assert_eq!(text, "");
    }
}
