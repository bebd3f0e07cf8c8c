//! The admin API of a running server and client: what it answers, and whom it refuses.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use serde_json::Value;

use crate::support::{LIMIT, Place, Program, USAGE, free_port};

/// A TCP port of the loopback interface that nobody has.
fn free_tcp_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

/// Status and body of the answer to a request with these header lines.
fn ask(mut stream: impl Read + Write, request: &str, headers: &[&str], body: &str) -> (u16, String, String) {
    let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    let length = body.len();
    let text = format!("{request} HTTP/1.1\r\n{lines}content-length: {length}\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_owned(), body.to_owned())
}

/// A server with its status page at this address, and these arguments besides.
fn server(place: &Place, admin: &str, arguments: &[&str]) -> Program {
    let mut command = place.command(&[
        "up",
        "--state",
        "state",
        "--listen",
        "127.0.0.1:0",
        "--admin",
        admin,
    ]);
    let server = Program::watch(command.args(arguments).spawn().unwrap());
    server.wait_for("gramway link --state state");
    server
}

fn add_user(place: &Place, name: &str) {
    let output = place.run(&["user", "--state", "state", "add", name]);
    assert!(output.status.success());
}

fn users(port: u16) -> Vec<Value> {
    let (status, _, body) = ask(connect(port), "GET /v1/users", &["Host: localhost"], "");
    assert_eq!(status, 200, "{body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    body["users"].as_array().unwrap().clone()
}

/// Waits until the server knows of a user like this, and gives all.
fn wait_for_user(port: u16, is_wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let users = users(port);
        if users.iter().any(&is_wanted) {
            return users;
        }
        assert!(Instant::now() < deadline, "the server does not follow");
    }
}

#[test]
fn counters_events_and_users_are_served_and_users_changed() {
    let place = Place::new();
    let port = free_tcp_port();
    let _server = server(&place, &port.to_string(), &[]);
    let (status, head, body) = ask(connect(port), "GET /v1/status", &["Host: localhost"], "");
    assert!(
        status == 200 && head.contains("cache-control: no-store"),
        "{head}"
    );
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["state"], "listening");
    assert!(
        body["warnings"].is_array() && body["events"][0]["text"].is_string(),
        "{body}"
    );

    let mut stream = connect(port);
    stream
        .write_all(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let told = BufReader::new(stream).lines().map(Result::unwrap);
    let told: Vec<_> = told.filter(|line| line.starts_with("data: ")).take(2).collect();
    for line in told {
        let counters: Value = serde_json::from_str(&line["data: ".len()..]).unwrap();
        assert_eq!(counters["role"], "server");
    }

    add_user(&place, "alice");
    let post = |path: &str, body: &str| {
        let headers = ["Host: localhost", "X-Gramway: 1"];
        ask(connect(port), &format!("POST /v1/users/{path}"), &headers, body)
    };
    let (status, _, body) = post("alice/disable", "");
    assert!(status == 200 && body.contains("\"excluded\":\""), "{body}");
    let (status, _, body) = post("alice/renew", r#"{"quota":"5M/day"}"#);
    assert!(
        status == 200 && body.contains("\"quota_bytes\":5000000"),
        "{body}"
    );
    let (status, _, body) = post("alice/renew", r#"{"quota":"5X"}"#);
    assert!(status == 400 && body.contains("quota"), "{body}");
    assert_eq!(post("alice/renew", "{}").0, 400);
    assert_eq!(post("alice/promote", "").0, 404);
    assert_eq!(post("nobody/enable", "").0, 404);
    wait_for_user(port, |user| user["excluded"].is_string());
    let (status, _, body) = post("alice/remove", "");
    assert!(status == 200 && body == r#"{"user":null}"#, "{body}");
    let socket = UnixStream::connect(place.path("state/server.sock")).unwrap();
    let (status, ..) = ask(socket, "POST /v1/users/alice/enable", &[], "");
    assert_eq!(
        status, 404,
        "the socket asks for no header, and there is no such user"
    );
}

#[test]
fn pages_of_others_under_any_name_are_refused() {
    let place = Place::new();
    let port = free_tcp_port();
    let _server = server(&place, &port.to_string(), &[]);
    let host = format!("Host: localhost:{port}");
    let own = format!("Origin: http://localhost:{port}");
    let get = |headers: &[&str]| ask(connect(port), "GET /v1/status", headers, "").0;
    let post = |headers: &[&str]| ask(connect(port), "POST /v1/users/nobody/disable", headers, "").0;
    assert_eq!(get(&["Host: example.org"]), 403, "DNS rebinding");
    assert_eq!(get(&[]), 403, "no name at all");
    assert_eq!(get(&[&host, "Sec-Fetch-Site: cross-site"]), 403);
    assert_eq!(get(&[&host, "Sec-Fetch-Site: same-origin"]), 200);
    assert_eq!(post(&[&host, &own]), 403, "a form has no header of its own");
    assert_eq!(post(&[&host, "X-Gramway: 1", "Origin: http://example.org"]), 403);
    assert_eq!(post(&[&host, "X-Gramway: 1", "Origin: null"]), 403);
    assert_eq!(post(&[&host, "X-Gramway: 1", "Sec-Fetch-Site: same-site"]), 403);
    assert_eq!(
        post(&[&host, "X-Gramway: 1", &own]),
        404,
        "allowed, but nobody has that name"
    );
    let (status, ..) = ask(connect(port), "OPTIONS /v1/status", &[&host, "X-Gramway: 1"], "");
    assert_eq!(status, 405, "no other site is given leave");
}

#[test]
fn off_loopback_a_token_is_needed_and_a_login_keeps_a_cookie() {
    let place = Place::new();
    let port = free_tcp_port();
    let server = server(&place, &format!("0.0.0.0:{port}"), &[]);
    let file = place.path("state/admin-token");
    assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    let token = std::fs::read_to_string(&file).unwrap();
    let bearer = format!("Authorization: Bearer {}", token.trim());
    let get = |header: &str| ask(connect(port), "GET /v1/status", &["Host: 127.0.0.1", header], "");
    assert_eq!(get("X: y").0, 401);
    assert_eq!(
        get("Authorization: Bearer 0123456789012345678901234567890123456789012").0,
        401
    );
    assert_eq!(get(&bearer).0, 200);
    let login = |header: &str| {
        let headers = ["Host: 127.0.0.1", "X-Gramway: 1", header];
        ask(connect(port), "POST /v1/login", &headers, "")
    };
    assert_eq!(login("X: y").0, 401);
    let (status, head, _) = login(&bearer);
    let cookie = head
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "))
        .unwrap();
    assert!(
        status == 200 && cookie.contains("HttpOnly; SameSite=Strict"),
        "{cookie}"
    );
    let cookie = format!("Cookie: {}", cookie.split(';').next().unwrap());
    assert!(!cookie.contains(token.trim()));
    assert_eq!(get(&cookie).0, 200);
    assert_eq!(login(&cookie).0, 401, "a cookie does not make another");
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn a_client_serves_its_counters_and_knows_no_users() {
    let place = Place::new();
    let server = place.server();
    place.write_secret("link", &place.link());
    let port = free_tcp_port();
    let mut client = place.client_command(&format!("udp:{}=192.0.2.1:9", free_port()));
    client.args(["--admin", &port.to_string(), "--admin-token-file", "token"]);
    let client = Program::watch(client.spawn().unwrap());
    client.wait_for("status page on http://127.0.0.1:");
    client.wait_for("connected to");
    let token = std::fs::read_to_string(place.path("token")).unwrap();
    let bearer = format!("Authorization: Bearer {}", token.trim());
    let get = |path: &str, header: &str| ask(connect(port), path, &["Host: localhost", header], "");
    assert_eq!(
        get("GET /v1/status", "X: y").0,
        401,
        "a token that is named is asked for on loopback as well"
    );
    let (status, _, body) = get("GET /v1/status", &bearer);
    assert!(
        status == 200 && body.contains("\"state\":\"connected\""),
        "{body}"
    );
    assert_eq!(get("GET /v1/users", &bearer).0, 404);
    place.refused(&["up", "--admin-token-file", "token"], USAGE, "add --admin PORT");
    assert_eq!(client.terminate(), Some(0));
    assert_eq!(server.terminate(), Some(0));
}

/// Fields that `docs/api.yaml` promises of this schema.
fn promised<'a>(description: &'a str, schema: &str) -> Vec<&'a str> {
    let (_, rest) = description.split_once(&format!("\n    {schema}:\n")).unwrap();
    let (_, rest) = rest.split_once("required: [").unwrap();
    rest.split(']').next().unwrap().split(", ").collect()
}

#[test]
fn no_more_than_eight_listen_and_one_who_goes_makes_room() {
    let place = Place::new();
    let port = free_tcp_port();
    let _server = server(&place, &port.to_string(), &[]);
    let listen = || {
        let mut stream = connect(port);
        let request = b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(request).unwrap();
        let mut line = String::new();
        let mut reader = BufReader::new(stream);
        reader.read_line(&mut line).unwrap();
        (reader, line)
    };
    let mut listeners: Vec<_> = (0..8).map(|_| listen()).collect();
    assert!(
        listeners
            .iter()
            .all(|(_, line)| line.starts_with("HTTP/1.1 200 "))
    );
    assert!(listen().1.starts_with("HTTP/1.1 503 "));
    listeners.pop();
    let deadline = Instant::now() + LIMIT;
    while !listen().1.starts_with("HTTP/1.1 200 ") {
        assert!(Instant::now() < deadline, "a place stays taken");
    }
}

#[test]
fn the_description_of_the_api_names_what_is_answered() {
    let description = include_str!("../../../../docs/api.yaml");
    let place = Place::new();
    let port = free_tcp_port();
    let _server = server(&place, &port.to_string(), &[]);
    add_user(&place, "alice");
    let paths: Vec<_> = description
        .lines()
        .filter_map(|line| line.strip_prefix("  /")?.strip_suffix(':'))
        .collect();
    assert_eq!(
        paths,
        [
            "v1/status",
            "v1/events",
            "v1/users",
            "v1/users/{name}/{action}",
            "v1/reload",
            "v1/drain",
            "v1/upgrade",
            "v1/login"
        ]
    );
    let whoever = ["Host: localhost", "X-Gramway: 1"];
    for path in paths {
        let path = path.replace("{name}", "alice").replace("{action}", "enable");
        let (status, _, body) = ask(connect(port), &format!("DELETE /{path}"), &whoever, "");
        assert_eq!(status, 405, "{path} is there: {body}");
        let body: Value = serde_json::from_str(&body).unwrap();
        assert!(body["error"].is_string());
    }
    assert_eq!(ask(connect(port), "POST /v1/login", &whoever, "").0, 200);
    // What starts a process is for whoever may open the socket in the state directory.
    let (status, _, body) = ask(connect(port), "POST /v1/upgrade", &whoever, "");
    assert_eq!(status, 403, "{body}");
    for body in ["{\"timeout_seconds\": -1}", "[]"] {
        assert_eq!(
            ask(connect(port), "POST /v1/drain", &whoever, body).0,
            400,
            "{body}"
        );
    }
    let (_, _, body) = ask(connect(port), "GET /v1/status", &whoever, "");
    let body: Value = serde_json::from_str(&body).unwrap();
    for field in promised(description, "Status") {
        assert!(body.get(field).is_some(), "status has no {field}");
    }
    let users = wait_for_user(port, |user| user["name"] == "alice");
    for field in promised(description, "User") {
        assert!(
            users.iter().all(|user| user.get(field).is_some()),
            "a user has no {field}"
        );
    }
}
