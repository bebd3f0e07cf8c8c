//! Traffic of every kind through the tunnel, with one stripe and with several.

use system_tests::{require_program, require_root};
use testbed::directory::Directory;

use super::*;
use crate::scene::load;

#[test]
fn two_clients_reach_the_server_and_the_machine_behind_its_nat_over_both_versions() {
    require_root!();
    require_program!("ping");
    let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
    let server = machines.serve(&["--nat"], &directory);
    let routes = [
        "--route",
        "203.0.113.0/24",
        "--route",
        "2001:db8:2::/64",
        "--route",
        "10.9.0.0/24",
    ];
    let first = connect(&machines.first, "first", &server, &routes, &directory);
    let second = connect(
        &machines.second,
        "second",
        &server,
        &["--default-route"],
        &directory,
    );
    assert_eq!(addresses(&machines.first), ["10.9.0.2", "fd09::2"]);
    assert_eq!(addresses(&machines.second), ["10.9.0.3", "fd09::3"]);
    for machine in [&machines.first, &machines.second] {
        for address in [WORLD_V4, WORLD_V6, SERVER_V4] {
            reaches(machine, address);
        }
    }
    // The machine behind the server sees the server only.
    assert!(!ping(&machines.world, "10.9.0.2", &[]));
    assert!(!ping(&machines.first, "10.9.0.3", &[]), "clients are kept apart");
    for end in [first.status(), second.status(), server.status()] {
        assert_conserved(&end);
    }
}

#[test]
fn tcp_and_udp_pass_both_ways_with_one_stripe_and_with_two() {
    require_root!();
    require_program!("iperf3");
    let _load = load();
    for connections in ["1", "2"] {
        let options = ["--connections", connections];
        let tunnel = Tunnel::new(1500, &options, &options);
        let machines = &tunnel.machines;
        let four = IperfRun {
            streams: 4,
            ..tcp(SERVER_V6)
        };
        let udp = |payload_bytes| IperfRun::udp(tcp(SERVER_V4).address, 2, payload_bytes, Some(50_000_000));
        for run in [
            tcp(SERVER_V4),
            tcp(SERVER_V4).reversed(),
            four.clone(),
            four.reversed(),
            udp(1150),
            udp(4000),
        ] {
            iperf(&machines.first, &machines.server, &run);
        }
        let (client, server) = (tunnel.client.status(), tunnel.server.status());
        for tun in [&client["tun"]["io"], &server["tun"]["io"]] {
            assert!(tun["super_reads"].as_u64() > Some(0), "{tun}");
            assert!(tun["super_writes"].as_u64() > Some(0), "{tun}");
            assert_eq!((&tun["refused"], &tun["errors"]), (&0.into(), &0.into()), "{tun}");
        }
        // Nothing but requests and capsules uses streams.
        assert!(
            client["quic"]["stream_frames_sent"].as_u64() < Some(100),
            "{client}"
        );
        tunnel.check();
    }
}

#[test]
fn everything_passes_without_super_packets_too() {
    require_root!();
    require_program!("iperf3");
    let _load = load();
    let options = ["--no-tun-offloads"];
    let tunnel = Tunnel::new(1500, &options, &options);
    let machines = &tunnel.machines;
    iperf(&machines.first, &machines.server, &tcp(SERVER_V4));
    iperf(&machines.first, &machines.server, &tcp(SERVER_V6).reversed());
    let client = tunnel.client.status();
    assert_eq!(client["tun"]["io"]["super_reads"], 0, "{client}");
    tunnel.check();
}

#[test]
fn the_outer_path_may_be_ipv6() {
    require_root!();
    require_program!("ping");
    let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
    let place = machines.server.place();
    let server = Server::start(&place, "server", LISTEN_V6, &POOLS, directory.path());
    let client = connect(&machines.first, "client", &server, &[], &directory);
    reaches(&machines.first, SERVER_V4);
    reaches(&machines.first, SERVER_V6);
    assert_conserved(&client.status());
}

#[test]
fn forwards_and_a_tun_work_side_by_side() {
    require_root!();
    require_program!("ping");
    let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
    let server = machines.serve(&["--allow-target", "127.0.0.0/8"], &directory);
    let _echo = system_tests::service::Service::udp_echo(&machines.server, "127.0.0.1:7000");
    let place = machines.first.place();
    let forwards = ["udp:7000=127.0.0.1:7000"];
    let mut client = Client::start(
        &place,
        "client",
        &server.link(),
        &forwards,
        &[TUN],
        directory.path(),
    );
    client.process().wait_for_starts("TUN", 1, PROGRAM_LIMIT).unwrap();
    reaches(&machines.first, SERVER_V4);
    system_tests::source::Source::new(&machines.first, "127.0.0.1:7000").ask(b"through", PROGRAM_LIMIT);
    assert_conserved(&client.status());
}
