//! The whole network of a machine in packets that look like TCP, below TUN, default route and kill switch, where
//! nothing else passes.

use system_tests::{require_program, require_root};

use super::*;

/// What the router lets pass.
const ONLY_TCP: &str =
    "table inet wall { chain forward { type filter hook forward priority -1; meta l4proto udp drop; }; }";

/// A client whose default route leads to a server at `listen`, through a wall, keeps its way to that server.
fn check(listen: &str) {
    let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
    machines.router.nft(ONLY_TCP).unwrap();
    let options = [&POOLS[..], &["--nat", "--tcp"]].concat();
    let start = || {
        Server::start(
            &machines.server.place(),
            "server",
            listen,
            &options,
            directory.path(),
        )
    };
    let mut server = start();
    let options = ["--carrier", "tcp", "--default-route"];
    let client = connect(&machines.first, "client", &server, &options, &directory);
    let reaches_all = || [WORLD_V4, WORLD_V6, SERVER_V4].map(|address| reaches(&machines.first, address));
    reaches_all();
    // Connected again, from behind its own kill switch.
    assert_eq!(server.stop(), Some(0));
    let server = start();
    reaches_all();
    // The first that is connected again carries for all.
    wait_until("all connections in TCP's shape", PROGRAM_LIMIT, || {
        let status = client.status();
        let mut shards = status["shards"].as_array().unwrap().iter();
        shards.all(|shard| shard["carrier"]["kind"] == "tcp")
    });
    assert_conserved(&client.status());
    assert_conserved(&server.status());
}

#[test]
fn a_default_route_goes_in_tcps_shape_over_ipv4() {
    require_root!();
    require_program!("nft", "ping");
    check(LISTEN);
}

#[test]
fn a_default_route_goes_in_tcps_shape_over_ipv6() {
    require_root!();
    require_program!("nft", "ping");
    check(LISTEN_V6);
}
