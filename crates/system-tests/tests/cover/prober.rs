//! The differential prober, `interop/prober`: it finds nothing between a cover and a relay to it, and tells other
//! servers from it.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use system_tests::cover::{Authority, Cover, Stack};
use system_tests::limits::UDP_PAYLOAD_BUFFER;
use system_tests::tunnel::Server;
use system_tests::{python, require_go, require_python};
use testbed::directory::Directory;
use testbed::place::Place;
use testbed::port::free_address;

use super::NAME;
use crate::scene::no_load;

/// For all probes and their further runs.
const PROBES_LIMIT: Duration = Duration::from_secs(240);

/// How often a difference is looked at again before it counts.
const AGAIN: usize = 3;

/// What tells libraries apart at once: versions, the ACK of an Initial, a reason for a close.
const TELLING: [&str; 3] = [
    "greased version in 1200 B",
    "half a hello",
    "hello with an unknown ALPN",
];

/// Compares two addresses, and gives the summary. Delays say nothing on a machine that runs other tests.
fn probe(python: &Path, host: SocketAddr, cover: SocketAddr, only: &[&str]) -> Value {
    let mut arguments = vec![host.to_string(), cover.to_string()];
    arguments.extend(
        [
            "--name",
            NAME,
            "--runs",
            "1",
            "--at-once",
            "16",
            "--ignore-timing",
        ]
        .map(str::to_owned),
    );
    arguments.extend(only.iter().map(|name| format!("--only={name}")));
    let mut process = python::start(python, &Place::Host, "prober", arguments);
    let status = process.wait(PROBES_LIMIT).unwrap();
    let output = process.stdout();
    let summary: Value = serde_json::from_str(output.lines().last().unwrap_or_default())
        .unwrap_or_else(|error| panic!("no summary ({error}): {}", process.stderr()));
    assert_eq!(summary["cover_answered"], true, "{output}");
    let differ = summary["differ"].as_array().unwrap();
    assert_eq!(status.code(), Some(i32::from(!differ.is_empty())), "{output}");
    summary
}

/// Passes datagrams on to the cover and back, by a socket for each source, until the test ends.
fn relay(cover: SocketAddr) -> SocketAddr {
    let front = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
    let address = front.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut buffer, mut flows) = (vec![0; UDP_PAYLOAD_BUFFER], HashMap::new());
        while let Ok((length, source)) = front.recv_from(&mut buffer) {
            let back = flows
                .entry(source)
                .or_insert_with(|| open_flow(&front, source, cover));
            // What the cover refuses is lost here as it is there.
            let _ = back.send(&buffer[..length]);
        }
    });
    address
}

fn open_flow(front: &Arc<UdpSocket>, source: SocketAddr, cover: SocketAddr) -> Arc<UdpSocket> {
    let flow = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
    flow.connect(cover).unwrap();
    let (answers, front) = (Arc::clone(&flow), Arc::clone(front));
    std::thread::spawn(move || {
        let mut buffer = vec![0; UDP_PAYLOAD_BUFFER];
        loop {
            // An error is a refusal by ICMP, and the flow goes on.
            if let Ok(length) = answers.recv(&mut buffer) {
                let _ = front.send_to(&buffer[..length], source);
            }
        }
    });
    flow
}

/// The probes that were answered otherwise.
fn names(summary: &Value) -> Vec<String> {
    let differ = summary["differ"].as_array().unwrap();
    differ
        .iter()
        .map(|name| name.as_str().unwrap().to_owned())
        .collect()
}

/// Nothing at `front` tells it from the cover.
fn assert_is_the_cover(python: &Path, front: SocketAddr, cover: SocketAddr) {
    let summary = probe(python, front, cover, &[]);
    assert!(summary["probes"].as_u64().unwrap() > 150, "{summary}");
    let mut differ = names(&summary);
    // A busy machine splits an answer now and then; what tells the two apart does so again.
    for _ in 0..AGAIN {
        if !differ.is_empty() {
            let only: Vec<&str> = differ.iter().map(String::as_str).collect();
            differ = names(&probe(python, front, cover, &only));
        }
    }
    assert_eq!(differ, Vec::<String>::new(), "{summary}");
}

fn check_relay(python: &Path, stack: Stack<'_>) {
    let _no_load = no_load();
    let directory = Directory::create_for_test().unwrap();
    let authority = Authority::create(directory.path());
    let cover = Cover::start(stack, &Place::Host, "127.0.0.1:0", (&authority, NAME), &[]);
    assert_is_the_cover(python, relay(cover.address()), cover.address());
}

#[test]
fn a_relay_cannot_be_told_from_its_cover() {
    let python = require_python!();
    check_relay(&python, Stack::Aioquic(&python));
}

#[test]
fn a_relay_cannot_be_told_from_its_cover_of_another_stack() {
    let (python, programs) = (require_python!(), require_go!());
    check_relay(&python, Stack::QuicGo(&programs));
}

fn check_server(python: &Path, stack: Stack<'_>) {
    let _no_load = no_load();
    let directory = Directory::create_for_test().unwrap();
    let authority = Authority::create(directory.path());
    let cover = Cover::start(stack, &Place::Host, "127.0.0.1:0", (&authority, NAME), &[]);
    let (listen, site) = (free_address().unwrap().to_string(), cover.address().to_string());
    let options = ["--cover", &site, "--cover-name", NAME, "--no-cover-tcp"];
    let server = Server::start(&Place::Host, "server", &listen, &options, directory.path());
    assert_is_the_cover(python, listen.parse().unwrap(), cover.address());
    let status = server.status();
    let taken_over = status.pointer("/cover/relay/taken_over").and_then(Value::as_u64);
    assert_eq!(taken_over.unwrap_or(0), 0, "{status}");
}

/// QR1-8, QR1-20, QR1-21, QR1-23.
#[test]
fn a_server_with_a_cover_cannot_be_told_from_it() {
    let python = require_python!();
    check_server(&python, Stack::Aioquic(&python));
}

/// The same.
#[test]
fn a_server_with_a_cover_of_another_stack_cannot_be_told_from_it() {
    let (python, programs) = (require_python!(), require_go!());
    check_server(&python, Stack::QuicGo(&programs));
}

#[test]
fn a_server_without_a_cover_is_told_from_a_web_site_by_every_probe_that_tells_libraries_apart() {
    let python = require_python!();
    let directory = Directory::create_for_test().unwrap();
    let authority = Authority::create(directory.path());
    let stack = Stack::Aioquic(&python);
    let cover = Cover::start(stack, &Place::Host, "127.0.0.1:0", (&authority, NAME), &[]);
    let listen = free_address().unwrap().to_string();
    let _server = Server::start(&Place::Host, "server", &listen, &[], directory.path());
    let summary = probe(&python, listen.parse().unwrap(), cover.address(), &TELLING);
    assert_eq!(summary["differ"], serde_json::json!(TELLING), "{summary}");
}

#[test]
fn two_web_sites_are_told_apart() {
    let (python, programs) = (require_python!(), require_go!());
    let directory = Directory::create_for_test().unwrap();
    let authority = Authority::create(directory.path());
    let [one, other] = [Stack::Aioquic(&python), Stack::QuicGo(&programs)]
        .map(|stack| Cover::start(stack, &Place::Host, "127.0.0.1:0", (&authority, NAME), &[]));
    // The second site alone sends stateless resets.
    let wanted = [
        "greased version in 1200 B",
        "hello with an unknown ALPN",
        "short header in 100 B",
        "handshake and GET",
    ];
    let summary = probe(&python, one.address(), other.address(), &wanted);
    assert_eq!(summary["differ"], serde_json::json!(wanted), "{summary}");
}

#[test]
fn what_counts_as_a_difference_is_what_its_own_tests_say() {
    let python = require_python!();
    let mut process = python::start(&python, &Place::Host, "prober/test_verdict.py", ["--verbose"]);
    let status = process.wait(PROBES_LIMIT).unwrap();
    let said = process.stderr();
    assert!(status.success() && said.contains("... ok"), "{said}");
}
