//! Paths that change under a running session: rebinding NAT, smaller MTU, a cable that is pulled, a server that does
//! not answer for a while.

use std::time::Duration;

use system_tests::limits::PROGRAM_LIMIT;
use system_tests::service::Service;
use system_tests::source::{Source, pattern};
use system_tests::topology::{ROUTED_SERVER_V4, ROUTER_OUTSIDE_V4, Routed};
use system_tests::tunnel::{Client, Server};
use system_tests::{require_program, require_root};
use testbed::directory::Directory;
use testbed::namespace::Namespace;
use testbed::wait::wait_until;

use crate::scene::{OPEN_LOOPBACK, Scene};

/// For a path to be found again after a change: several timeouts of QUIC that double, on a busy machine.
const PATH_LIMIT: Duration = Duration::from_secs(60);

const FORWARD: &str = "udp:7000=127.0.0.1:7000";

/// A server and a client with a router between; processes end before their machines.
struct Travelled {
    client: Client,
    server: Server,
    _echo: Service,
    network: Routed,
    _directory: Directory,
}

impl Travelled {
    fn new() -> Self {
        let (network, directory) = (Routed::new(1500), Directory::create_for_test().unwrap());
        let echo = Service::udp_echo(&network.server, "127.0.0.1:7000");
        let listen = format!("{ROUTED_SERVER_V4}:4433");
        let place = network.server.place();
        let server = Server::start(&place, "server", &listen, &OPEN_LOOPBACK, directory.path());
        let (place, link) = (network.client.place(), server.link());
        // One connection: its path is what these tests are about.
        let options = ["--connections", "1"];
        let client = Client::start(&place, "client", &link, &[FORWARD], &options, directory.path());
        Self {
            client,
            server,
            _echo: echo,
            network,
            _directory: directory,
        }
    }

    fn source(&self) -> Source {
        Source::new(&self.network.client, "127.0.0.1:7000")
    }

    /// The session is the one that was there from the beginning.
    fn assert_same_session(&self) {
        let (client, server) = (self.client.status(), self.server.status());
        assert_eq!(client["reconnects"], 0, "{client}");
        assert_eq!(client["udp_sessions"]["total"], 1, "{client}");
        assert_eq!(server["connections"]["total"], 1, "{server}");
    }
}

#[test]
fn a_session_survives_a_nat_that_rebinds_twice() {
    require_root!();
    require_program!("nft");
    let scene = Travelled::new();
    let mut source = scene.source();
    source.ask(b"before", PROGRAM_LIMIT);
    let local = scene.client.status()["local"].as_str().map(str::to_owned);
    let port = local
        .and_then(|local| local.rsplit_once(':')?.1.parse::<u16>().ok())
        .expect("a connected client has a local address");
    for (number, outside_port) in [40_001, 40_002].into_iter().enumerate() {
        scene.network.translate_udp(port, outside_port);
        source.ask(&pattern(number as u64, 1000), PATH_LIMIT);
        let expected = format!("{ROUTER_OUTSIDE_V4}:{outside_port}");
        wait_until("the new path", PATH_LIMIT, || {
            source.ask(b"probe", PATH_LIMIT);
            scene.server.status()["peers"][0]["remote"] == expected.as_str()
        });
        source.ask(&pattern(number as u64, 30_000), PATH_LIMIT);
    }
    scene.assert_same_session();
}

#[test]
fn a_path_that_shrinks_under_a_session_is_noticed_and_everything_passes_again() {
    require_root!();
    let scene = Travelled::new();
    let mut source = scene.source();
    let path_mtu = |status: serde_json::Value| status["peers"][0]["path_mtu"].as_u64().expect("a peer");
    wait_until("the path MTU of Ethernet at both ends", PATH_LIMIT, || {
        source.ask(&pattern(1, 1400), PATH_LIMIT);
        path_mtu(scene.client.status()) > 1400 && path_mtu(scene.server.status()) > 1400
    });
    // Behind the router, where the client cannot see it; and at the server's own interface.
    let shrink = |namespace: &Namespace, interface| namespace.set_mtu(interface, 1300).unwrap();
    shrink(&scene.network.router, "outside");
    shrink(&scene.network.server, "eth0");
    for (number, size) in [1400, 1272, 1000, 0, 9000, 65_507].into_iter().enumerate() {
        source.ask(&pattern(number as u64, size), PATH_LIMIT);
    }
    let expected = 1200..=1272;
    for status in [scene.client.status(), scene.server.status()] {
        assert!(expected.contains(&path_mtu(status.clone())), "{status}");
        assert!(
            status["quic"]["black_holes"]
                .as_u64()
                .is_some_and(|count| count > 0),
            "{status}"
        );
    }
    scene.assert_same_session();
}

#[test]
fn a_pulled_cable_that_is_put_back_soon_costs_no_session() {
    require_root!();
    let mut scene = Scene::new(&[FORWARD]);
    let _echo = Service::udp_echo(&scene.pair.server, "127.0.0.1:7000");
    let mut source = Source::new(&scene.pair.client, "127.0.0.1:7000");
    source.ask(b"before", PROGRAM_LIMIT);
    scene.pair.client.set_link("eth0", false).unwrap();
    assert_eq!(source.try_ask(b"meanwhile", Duration::from_secs(2)), None);
    scene.pair.client.set_link("eth0", true).unwrap();
    source.ask(b"after", PATH_LIMIT);
    assert_eq!(scene.client.status()["reconnects"], 0);
    scene.check();
}

#[test]
fn a_server_that_answers_nobody_is_tried_until_it_does_with_one_line() {
    require_root!();
    require_program!("nft");
    let scene = Scene::new(&[FORWARD]);
    let Scene {
        mut client,
        server: _server,
        pair,
        directory: _directory,
    } = scene;
    let _echo = Service::udp_echo(&pair.server, "127.0.0.1:7000");
    // Nothing comes in any more, and nobody is told.
    pair.server
        .nft(
            "table ip deaf {\n\
         chain input { type filter hook input priority 0; udp dport 4433 drop; }\n\
         }\n",
        )
        .unwrap();
    client.kill();
    client.start_again_unconnected();
    let line = client
        .process()
        .wait_for_starts("cannot reach", 1, PROGRAM_LIMIT)
        .unwrap();
    assert!(
        line.contains("10.77.0.1 (UDP 4433, no answer; a firewall?), retrying"),
        "{line}"
    );
    wait_until("a second attempt", PROGRAM_LIMIT, || {
        let status = client.status();
        status["state"] == "connecting" && status["quic"]["packets_sent"].as_u64() > Some(8)
    });
    let deaf = "table ip deaf {\n\
                chain input { type filter hook input priority 0; udp dport 4433 drop; }\n\
                }\n";
    pair.server.nft(deaf).unwrap();
    client.kill();
    client.start_again_unconnected();
    let line = client
        .process()
        .wait_for_starts("cannot reach", 1, PROGRAM_LIMIT)
        .unwrap();
    assert!(
        line.contains("10.77.0.1 (UDP 4433, no answer; a firewall?), retrying"),
        "{line}"
    );
    wait_until("a second attempt", PROGRAM_LIMIT, || {
        let status = client.status();
        status["state"] == "connecting" && status["quic"]["packets_sent"].as_u64() > Some(8)
    });
    pair.server.nft("delete table ip deaf").unwrap();
    client.wait_until_connected(1, PATH_LIMIT);
    Source::new(&pair.client, "127.0.0.1:7000").ask(b"at last", PROGRAM_LIMIT);
    let told = client.process().stderr();
    assert_eq!(told.matches("cannot reach").count(), 1, "{told}");
}
