//! Several connections between one client and one server: flows spread over them, each keeps its own, and one that dies
//! takes nobody with it.

use std::io::{Read, Write};
use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use serde_json::Value;
use system_tests::conservation::assert_conserved;
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::program::UNAVAILABLE;
use system_tests::service::{Service, connect};
use system_tests::source::{Source, pattern};
use system_tests::topology::{Pair, ROUTED_SERVER_V4, ROUTER_OUTSIDE_V4, Routed};
use system_tests::tunnel::{Client, Server};
use system_tests::{require_program, require_root};
use testbed::directory::Directory;
use testbed::programs::run;
use testbed::wait::wait_until;

use crate::scene::{LISTEN, OPEN_LOOPBACK, both, load, no_load};

/// What the users of UDP are promised after a restart of the server.
const BACK_LIMIT: Duration = Duration::from_secs(3);

/// For a silent stripe to be given up (30 s), and for a path to be found again, on a busy machine.
const PATH_LIMIT: Duration = Duration::from_secs(60);

/// Sources of one test: with 64 no stripe is left with fewer than ten, but once in millions of runs.
const SOURCES: usize = 64;

/// A server and a client with so many shards each, and echoes for both protocols behind port 7000.
struct Striped {
    client: Client,
    server: Server,
    _services: [Service; 2],
    pair: Pair,
    directory: Directory,
}

fn server_options(connections: usize) -> Vec<String> {
    let mut options = OPEN_LOOPBACK.map(str::to_owned).to_vec();
    options.extend(["--connections".to_owned(), connections.to_string()]);
    options
}

fn start_server(pair: &Pair, connections: usize, directory: &Directory) -> Server {
    let options = server_options(connections);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    Server::start(&pair.server.place(), "server", LISTEN, &options, directory.path())
}

impl Striped {
    fn new(server_shards: usize, stripes: usize) -> Self {
        let (pair, directory) = (Pair::new(1500), Directory::create_for_test().unwrap());
        let services = [
            Service::udp_echo(&pair.server, "127.0.0.1:7000"),
            Service::tcp_echo(&pair.server, "127.0.0.1:7000"),
        ];
        let server = start_server(&pair, server_shards, &directory);
        let stripes_text = stripes.to_string();
        let mut client = Client::start(
            &pair.client.place(),
            "client",
            &server.link(),
            &both!("7000"),
            &["--connections", &stripes_text],
            directory.path(),
        );
        if stripes > 1 {
            let line = format!(", {stripes} connections");
            client.process().wait_for_line(&line, PROGRAM_LIMIT).unwrap();
        }
        Self {
            client,
            server,
            _services: services,
            pair,
            directory,
        }
    }

    fn source(&self) -> Source {
        Source::new(&self.pair.client, "127.0.0.1:7000")
    }

    fn sources(&self) -> Vec<Source> {
        (0..SOURCES).map(|_| self.source()).collect()
    }

    fn tcp_works(&self) {
        let mut stream = connect(&self.pair.client, "127.0.0.1:7000");
        stream.write_all(b"hello").unwrap();
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"hello");
    }

    fn check(&self) {
        assert_conserved(&self.client.status());
        assert_conserved(&self.server.status());
    }
}

/// Of each shard, the number at this place.
fn of_shards(status: &Value, pointer: &str) -> Vec<u64> {
    let shards = status["shards"].as_array().expect("a status has shards");
    let number = |shard: &Value| shard.pointer(pointer).and_then(Value::as_u64);
    shards
        .iter()
        .map(|shard| number(shard).unwrap_or_else(|| panic!("{pointer} is missing: {shard}")))
        .collect()
}

fn ask_all(sources: &mut [Source], round: u64) {
    for (number, source) in sources.iter_mut().enumerate() {
        source.ask(&pattern(round << 32 | number as u64, 200), PROGRAM_LIMIT);
    }
}

#[test]
fn sixty_four_sources_spread_over_two_stripes_and_the_status_says_how() {
    require_root!();
    let _load = load();
    let state = Striped::new(2, 2);
    let mut sources = state.sources();
    ask_all(&mut sources, 0);
    ask_all(&mut sources, 1);
    let client = state.client.status();
    let sessions = of_shards(&client, "/udp_sessions/total");
    assert_eq!(sessions.iter().sum::<u64>(), SOURCES as u64, "{client}");
    assert!(sessions.iter().all(|count| *count >= 10), "{sessions:?}");
    assert!(
        of_shards(&client, "/stripe/path_mtu")
            .iter()
            .all(|mtu| *mtu >= 1200),
        "{client}"
    );
    // Nobody hands anything over while all is well.
    for status in [&client, &state.server.status()] {
        assert_eq!(of_shards(status, "/handover/given"), [0, 0], "{status}");
    }
    for _ in 0..16 {
        state.tcp_works();
    }
    let connections = of_shards(&state.client.status(), "/tcp_connections/total");
    assert_eq!(connections.iter().sum::<u64>(), 16);
    state.check();
}

/// SESSION-10, SESSION-11.
#[test]
fn two_stripes_come_to_two_shards_of_the_server() {
    require_root!();
    let mut state = Striped::new(2, 2);
    // After six more connections a stripe stays where it is: once in 64 starts.
    for _ in 0..4 {
        let mut shards = of_shards(&state.client.status(), "/server_shard");
        shards.sort_unstable();
        if shards == [0, 1] {
            let server = state.server.status();
            assert_eq!(of_shards(&server, "/connections/open"), [1, 1], "{server}");
            return;
        }
        state.client.stop();
        state.client.start_again();
        state
            .client
            .process()
            .wait_for_line(", 2 connections", PROGRAM_LIMIT)
            .unwrap();
    }
    panic!(
        "both stripes came to one shard four times: {}",
        state.client.status()
    );
}

#[test]
fn either_end_may_have_any_number_of_shards() {
    require_root!();
    for (server_shards, stripes) in [(1, 1), (1, 2), (2, 1), (3, 2), (2, 5)] {
        let mut state = Striped::new(server_shards, stripes);
        let mut sources: Vec<Source> = (0..8).map(|_| state.source()).collect();
        ask_all(&mut sources, 0);
        sources[0].ask(&pattern(1, 30_000), PROGRAM_LIMIT);
        state.tcp_works();
        let (client, server) = (state.client.status(), state.server.status());
        assert_eq!(client["shards"].as_array().map(Vec::len), Some(stripes));
        assert_eq!(server["shards"].as_array().map(Vec::len), Some(server_shards));
        assert_eq!(client["connections"]["open"], stripes, "{client}");
        assert_eq!(client["peers"].as_array().map(Vec::len), Some(stripes));
        let told = state.client.process().stderr();
        assert_eq!(told.matches("connected to").count(), 1, "{told}");
        assert_eq!(told.contains("connections"), stripes > 1, "{told}");
        state.check();
    }
}

#[test]
fn the_flows_of_a_stripe_that_dies_move_the_others_stay_and_it_comes_back() {
    require_root!();
    require_program!("nft");
    let _no_load = no_load();
    let mut state = Striped::new(2, 2);
    let mut sources = state.sources();
    ask_all(&mut sources, 0);
    let status = state.client.status();
    let sessions = of_shards(&status, "/udp_sessions/open");
    let port = local_port(&status["shards"][0]["local"]);
    // Whatever is not of stripe 0 is lost, its attempts to come back included.
    state
        .pair
        .client
        .nft(&format!(
            "table inet dead {{\nchain leaving {{ type filter hook output priority 0;\n\
         oifname \"eth0\" udp sport != {port} udp dport 4433 drop; }}\n}}\n"
        ))
        .unwrap();
    let lost = "1 of 2 connections lost: ";
    // The other stripe's keep-alives would do, but flows should notice nothing meanwhile.
    let deadline = Instant::now() + PATH_LIMIT;
    while !state.client.process().stderr().contains(lost) {
        assert!(Instant::now() < deadline, "the dead stripe is not given up");
        for source in &sources {
            source.send(b"meanwhile");
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    ask_all(&mut sources, 1);
    state.tcp_works();
    let status = state.client.status();
    assert_eq!(status["state"], "connected");
    assert_eq!(status["reconnects"], 0, "{status}");
    let after = of_shards(&status, "/udp_sessions/open");
    assert_eq!(after, [SOURCES as u64, 0], "{status}");
    // The sources of the living stripe have the sessions that they had.
    let total = of_shards(&status, "/udp_sessions/total");
    assert_eq!(total[0], sessions[0] + sessions[1], "{status}");
    assert!(
        of_shards(&status, "/handover/given")[1] >= sessions[1],
        "{status}"
    );
    state.pair.client.nft("delete table inet dead\n").unwrap();
    state
        .client
        .process()
        .wait_for_starts("connection restored: 2 of 2", 1, PATH_LIMIT)
        .unwrap();
    ask_all(&mut sources, 2);
    let status = state.client.status();
    assert_eq!(of_shards(&status, "/reconnects"), [0, 1], "{status}");
    assert!(
        of_shards(&status, "/udp_sessions/open")[1] >= sessions[1],
        "{status}"
    );
    assert_eq!(state.client.process().stderr().matches("connected to").count(), 1);
    state.check();
}

/// A server with two shards and a client with one connection behind a router that translates ports.
struct Rebinding {
    client: Client,
    server: Server,
    source: Source,
    client_port: u16,
    _echo: Service,
    network: Routed,
    _directory: Directory,
}

impl Rebinding {
    fn new() -> Self {
        let (network, directory) = (Routed::new(1500), Directory::create_for_test().unwrap());
        let echo = Service::udp_echo(&network.server, "127.0.0.1:7000");
        let listen = format!("{ROUTED_SERVER_V4}:4433");
        let options = server_options(2);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let place = network.server.place();
        let server = Server::start(&place, "server", &listen, &options, directory.path());
        let client = Client::start(
            &network.client.place(),
            "client",
            &server.link(),
            &["udp:7000=127.0.0.1:7000"],
            &["--connections", "1"],
            directory.path(),
        );
        let mut source = Source::new(&network.client, "127.0.0.1:7000");
        source.ask(b"before", PROGRAM_LIMIT);
        let client_port = local_port(&client.status()["local"]);
        Self {
            client,
            server,
            source,
            client_port,
            _echo: echo,
            network,
            _directory: directory,
        }
    }

    /// Moves the client to so many ports, one after the other. By addresses and ports alone, each would come to the
    /// other shard every second time. The connection survives; what the server says at the end.
    fn rebind(&mut self, times: u16) -> Value {
        let before = of_shards(&self.server.status(), "/connections/total");
        for outside_port in 40_001..=40_000 + times {
            self.network.translate_udp(self.client_port, outside_port);
            let expected = format!("{ROUTER_OUTSIDE_V4}:{outside_port}");
            let Self { source, server, .. } = self;
            wait_until("the new path", PATH_LIMIT, || {
                source.ask(b"probe", PATH_LIMIT);
                server.status()["peers"][0]["remote"] == expected.as_str()
            });
            source.ask(&pattern(u64::from(outside_port), 30_000), PATH_LIMIT);
        }
        let status = self.server.status();
        assert_eq!(of_shards(&status, "/connections/total"), before, "{status}");
        assert_eq!(self.client.status()["reconnects"], 0);
        assert_conserved(&status);
        status
    }
}

fn local_port(address: &Value) -> u16 {
    address
        .as_str()
        .and_then(|local| local.rsplit_once(':')?.1.parse().ok())
        .expect("a client that is connected has a local address")
}

#[test]
fn a_nat_that_rebinds_keeps_every_connection_on_its_shard() {
    require_root!();
    require_program!("nft");
    let mut scene = Rebinding::new();
    let status = scene.rebind(6);
    assert_eq!(of_shards(&status, "/handover/given"), [0, 0], "{status}");
}

#[test]
fn segments_that_come_to_the_wrong_shard_are_handed_over() {
    require_root!();
    require_program!("nft");
    require_program!("python3");
    let mut scene = Rebinding::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/forget_steering.py");
    let process = scene.server.process().id().to_string();
    let forgotten = run(Command::new("python3").args([script, &process])).unwrap();
    assert_ne!(forgotten.trim(), "0");
    scene.rebind(14);
    let mut status = Value::Null;
    // An acknowledgement may lie between the two shards when they are asked.
    wait_until("what was given to be taken", PATH_LIMIT, || {
        status = scene.server.status();
        let of = |name| of_shards(&status, name).iter().sum::<u64>();
        of("/handover/given") == of("/handover/taken")
    });
    let of = |name| of_shards(&status, name).iter().sum::<u64>();
    // All ports fall on the shard that has the connection once in 16,384 runs.
    assert_ne!(of("/handover/given"), 0, "{status}");
    assert_eq!(of("/handover/dropped"), 0, "{status}");
}

#[test]
fn a_killed_server_is_back_in_time_with_as_many_shards_or_another_number() {
    require_root!();
    let _load = load();
    let mut state = Striped::new(2, 2);
    let mut sources: Vec<Source> = (0..8).map(|_| state.source()).collect();
    ask_all(&mut sources, 0);
    for (round, shards) in [(1, 2), (2, 1), (3, 3)] {
        state.server.kill();
        let start = Instant::now();
        state.server = start_server(&state.pair, shards, &state.directory);
        for source in &mut sources {
            source.ask(&pattern(round, 300), PROGRAM_LIMIT);
        }
        let taken = start.elapsed();
        assert!(
            taken <= BACK_LIMIT,
            "UDP was back after {taken:?} with {shards} shards"
        );
        state.tcp_works();
        wait_until("both stripes", PROGRAM_LIMIT, || {
            state.client.status()["connections"]["open"] == 2
        });
    }
    state.check();
}

#[test]
fn an_occupied_port_is_told_even_where_its_owner_would_share_it() {
    require_root!();
    let state = Striped::new(2, 2);
    let shared = state.pair.client.inside(|| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        sockopt::set_socket_reuseport(&socket, true).unwrap();
        socket
    });
    let port = shared.local_addr().unwrap().port();
    for (name, forward) in [
        ("again-udp", "udp:7000=127.0.0.1:7000".to_owned()),
        ("again-tcp", "tcp:7000=127.0.0.1:7000".to_owned()),
        ("shared", format!("udp:{port}=127.0.0.1:7000")),
    ] {
        let (place, link) = (state.pair.client.place(), state.server.link());
        let options = ["--connections", "2"];
        let directory = state.directory.path();
        let mut client = Client::start_unconnected(&place, name, &link, &[&forward], &options, directory);
        let status = client.process().wait(PROGRAM_LIMIT).unwrap();
        let told = client.process().stderr();
        assert_eq!(status.code(), Some(UNAVAILABLE), "{told}");
        assert!(
            told.contains("cannot listen at") && told.contains("in use"),
            "{told}"
        );
    }
}
