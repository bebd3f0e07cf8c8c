//! The host's network before and after: nothing stays behind, whoever is killed.

use system_tests::program::{PERMISSION, gramway_binary};
use system_tests::{require_program, require_root};

use super::*;
use crate::host::{assert_same, state};

/// The guardian of a dead server keeps NAT's connections for a minute.
pub(super) const NAT_HELD_LIMIT: Duration = Duration::from_secs(90);

/// A client with everything that changes the host, under a strict reverse-path filter, and a server with NAT.
pub(super) fn tunnel(machines: &Machines, directory: &Directory) -> (Server, Client) {
    let server = machines.serve(&["--nat"], directory);
    let client = connect(
        &machines.first,
        "client",
        &server,
        &["--default-route"],
        directory,
    );
    reaches(&machines.first, WORLD_V4);
    (server, client)
}

/// Both machines' networks, with a filter that drops what came by another way than its answer would take.
pub(super) fn strict_machines() -> Machines {
    let machines = Machines::new(1500);
    machines
        .first
        .set_parameter("net.ipv4.conf.all.rp_filter", "1")
        .unwrap();
    machines
        .first
        .set_parameter("net.ipv4.conf.eth0.rp_filter", "1")
        .unwrap();
    machines
}

#[test]
fn an_ordinary_end_leaves_both_hosts_as_they_were() {
    require_root!();
    require_program!("ping", "nft");
    let (machines, directory) = (strict_machines(), Directory::create_for_test().unwrap());
    let before = (state(&machines.first), state(&machines.server));
    let (mut server, mut client) = tunnel(&machines, &directory);
    assert_eq!(client.stop(), Some(0));
    assert_same(&before.0, &state(&machines.first));
    assert_eq!(server.stop(), Some(0));
    assert_same(&before.1, &state(&machines.server));
}

#[test]
fn a_kill_of_the_main_process_leaves_both_hosts_as_they_were() {
    require_root!();
    require_program!("ping", "nft");
    let (machines, directory) = (strict_machines(), Directory::create_for_test().unwrap());
    let before = (state(&machines.first), state(&machines.server));
    let (mut server, mut client) = tunnel(&machines, &directory);
    client.kill();
    server.kill();
    wait_until("the guardian's end", PROGRAM_LIMIT, || {
        guardians(&machines.first).is_empty()
    });
    // It leaves the kill switch.
    assert_eq!(release(&machines.first, &client).0, Some(0));
    wait_until("the guardian's work at the client", PROGRAM_LIMIT, || {
        state(&machines.first) == before.0
    });
    // NAT's connections are kept for the next server, which does not come.
    wait_until("the guardian's work at the server", NAT_HELD_LIMIT, || {
        state(&machines.server) == before.1
    });
}

#[test]
fn where_main_process_and_guardian_are_killed_the_next_start_cleans_up() {
    require_root!();
    require_program!("ping", "nft");
    let (machines, directory) = (strict_machines(), Directory::create_for_test().unwrap());
    let before = (state(&machines.first), state(&machines.server));
    let (mut server, mut client) = tunnel(&machines, &directory);
    for machine in [&machines.first, &machines.server] {
        assert!(!guardians(machine).is_empty(), "a guardian watches");
        kill_guardians(machine);
    }
    client.kill();
    server.kill();
    server.start_again();
    client.start_again();
    reaches(&machines.first, WORLD_V4);
    assert_eq!(client.stop(), Some(0));
    assert_same(&before.0, &state(&machines.first));
    assert_eq!(server.stop(), Some(0));
    assert_same(&before.1, &state(&machines.server));
}

#[test]
fn where_both_were_killed_a_next_start_without_a_tun_cleans_up_too() {
    require_root!();
    require_program!("ping", "nft");
    let (machines, directory) = (strict_machines(), Directory::create_for_test().unwrap());
    let before = (state(&machines.first), state(&machines.server));
    let (mut server, mut client) = tunnel(&machines, &directory);
    let link = server.link();
    for machine in [&machines.first, &machines.server] {
        kill_guardians(machine);
    }
    client.kill();
    server.kill();
    let forward = ["udp:7000=192.0.2.99:9"];
    let plain = Server::start(&machines.server.place(), "plain", LISTEN, &[], directory.path());
    // Helper and NAT of the dead one go an instant later.
    wait_until("the server's machine as it was", PROGRAM_LIMIT, || {
        state(&machines.server) == before.1
    });
    let mut other = Client::start_unconnected(
        &machines.first.place(),
        "other",
        &link,
        &forward,
        &[],
        directory.path(),
    );
    for told in ["undid the changes", "the kill switch of a client that has ended"] {
        other.process().wait_for_line(told, PROGRAM_LIMIT).unwrap();
    }
    assert_eq!(release(&machines.first, &client).0, Some(0));
    wait_until("the client's machine as it was", PROGRAM_LIMIT, || {
        state(&machines.first) == before.0
    });
    drop(plain);
}

#[test]
fn without_the_capability_one_sentence_says_the_way_out() {
    require_root!();
    require_program!("setpriv");
    let directory = Directory::create_for_test().unwrap();
    let machine = Namespace::create().unwrap();
    let state = directory.join("state");
    let mut command = machine.command("setpriv");
    command.args(["--bounding-set=-net_admin", "--inh-caps=-net_admin"]);
    command.arg(gramway_binary());
    command
        .args(["up", "--listen", "127.0.0.1:0", "--tun", "--state"])
        .arg(&state);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(PERMISSION), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains("CAP_NET_ADMIN") && text.contains("sudo"), "{text}");
    assert!(!state.exists());
}
