//! Strangers beside honest clients: here all kinds of them at once, by a foreign QUIC stack, beside the traffic of an
//! honest client: UDP and TCP through forwards, and UDP in IP packets. `cargo xtask hostile` runs it for as long as it
//! is told, and the tests of [`lockout`], [`speed`] and [`users`].

mod lockout;
mod report;
mod segments;
mod speed;
mod strangers;
pub(crate) mod syn_flood;
mod users;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use system_tests::conservation::imbalance;
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::topology::{PAIR_SERVER_V4, Pair};
use system_tests::tunnel::{Client, Server};
use system_tests::{require_program, require_python, require_root};
use testbed::directory::Directory;
use testbed::iperf::{self, IperfResult, IperfRun, IperfServer};
use testbed::process::Process;
use testbed::usage::reset_peak;
use testbed::wait::holds_within;

use crate::scene::{LISTEN, OPEN_LOOPBACK, load};
use report::Report;

/// How long the strangers attack, for `cargo xtask hostile`.
const SECONDS_VARIABLE: &str = "GRAMWAY_HOSTILE_SECONDS";
const SECONDS_DEFAULT: u32 = 10;

/// What the honest client sends, in bits per second: UDP through a forward, UDP in IP packets, TCP through a forward.
const UDP_RATE: u64 = 200_000_000;
const PACKET_RATE: u64 = 200_000_000;
const TCP_RATE: u64 = 100_000_000;

/// Part of the rate that TCP has to get of what it gets without strangers.
const TCP_PART_MIN: f64 = 0.9;

const UDP_BYTES: usize = 1_150;

/// Of the honest datagrams, beyond those that are lost without strangers: what a machine at the end of its processors
/// loses by itself, before and after in the same run, says nothing about strangers.
const LOSS_MAX: f64 = 0.01;

/// How long it runs without strangers, before them and after them.
const CALM_SECONDS: u32 = 5;

/// What all strangers together may cost the server, in bytes of resident memory.
const STRANGERS_BYTES_MAX: u64 = 96 << 20;

/// What the server's memory may grow by from the first half of the attack to the second, in bytes: one of the
/// allocator's arenas more for each of two shards.
const GROWTH_BYTES_MAX: u64 = 8 << 20;

/// After which nothing of a stranger is left: the time for its token, and closing.
const FORGOTTEN_LIMIT: Duration = Duration::from_secs(30);

/// How much longer than the honest loads the strangers go on, in seconds: iperf3 takes its time between two loads.
const STRANGERS_LONGER: u32 = 4;

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
            .args(sources.iter().map(ToString::to_string));
        Process::start(command, kind).unwrap()
    };
    ATTACKS.iter().map(start).collect()
}

/// What came of one load, in one run or several.
#[derive(Clone, Default)]
struct Sum {
    sent: u64,
    lost: u64,
    received_bits: f64,
    seconds: f64,
    /// Runs that iperf3 could not finish.
    failed: Vec<String>,
}

impl Sum {
    fn loss(&self) -> f64 {
        self.lost as f64 / self.sent.max(1) as f64
    }

    fn bits_per_second(&self) -> f64 {
        self.received_bits / self.seconds.max(1.0)
    }

    fn add(&mut self, when: &str, result: Result<IperfResult, testbed::Error>) {
        match result {
            Ok(result) => {
                self.sent += result.datagrams;
                self.lost += result.lost_datagrams;
                self.received_bits += result.received_bytes * 8.0;
                self.seconds += result.seconds;
            }
            Err(error) => self.failed.push(format!("{when}: {error}")),
        }
    }
}

/// What came of all loads.
#[derive(Default)]
struct Loads {
    /// UDP, TCP, and UDP in IP packets.
    sums: [Sum; 3],
    /// Datagrams and IP packets that the server has sent on.
    delivered: u64,
}

impl Loads {
    /// Part of the datagrams that the server has not sent on. iperf3's own loss is more by what it was too late to take
    /// from its socket: where it has no processor, as beside anything else that is busy.
    fn loss(&self) -> f64 {
        let sent = self.sums.iter().map(|sum| sum.sent).sum::<u64>().max(1);
        sent.saturating_sub(self.delivered) as f64 / sent as f64
    }
}

/// The loads of the honest client, side by side; `when` is for messages.
fn honest_loads(pair: &Pair, when: &str, seconds: u32, sums: &mut [Sum; 3]) {
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
        let client = &client;
        let started = runs
            .each_ref()
            .map(|run| scope.spawn(move || iperf::run(client, run)));
        for (load, sum) in started.into_iter().zip(sums) {
            sum.add(when, load.join().expect("its panic was printed"));
        }
    });
}

/// Both ends, and what their machines are.
struct Field {
    client: Client,
    server: Server,
    pair: Pair,
    _directory: Directory,
}

impl Field {
    fn new() -> Self {
        let (pair, directory) = (Pair::new(1500), Directory::create_for_test().unwrap());
        let options = [&OPEN_LOOPBACK[..], &SERVING].concat();
        let server = Server::start(&pair.server.place(), "server", LISTEN, &options, directory.path());
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
        Self {
            client,
            server,
            pair,
            _directory: directory,
        }
    }

    /// Runs the loads and adds what came of them.
    fn load(&self, when: &str, seconds: u32, loads: &mut Loads) {
        let delivered = || self.server.status()["egress"]["sent"].as_u64().unwrap_or(0);
        let before = delivered();
        honest_loads(&self.pair, when, seconds, &mut loads.sums);
        loads.delivered += delivered() - before;
    }

    /// The server's largest resident size since the last call, in bytes.
    fn take_peak(&mut self) -> u64 {
        let process = self.server.process();
        let peak = process.usage().peak_bytes;
        reset_peak(process.id());
        peak
    }

    /// Nothing of the strangers is left, and nothing of both ends once they have ended.
    fn check_the_end(&mut self, report: &mut Report, connections_before: &Value) {
        let is_forgotten = holds_within(FORGOTTEN_LIMIT, || {
            self.server.status()["connections"]["open"] == self.client.status()["connections"]["open"]
        });
        report.check("strangers are forgotten", is_forgotten, true, is_forgotten);
        let (client, server) = (self.client.status(), self.server.status());
        for counter in ["offered", "over_rate", "pushed_out"] {
            let what = format!("new connections, {counter}");
            report.tell(what, &server["incoming"][counter]);
        }
        let reconnects = &client["reconnects"];
        report.check("reconnects of the client", reconnects, 0, *reconnects == 0);
        let connections = &client["connections"]["total"];
        let holds = connections == connections_before;
        report.check(
            "connections of the client",
            connections,
            connections_before,
            holds,
        );
        for status in [client, server] {
            let imbalance = imbalance(&status);
            let measured = imbalance.as_deref().unwrap_or("nothing");
            report.check(
                "datagrams unaccounted for",
                measured,
                "nothing",
                imbalance.is_none(),
            );
        }
        for code in [self.client.stop(), self.server.stop()] {
            report.check("exit code", format!("{code:?}"), "Some(0)", code == Some(0));
        }
        let devices = self.pair.server.run("ip", ["-o", "link", "show"]).unwrap();
        let is_gone = !devices.contains("tun0");
        report.check("the TUN is gone", is_gone, true, is_gone);
    }
}

/// Holds what the honest client got beside strangers against what it got without.
fn compare(report: &mut Report, calm: &Loads, attacked: &Loads) {
    let percent =
        |with: f64, without: f64| format!("{:.2} %, {:.2} % without", with * 100.0, without * 100.0);
    let (without, with) = (calm.loss(), attacked.loss());
    report.check(
        "datagrams and IP packets lost",
        percent(with, without),
        format!("≤ {} % more than without", LOSS_MAX * 100.0),
        with <= without + LOSS_MAX,
    );
    let (calm, attacked) = (&calm.sums, &attacked.sums);
    for (name, index) in [("UDP", 0), ("IP packets", 2)] {
        let what = format!("{name}, lost with iperf3's sockets");
        report.tell(what, percent(attacked[index].loss(), calm[index].loss()));
    }
    let (without, with) = (calm[1].bits_per_second(), attacked[1].bits_per_second());
    report.check(
        "TCP",
        format!("{:.1} Mbit/s, {:.1} without", with / 1e6, without / 1e6),
        format!("≥ {TCP_PART_MIN} of that without"),
        with >= TCP_PART_MIN * without && with > 0.0,
    );
    for sum in calm.iter().chain(attacked) {
        for error in &sum.failed {
            report.check("a load", error, "ends by itself", false);
        }
    }
}

#[test]
#[ignore = "loads the machine for as long as `cargo xtask hostile` says"]
fn an_honest_client_hardly_notices_all_attackers_at_once() {
    require_root!();
    require_program!("iperf3");
    let python = require_python!();
    let seconds = std::env::var(SECONDS_VARIABLE).map_or(SECONDS_DEFAULT, |text| text.parse().unwrap());
    let _load = load();
    let mut field = Field::new();
    let (mut calm, mut attacked) = (Loads::default(), Loads::default());
    field.load("before", CALM_SECONDS, &mut calm);
    let own = field.client.status()["connections"]["total"].clone();
    let before = field.take_peak();
    let mut strangers = start_strangers(&field.pair, &python, seconds + STRANGERS_LONGER);
    let mut halves = [0; 2];
    for (peak, when) in halves.iter_mut().zip(["first half", "second half"]) {
        field.load(when, seconds.div_ceil(2), &mut attacked);
        *peak = field.take_peak();
    }
    let mut report = Report::new("all kinds of strangers at once, beside 500 Mbit/s");
    for (stranger, (kind, _)) in strangers.iter_mut().zip(ATTACKS) {
        let limit = Duration::from_secs(u64::from(seconds)) + END_GRACE;
        let has_ended = stranger.wait(limit).is_ok_and(|status| status.success());
        let words = stranger.stderr();
        let measured = if has_ended { stranger.stdout() } else { words };
        let what = format!("{kind} in {} s", seconds + STRANGERS_LONGER);
        report.check(what, measured.trim(), "", has_ended);
    }
    field.load("afterwards", CALM_SECONDS, &mut calm);
    compare(&mut report, &calm, &attacked);
    let mebibytes = |bytes: u64| format!("{} MiB", bytes >> 20);
    report.tell("the server's memory before", mebibytes(before));
    for (peak, name) in halves.into_iter().zip(["first", "second"]) {
        let most = before + STRANGERS_BYTES_MAX;
        let what = format!("in the {name} half");
        report.check(
            what,
            mebibytes(peak),
            format!("≤ {}", mebibytes(most)),
            peak <= most,
        );
    }
    let flat = halves[0] + GROWTH_BYTES_MAX;
    let must = format!("≤ {}", mebibytes(flat));
    report.check("which is flat", mebibytes(halves[1]), must, halves[1] <= flat);
    field.check_the_end(&mut report, &own);
    report.finish();
}
