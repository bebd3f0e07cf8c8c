//! Requests to the admin API and the page of metrics: in whichever pieces one comes, it is read the same, within its
//! bounds, and its body is what stands behind its head.

use std::io::{self, Read, Write};
use std::time::Duration;

use crate::http::{Refusal, Request, Stream, read_request};
use crate::input::Input;
use crate::limits::{HTTP_BODY_BYTES_MAX, HTTP_HEAD_BYTES_MAX};

/// A connection whose other side has sent this, and closes then.
struct Sent<'a> {
    bytes: &'a [u8],
    /// Bytes that one call reads.
    piece: usize,
}

impl Read for Sent<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.piece.min(self.bytes.len()).min(buffer.len());
        buffer[..count].copy_from_slice(&self.bytes[..count]);
        self.bytes = &self.bytes[count..];
        Ok(count)
    }
}

impl Write for Sent<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for Sent<'_> {
    fn limit_read(&self, _: Duration) -> io::Result<()> {
        Ok(())
    }

    fn limit_write(&self, _: Duration) -> io::Result<()> {
        Ok(())
    }

    fn end_writing(&self) -> io::Result<()> {
        Ok(())
    }
}

fn read(bytes: &[u8], piece: usize) -> Option<Result<Request, Refusal>> {
    read_request(&mut Sent { bytes, piece }).expect("nothing fails and nothing takes long")
}

/// A byte says how long pieces are; then what is sent.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let piece = 1 + usize::from(input.byte());
    let bytes = input.0;
    let whole = read(bytes, usize::MAX);
    // What is wrong may be seen before the end has come.
    assert_eq!(whole, read(bytes, piece));
    let Some(Ok(request)) = whole else { return };
    assert!(!request.path.contains('?') && request.body.len() <= HTTP_BODY_BYTES_MAX);
    let body = &request.body[..];
    let mut behind_heads = (0..=bytes.len() - body.len()).take(HTTP_HEAD_BYTES_MAX + 1);
    assert!(behind_heads.any(|at| bytes[at..].starts_with(body)));
    let _ = request.is_for_this_machine();
}

/// Requests as browsers, Prometheus and `gramway status` make them, and what is wrong in each way.
pub fn seeds() -> Vec<Vec<u8>> {
    let all = [
        &b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9464\r\nAccept: */*\r\n\r\n"[..],
        b"GET / HTTP/1.0\r\n\r\n",
        b"POST /v1/users/alice/renew HTTP/1.1\r\nHost: localhost\r\nX-Gramway: 1\r\nContent-Length: 17\r\n\r\n{\"expires\":\"30d\"}",
        b"POST /v1/reload?x=y HTTP/1.1\r\nHost: [::1]:80\r\nContent-Length: 0\r\n\r\nmore",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"GET / HTTP/1.1\r\nHost: \xff\r\nhost: example.org\r\n\r\n",
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
    ];
    all.map(|bytes| [b"\x06", bytes].concat()).to_vec()
}
