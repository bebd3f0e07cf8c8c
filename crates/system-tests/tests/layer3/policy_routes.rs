//! `--default-route`: everything into the tunnel or nowhere, whatever routes the uplink has; what goes to the server's
//! own addresses stays outside.

use std::io::{Read, Write};
use std::net::TcpStream;

use system_tests::service::{Service, connect as connect_stream};
use system_tests::{require_program, require_root};

use super::*;

/// Where a service on the server's machine listens, outside the tunnel.
const SERVICE: &str = "198.51.100.1:2222";

/// The link names it.
const SERVER_ADDRESS: &str = "198.51.100.1";

/// Options of a client.
const EVERYTHING: [&str; 1] = ["--default-route"];

/// Counts at the router what comes from the client's machine for the world in clear.
fn count_leaks(machines: &Machines) {
    machines
        .router
        .nft(
            "table inet leaks {\nchain entering {\ntype filter hook prerouting priority -300;\n\
             iifname \"inside\" ip daddr 203.0.113.0/24 counter\n\
             iifname \"inside\" ip6 daddr 2001:db8:2::/64 counter\n}\n}\n",
        )
        .unwrap();
}

/// Packets of IPv4 and of IPv6 that were counted.
fn leaks(machines: &Machines) -> (u64, u64) {
    let text = machines
        .router
        .run("nft", ["list", "table", "inet", "leaks"])
        .unwrap();
    let packets: Vec<u64> = text
        .lines()
        .filter_map(|line| {
            let (_, count) = line.split_once("counter packets ")?;
            count.split(' ').next()?.parse().ok()
        })
        .collect();
    (packets[0], packets[1])
}

/// What the kernel says of the way to an address.
fn way(machine: &Namespace, address: &str) -> String {
    let mut command = machine.command("ip");
    command.args(["route", "get", address]);
    let output = command.output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn is_unreachable(machine: &Namespace, address: &str) -> bool {
    way(machine, address).contains("No route to host")
}

/// Routes to the world as DHCP option 121 and router advertisements bring them.
fn add_particular_routes(machine: &Namespace) {
    for route in [
        "203.0.113.0/24 via 192.0.2.1",
        "2001:db8:2::/64 via 2001:db8:3::1",
    ] {
        machine
            .run("ip", ["route", "add"].into_iter().chain(route.split(' ')))
            .unwrap();
    }
}

/// Whether the other end sends back what comes on this connection.
fn assert_echoes(stream: &mut TcpStream) {
    stream.write_all(b"hello").unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"hello");
}

#[test]
fn particular_routes_of_the_uplink_do_not_win_over_the_tunnel() {
    require_root!();
    require_program!("ping", "nft");
    let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
    count_leaks(&machines);
    add_particular_routes(&machines.first);
    let server = machines.serve(&["--nat"], &directory);
    let mut client = connect(&machines.first, "client", &server, &EVERYTHING, &directory);
    for address in [WORLD_V4, WORLD_V6] {
        reaches(&machines.first, address);
        assert!(way(&machines.first, address).contains("dev tun0"));
    }
    assert_eq!(leaks(&machines), (0, 0));
    assert_eq!(client.stop(), Some(0));
    // The counters see what leaves in clear.
    // The neighbours of a network that was made just now may not know each other yet.
    wait_until("packets in clear of both versions", PROGRAM_LIMIT, || {
        for address in [WORLD_V4, WORLD_V6] {
            ping(&machines.first, address, &[]);
        }
        let (v4, v6) = leaks(&machines);
        v4 > 0 && v6 > 0
    });
    assert_conserved(&server.status());
}

#[test]
fn an_address_family_without_a_lease_is_unreachable_and_not_in_clear() {
    require_root!();
    require_program!("ping", "nft");
    let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
    count_leaks(&machines);
    let options = ["--tun=tun0", "--pool", "10.9.0.0/24", "--nat"];
    let server = machines.serve_only(&options, &directory);
    let mut client = connect(&machines.first, "client", &server, &EVERYTHING, &directory);
    client
        .process()
        .wait_for_starts("warning: IPv6 is unreachable", 1, PROGRAM_LIMIT)
        .unwrap();
    reaches(&machines.first, WORLD_V4);
    assert!(is_unreachable(&machines.first, WORLD_V6));
    assert!(!ping(&machines.first, WORLD_V6, &[]));
    assert_eq!(leaks(&machines), (0, 0));
    assert_conserved(&client.status());
}

#[test]
fn before_the_first_connection_everything_is_unreachable_but_the_server() {
    require_root!();
    require_program!("ping", "nft");
    let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
    let before = crate::host::state(&machines.first);
    count_leaks(&machines);
    let mut server = machines.serve(&["--nat"], &directory);
    let link = server.link();
    server.kill();
    let options = [TUN, "--default-route"];
    let place = machines.first.place();
    let mut client = Client::start_unconnected(&place, "client", &link, &[], &options, directory.path());
    wait_until("the way to the server", PROGRAM_LIMIT, || {
        is_unreachable(&machines.first, WORLD_V4) && way(&machines.first, SERVER_ADDRESS).contains("eth0")
    });
    assert!(is_unreachable(&machines.first, WORLD_V6));
    for address in [WORLD_V4, WORLD_V6] {
        assert!(!ping(&machines.first, address, &[]));
    }
    server.start_again();
    client.wait_until_connected(1, PROGRAM_LIMIT);
    for address in [WORLD_V4, WORLD_V6] {
        reaches(&machines.first, address);
    }
    // While it connects again, what is for the tunnel stays in it.
    server.kill();
    wait_until("the loss of the server", PATH_LIMIT, || {
        client.process().stderr().contains("connecting again")
    });
    assert!(way(&machines.first, WORLD_V4).contains("dev tun0"));
    assert!(way(&machines.first, SERVER_ADDRESS).contains("dev eth0"));
    assert_eq!(leaks(&machines), (0, 0));
    client.kill();
    wait_until("the guardian's end", PROGRAM_LIMIT, || {
        guardians(&machines.first).is_empty()
    });
    // It leaves the kill switch.
    assert_eq!(release(&machines.first, &client).0, Some(0));
    wait_until("the guardian's work", PROGRAM_LIMIT, || {
        crate::host::state(&machines.first) == before
    });
}

#[test]
fn sessions_with_the_server_go_on_outside_the_tunnel() {
    require_root!();
    require_program!("ping", "nft");
    let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
    let _service = Service::tcp_echo(&machines.server, SERVICE);
    let mut earlier = connect_stream(&machines.first, SERVICE);
    let server = machines.serve(&["--nat"], &directory);
    let client = connect(&machines.first, "client", &server, &EVERYTHING, &directory);
    reaches(&machines.first, WORLD_V4);
    assert_echoes(&mut earlier);
    assert_echoes(&mut connect_stream(&machines.first, SERVICE));
    // Another client of the same machine, which knows nothing of the tunnel.
    let forward = format!("tcp:7000={SERVER_V4}:9");
    let place = machines.first.place();
    let second = Client::start(
        &place,
        "second",
        &server.link(),
        &[&forward],
        &[],
        directory.path(),
    );
    assert_conserved(&second.status());
    assert_conserved(&client.status());
}

#[test]
fn rules_that_another_program_removed_are_made_again() {
    require_root!();
    require_program!("ping", "nft");
    let tunnel = Tunnel::new(1500, &["--nat"], &["--default-route"]);
    let machine = &tunnel.machines.first;
    reaches(machine, WORLD_V4);
    for family in ["-4", "-6"] {
        machine
            .run("ip", [family, "rule", "del", "priority", "26471"])
            .unwrap();
    }
    wait_until("rules that are made again", PROGRAM_LIMIT, || {
        [WORLD_V4, WORLD_V6]
            .iter()
            .all(|address| way(machine, address).contains("dev tun0"))
    });
    tunnel.check();
}
