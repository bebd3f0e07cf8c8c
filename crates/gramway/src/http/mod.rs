//! The smallest HTTP/1.1 server: one request for each connection, each step within a time. Metrics and the admin API
//! answer by it; they decide what, and how many at a time.

mod accepting;
mod listener;

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use httparse::{EMPTY_HEADER, Status};

pub(crate) use self::accepting::serve_each;
pub(crate) use self::listener::{HttpListener, ListenerHandle};
use crate::limits::{HTTP_BODY_BYTES_MAX, HTTP_HEAD_BYTES_MAX, HTTP_HEADERS_MAX, HTTP_TRANSFER_LIMIT};

/// A connected stream whose steps can be limited in time.
pub(crate) trait Stream: Read + Write {
    fn limit_read(&self, limit: Duration) -> io::Result<()>;
    fn limit_write(&self, limit: Duration) -> io::Result<()>;
    fn end_writing(&self) -> io::Result<()>;
}

macro_rules! stream {
    ($kind:ty) => {
        impl Stream for $kind {
            fn limit_read(&self, limit: Duration) -> io::Result<()> {
                self.set_read_timeout(Some(limit))
            }
            fn limit_write(&self, limit: Duration) -> io::Result<()> {
                self.set_write_timeout(Some(limit))
            }
            fn end_writing(&self) -> io::Result<()> {
                self.shutdown(Shutdown::Write)
            }
        }
    };
}

stream!(TcpStream);
stream!(UnixStream);

/// A whole request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Without what follows a question mark.
    pub(crate) path: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// The values of this header; what is not text is empty.
    pub(crate) fn headers<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let named = self
            .headers
            .iter()
            .filter(move |(found, _)| found.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str())
    }

    /// Whether every `Host` is an address or `localhost`. A web page could give its own name the address of a server
    /// here (DNS rebinding), and read the answers in the browser of whoever looks at it.
    pub(crate) fn is_for_this_machine(&self) -> bool {
        self.headers("host").all(names_this_machine)
    }
}

/// Why a request is not answered as asked: a status line, and a sentence for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: &'static str,
    pub(crate) reason: &'static str,
}

const fn refusal(status: &'static str, reason: &'static str) -> Refusal {
    Refusal { status, reason }
}

const MALFORMED: Refusal = refusal("400 Bad Request", "this is no request of HTTP/1.1");
const TOO_LONG: Refusal = refusal(
    "431 Request Header Fields Too Large",
    "the request's head is too long",
);
const BODY_TOO_LONG: Refusal = refusal("413 Content Too Large", "the request's body is too long");
const UNKNOWN_LENGTH: Refusal = refusal("411 Length Required", "a request's body needs one content-length");
pub(crate) const OTHER_HOST: Refusal = refusal(
    "403 Forbidden",
    "this server is asked by its address or as localhost, not by another name",
);
pub(crate) const OTHER_PATH: Refusal = refusal("404 Not Found", "there is nothing at this path");
pub(crate) const NO_COUNTERS: Refusal = refusal(
    "503 Service Unavailable",
    "there are no counters at the moment; try again",
);

/// What is answered.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: &'static str,
    pub(crate) content_type: &'static str,
    /// Beside those that every answer has.
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: String,
    /// Of a HEAD request the length alone is told.
    pub(crate) has_body: bool,
}

/// The head of an answer, up to its empty line.
pub(crate) fn head(status: &str, content_type: &str, headers: &[(&str, String)]) -> String {
    let mut head = format!("HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head
}

/// Reads a request; `None` where the other side closes before it is whole.
pub(crate) fn read_request(stream: &mut impl Stream) -> io::Result<Option<Result<Request, Refusal>>> {
    let deadline = Instant::now() + HTTP_TRANSFER_LIMIT;
    let mut bytes = vec![0; HTTP_HEAD_BYTES_MAX + HTTP_BODY_BYTES_MAX];
    let mut length = 0;
    loop {
        match read(stream, &mut bytes[length..], deadline)? {
            0 => return Ok(None),
            read => length += read,
        }
        if let Some(judged) = parse(&bytes[..length]) {
            return Ok(Some(judged));
        }
    }
}

/// The request; `None` while it is incomplete, which none is that fills the room for it.
fn parse(bytes: &[u8]) -> Option<Result<Request, Refusal>> {
    let mut headers = [EMPTY_HEADER; HTTP_HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let head = &bytes[..bytes.len().min(HTTP_HEAD_BYTES_MAX)];
    let head_length = match request.parse(head) {
        Ok(Status::Partial) if head.len() == HTTP_HEAD_BYTES_MAX => return Some(Err(TOO_LONG)),
        Ok(Status::Partial) => return None,
        Ok(Status::Complete(length)) => length,
        Err(httparse::Error::TooManyHeaders) => return Some(Err(TOO_LONG)),
        Err(_) => return Some(Err(MALFORMED)),
    };
    let (Some(method), Some(target)) = (request.method, request.path) else {
        return Some(Err(MALFORMED));
    };
    let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap_or_default();
    let mut request = Request {
        method: method.to_owned(),
        path: target.split('?').next().unwrap_or_default().to_owned(),
        headers: request
            .headers
            .iter()
            .map(|header| (header.name.to_owned(), text(header.value)))
            .collect(),
        body: Vec::new(),
    };
    let mut lengths = request.headers("content-length");
    let length = match (lengths.next().map(str::parse::<usize>), lengths.next()) {
        (None, _) => 0,
        (Some(Ok(length)), None) => length,
        _ => return Some(Err(UNKNOWN_LENGTH)),
    };
    drop(lengths);
    if request.headers("transfer-encoding").next().is_some() {
        return Some(Err(UNKNOWN_LENGTH));
    }
    if length > HTTP_BODY_BYTES_MAX {
        return Some(Err(BODY_TOO_LONG));
    }
    request.body = bytes.get(head_length..head_length + length)?.to_vec();
    Some(Ok(request))
}

/// Sends an answer, and waits until it has been read.
pub(crate) fn respond(stream: &mut impl Stream, response: &Response) -> io::Result<()> {
    let mut message = head(response.status, response.content_type, &response.headers);
    message.push_str(&format!("content-length: {}\r\n\r\n", response.body.len()));
    if response.has_body {
        message.push_str(&response.body);
    }
    let deadline = Instant::now() + HTTP_TRANSFER_LIMIT;
    write_all(stream, message.as_bytes(), deadline)?;
    stream.end_writing()?;
    // What is still unread would reset the connection, and with it the answer.
    let mut rest = [0; 1_024];
    while read(stream, &mut rest, deadline)? > 0 {}
    Ok(())
}

/// Writes all until the deadline.
pub(crate) fn write_all(stream: &mut impl Stream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.limit_write(left(deadline)?)?;
        match stream.write(bytes)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => bytes = &bytes[written..],
        }
    }
    Ok(())
}

/// Whether `ADDRESS`, `[V6]` or `localhost`, with or without a port.
fn names_this_machine(host: &str) -> bool {
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

fn read(stream: &mut impl Stream, buffer: &mut [u8], deadline: Instant) -> io::Result<usize> {
    stream.limit_read(left(deadline)?)?;
    stream.read(buffer)
}

#[cfg(test)]
mod tests;
