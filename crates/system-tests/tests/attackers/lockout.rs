//! Somebody new comes while masses of strangers shake hands, at the rates of `crates/quic/tests/lockout.rs`, which
//! shows the same on virtual time: here with the whole program, sockets, and a processor that the strangers use up,
//! too.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use system_tests::limits::PROGRAM_LIMIT;
use system_tests::require_root;
use system_tests::topology::{PAIR_SERVER_V4, Pair};
use system_tests::tunnel::{Client, Server, pin_of};
use testbed::directory::Directory;
use testbed::wait::holds_within;

use super::report::Report;
use super::strangers::{Attack, Kind, Strangers};
use crate::scene::{LISTEN, OPEN_LOOPBACK, load};

/// Handshakes a second that stall once the address is proved, and the networks that they come from.
const STALLED_PER_SECOND: u32 = 300;
const STALLED_NETWORKS: u8 = 64;

/// Handshakes a second that one network completes, without a token.
const COMPLETED_PER_SECOND: u32 = 1_500;
const COMPLETING_ADDRESSES: u8 = 8;

/// Threads of each: an attempt waits for the server's answer, a slow server's too.
const STALLED_THREADS: usize = 8;
const COMPLETED_THREADS: usize = 24;

/// How long both go on before somebody new comes: a handshake's time, after which the places of strangers are taken.
const BEFORE: Duration = Duration::from_secs(4);

/// Clients of networks that were never here, one after the other.
const HONEST: u8 = 20;

const FORWARD: &str = "udp:7000=127.0.0.1:7000";

/// From the start of its process until it says that it is connected.
const CONNECTED_MAX: Duration = Duration::from_secs(2);

/// Puts an address of a network that was never here in front of everything that the client's machine sends.
fn come_from(pair: &Pair, address: IpAddr) {
    let route = [
        "route",
        "replace",
        PAIR_SERVER_V4,
        "dev",
        "eth0",
        "src",
        &address.to_string(),
    ];
    pair.client.run("ip", route).unwrap();
}

/// How long a new client takes until it is connected; `None` where that is longer than the limit.
fn connect(pair: &Pair, number: u8, link: &str, files: &Directory) -> Option<Duration> {
    let (name, start) = (format!("client{number}"), Instant::now());
    let place = pair.client.place();
    let mut client = Client::start_unconnected(&place, &name, link, &[FORWARD], &[], files.path());
    let connected = client
        .process()
        .wait_for_starts("connected", 1, PROGRAM_LIMIT)
        .is_ok()
        .then(|| start.elapsed());
    client.stop();
    connected
}

#[test]
#[ignore = "loads the machine: `cargo xtask hostile` runs it"]
fn somebody_new_is_connected_within_two_seconds_among_masses_of_strangers() {
    require_root!();
    let _load = load();
    let (pair, directory) = (Pair::new(1500), Directory::create_for_test().unwrap());
    let stalling = pair.add_networks(80, STALLED_NETWORKS);
    let completing = pair.add_addresses(81, COMPLETING_ADDRESSES);
    let new = pair.add_networks(82, HONEST);
    let mut server = Server::start(
        &pair.server.place(),
        "server",
        LISTEN,
        &OPEN_LOOPBACK,
        directory.path(),
    );
    let link = server.link();
    let attack = |kind, sources: Vec<IpAddr>, per_second, threads| Attack {
        kind,
        server: LISTEN.parse().unwrap(),
        pin: pin_of(&link),
        sources,
        per_second,
        threads,
    };
    let attacks = [
        attack(Kind::Stalls, stalling, STALLED_PER_SECOND, STALLED_THREADS),
        attack(
            Kind::Completes,
            completing,
            COMPLETED_PER_SECOND,
            COMPLETED_THREADS,
        ),
    ];
    let strangers = attacks
        .each_ref()
        .map(|attack| Strangers::start(&pair.client, attack));
    let (start, busy_before) = (Instant::now(), server.process().usage().cpu_seconds);
    std::thread::sleep(BEFORE);
    let mut times = Vec::new();
    for (number, address) in (0..).zip(new) {
        come_from(&pair, address);
        times.push(connect(&pair, number, &link, &directory));
    }
    let busy = (server.process().usage().cpu_seconds - busy_before) / start.elapsed().as_secs_f64();
    let rates = strangers.map(Strangers::end);

    let mut report = Report::new("somebody new among masses of strangers");
    for (attack, rate) in attacks.iter().zip(rates) {
        let what = format!("{:?} from {} addresses", attack.kind, attack.sources.len());
        report.tell(what, format!("{rate:.0}/s of {}", attack.per_second));
    }
    let incoming = &server.status()["incoming"];
    for counter in ["offered", "over_rate", "pushed_out"] {
        report.tell(format!("new connections, {counter}"), &incoming[counter]);
    }
    report.tell("processors that the server used", format!("{busy:.2}"));
    let in_time = times.iter().flatten().filter(|time| **time <= CONNECTED_MAX);
    let in_time = in_time.count();
    let measured = format!("{in_time} of {HONEST}");
    let must = format!("{HONEST} within {CONNECTED_MAX:?}");
    report.check(
        "new clients connected",
        measured,
        must,
        in_time == usize::from(HONEST),
    );
    let longest = times.iter().max_by_key(|time| time.unwrap_or(Duration::MAX));
    report.tell("the longest took", format!("{:?}", longest.copied().flatten()));
    let is_forgotten = holds_within(PROGRAM_LIMIT, || server.status()["connections"]["open"] == 0);
    report.check("strangers are forgotten", is_forgotten, true, is_forgotten);
    let code = server.stop();
    report.check("the server ends", format!("{code:?}"), "Some(0)", code == Some(0));
    report.finish();
}
