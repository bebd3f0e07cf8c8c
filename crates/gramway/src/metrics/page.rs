//! The page of metrics: a pause after each look at the counters.
//!
//! Whoever comes over a loopback address gets it only under an address or `localhost`.

use std::io;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::http::{
    HttpListener, NO_COUNTERS, OTHER_HOST, OTHER_PATH, Refusal, Request, Response, read_request, respond,
    serve_each,
};
use crate::limits::{METRICS_CONNECTIONS_MAX, METRICS_PAUSE};

/// The only page.
const PATH: &str = "/metrics";

/// OpenMetrics 1.0 in text, as Prometheus asks for it.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const OTHER_METHOD: Refusal = Refusal {
    status: "405 Method Not Allowed\r\nallow: GET, HEAD",
    reason: "the page of metrics is only read",
};

/// Answers for ever; `text` is the page, `None` where there is none at the moment.
pub(super) fn serve(listener: &HttpListener, text: impl Fn() -> Option<String> + Send + 'static) -> ! {
    let text = Arc::new(Mutex::new(text));
    let converse = move |stream: TcpStream| {
        let is_local = stream.local_addr()?.ip().to_canonical().is_loopback();
        converse(stream, is_local, || {
            let text = text.lock().unwrap_or_else(PoisonError::into_inner);
            let page = text();
            thread::sleep(METRICS_PAUSE);
            page
        })
    };
    let accept = || listener.accept();
    serve_each("metrics", METRICS_CONNECTIONS_MAX, accept, converse)
}

fn converse(mut stream: TcpStream, is_local: bool, text: impl FnOnce() -> Option<String>) -> io::Result<()> {
    let Some(request) = read_request(&mut stream)? else {
        return Ok(());
    };
    let judged = request.and_then(|request| judge(&request, is_local));
    let page = judged.and_then(|has_body| Ok((text().ok_or(NO_COUNTERS)?, has_body)));
    let (status, body, has_body) = match page {
        Ok((text, has_body)) => ("200 OK", text, has_body),
        Err(refusal) => (refusal.status, format!("# {}\n", refusal.reason), true),
    };
    let response = Response {
        status,
        content_type: CONTENT_TYPE,
        headers: Vec::new(),
        body,
        has_body,
    };
    respond(&mut stream, &response)
}

/// Whether the answer has a body.
fn judge(request: &Request, is_local: bool) -> Result<bool, Refusal> {
    if is_local && !request.is_for_this_machine() {
        return Err(OTHER_HOST);
    }
    match (request.path.as_str(), request.method.as_str()) {
        (PATH, "GET") => Ok(true),
        (PATH, "HEAD") => Ok(false),
        (PATH, _) => Err(OTHER_METHOD),
        _ => Err(OTHER_PATH),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::limits::HTTP_HEAD_BYTES_MAX;

    /// What a client receives that sends `request`.
    fn answered_at(is_local: bool, request: &[u8], text: Option<&str>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| converse(stream, is_local, || text.map(str::to_owned)));
            client.write_all(request).unwrap();
            let mut received = String::new();
            client.read_to_string(&mut received).unwrap();
            drop(client);
            received
        })
    }

    fn answered(request: &[u8], text: Option<&str>) -> String {
        answered_at(true, request, text)
    }

    #[test]
    fn only_the_page_is_served_and_only_to_readers() {
        for (request, status) in [
            ("GET /metrics?name=x HTTP/1.0", "200"),
            ("POST /metrics HTTP/1.1", "405"),
            ("GET / HTTP/1.1", "404"),
            ("GET /metrics/ HTTP/1.1", "404"),
        ] {
            let text = answered(format!("{request}\r\n\r\n").as_bytes(), Some("# EOF\n"));
            assert!(
                text.starts_with(&format!("HTTP/1.1 {status} ")),
                "{request}: {text}"
            );
        }
    }

    #[test]
    fn a_page_under_a_foreign_name_is_refused_on_loopback_alone() {
        let request = b"GET /metrics HTTP/1.1\r\nHost: example.org\r\n\r\n";
        let text = answered_at(true, request, Some("# EOF\n"));
        assert!(text.starts_with("HTTP/1.1 403 "), "{text}");
        let text = answered_at(false, request, Some("# EOF\n"));
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
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
        let text = answered(&[b'x'; HTTP_HEAD_BYTES_MAX], Some("# EOF\n"));
        assert!(text.starts_with("HTTP/1.1 431 "), "{text}");
    }

    #[test]
    fn whoever_says_nothing_holds_up_no_other_and_a_foreign_name_is_refused_at_a_wildcard_too() {
        let listener = HttpListener::open("[::]:0".parse().unwrap(), &[]).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || serve(&listener, || Some("# EOF\n".to_owned())));
        let _silent: Vec<TcpStream> = (0..4)
            .map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap())
            .collect();
        for (host, status) in [("127.0.0.1", "200"), ("example.org", "403")] {
            let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
            write!(client, "GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
            let mut received = String::new();
            client.read_to_string(&mut received).unwrap();
            assert!(received.starts_with(&format!("HTTP/1.1 {status} ")), "{received}");
        }
    }

    #[test]
    fn whoever_sends_nothing_loses_the_connection() {
        let text = answered(b"GET /metrics", Some("# EOF\n"));
        assert_eq!(text, "");
    }
}
