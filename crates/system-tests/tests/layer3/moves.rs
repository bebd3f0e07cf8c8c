//! Restarts and changes of address: the device and its addresses stay, and little is lost.

use std::process::Stdio;

use system_tests::{require_program, require_root};

use super::*;
use crate::scene::load;

/// Pings every 10 ms; lost ones in a row that an interruption may cost, with room for a busy machine.
const LOST_PINGS_MAX: u64 = 50;

#[test]
fn a_server_that_is_killed_and_started_again_gives_everybody_the_same_address() {
    require_root!();
    require_program!("ping");
    let mut tunnel = Tunnel::new(1500, &[], &[]);
    let second = connect(
        &tunnel.machines.second,
        "second",
        &tunnel.server,
        &[],
        &tunnel.directory,
    );
    let before = (
        addresses(&tunnel.machines.first),
        addresses(&tunnel.machines.second),
    );
    let index = || {
        tunnel
            .machines
            .first
            .run("cat", ["/sys/class/net/tun0/ifindex"])
            .unwrap()
    };
    let index_before = index();
    // Leases are written down within a second.
    wait_until("the file of leases", PROGRAM_LIMIT, || {
        std::fs::read_to_string(tunnel.server.state().join("leases.json"))
            .is_ok_and(|text| text.contains("10.9.0.3"))
    });
    tunnel.server.kill();
    tunnel.server.start_again();
    reaches(&tunnel.machines.second, SERVER_V4);
    reaches(&tunnel.machines.first, SERVER_V6);
    let after = (
        addresses(&tunnel.machines.first),
        addresses(&tunnel.machines.second),
    );
    assert_eq!(after, before);
    assert_eq!(index(), index_before);
    assert_conserved(&second.status());
    tunnel.check();
}

#[test]
fn another_server_at_the_address_gets_nothing_and_the_tunnel_waits_for_the_right_one() {
    require_root!();
    require_program!("ping");
    let mut tunnel = Tunnel::new(1500, &["--nat"], &["--default-route"]);
    reaches(&tunnel.machines.first, WORLD_V4);
    tunnel.server.kill();
    wait_until("the loss of the server", PROGRAM_LIMIT, || {
        ping(&tunnel.machines.first, WORLD_V4, &[]);
        tunnel.client.process().stderr().contains("connecting again")
    });
    let stranger = {
        let (place, options) = (
            tunnel.machines.server.place(),
            ["--tun=tun9", "--pool", "10.9.9.0/24"],
        );
        Server::start(&place, "stranger", LISTEN, &options, tunnel.directory.path())
    };
    tunnel
        .client
        .process()
        .wait_for_starts("warning: another server answers", 1, PROGRAM_LIMIT)
        .unwrap();
    // What is meant for the tunnel stays in it.
    let way = tunnel
        .machines
        .first
        .run("ip", ["route", "get", WORLD_V4])
        .unwrap();
    assert!(way.contains("tun0"), "{way}");
    assert!(!ping(&tunnel.machines.first, WORLD_V4, &[]));
    drop(stranger);
    tunnel.server.start_again();
    reaches(&tunnel.machines.first, WORLD_V4);
    tunnel.check();
}

#[test]
fn a_client_that_is_killed_and_started_again_has_its_address_back_at_once() {
    require_root!();
    require_program!("ping");
    let mut tunnel = Tunnel::new(1500, &[], &[]);
    let before = addresses(&tunnel.machines.first);
    tunnel.client.kill();
    tunnel.client.start_again();
    tunnel
        .client
        .process()
        .wait_for_starts("TUN", 1, PROGRAM_LIMIT)
        .unwrap();
    assert_eq!(addresses(&tunnel.machines.first), before);
    // The dead process's session gets none of the packets.
    assert!(ping(&tunnel.machines.server, "10.9.0.2", &[]));
    assert_eq!(tunnel.server.status()["tun"]["leases"]["open"], 1);
    tunnel.check();
}

/// What `ping` printed at its end: sent and received.
fn counts(text: &str) -> (u64, u64) {
    let line = text
        .lines()
        .find(|line| line.contains("packets transmitted"))
        .unwrap();
    let mut numbers = line
        .split(", ")
        .filter_map(|part| part.split(' ').next()?.parse().ok());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

#[test]
fn a_client_whose_address_changes_loses_less_than_half_a_second() {
    require_root!();
    require_program!("ping");
    let _load = load();
    for connections in ["1", "2"] {
        let options = ["--connections", connections];
        let tunnel = Tunnel::new(1500, &options, &options);
        let machine = &tunnel.machines.first;
        reaches(machine, SERVER_V4);
        let mut command = machine.command("ping");
        command
            .args(["-n", "-i", "0.01", "-c", "500", SERVER_V4])
            .stdout(Stdio::piped());
        let mut pings = command.spawn().unwrap();
        let output = pings.stdout.take().unwrap();
        std::thread::sleep(Duration::from_secs(1));
        // The second address takes the first one's place, as when a router gives out another.
        machine
            .set_parameter("net.ipv4.conf.eth0.promote_secondaries", "1")
            .unwrap();
        machine
            .run("ip", ["address", "add", "192.0.2.77/24", "dev", "eth0"])
            .unwrap();
        machine
            .run("ip", ["address", "delete", "192.0.2.2/24", "dev", "eth0"])
            .unwrap();
        machine
            .run("ip", ["route", "replace", "default", "via", "192.0.2.1"])
            .unwrap();
        let text = std::io::read_to_string(output).unwrap();
        pings.wait().unwrap();
        let (sent, received) = counts(&text);
        assert!(sent >= 400, "{text}");
        assert!(sent - received < LOST_PINGS_MAX, "{text}");
        wait_until("the new address at the server", PATH_LIMIT, || {
            ping(machine, SERVER_V4, &[]);
            let status = tunnel.server.status();
            let peers = status["peers"].as_array().unwrap();
            peers
                .iter()
                .all(|peer| peer["remote"].as_str().unwrap().starts_with("192.0.2.77:"))
        });
        tunnel.check();
    }
}

#[test]
fn a_uplink_that_changes_under_a_default_route_is_followed() {
    require_root!();
    require_program!("ping");
    let tunnel = Tunnel::new(1500, &["--nat"], &["--default-route"]);
    let Tunnel { machines, .. } = &tunnel;
    reaches(&machines.first, WORLD_V4);
    join(
        End {
            namespace: &machines.first,
            interface: "wlan0",
            addresses: &["192.0.4.2/24"],
        },
        End {
            namespace: &machines.router,
            interface: "inside4",
            addresses: &["192.0.4.1/24"],
        },
        1500,
    )
    .unwrap();
    machines
        .first
        .run(
            "ip",
            ["route", "add", "default", "via", "192.0.4.1", "metric", "600"],
        )
        .unwrap();
    machines.first.set_link("eth0", false).unwrap();
    reaches(&machines.first, WORLD_V4);
    wait_until("the new address at the server", PATH_LIMIT, || {
        ping(&machines.first, WORLD_V4, &[]);
        let status = tunnel.server.status();
        let peers = status["peers"].as_array().unwrap();
        peers
            .iter()
            .any(|peer| peer["remote"].as_str().unwrap().starts_with("192.0.4.2:"))
    });
}
