//! All kinds of strangers at once, by a foreign QUIC stack, beside the traffic of an honest client: UDP and TCP through
//! forwards, and UDP in IP packets. `cargo xtask hostile` runs it for as long as it is told.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use system_tests::conservation::assert_conserved;
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::topology::{PAIR_SERVER_V4, Pair};
use system_tests::tunnel::{Client, Server};
use system_tests::{require_program, require_python, require_root};
use testbed::directory::Directory;
use testbed::iperf::{self, IperfResult, IperfRun, IperfServer};
use testbed::process::Process;
use testbed::usage::reset_peak;
use testbed::wait::wait_until;

use crate::scene::{LISTEN, OPEN_LOOPBACK, load};

/// How long the strangers attack, for `cargo xtask hostile`.
const SECONDS_VARIABLE: &str = "GRAMWAY_HOSTILE_SECONDS";
const SECONDS_DEFAULT: u32 = 10;

/// What the honest client sends, in bits per second: UDP through a forward, UDP in IP packets, TCP through a forward.
const UDP_RATE: u64 = 200_000_000;
const PACKET_RATE: u64 = 200_000_000;
const TCP_RATE: u64 = 100_000_000;

/// Part of its rate that TCP has to get.
const TCP_PART_MIN: f64 = 0.9;

const UDP_BYTES: usize = 1_150;

/// Of the honest datagrams.
const LOSS_MAX: f64 = 0.01;

/// What all strangers together may cost the server, in bytes of resident memory.
const STRANGERS_BYTES_MAX: u64 = 96 << 20;

/// After which nothing of a stranger is left: the time for its token, and closing.
const FORGOTTEN_LIMIT: Duration = Duration::from_secs(30);

/// For a stranger to end after its time.
const END_GRACE: Duration = Duration::from_secs(60);

/// Kinds of attacks, and how often a second each.
const ATTACKS: [(&str, u32); 6] = [
    ("stalls", 100),
    ("gaps", 5),
    ("completes", 20),
    ("tokens", 5),
    ("garbage", 100),
    ("resets", 100),
];

/// Addresses of the loads: forwards of both protocols, one each, and the server's own address in the tunnel.
const UDP_FORWARD: &str = "127.0.0.1:5201";
const TCP_FORWARD: &str = "127.0.0.1:5202";
const IN_TUNNEL: &str = "10.9.0.1:5203";

const FORWARDS: [&str; 3] = [
    "udp:5201=127.0.0.1:5201",
    "tcp:5201=127.0.0.1:5201",
    "tcp:5202=127.0.0.1:5202",
];

const SERVING: [&str; 5] = [
    "--tun=tun0",
    "--pool",
    "10.9.0.0/24",
    "--allow-target",
    "10.9.0.1/32",
];

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Starts every kind of stranger, from networks behind the client's machine.
fn start_strangers(pair: &Pair, python: &Path, seconds: u32) -> Vec<Process> {
    let sources = pair.add_stranger_networks();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/strangers.py");
    let start = |(kind, rate): &(&str, u32)| {
        // Strangers elsewhere would take no time of this machine's processors to make their packets.
        let mut command = pair.client.command("nice");
        command
            .args(["-n", "19"])
            .arg(python)
            .arg(&script)
            .args([PAIR_SERVER_V4, "4433", kind]);
        command
            .args([seconds.to_string(), rate.to_string()])
            .args(&sources);
        Process::start(command, kind).unwrap()
    };
    ATTACKS.iter().map(start).collect()
}

/// The loads of the honest client, side by side: UDP, TCP, and UDP in IP packets.
fn honest_loads(pair: &Pair, seconds: u32) -> [IperfResult; 3] {
    let runs = [
        IperfRun::udp(address(UDP_FORWARD), seconds, UDP_BYTES, Some(UDP_RATE)),
        IperfRun {
            tcp_rate_max: Some(TCP_RATE),
            ..IperfRun::tcp(address(TCP_FORWARD), seconds)
        },
        IperfRun::udp(address(IN_TUNNEL), seconds, UDP_BYTES, Some(PACKET_RATE)),
    ];
    let (client, server) = (pair.client.place(), pair.server.place());
    let _servers = runs
        .each_ref()
        .map(|run| IperfServer::start(&server, run.address).unwrap());
    std::thread::scope(|scope| {
        let started = runs
            .each_ref()
            .map(|run| scope.spawn(|| iperf::run(&client, run).unwrap()));
        started.map(|load| load.join().expect("its panic was printed"))
    })
}

#[test]
#[ignore = "loads the machine for as long as `cargo xtask hostile` says"]
fn an_honest_client_hardly_notices_all_attackers_at_once() {
    require_root!();
    require_program!("iperf3");
    let python = require_python!();
    let seconds = std::env::var(SECONDS_VARIABLE).map_or(SECONDS_DEFAULT, |text| text.parse().unwrap());
    let _load = load();
    let (pair, directory) = (Pair::new(1500), Directory::create_for_test().unwrap());
    let options = [&OPEN_LOOPBACK[..], &SERVING].concat();
    let mut server = Server::start(&pair.server.place(), "server", LISTEN, &options, directory.path());
    let (place, link) = (pair.client.place(), server.link());
    let mut client = Client::start(
        &place,
        "client",
        &link,
        &FORWARDS,
        &["--tun=tun0"],
        directory.path(),
    );
    client.process().wait_for_starts("TUN", 1, PROGRAM_LIMIT).unwrap();
    let calm = honest_loads(&pair, 5);
    let before = server.process().usage().peak_bytes;
    reset_peak(server.process().id());
    let mut strangers = start_strangers(&pair, &python, seconds + 2);
    let loads = honest_loads(&pair, seconds);
    for stranger in &mut strangers {
        let status = stranger
            .wait(Duration::from_secs(u64::from(seconds)) + END_GRACE)
            .unwrap();
        assert!(status.success(), "{}", stranger.stderr());
    }
    let peak = server.process().usage().peak_bytes;
    println!("without strangers {calm:#?}\nwith them {loads:#?}");
    for (stranger, (kind, _)) in strangers.iter().zip(ATTACKS) {
        println!("{kind}: {} times", stranger.stdout().trim());
    }
    println!("memory of the server: {before} bytes at most before, {peak} with strangers");
    for load in [&loads[0], &loads[2]] {
        assert!(load.loss <= LOSS_MAX, "lost too much: {load:?}");
    }
    assert!(
        loads[1].receiver_bits_per_second >= TCP_PART_MIN * TCP_RATE as f64,
        "{:?}",
        loads[1]
    );
    assert!(
        peak <= before + STRANGERS_BYTES_MAX,
        "{before} bytes before, {peak} with strangers"
    );
    let own = client.status()["connections"]["total"].clone();
    wait_until("the end of all strangers", FORGOTTEN_LIMIT, || {
        server.status()["connections"]["open"] == client.status()["connections"]["open"]
    });
    assert_eq!(client.status()["reconnects"], 0, "{}", client.status());
    assert_eq!(client.status()["connections"]["total"], own);
    assert_conserved(&client.status());
    assert_conserved(&server.status());
    assert_eq!((client.stop(), server.stop()), (Some(0), Some(0)));
    let devices = pair.server.run("ip", ["-o", "link", "show"]).unwrap();
    assert!(!devices.contains("tun0"), "left: {devices}");
}
