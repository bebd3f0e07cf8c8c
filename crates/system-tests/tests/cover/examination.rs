//! `gramway check --cover` against web sites that we did not write: what it finds, and which of them it refuses.

use std::net::SocketAddr;

use serde_json::Value;
use system_tests::cover::{Authority, Cover, Stack};
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::program::{UNAVAILABLE, gramway_binary};
use system_tests::topology::{PAIR_SERVER_V4, PAIR_SERVER_V6, Pair};
use system_tests::{require_go, require_python, require_root};
use testbed::directory::Directory;
use testbed::place::Place;
use testbed::process::Process;

use super::NAME;

const X25519: u64 = 0x001d;
const X25519_MLKEM768: u64 = 0x11ec;

/// Examines a site, and gives the exit code, what was found, and what was said.
fn check(place: &Place, cover: SocketAddr, options: &[&str]) -> (Option<i32>, Value, String) {
    let mut command = place.command(gramway_binary());
    let cover = cover.to_string();
    command.args(["check", "--cover", &cover, "--cover-name", NAME, "--json"]);
    command.args(options);
    let mut process = Process::start(command, "check").unwrap();
    let code = process.wait(PROGRAM_LIMIT).unwrap().code();
    let found = serde_json::from_str(&process.stdout())
        .unwrap_or_else(|error| panic!("no JSON ({error}): {}", process.stderr()));
    (code, found, process.stderr())
}

/// The only obstacle.
fn obstacle(found: &Value) -> &str {
    let obstacles = found["obstacles"].as_array().unwrap();
    assert_eq!(obstacles.len(), 1, "{found}");
    obstacles[0].as_str().unwrap()
}

fn has_warning(found: &Value, part: &str) -> bool {
    let warnings = found["warnings"].as_array().unwrap();
    warnings
        .iter()
        .any(|warning| warning.as_str().unwrap().contains(part))
}

#[test]
fn a_site_without_the_post_quantum_exchange_fits_and_is_warned_of() {
    require_root!();
    let python = require_python!();
    let (pair, directory) = (Pair::new(1500), Directory::create_for_test().unwrap());
    let authority = Authority::create(directory.path());
    let listen = format!("{PAIR_SERVER_V4}:443");
    let stack = Stack::Aioquic(&python);
    let cover = Cover::start(
        stack,
        &pair.server.place(),
        &listen,
        (&authority, NAME),
        &["--id-length", "12"],
    );

    let root = authority.root().to_str().unwrap();
    let options = ["--cover-roots", root];
    let (code, found, said) = check(&pair.client.place(), cover.address(), &options);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(found["fits"], true, "{found}");
    assert_eq!(found["profile"]["group"], X25519, "{found}");
    assert_eq!(found["profile"]["id_bytes"], 12, "{found}");
    assert_eq!(found["versions"], serde_json::json!([1, 0x6b33_43cf]), "{found}");
    assert_eq!(found["handshake"]["idle_timeout_ms"], 60_000, "{found}");
    assert_eq!(found["handshake"]["is_certificate_valid"], true, "{found}");
    assert_eq!(found["profile"]["is_version_first"], true, "{found}");
    assert!(has_warning(&found, "X25519MLKEM768"), "{found}");
    assert!(!has_warning(&found, "ServerHello"), "{found}");
    assert!(!has_warning(&found, "certificate is not valid"), "{found}");

    // Nobody vouches for it, unless its authority is told.
    let (code, found, _) = check(&pair.client.place(), cover.address(), &[]);
    assert_eq!(code, Some(0));
    assert!(has_warning(&found, "certificate is not valid"), "{found}");
}

#[test]
fn a_site_with_the_post_quantum_exchange_follows_a_client_without_it() {
    require_root!();
    let programs = require_go!();
    let (pair, directory) = (Pair::new(1500), Directory::create_for_test().unwrap());
    let authority = Authority::create(directory.path());
    let listen = format!("[{PAIR_SERVER_V6}]:443");
    let stack = Stack::QuicGo(&programs);
    let cover = Cover::start(stack, &pair.server.place(), &listen, (&authority, NAME), &[]);
    let (code, found, said) = check(&pair.client.place(), cover.address(), &[]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(found["profile"]["group"], X25519_MLKEM768, "{found}");
    assert_eq!(found["handshake"]["group_with_x25519_alone"], X25519, "{found}");
    assert_eq!(found["handshake"]["idle_timeout_ms"], 30_000, "{found}");
    let flight = found["handshake"]["first_flight"].as_array().unwrap();
    let bytes: u64 = flight.iter().filter_map(Value::as_u64).sum();
    let certificate = found["profile"]["certificate_bytes"].as_u64().unwrap();
    assert!(certificate > 300 && bytes > certificate + 1_100, "{found}");
}

/// QR1-27.
#[test]
fn what_cannot_be_a_cover_is_refused_with_its_reason() {
    let python = require_python!();
    let directory = Directory::create_for_test().unwrap();
    let authority = Authority::create(directory.path());
    let (stack, identity) = (Stack::Aioquic(&python), (&authority, NAME));
    for (options, reason) in [
        (&["--preferred-address"][..], "preferred_address"),
        (&["--id-length", "7"], "IDs have 7 bytes"),
        (&["--retry"], "Retry"),
        (&["--alpn", "hq-interop"], "no HTTP/3"),
    ] {
        let cover = Cover::start(stack, &Place::Host, "127.0.0.1:0", identity, options);
        let (code, found, said) = check(&Place::Host, cover.address(), &[]);
        assert_eq!(code, Some(UNAVAILABLE), "{options:?}: {said}");
        assert!(said.contains("cannot be a cover"), "{said}");
        assert!(obstacle(&found).contains(reason), "{found}");
        assert_eq!(found["profile"], Value::Null, "{found}");
    }
}

/// QR1-27.
#[test]
fn where_nobody_answers_there_is_no_cover() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (code, found, _) = check(&Place::Host, silent.local_addr().unwrap(), &[]);
    assert_eq!(code, Some(UNAVAILABLE));
    assert!(obstacle(&found).contains("nobody answers"), "{found}");
    assert_eq!(found["round_trip_ms"], Value::Null, "{found}");
}
