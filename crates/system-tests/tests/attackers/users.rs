//! Users beside each other: a greedy one on a server at the end of its processor, and changes of many users while
//! somebody sends a gigabit a second.

use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;
use system_tests::flood::Flood;
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::program::gramway_binary;
use system_tests::source::Source;
use system_tests::topology::Pair;
use system_tests::tunnel::{Client, Server};
use system_tests::{require_program, require_root};
use testbed::directory::Directory;
use testbed::namespace::Namespace;
use testbed::programs::run;
use testbed::wait::wait_until;

use super::report::Report;
use crate::many::raise_file_limit;
use crate::scene::{LISTEN, OPEN_LOOPBACK, load};

/// Flows of the greedy user.
const FLOWS: usize = 1_000;

/// Runs of each load, of which the median counts, and how long a run goes that has no end of its own.
const ROUNDS: usize = 3;
const SPAN: Duration = Duration::from_secs(5);

/// Part of all bytes that the user with a single flow has to get: half, less what a run varies.
const PART_MIN: f64 = 0.4;

const PAYLOAD_BYTES: usize = 1_150;

const RELOADS: usize = 10;
const CHANGES: usize = 100;

const USERS: usize = 1_000;
const CHANGE_LIMIT: Duration = Duration::from_secs(1);

/// Sends to everybody who has sent something to it, in turns and as fast as it can, until it is dropped.
struct Flooder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Flooder {
    fn new(namespace: &Namespace, address: &str) -> Self {
        let socket = namespace.inside(|| UdpSocket::bind(address)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let (mut sources, mut buffer) = (Vec::<SocketAddr>::new(), [0; PAYLOAD_BYTES]);
            while !stopped.load(Ordering::Relaxed) {
                while let Ok((_, source)) = socket.recv_from(&mut buffer) {
                    if !sources.contains(&source) {
                        sources.push(source);
                    }
                }
                if sources.is_empty() {
                    thread::yield_now();
                }
                for source in &sources {
                    // What finds no room is lost, as in any flood.
                    let _ = socket.send_to(&buffer, source);
                }
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Flooder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A server, to be dropped before its machine.
struct Scene {
    server: Server,
    pair: Pair,
    directory: Directory,
}

impl Scene {
    /// A server that is started by these words.
    fn new(wrapper: &[&str]) -> Self {
        let (pair, directory) = (Pair::new(1500), Directory::create_for_test().unwrap());
        let wrapper: Vec<_> = wrapper.iter().map(ToString::to_string).collect();
        let (place, files) = (pair.server.place(), directory.path());
        let server = Server::start_by(&wrapper, &place, "server", LISTEN, &OPEN_LOOPBACK, files);
        Self {
            server,
            pair,
            directory,
        }
    }

    fn client(&self, name: &str, link: &str, forwards: &[&str]) -> Client {
        let options = ["--connections", "1"];
        let place = self.pair.client.place();
        Client::start(&place, name, link, forwards, &options, self.directory.path())
    }

    /// A new user who is connected.
    fn user(&self, name: &str, forward: &str) -> Client {
        let link = self.server.user(&["add", name]);
        wait_until("a user in the server", PROGRAM_LIMIT, || {
            !self.status_of(name).is_null()
        });
        self.client(name, &link, &[forward])
    }

    fn status_of(&self, name: &str) -> Value {
        let status = self.server.status();
        let users = status["users"].as_object().unwrap();
        let found = users.values().find(|user| user["name"] == name);
        found.cloned().unwrap_or_default()
    }

    fn number(&self, user: &str, what: &str) -> u64 {
        self.status_of(user)[what].as_u64().unwrap_or(0)
    }
}

#[test]
#[ignore = "measures: `cargo xtask hostile` runs it"]
fn a_thousand_flows_of_one_user_leave_half_of_a_full_processor_to_one_flow_of_another() {
    require_root!();
    require_program!("taskset");
    let _load = load();
    raise_file_limit();
    // One processor, so that the server has one shard for both users.
    let scene = Scene::new(&["taskset", "-c", "0"]);
    let _flooders = ["127.0.0.1:7000", "127.0.0.1:7001"].map(|at| Flooder::new(&scene.pair.server, at));
    let _greedy = scene.user("greedy", "udp:7000=127.0.0.1:7000");
    let _modest = scene.user("modest", "udp:7001=127.0.0.1:7001");
    let sources: Vec<_> = (0..FLOWS)
        .map(|_| Source::new(&scene.pair.client, "127.0.0.1:7000"))
        .collect();
    let single = Source::new(&scene.pair.client, "127.0.0.1:7001");
    wait_until("all flows in the server", 4 * PROGRAM_LIMIT, || {
        sources.iter().for_each(|source| source.send(b"begin"));
        single.send(b"begin");
        scene.number("greedy", "sessions") == FLOWS as u64 && scene.number("modest", "sessions") == 1
    });
    let mut report =
        Report::new("a user with a thousand flows beside one with a single flow, one full processor");
    let mut parts = Vec::new();
    for _ in 0..ROUNDS {
        let bytes = || ["greedy", "modest"].map(|user| scene.number(user, "bytes"));
        let (start, before) = (Instant::now(), bytes());
        thread::sleep(SPAN);
        let (after, seconds) = (bytes(), start.elapsed().as_secs_f64());
        let [greedy, modest] = [0, 1].map(|user| (after[user] - before[user]) as f64 * 8.0 / seconds / 1e6);
        report.tell("Mbit/s of both", format!("{greedy:.0} and {modest:.0}"));
        parts.push(modest / (greedy + modest));
    }
    parts.sort_by(f64::total_cmp);
    let part = parts[ROUNDS / 2];
    report.check(
        "part of the single flow",
        format!("{part:.2}"),
        format!("≥ {PART_MIN}"),
        part >= PART_MIN,
    );
    report.finish();
}

#[test]
#[ignore = "measures: `cargo xtask hostile` runs it"]
fn reloads_and_changes_of_users_cost_no_datagram_of_a_gigabit_a_second() {
    require_root!();
    let _load = load();
    let mut scene = Scene::new(&[]);
    let mut client = scene.client("client", &scene.server.link(), &["udp:7000=127.0.0.1:7000"]);
    scene.server.user(&["add", "somebody"]);
    let reload = |state: &std::path::Path| {
        let mut command = Command::new(gramway_binary());
        run(command.args(["ctl", "reload", "--state"]).arg(state)).unwrap()
    };
    // As many programs that change nothing, because they take processor time, too.
    let change_nothing = || {
        for number in 0..RELOADS + CHANGES {
            if number % (CHANGES / RELOADS + 1) == 0 {
                reload(scene.server.state());
            } else {
                scene.server.user(&["list"]);
            }
        }
    };
    let config = |state: &std::path::Path, idle_seconds: usize| {
        let text = format!("udp_idle_timeout_s = {idle_seconds}\n");
        std::fs::write(state.join("config.toml"), text).unwrap();
    };
    let change = || {
        for number in 0..RELOADS {
            let state = if number % 2 == 0 {
                scene.server.state()
            } else {
                client.state()
            };
            config(state, 200 + number);
            assert!(reload(state).contains("udp_idle_timeout_s: changed"));
            for user in 0..CHANGES / RELOADS / 2 {
                let name = format!("user-{number}-{user}");
                scene.server.user(&["add", &name]);
                scene.server.user(&["remove", &name]);
            }
        }
    };
    let mut report = Report::new("10 reloads and 100 changes of users beside 1 Gbit/s of UDP");
    let (mut without, mut with) = (Vec::new(), Vec::new());
    let beside = |work: &dyn Fn()| {
        let at = "127.0.0.1:7000".parse().unwrap();
        Flood::beside([&scene.pair.client, &scene.pair.server], at, at, work).0
    };
    for _ in 0..ROUNDS {
        let [idle, changed] = [beside(&change_nothing), beside(&change)];
        report.tell("beside programs that change nothing", format!("{idle:?}"));
        report.tell("beside reloads and changes", format!("{changed:?}"));
        without.push(idle.lost());
        with.push(changed.lost());
    }
    // What a change costs is lost at each of them; what the machine loses varies from run to run.
    let [without, with] = [without, with].map(|mut lost| {
        lost.sort_unstable();
        lost[ROUNDS / 2]
    });
    let more = with.saturating_sub(without);
    report.check(
        "lost more, median",
        more,
        format!("< {} (one for each)", RELOADS + CHANGES),
        more < (RELOADS + CHANGES) as u64,
    );
    let totals =
        [scene.server.status(), client.status()].map(|status| status["connections"]["total"].clone());
    report.check(
        "connections of server and client",
        format!("{totals:?}"),
        "1 each",
        totals == [1, 1],
    );
    let is_alive = scene.server.process().is_running() && client.process().is_running();
    report.check("both ends run", is_alive, true, is_alive);
    report.finish();
}

#[test]
#[ignore = "measures: `cargo xtask hostile` runs it"]
fn a_change_of_one_of_a_thousand_users_holds_within_a_second() {
    require_root!();
    let _load = load();
    let scene = Scene::new(&[]);
    for number in 0..USERS {
        scene
            .server
            .user(&["add", &format!("user-{number}"), "--quota", "1T/month"]);
    }
    let mut report = Report::new("changes of one of a thousand users");
    let mut slowest = Duration::ZERO;
    for number in [0, USERS / 2, USERS - 1] {
        let name = format!("user-{number}");
        for (word, is_excluded) in [("disable", true), ("enable", false)] {
            scene.server.user(&[word, &name]);
            let start = Instant::now();
            wait_until("the change in the server", PROGRAM_LIMIT, || {
                scene.status_of(&name)["excluded"].is_null() != is_excluded
            });
            slowest = slowest.max(start.elapsed());
        }
    }
    report.check(
        "until the server has a change, at most",
        format!("{slowest:.2?}"),
        format!("≤ {CHANGE_LIMIT:?}"),
        slowest <= CHANGE_LIMIT,
    );
    report.finish();
}
