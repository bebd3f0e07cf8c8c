//! Ends by themselves: what a client that fails leaves, and what `--kill-switch` keeps.

use system_tests::program::PERMISSION;
use system_tests::{require_program, require_root};

use super::*;

/// The link with another key.
fn with_wrong_pin(link: &str) -> String {
    let (before, pin) = link.split_once("pin=sha256-").unwrap();
    let first = if pin.starts_with('A') { "B" } else { "A" };
    format!("{before}pin=sha256-{first}{}", &pin[1..])
}

#[test]
fn a_first_start_that_fails_leaves_nothing_and_a_kill_switch_that_stood_stands() {
    require_root!();
    require_program!("nft", "ping");
    let watched = Watched::new();
    let server = watched.machines.serve(&["--nat"], &watched.directory);
    let (link, wrong) = (server.link(), with_wrong_pin(&server.link()));

    let options = [TUN, "--default-route"];
    let place = watched.machines.first.place();
    let start = |options: &[&str], name: &str| {
        Client::start_unconnected(&place, name, &wrong, &[], options, watched.directory.path())
    };
    let mut refused = start(&options, "refused");
    let code = refused.process().wait(PROGRAM_LIMIT).unwrap().code();
    assert_eq!(code, Some(PERMISSION));
    assert!(!watched.has_kill_switch());
    watched.assert_open("after a wrong pin");

    // It stays after an end that was asked for, and says so.
    let mut client = watched.start_client(&link, &["--kill-switch"]);
    watched.send();
    reaches(&watched.machines.first, WORLD_V4);
    assert_eq!(client.stop(), Some(0));
    let told = client.process().stderr();
    assert!(
        told.contains("the kill switch stays") && told.contains("gramway release"),
        "{told}"
    );
    watched.assert_closed("after the end of a client with --kill-switch");

    // Who fails changes nothing of that.
    let mut refused = start(&options, "refused");
    let code = refused.process().wait(PROGRAM_LIMIT).unwrap().code();
    assert_eq!(code, Some(PERMISSION));
    assert!(refused.process().stderr().contains("the kill switch stays"));
    watched.assert_closed("after a wrong pin behind a kill switch");

    // The next client takes over, and its end gives the network back.
    let mut client = watched.start_client(&link, &[]);
    reaches(&watched.machines.first, WORLD_V4);
    watched.assert_closed("with the next client");
    assert_eq!(client.stop(), Some(0));
    watched.assert_open("after the end");
}

#[test]
fn a_kill_switch_that_cannot_be_set_is_an_error_and_nothing_is_sent() {
    require_root!();
    require_program!("nft");
    let watched = Watched::new();
    let server = watched.machines.serve(&["--nat"], &watched.directory);
    // Somebody else owns the table: the kernel lets nobody change it.
    let mut owner = watched.machines.first.command("nft");
    owner.arg("-i");
    let mut owner = Process::start(owner, "nft").unwrap();
    owner
        .tell("add table inet gramway_kill_switch { flags owner; }")
        .unwrap();
    wait_until("the table", PROGRAM_LIMIT, || watched.has_kill_switch());
    let options = [TUN, "--default-route"];
    let place = watched.machines.first.place();
    let mut client = Client::start_unconnected(
        &place,
        "client",
        &server.link(),
        &[],
        &options,
        watched.directory.path(),
    );
    let status = client.process().wait(PROGRAM_LIMIT).unwrap();
    let told = client.process().stderr();
    assert_eq!(status.code(), Some(PERMISSION), "{told}");
    assert!(told.contains("cannot set the kill switch"), "{told}");
    assert_eq!(watched.underlay.outer(), 0);
}
