//! What a client reaches of the server itself: an echo at its address in the tunnel, and what its owner permits.

use std::io::{Read, Write};
use std::net::Shutdown;

use system_tests::service::{Service, try_connect};
use system_tests::{require_program, require_root};

use super::*;

/// Services at addresses of the server that no client reaches: in the tunnel, of an interface, and of networks
/// that only the table of local routes has.
const CLOSED: [&str; 6] = [
    "10.9.0.1:7001",
    "[fd09::1]:7001",
    "203.0.113.1:7001",
    "[2001:db8:2::1]:7001",
    "192.0.9.7:7001",
    "[2001:db8:9::7]:7001",
];

/// The same networks, by which a service is permitted.
const OPEN: [&str; 4] = [
    "10.9.0.1:7002",
    "[fd09::1]:7002",
    "192.0.9.7:7002",
    "[2001:db8:9::7]:7002",
];

/// Whether a connection brings an echo, or ends without one.
fn has_echo(machine: &Namespace, address: &str) -> bool {
    let Ok(mut stream) = try_connect(machine, address) else {
        return false;
    };
    let mut answer = String::new();
    let sent = stream
        .write_all(b"echo")
        .and_then(|()| stream.shutdown(Shutdown::Write));
    sent.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer == "echo"
}

#[test]
fn a_client_reaches_no_service_of_the_server_itself_that_was_not_permitted() {
    require_root!();
    require_program!("ping");
    let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
    for network in ["192.0.9.0/24", "2001:db8:9::/64"] {
        let route = ["route", "add", "local", network, "dev", "lo"];
        machines.server.run("ip", route).unwrap();
    }
    let pools = [TUN, "--nat", "--pool", "10.9.0.0/24", "--pool", "fd09::/64"];
    let permits = OPEN.map(|address| match address.split_once(']') {
        Some((address, port)) => format!("{address}/128]{port}"),
        None => address.to_owned(),
    });
    let permits = permits
        .iter()
        .flat_map(|permit| ["--allow-target", permit.as_str()]);
    let options: Vec<&str> = pools.into_iter().chain(permits).collect();
    let server = machines.serve_only(&options, &directory);
    let _services = [7001, 7002].map(|port| Service::tcp_echo(&machines.server, &format!("[::]:{port}")));
    let _world = Service::tcp_echo(&machines.world, &format!("{WORLD_V4}:7001"));

    let routes = [
        "10.9.0.0/24",
        "fd09::/64",
        "203.0.113.0/24",
        "2001:db8:2::/64",
        "192.0.9.0/24",
        "2001:db8:9::/64",
    ];
    let options: Vec<&str> = [TUN]
        .into_iter()
        .chain(routes.iter().flat_map(|route| ["--route", *route]))
        .collect();
    let forwards = [
        "tcp:8001=192.0.9.7:7001",
        "tcp:8002=[2001:db8:9::7]:7001",
        "tcp:8003=[64:ff9b::192.0.9.7]:7001",
        "tcp:8004=192.0.9.7:7002",
    ];
    let place = machines.first.place();
    let mut client = Client::start(
        &place,
        "client",
        &server.link(),
        &forwards,
        &options,
        directory.path(),
    );
    client.process().wait_for_starts("TUN", 1, PROGRAM_LIMIT).unwrap();
    for address in [SERVER_V4, SERVER_V6, WORLD_V4] {
        reaches(&machines.first, address);
    }
    assert!(has_echo(&machines.first, &format!("{WORLD_V4}:7001")));
    for address in OPEN {
        assert!(has_echo(&machines.first, address), "{address}");
    }
    for address in CLOSED {
        assert!(has_echo(&machines.server, address), "the service at {address}");
        assert!(!has_echo(&machines.first, address), "{address}");
    }
    assert!(drops(&server.status(), "policy_denied") >= CLOSED.len() as u64);
    for port in [8001, 8002, 8003] {
        assert!(!has_echo(&machines.first, &format!("127.0.0.1:{port}")), "{port}");
    }
    assert!(has_echo(&machines.first, "127.0.0.1:8004"));

    // An address that comes later is closed as soon as it is noticed, also for a flow that has begun.
    let later = ["route", "add", "local", "203.0.113.2/32", "dev", "lo"];
    machines.server.run("ip", later).unwrap();
    assert!(has_echo(&machines.server, &format!("{WORLD_V4}:7001")));
    wait_until("the new address is closed", PATH_LIMIT, || {
        !has_echo(&machines.first, &format!("{WORLD_V4}:7001"))
    });
    assert_conserved(&client.status());
    assert_conserved(&server.status());
}

/// The server's address is translated one to one, as clouds do, also for what comes from the server itself.
#[test]
fn nobody_reaches_the_server_by_the_address_that_a_nat_before_it_has() {
    require_root!();
    require_program!("nft");
    let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
    let public = "192.0.9.1";
    let rules = format!(
        "table ip cloud {{
            chain to {{ type nat hook prerouting priority dstnat; ip daddr {public} dnat to 198.51.100.1; }}
            chain from {{ type nat hook postrouting priority srcnat; ct status dnat masquerade; }}
        }}"
    );
    machines.router.run("nft", [rules.as_str()]).unwrap();
    let server = machines.serve_only(&["--public", public], &directory);
    let _service = Service::tcp_echo(&machines.server, "[::]:7001");
    let _world = Service::tcp_echo(&machines.world, &format!("{WORLD_V4}:7001"));
    let forwards = [
        format!("tcp:8001={public}:7001"),
        format!("tcp:8002={WORLD_V4}:7001"),
    ];
    let _client = Client::start(
        &machines.first.place(),
        "client",
        &server.link(),
        &forwards.each_ref().map(String::as_str),
        &[],
        directory.path(),
    );
    wait_until("the world is reached", PATH_LIMIT, || {
        has_echo(&machines.first, "127.0.0.1:8002")
    });
    assert!(
        has_echo(&machines.server, &format!("{public}:7001")),
        "it leads back"
    );
    assert!(!has_echo(&machines.first, "127.0.0.1:8001"));
}
