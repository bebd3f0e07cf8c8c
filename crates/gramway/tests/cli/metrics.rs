//! `--metrics` of a running server and client, confined as they are.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use crate::support::{LIMIT, Place, Program, UNAVAILABLE, USAGE, dead_link, free_port};

/// A TCP port of the loopback interface that nobody has.
pub(crate) fn free_tcp_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn ask(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

pub(crate) fn scrape(port: u16) -> String {
    ask(port, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

#[test]
fn a_server_and_a_client_serve_their_counters_on_loopback() {
    let place = Place::new();
    let (of_server, of_client) = (free_tcp_port(), free_tcp_port());
    let port = of_server.to_string();
    let arguments = [
        "up",
        "--state",
        "state",
        "--listen",
        "127.0.0.1:0",
        "--metrics",
        &port,
    ];
    let server = Program::watch(place.command(&arguments).spawn().unwrap());
    server.wait_for(&format!("metrics on http://127.0.0.1:{of_server}/metrics"));
    server.wait_for("gramway link --state state");
    place.write_secret("link", &place.link());
    let mut client = place.client_command(&format!("udp:{}=192.0.2.1:9", free_port()));
    client.args(["--metrics", &of_client.to_string()]);
    let client = Program::watch(client.spawn().unwrap());
    client.wait_for("connected to");
    for (port, state) in [(of_server, "listening"), (of_client, "connected")] {
        let answer = scrape(port);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        let state = format!("\ngramway_state{{state=\"{state}\"}} 1\n");
        assert!(
            answer.contains(&state) && answer.ends_with("\n# EOF\n"),
            "{answer}"
        );
    }
    let foreign = ask(of_client, "GET /metrics HTTP/1.1\r\nHost: example.org\r\n\r\n");
    assert!(foreign.starts_with("HTTP/1.1 403 "), "{foreign}");
    assert_eq!(client.terminate(), Some(0));
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn an_address_that_others_reach_is_told_and_one_that_is_taken_ends_the_start() {
    let place = Place::new();
    place.write_secret("link", &dead_link());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let forward = format!("udp:{}=192.0.2.1:9", free_port());
    let mut client = place.client_command(&forward);
    place.refused_command(
        client.args(["--metrics", &port.to_string()]),
        UNAVAILABLE,
        &port.to_string(),
    );
    place.refused(&["up", "--metrics", "0"], USAGE, "--metrics");
    let mut client = place.client_command(&forward);
    let open = format!("0.0.0.0:{}", free_tcp_port());
    let client = Program::watch(client.args(["--metrics", &open]).spawn().unwrap());
    let told = client.wait_for("warning: the page of metrics");
    assert!(
        told.contains(&open) && told.contains("asks nobody for a password"),
        "{told}"
    );
}
