//! Paths that die without a word: a black hole takes a flow, or all of IPv6, while another way is open.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use system_tests::conservation::assert_conserved;
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::service::{self, Service};
use system_tests::source::Source;
use system_tests::topology::{CLIENT_V4, CLIENT_V6, ROUTED_SERVER_V4, ROUTED_SERVER_V6, Routed};
use system_tests::tunnel::{Client, Server, with_mounts};
use system_tests::{require_program, require_root};
use testbed::directory::Directory;
use testbed::wait::wait_until;

use crate::scene::OPEN_LOOPBACK;

const FORWARD: &str = "udp:7000=127.0.0.1:7000";

const LISTENER: &str = "127.0.0.1:7000";

/// Half of the time after which QUIC gives up a connection that is idle: far more than five seconds, for busy machines.
const DEAD_PATH_LIMIT: Duration = Duration::from_secs(15);

/// What an address that does not answer took, when one was tried after the other.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// A server at an IPv6 and an IPv4 address. Processes end before their machines.
struct TwoPaths {
    server: Server,
    _echo: Service,
    network: Routed,
    directory: Directory,
}

impl TwoPaths {
    fn new() -> Self {
        let (network, directory) = (Routed::new(1500), Directory::create_for_test().unwrap());
        let public = ["--public", ROUTED_SERVER_V4, "--public", ROUTED_SERVER_V6];
        let targets = ["--allow-target", "10.77.0.0/24", "--allow-target", "fd77::/64"];
        let options = [&OPEN_LOOPBACK[..], &public, &targets].concat();
        let hosts = directory.join("hosts");
        std::fs::write(&hosts, format!("{CLIENT_V6} both.test\n{CLIENT_V4} both.test\n")).unwrap();
        let wrapper = with_mounts(&format!("mount --bind '{}' /etc/hosts", hosts.display()));
        wait_until("both paths", PROGRAM_LIMIT, || {
            [ROUTED_SERVER_V4, ROUTED_SERVER_V6].iter().all(|address| {
                let mut ping = network.client.command("ping");
                ping.args(["-n", "-c", "1", "-W", "1", address]);
                ping.output().unwrap().status.success()
            })
        });
        let (place, files) = (network.server.place(), directory.path());
        Self {
            server: Server::start_by(&wrapper, &place, "server", "[::]:4433", &options, files),
            _echo: Service::udp_echo(&network.server, LISTENER),
            network,
            directory,
        }
    }

    /// The router forwards nothing that this nftables expression matches, and says nothing.
    fn swallow(&self, expression: &str) {
        let script = format!(
            "table inet hole {{\nchain forward {{\ntype filter hook forward priority 0;\n{expression} drop\n}}\n}}\n"
        );
        self.network.router.nft(&script).unwrap();
    }

    fn connect(&self) -> Client {
        self.connect_with(&[FORWARD])
    }

    fn connect_with(&self, forwards: &[&str]) -> Client {
        let (place, link) = (self.network.client.place(), self.server.link());
        let options = ["--connections", "1"];
        Client::start_unconnected(&place, "client", &link, forwards, &options, self.directory.path())
    }

    fn check(&self, client: &Client) {
        assert_conserved(&client.status());
        assert_conserved(&self.server.status());
    }
}

#[test]
fn a_client_connects_over_ipv4_where_ipv6_is_a_black_hole() {
    require_root!();
    require_program!("unshare", "ping", "nft");
    let paths = TwoPaths::new();
    paths.swallow("meta nfproto ipv6");
    let mut client = paths.connect();
    let line = client.wait_until_connected(1, PROGRAM_LIMIT);
    assert!(line.contains(ROUTED_SERVER_V4), "{line}");
    paths.check(&client);
}

#[test]
fn ipv6_that_disappears_leaves_a_client_on_ipv4() {
    require_root!();
    require_program!("unshare", "ping", "nft");
    let paths = TwoPaths::new();
    let mut client = paths.connect();
    let line = client.wait_until_connected(1, PROGRAM_LIMIT);
    assert!(line.contains(ROUTED_SERVER_V6), "{line}");
    let mut source = Source::new(&paths.network.client, LISTENER);
    source.ask(b"over IPv6", PROGRAM_LIMIT);
    paths.swallow("meta nfproto ipv6");
    let elapsed = source.ask(b"over IPv4", DEAD_PATH_LIMIT);
    eprintln!("on IPv4 after {elapsed:?}");
    let line = client.wait_until_connected(2, PROGRAM_LIMIT);
    assert!(line.contains(ROUTED_SERVER_V4), "{line}");
    paths.check(&client);
}

#[test]
fn a_flow_that_is_swallowed_goes_on_from_another_port_and_stays_the_same_connection() {
    require_root!();
    require_program!("unshare", "ping", "nft");
    let paths = TwoPaths::new();
    let mut client = paths.connect();
    client.wait_until_connected(1, PROGRAM_LIMIT);
    let mut source = Source::new(&paths.network.client, LISTENER);
    source.ask(b"by the first port", PROGRAM_LIMIT);
    let status = paths.server.status();
    let remote = status["peers"][0]["remote"].as_str().unwrap();
    let (_, port) = remote.rsplit_once(':').unwrap();
    paths.swallow(&format!("udp sport {port}"));
    let elapsed = source.ask(b"by another one", DEAD_PATH_LIMIT);
    eprintln!("on another port after {elapsed:?}");
    assert_eq!(client.status()["reconnects"], 0);
    assert_eq!(client.process().stderr().matches("connect").count(), 1);
    paths.check(&client);
}

/// No stateless reset and no ICMP tells the client: a machine that was set up anew, or a NAT that leads elsewhere.
#[test]
fn a_server_that_was_replaced_in_silence_is_met_anew_at_its_only_address() {
    require_root!();
    require_program!("unshare", "ping", "nft");
    let mut paths = TwoPaths::new();
    paths.swallow("meta nfproto ipv6");
    paths.swallow("icmp type destination-unreachable");
    let mut client = paths.connect();
    client.wait_until_connected(1, PROGRAM_LIMIT);
    let mut source = Source::new(&paths.network.client, LISTENER);
    source.ask(b"of the first server", PROGRAM_LIMIT);
    paths.server.kill();
    // Under another key its resets mean nothing to the client.
    std::fs::remove_file(paths.server.state().join("reset.key")).unwrap();
    paths.server.start_again();
    let elapsed = source.ask(b"of the second one", DEAD_PATH_LIMIT);
    eprintln!("at the new server after {elapsed:?}");
    let line = client.wait_until_connected(2, PROGRAM_LIMIT);
    assert!(line.contains(ROUTED_SERVER_V4), "{line}");
    assert_eq!(client.status()["reconnects"], 1);
    paths.check(&client);
}

#[test]
fn a_client_whose_address_changes_goes_on_from_the_new_one() {
    require_root!();
    require_program!("unshare", "ping", "nft");
    let paths = TwoPaths::new();
    paths.swallow("meta nfproto ipv6");
    let mut client = paths.connect();
    client.wait_until_connected(1, PROGRAM_LIMIT);
    let mut source = Source::new(&paths.network.client, LISTENER);
    source.ask(b"from the first address", PROGRAM_LIMIT);
    let machine = &paths.network.client;
    for change in [
        "address add 10.77.0.77/24 dev eth0",
        "address delete 10.77.0.2/24 dev eth0",
        "address add 10.77.0.77/24 dev eth0",
        "route replace default via 10.77.0.1",
    ] {
        // The second address may have gone with the first.
        let _ = machine.run("ip", change.split(' '));
    }
    let elapsed = source.ask(b"from another one", DEAD_PATH_LIMIT);
    eprintln!("at the new address after {elapsed:?}");
    assert_eq!(client.status()["reconnects"], 0);
    let status = paths.server.status();
    let remote = status["peers"][0]["remote"].as_str().unwrap();
    assert!(remote.contains("10.77.0.77"), "{remote}");
    paths.check(&client);
}

#[test]
fn a_target_whose_ipv6_is_a_black_hole_is_reached_over_ipv4() {
    require_root!();
    require_program!("unshare", "ping", "nft");
    let paths = TwoPaths::new();
    paths.swallow("meta nfproto ipv6");
    let target = format!("{CLIENT_V4}:7001");
    let _targets = [
        Service::tcp_echo(&paths.network.client, &target),
        Service::udp_echo(&paths.network.client, &target),
    ];
    let mut client = paths.connect_with(&["tcp:7002=both.test:7001", "udp:7002=both.test:7001"]);
    client.wait_until_connected(1, PROGRAM_LIMIT);
    let elapsed = Source::new(&paths.network.client, "127.0.0.1:7002").ask(b"over IPv4", PROGRAM_LIMIT);
    eprintln!("UDP was answered after {elapsed:?}");
    let start = Instant::now();
    let mut stream = service::connect(&paths.network.client, "127.0.0.1:7002");
    stream.write_all(b"over IPv4").unwrap();
    let mut answer = [0; 9];
    stream.read_exact(&mut answer).unwrap();
    let elapsed = start.elapsed();
    eprintln!("reached after {elapsed:?}");
    assert_eq!(&answer, b"over IPv4");
    assert!(elapsed < CONNECT_LIMIT / 2, "{elapsed:?}");
    drop(stream);
    paths.check(&client);
}
