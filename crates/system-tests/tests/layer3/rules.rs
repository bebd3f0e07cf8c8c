//! What is not carried, who is told, and who gets no address.

use system_tests::program::UNAVAILABLE;
use system_tests::{require_program, require_root};

use super::*;

#[test]
fn hop_limits_run_out_and_networks_that_are_not_offered_are_told_to_the_sender() {
    require_root!();
    require_program!("ping");
    let tunnel = Tunnel::new(
        1500,
        &[],
        &["--route", "10.9.0.0/24", "--route", "203.0.113.0/24"],
    );
    let machine = &tunnel.machines.first;
    reaches(machine, SERVER_V4);
    let text = ping_says(machine, SERVER_V4, &["-t", "1"]);
    assert!(text.contains("Time to live exceeded"), "{text}");
    let text = ping_says(machine, SERVER_V6, &["-t", "1"]);
    assert!(
        text.contains("unreachable") || text.contains("Time exceeded"),
        "{text}"
    );
    let text = ping_says(machine, WORLD_V4, &[]);
    assert!(text.contains("Destination Net Unreachable"), "{text}");
    let text = ping_says(machine, "10.9.0.77", &[]);
    assert!(text.contains("Packet filtered"), "{text}");
    let text = ping_says(&tunnel.machines.server, "10.9.0.77", &[]);
    assert!(text.contains("Destination Host Unreachable"), "{text}");
    for (status, reason) in [
        (tunnel.client.status(), "hop_limit"),
        (tunnel.client.status(), "no_route"),
        (tunnel.server.status(), "policy_denied"),
        (tunnel.server.status(), "no_route"),
    ] {
        assert!(drops(&status, reason) > 0, "{reason}: {status}");
    }
    tunnel.check();
}

#[test]
fn a_server_that_routes_everything_is_told_of_where_no_route_follows() {
    require_root!();
    require_program!("ping");
    let mut tunnel = Tunnel::new(1500, &["--nat"], &[]);
    let machine = &tunnel.machines.first;
    let routes = machine.run("ip", ["route", "show", "dev", "tun0"]).unwrap();
    // The pool itself, so that the server is reached, and no other.
    assert_eq!(routes.lines().count(), 1, "{routes}");
    assert!(routes.starts_with("10.9.0.0/24"), "{routes}");
    for address in [SERVER_V4, SERVER_V6] {
        reaches(machine, address);
    }
    let line = tunnel
        .client
        .process()
        .wait_for_line("routes everything", PROGRAM_LIMIT)
        .unwrap();
    assert!(
        line.contains("--default-route") && line.contains("--route"),
        "{line}"
    );
}

/// Of the routes that a server advertises, only those are installed that the client has an address for.
#[test]
fn routes_of_a_version_without_an_address_are_not_installed() {
    require_root!();
    require_program!("ping");
    let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
    let options = [
        TUN,
        "--pool",
        "10.9.0.0/24",
        "--advertise",
        "10.88.0.0/16",
        "--advertise",
        "fd88::/64",
    ];
    let server = machines.serve_only(&options, &directory);
    let mut client = connect(&machines.first, "client", &server, &[], &directory);
    let version = |version| {
        machines
            .first
            .run("ip", [version, "route", "show", "dev", "tun0"])
            .unwrap()
    };
    assert!(version("-4").contains("10.88.0.0/16"));
    assert!(!version("-6").contains("fd88"), "{}", version("-6"));
    reaches(&machines.first, SERVER_V4);
    assert!(
        !client.process().stderr().contains("warning"),
        "{}",
        client.process().stderr()
    );
    assert_eq!(client.stop(), Some(0));
    let options = ["--route", "2001:db8:2::/64", "--route", "10.9.0.0/24"];
    let mut client = connect(&machines.first, "again", &server, &options, &directory);
    client
        .process()
        .wait_for_line("IPv6 is not routed", PROGRAM_LIMIT)
        .unwrap();
    reaches(&machines.first, SERVER_V4);
}

#[test]
fn packets_with_a_source_that_is_not_the_clients_stay_at_home() {
    require_root!();
    require_program!("ping");
    let tunnel = Tunnel::new(1500, &[], &[]);
    let machine = &tunnel.machines.first;
    reaches(machine, SERVER_V4);
    machine
        .run("ip", ["address", "add", "10.9.0.99/32", "dev", "lo"])
        .unwrap();
    assert!(!ping(machine, SERVER_V4, &["-I", "10.9.0.99"]));
    wait_for_drop(|| tunnel.client.status(), "source_spoofed");
    assert!(!ping(machine, SERVER_V4, &["-I", "192.0.2.2"]));
    tunnel.check();
}

#[test]
fn clients_reach_each_other_where_the_server_lets_them() {
    require_root!();
    require_program!("ping");
    let tunnel = Tunnel::new(1500, &["--client-to-client"], &[]);
    let Tunnel {
        machines,
        server,
        directory,
        ..
    } = &tunnel;
    let second = connect(&machines.second, "second", server, &[], directory);
    for address in ["10.9.0.3", "fd09::3"] {
        reaches(&machines.first, address);
    }
    reaches(&machines.second, "10.9.0.2");
    assert_conserved(&second.status());
    tunnel.check();
}

#[test]
fn a_pool_that_is_exhausted_is_told_and_its_next_free_address_is_given() {
    require_root!();
    let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
    let options = [TUN, "--pool", "10.9.0.0/30"];
    let mut server = machines.serve_only(&options, &directory);
    let mut first = connect(&machines.first, "first", &server, &[], &directory);
    let place = machines.second.place();
    let mut second =
        Client::start_unconnected(&place, "second", &server.link(), &[], &[TUN], directory.path());
    let line = second
        .process()
        .wait_for_line("no address left", PROGRAM_LIMIT)
        .unwrap();
    assert!(line.contains("--pool"), "{line}");
    let line = server
        .process()
        .wait_for_line("a client got no address", PROGRAM_LIMIT)
        .unwrap();
    assert!(line.contains("--pool"), "{line}");
    assert_eq!(first.stop(), Some(0));
    second.process().wait_for_starts("TUN", 1, PATH_LIMIT).unwrap();
    assert_eq!(addresses(&machines.second), ["10.9.0.2"]);
    assert_eq!(server.status()["tun"]["leases"]["open"], 1);
}

#[test]
fn a_server_without_a_tun_ends_a_client_that_wants_nothing_else_with_one_sentence() {
    require_root!();
    let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
    let server = machines.serve_only(&[], &directory);
    let place = machines.first.place();
    let mut client =
        Client::start_unconnected(&place, "client", &server.link(), &[], &[TUN], directory.path());
    let status = client.process().wait(PROGRAM_LIMIT).unwrap();
    assert_eq!(status.code(), Some(UNAVAILABLE));
    let text = client.process().stderr();
    assert!(
        text.contains("does not carry IP packets") && text.contains("up --tun"),
        "{text}"
    );
}
