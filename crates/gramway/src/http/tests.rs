//! Requests that are whole, broken and too long.

use super::*;

fn of(request: &str) -> Option<Result<Request, Refusal>> {
    parse(request.as_bytes())
}

#[test]
fn a_request_is_read_to_the_end_of_its_body() {
    let request = of("POST /a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
        .unwrap()
        .unwrap();
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/a"));
    assert_eq!(request.headers("HOST").collect::<Vec<_>>(), ["x"]);
    assert_eq!(request.body, b"abc");
    assert_eq!(of("POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nab"), None);
    assert_eq!(of("GET /a HTTP/1.1\r\nHost: local"), None);
    assert_eq!(of("\u{0}\r\n\r\n"), Some(Err(MALFORMED)));
    let many = "A: b\r\n".repeat(HTTP_HEADERS_MAX + 1);
    assert_eq!(of(&format!("GET / HTTP/1.1\r\n{many}\r\n")), Some(Err(TOO_LONG)));
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(HTTP_HEAD_BYTES_MAX));
    assert_eq!(of(&long), Some(Err(TOO_LONG)));
    for length in [
        "x",
        "-1",
        "1\r\nContent-Length: 1",
        "1\r\nTransfer-Encoding: chunked",
    ] {
        let request = format!("POST / HTTP/1.1\r\nContent-Length: {length}\r\n\r\nx");
        assert_eq!(of(&request), Some(Err(UNKNOWN_LENGTH)), "{length}");
    }
    let request = format!(
        "POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n",
        HTTP_BODY_BYTES_MAX + 1
    );
    assert_eq!(of(&request), Some(Err(BODY_TOO_LONG)));
}

#[test]
fn only_addresses_and_localhost_name_this_machine() {
    for host in [
        "localhost",
        "LOCALHOST:1",
        "127.0.0.1:9464",
        "[::1]:9464",
        "[::1]",
    ] {
        assert!(names_this_machine(host), "{host}");
    }
    for host in [
        "example.org",
        "localhost.example.org:9464",
        "",
        "127.0.0.1.example.org",
    ] {
        assert!(!names_this_machine(host), "{host}");
    }
}
