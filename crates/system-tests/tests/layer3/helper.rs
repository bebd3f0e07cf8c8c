//! Ends that have given up the privileges to change their hosts: their helpers do it, and nothing stays behind,
//! whichever process is killed.

use std::fs;

use system_tests::{require_program, require_root};

use super::host::{NAT_HELD_LIMIT, strict_machines, tunnel};
use super::*;
use crate::host::{assert_same, state};

/// Where the server is.
const SERVER_NETWORK: &str = "198.51.100.0/24";

/// The only gateway of the second uplink.
const SECOND_GATEWAY: &str = "192.0.4.1";

/// Capabilities in effect of every thread of a process itself, all together.
fn effective(process: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    // A thread may have ended meanwhile.
    let status = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("status")).ok());
    let sets = status.map(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
    });
    sets.fold(0, |all, set| all | set)
}

/// Machines whose client has another uplink, which its routes do not take.
fn machines_with_two_uplinks() -> Machines {
    let machines = strict_machines();
    let end = |namespace, interface, addresses| End {
        namespace,
        interface,
        addresses,
    };
    join(
        end(&machines.first, "wlan0", &["192.0.4.2/24"]),
        end(&machines.router, "inside4", &["192.0.4.1/24"]),
        1500,
    )
    .unwrap();
    machines
}

/// Waits until the server has heard its client at an address that begins so.
fn wait_for_client_at(machines: &Machines, server: &Server, address: &str) {
    wait_until("the client's address at the server", PATH_LIMIT, || {
        ping(&machines.first, WORLD_V4, &[]);
        let status = server.status();
        let mut peers = status["peers"].as_array().unwrap().iter();
        peers.any(|peer| peer["remote"].as_str().unwrap().starts_with(address))
    });
}

/// The helper of a machine's only gramway.
fn helper(machine: &Namespace) -> i32 {
    let helpers = processes(machine, "_helper");
    assert_eq!(helpers.len(), 1, "{helpers:?}");
    helpers[0]
}

/// Everything that changes meanwhile is changed by an end that may not.
fn follow_changes(machines: &Machines, server: &Server, client: &mut Client) {
    let rule = ["rule", "del", "priority", "26471"];
    machines.first.run("ip", rule).unwrap();
    wait_until("rules that are made again", PROGRAM_LIMIT, || {
        let rules = machines.first.run("ip", ["rule"]).unwrap();
        rules.contains("26471:")
    });
    let other_way = [SERVER_NETWORK, "via", SECOND_GATEWAY];
    let change = |verb| {
        let arguments = ["route", verb].into_iter().chain(other_way);
        machines.first.run("ip", arguments).unwrap();
    };
    change("add");
    wait_for_client_at(machines, server, "192.0.4.2:");
    change("del");
    wait_for_client_at(machines, server, "192.0.2.2:");
    reaches(&machines.first, WORLD_V4);
    assert_eq!(effective(client.process().id()), 0);
}

#[test]
fn a_client_without_capabilities_follows_its_network_and_all_is_undone_after_a_kill() {
    require_root!();
    require_program!("ping", "nft");
    let (machines, directory) = (machines_with_two_uplinks(), Directory::create_for_test().unwrap());
    let before = state(&machines.first);
    let (mut server, mut client) = tunnel(&machines, &directory);
    assert_eq!(effective(client.process().id()), 0);
    // Low ports are for a server.
    assert_eq!(effective(server.process().id()) & !(1 << 10), 0);
    follow_changes(&machines, &server, &mut client);
    client.kill();
    wait_until("the end of helper and guardian", PROGRAM_LIMIT, || {
        processes(&machines.first, "_helper").is_empty() && guardians(&machines.first).is_empty()
    });
    // It leaves the kill switch.
    assert_eq!(release(&machines.first, &client).0, Some(0));
    wait_until("the client's machine as it was", PROGRAM_LIMIT, || {
        state(&machines.first) == before
    });
}

#[test]
fn an_end_whose_helper_is_killed_ends_and_leaves_nothing_but_its_kill_switch() {
    require_root!();
    require_program!("ping", "nft");
    let (machines, directory) = (machines_with_two_uplinks(), Directory::create_for_test().unwrap());
    let before = (state(&machines.first), state(&machines.server));
    let (mut server, mut client) = tunnel(&machines, &directory);
    send_signal(helper(&machines.first), Signal::KILL);
    let ended = client.process().wait(PROGRAM_LIMIT).unwrap();
    assert_eq!(ended.code(), Some(UNAVAILABLE));
    let told = client.process().stderr();
    assert!(
        told.contains("helper that changes the host's network was killed"),
        "{told}"
    );
    let (code, told) = release(&machines.first, &client);
    assert!(code == Some(0) && told.contains("removed"), "it stood: {told}");
    wait_until("the guardian's work at the client", PROGRAM_LIMIT, || {
        state(&machines.first) == before.0
    });
    send_signal(helper(&machines.server), Signal::KILL);
    let ended = server.process().wait(PROGRAM_LIMIT).unwrap();
    assert_eq!(ended.code(), Some(UNAVAILABLE));
    // NAT's connections are kept for the next server, which does not come.
    wait_until("the guardian's work at the server", NAT_HELD_LIMIT, || {
        state(&machines.server) == before.1
    });
}

#[test]
fn a_helper_outlives_the_signals_that_end_its_parent() {
    require_root!();
    require_program!("ping", "nft");
    let (machines, directory) = (strict_machines(), Directory::create_for_test().unwrap());
    let before = state(&machines.first);
    let (_server, mut client) = tunnel(&machines, &directory);
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        send_signal(helper(&machines.first), signal);
    }
    reaches(&machines.first, WORLD_V4);
    assert_eq!(client.stop(), Some(0));
    assert_same(&before, &state(&machines.first));
    wait_until("the helper's end", PROGRAM_LIMIT, || {
        processes(&machines.first, "_helper").is_empty()
    });
}

#[test]
fn without_a_sandbox_the_process_changes_its_host_itself() {
    require_root!();
    require_program!("ping", "nft");
    let (machines, directory) = (strict_machines(), Directory::create_for_test().unwrap());
    let before = (state(&machines.first), state(&machines.server));
    let mut server = machines.serve(&["--nat", "--no-sandbox"], &directory);
    let options = ["--default-route", "--no-sandbox"];
    let mut client = connect(&machines.first, "client", &server, &options, &directory);
    reaches(&machines.first, WORLD_V4);
    for machine in [&machines.first, &machines.server] {
        assert!(processes(machine, "_helper").is_empty() && !guardians(machine).is_empty());
    }
    assert_eq!(client.stop(), Some(0));
    assert_same(&before.0, &state(&machines.first));
    assert_eq!(server.stop(), Some(0));
    assert_same(&before.1, &state(&machines.server));
}
