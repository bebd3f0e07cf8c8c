//! A foreign MASQUE client at our server: users' forwards, strangers' answers, and breaks of HTTP/3.

use std::process::Command;
use std::time::Duration;

use system_tests::program::gramway_binary;
use system_tests::tunnel::Server;
use system_tests::{python, require_python};
use testbed::directory::Directory;
use testbed::place::Place;
use testbed::port::free_address;
use testbed::programs::run;

use super::result_of;

/// Loopback addresses are closed; this one is opened for the targets, and 127.0.0.1 stays closed.
const TARGET_HOST: &str = "127.0.0.2";

/// For all checks of one program: most take some milliseconds, one waits 10 s for the end of a stranger.
const CHECKS_LIMIT: Duration = Duration::from_secs(240);

/// Runs the program against a server of its own; gives its result and the server's counters after it.
fn run_checks(python: &std::path::Path, program: &str) -> (serde_json::Value, serde_json::Value) {
    let directory = Directory::create_for_test().unwrap();
    let listen = format!("127.0.0.1:{}", free_address().unwrap().port());
    let allowed = format!("{TARGET_HOST}/32");
    // One shard: with several, the answer also names the one that gave it.
    let options = [
        "--allow-target",
        &allowed,
        "--max-udp-payload",
        "1452",
        "--connections",
        "1",
    ];
    let server = Server::start(&Place::Host, "server", &listen, &options, directory.path());

    let mut link = Command::new(gramway_binary());
    let description = run(link.args(["link", "--masque", "--state"]).arg(server.state())).unwrap();
    let masque = directory.join("masque");
    std::fs::write(&masque, description).unwrap();
    let arguments = [
        "--masque",
        masque.to_str().unwrap(),
        "--token-file",
        &server.state().join("owner.token").display().to_string(),
        "--target-host",
        TARGET_HOST,
    ];
    let mut process = python::start(python, &Place::Host, program, arguments);
    process.wait(CHECKS_LIMIT).unwrap();
    (result_of(&process), server.status())
}

#[test]
fn a_foreign_client_gets_what_the_rfcs_promise_and_a_stranger_nothing() {
    let python = require_python!();
    let (result, status) = run_checks(&python, "client.py");
    assert!(result["passed"].as_array().unwrap().len() >= 10, "{result}");
    // The one payload that no DATAGRAM frame towards a foreign peer holds.
    assert_eq!(status["ingress"]["drops"]["too_large"], 1, "{status}");
    assert_eq!(status["egress"]["drops"]["unknown_context"], 1, "{status}");
    for refusal in ["401", "404", "407"] {
        assert!(status["refused_requests"][refusal].as_u64() > Some(0), "{status}");
    }
}

#[test]
fn whoever_breaks_the_rules_loses_a_stream_or_a_connection_and_others_are_served() {
    let python = require_python!();
    let (result, status) = run_checks(&python, "hostile.py");
    assert!(result["passed"].as_array().unwrap().len() >= 10, "{result}");
    assert!(
        status["egress"]["drops"]["malformed"].as_u64() >= Some(4),
        "{status}"
    );
}
