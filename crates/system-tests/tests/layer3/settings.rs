//! Settings of the TUN that cannot do what was meant: they are refused, or it is told.

use system_tests::program::gramway_binary;
use system_tests::require_root;
use testbed::process::Process;

use super::*;

/// Exit code where something is taken.
const UNAVAILABLE: i32 = 69;

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
