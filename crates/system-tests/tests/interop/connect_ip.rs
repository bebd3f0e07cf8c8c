//! CONNECT-IP with a stack that we did not write (connect-ip-go), in both roles: addresses, routes, ping and iperf3
//! through TUN devices in two namespaces.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::program::gramway_binary;
use system_tests::topology::{PAIR_SERVER_V4, Pair};
use system_tests::tunnel::{Client, Server};
use system_tests::{require_go, require_program, require_root};
use testbed::directory::Directory;
use testbed::iperf::{self, IperfRun, IperfServer};
use testbed::namespace::Namespace;
use testbed::process::{Process, Signal};
use testbed::programs::run;
use testbed::wait::{wait_for, wait_until};

use super::result_of;

/// The proxy's address in the tunnel, and its network.
const PROXY: &str = "10.99.0.1";
const POOL: &str = "10.99.0.0/24";

/// Port of the proxy on the cable.
const PORT: u16 = 4433;

/// Of one load of iperf3, far below what any machine carries: a tunnel that loses most of it fails.
const BYTES_MIN: f64 = 1_048_576.0;

/// A foreign program in a namespace, and its first line.
fn start_foreign(program: &Path, namespace: &Namespace, arguments: &[&str]) -> (Process, Value) {
    let mut command = namespace.command(program);
    command.args(arguments);
    let mut process = Process::start(command, "foreign").unwrap();
    let line = process.wait_for_line("{", PROGRAM_LIMIT).unwrap();
    let greeting = serde_json::from_str(&line).unwrap();
    (process, greeting)
}

/// Ends it; it has found nothing wrong. What it counted.
fn end_foreign(process: &mut Process) -> Value {
    process.signal(Signal::TERM);
    process.wait(PROGRAM_LIMIT).unwrap();
    result_of(process)["counts"].take()
}

/// Every ping of 1,280 bytes is answered; the hop limit has fallen by one, at the end where the answer was encapsulated
/// (RFC 9484 section 7.1).
fn assert_ping(from: &Namespace, to: &str) {
    let size = "1252";
    let output = from
        .run(
            "ping",
            ["-c", "5", "-i", "0.2", "-W", "5", "-M", "do", "-s", size, to],
        )
        .unwrap();
    assert!(output.contains(" 0% packet loss"), "{output}");
    assert!(output.contains("ttl=63"), "{output}");
}

/// TCP in both directions, and UDP, from `client` to an iperf3 server at [`PROXY`].
fn assert_loads(client: &Namespace, server: &Namespace) {
    let address = SocketAddr::new(PROXY.parse().unwrap(), 5_201);
    let _server = IperfServer::start(&server.place(), address).unwrap();
    for run in [
        IperfRun::tcp(address, 2),
        IperfRun::udp(address, 2, 1150, Some(50_000_000)),
    ] {
        for run in [run.clone(), run.reversed()] {
            let result = iperf::run(&client.place(), &run).unwrap();
            assert!(result.received_bytes > BYTES_MIN, "{run:?}: {result:?}");
        }
    }
}

fn text(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item.as_str().unwrap())
        .collect()
}

/// A foreign client at our server, by token or by the path of `gramway link --masque`.
fn check_foreign_client(programs: &Path, by_token: bool) {
    let directory = Directory::create_for_test().unwrap();
    let pair = Pair::new(1500);
    let listen = format!("{PAIR_SERVER_V4}:{PORT}");
    let options = ["--tun", "--pool", POOL, "--allow-target", PROXY];
    let server = Server::start(
        &pair.server.place(),
        "server",
        &listen,
        &options,
        directory.path(),
    );
    let mut link = Command::new(gramway_binary());
    let description = run(link.args(["link", "--masque", "--state"]).arg(server.state())).unwrap();
    let masque = directory.join("masque").display().to_string();
    std::fs::write(&masque, description).unwrap();
    let token_file = server.state().join("owner.token").display().to_string();
    let mut arguments = vec!["--masque", &masque];
    if by_token {
        arguments.extend(["--token-file", &token_file]);
    }
    let client = programs.join("client");
    let (mut client, told) = start_foreign(&client, &pair.client, &arguments);

    let addresses = text(&told["addresses"]);
    let [address] = addresses.as_slice() else {
        panic!("{told}")
    };
    let address = address.strip_suffix("/32").unwrap();
    assert!(address.starts_with("10.99.0.") && address != PROXY, "{told}");
    // The pool has no IPv6.
    assert_eq!(told["refused"], json!(["::/128"]), "{told}");
    assert_eq!(
        told["routes"],
        json!(["10.99.0.0-10.99.0.255 protocol 0"]),
        "{told}"
    );

    assert_ping(&pair.client, PROXY);
    assert_ping(&pair.server, address);
    assert_loads(&pair.client, &pair.server);
    let counts = end_foreign(&mut client);
    assert!(counts["packets from the peer"].as_u64() > Some(1000), "{counts}");
}

#[test]
fn a_foreign_client_gets_address_route_and_packets_by_its_token() {
    require_root!();
    require_program!("ip", "ping", "iperf3");
    check_foreign_client(&require_go!(), true);
}

#[test]
fn a_foreign_client_gets_address_route_and_packets_by_the_path_of_its_template() {
    require_root!();
    require_program!("ip", "ping", "iperf3");
    check_foreign_client(&require_go!(), false);
}

/// Our client with several connections at a foreign proxy, which would lend each of them another address: one of them
/// carries all packets.
fn check_foreign_proxy(programs: &Path) {
    const CONNECTIONS: &str = "3";
    /// Behind the proxy, in a network that it advertises.
    const BEHIND: &str = "10.98.0.1";
    const LEASE_FIRST: &str = "10.99.0.7";
    const DEVICE: &str = "gramway7";
    /// Within this the device and its routes are gone after the client.
    const REMOVAL_LIMIT: Duration = Duration::from_secs(10);
    let directory = Directory::create_for_test().unwrap();
    let pair = Pair::new(1500);
    pair.server
        .run("ip", ["address", "add", &format!("{BEHIND}/32"), "dev", "lo"])
        .unwrap();
    let listen = format!("{PAIR_SERVER_V4}:{PORT}");
    let own = format!("{PROXY}/24");
    let arguments = [
        "--listen",
        &listen,
        "--own",
        &own,
        "--lease",
        LEASE_FIRST,
        "--routes",
        "10.98.0.0/16",
    ];
    let server = programs.join("server");
    let (mut server, told) = start_foreign(&server, &pair.server, &arguments);
    let mut client = Client::start(
        &pair.client.place(),
        "client",
        told["link"].as_str().unwrap(),
        &[],
        &["--tun", DEVICE, "--connections", CONNECTIONS],
        directory.path(),
    );

    let asked = server.wait_for_line("extensions", PROGRAM_LIMIT).unwrap();
    let asked: Value = serde_json::from_str(&asked).unwrap();
    let extensions = &asked["extensions"];
    let name = extensions["Gramway-Client"][0].as_str().unwrap();
    assert_eq!(name.split(';').next().unwrap().len(), 22, "{asked}");
    assert_eq!(extensions["Gramway-Split"], json!(["2"]), "{asked}");
    assert_eq!(extensions["Gramway-Checksum"], json!(["4"]), "{asked}");
    assert_eq!(extensions.as_object().unwrap().len(), 3, "{asked}");

    let shows = |arguments: &[&str], wanted: &str| pair.client.run("ip", arguments).unwrap().contains(wanted);
    let warning = client
        .process()
        .wait_for_line("IP packets use one of the 3", PROGRAM_LIMIT)
        .unwrap();
    assert!(warning.contains("not Gramway"), "{warning}");
    let lease = wait_for("a leased address", PROGRAM_LIMIT, || {
        let shown = pair
            .client
            .run("ip", ["-o", "-4", "address", "show", "dev", DEVICE])
            .unwrap();
        let mut addresses = shown.split_whitespace().skip_while(|word| *word != "inet");
        let (address, _) = addresses.nth(1)?.split_once('/')?;
        Some(address.to_owned())
    });
    for network in ["10.98.0.0/16", POOL] {
        wait_until("an advertised route", PROGRAM_LIMIT, || {
            shows(
                &["route", "show", "table", "all"],
                &format!("{network} dev {DEVICE}"),
            )
        });
    }
    for address in [PROXY, BEHIND] {
        assert_ping(&pair.client, address);
    }
    assert_ping(&pair.server, &lease);
    assert_loads(&pair.client, &pair.server);
    assert!(
        shows(&["address", "show", "dev", DEVICE], &lease),
        "{lease} was taken away"
    );
    let told = client.process().stderr();
    assert!(!told.contains("assigned no address"), "{told}");

    assert_eq!(client.stop(), Some(0));
    wait_until("the end of the device", REMOVAL_LIMIT, || {
        !shows(&["-o", "link", "show"], DEVICE)
    });
    let counts = end_foreign(&mut server);
    for what in ["connect-ip", "ended connect-ip", "address requests"] {
        assert_eq!(counts[what], 1, "{what}: {counts}");
    }
    assert_eq!(counts["packets too big"], Value::Null, "{counts}");
}

#[test]
fn our_client_takes_address_and_routes_of_a_foreign_proxy_and_exchanges_packets() {
    require_root!();
    require_program!("ip", "ping", "iperf3");
    check_foreign_proxy(&require_go!());
}
