//! Settings of the TUN that cannot do what was meant: they are refused, or it is told.

use system_tests::program::{PERMISSION, UNAVAILABLE, gramway_binary};
use system_tests::require_root;
use testbed::process::Process;

use super::*;

#[test]
fn a_pool_in_a_network_of_the_server_is_refused_with_its_interface() {
    require_root!();
    let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
    for (pool, taken) in [
        ("203.0.113.128/25", "203.0.113.1/24"),
        ("198.51.0.0/16", "198.51.100.1/24"),
        ("2001:db8:2::/112", "2001:db8:2::1/64"),
    ] {
        let mut command = machines.server.command(gramway_binary());
        command.args(["up", "--listen", LISTEN, TUN, "--pool", pool, "--state"]);
        command.arg(directory.join("state"));
        let mut process = Process::start(command, "server").unwrap();
        let status = process.wait(PROGRAM_LIMIT).unwrap();
        let told = process.stderr();
        assert_eq!(status.code(), Some(UNAVAILABLE), "{told}");
        assert!(
            told.contains(&format!("the pool {pool} overlaps {taken}")),
            "{told}"
        );
        assert!(
            told.contains("interface eth") && told.contains("--pool CIDR"),
            "{told}"
        );
        assert!(!directory.join("state").exists());
    }
}

#[test]
fn a_server_tells_who_comes_goes_and_is_turned_away_and_status_lists_them() {
    require_root!();
    let mut tunnel = Tunnel::new(1500, &["-v"], &[]);
    let link = tunnel.server.link();
    let (_, after_token) = link.split_once('@').unwrap();
    let wrong = format!("gramway://{}@{after_token}", "A".repeat(43));
    let mut stranger = Client::start_unconnected(
        &tunnel.machines.second.place(),
        "stranger",
        &wrong,
        &["udp:7000=10.0.0.1:9"],
        &[],
        tunnel.directory.path(),
    );
    let status = stranger.process().wait(PROGRAM_LIMIT).unwrap();
    assert_eq!(status.code(), Some(PERMISSION));
    reaches(&tunnel.machines.first, SERVER_V4);
    let status = tunnel.server.status();
    let lease = &status["tun"]["lease_list"][0];
    assert_eq!(lease["addresses"][0], "10.9.0.2", "{status}");
    let client = lease["client"].as_str().unwrap().to_owned();
    let mut command = tunnel.machines.server.command(gramway_binary());
    command.args(["status", "--state"]).arg(tunnel.server.state());
    let shown = testbed::programs::run(&mut command).unwrap();
    assert!(
        shown.contains(&format!("10.9.0.2 and fd09::2 of client {client} of owner")),
        "{shown}"
    );
    assert!(
        shown.contains("owner: ") && !shown.contains("UDP into"),
        "{shown}"
    );
    assert_eq!(tunnel.client.stop(), Some(0));
    let server = tunnel.server.process();
    for line in [
        "owner connected".to_owned(),
        "turned away a client: its token is not valid here".to_owned(),
        format!("client {client} of owner has 10.9.0.2 and fd09::2"),
        "owner left: ".to_owned(),
        format!("client {client} of owner left 10.9.0.2 and fd09::2"),
    ] {
        server.wait_for_starts(&line, 1, PROGRAM_LIMIT).unwrap();
    }
    assert!(!server.stderr().contains("192.0.2.2"), "{}", server.stderr());
    assert_eq!(tunnel.server.stop(), Some(0));
    let told = tunnel.server.process().stderr();
    assert!(
        told.contains("UDP datagrams and IP packets into the tunnel"),
        "{told}"
    );
}

#[test]
fn a_default_route_to_a_server_without_nat_is_told() {
    require_root!();
    let mut tunnel = Tunnel::new(1500, &[], &["--default-route"]);
    let line = tunnel
        .client
        .process()
        .wait_for_starts("warning: the server does not carry everything", 1, PROGRAM_LIMIT)
        .unwrap();
    assert!(line.contains("--nat"), "{line}");
    tunnel.check();
}
