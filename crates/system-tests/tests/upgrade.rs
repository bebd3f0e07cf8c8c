//! `gramway ctl upgrade` and `gramway ctl drain` with real programs: what runs goes on, and the next process serves.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use system_tests::flood::Flood;
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::program::{UNAVAILABLE, gramway_binary};
use system_tests::require_root;
use system_tests::service::{Service, connect};
use system_tests::source::Source;
use system_tests::topology::Pair;
use system_tests::tunnel::{Client, Server};
use testbed::directory::Directory;
use testbed::programs::run;
use testbed::wait::{wait_for, wait_until};

use crate::confinement::{NET_ADMIN, NET_BIND_SERVICE, assert_confined, threads};
use crate::scene::{LISTEN, OPEN_LOOPBACK, both};

/// TCP connections through the tunnel that an upgrade must not end.
const STREAMS: usize = 20;

/// A process that no test started, which ends with the test all the same.
struct Successor(Pid);

impl Successor {
    /// Its state, as proc(5) abbreviates it.
    fn state(&self) -> Option<char> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.as_raw_nonzero())).ok()?;
        let (_, fields) = stat.rsplit_once(") ")?;
        fields.chars().next()
    }

    /// The command line of its parent.
    fn parent(&self) -> String {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.as_raw_nonzero())).unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        let parent = fields.split_whitespace().nth(1).unwrap();
        fs::read_to_string(format!("/proc/{parent}/cmdline")).unwrap()
    }

    /// Whether it runs; nobody may have asked how it ended.
    fn is_alive(&self) -> bool {
        self.state().is_some_and(|state| state != 'Z')
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
    }
}

fn ctl(words: &[&str], server: &Server) -> Command {
    let mut command = Command::new(gramway_binary());
    command.arg("ctl").args(words).arg("--state").arg(server.state());
    command
}

/// The server processes that answer.
fn servers(server: &Server) -> Vec<Value> {
    let mut command = Command::new(gramway_binary());
    let status = run(command.args(["status", "--json", "--state"]).arg(server.state())).unwrap();
    let status: Value = serde_json::from_str(&status).unwrap();
    status["processes"].as_array().unwrap().clone()
}

fn echo(stream: &mut TcpStream, text: &[u8; 5]) {
    stream.write_all(text).unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, text);
}

/// Asks without a pause until `is_over`.
fn keep_asking(source: &mut Source, is_over: &AtomicBool) {
    for number in 0_u64.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let _ = source.try_ask(&number.to_be_bytes(), Duration::from_millis(200));
    }
}

#[test]
fn an_upgrade_under_way_ends_no_stream_and_the_new_process_serves() {
    require_root!();
    let (pair, directory) = (Pair::new(1500), Directory::create_for_test().unwrap());
    let files = directory.path();
    let _udp = Service::udp_echo(&pair.server, "127.0.0.1:7000");
    let _tcp = Service::tcp_echo(&pair.server, "127.0.0.1:7000");
    let options = [&OPEN_LOOPBACK[..], &["--metrics", "127.0.0.1:9000"]].concat();
    let mut server = Server::start(&pair.server.place(), "server", LISTEN, &options, files);
    let client = Client::start(
        &pair.client.place(),
        "client",
        &server.link(),
        &both!("7000"),
        &[],
        files,
    );
    let former = server.process().id();
    let mut streams: Vec<_> = (0..STREAMS)
        .map(|_| connect(&pair.client, "127.0.0.1:7000"))
        .collect();
    streams.iter_mut().for_each(|stream| echo(stream, b"first"));
    let mut source = Source::new(&pair.client, "127.0.0.1:7000");
    source.ask(b"before", PROGRAM_LIMIT);

    let is_over = AtomicBool::new(false);
    let told = thread::scope(|scope| {
        scope.spawn(|| keep_asking(&mut source, &is_over));
        let told = run(&mut ctl(&["upgrade", "--timeout", "600"], &server)).unwrap();
        // The former process has nothing but the streams in the end.
        wait_until("the move of the UDP session", PROGRAM_LIMIT, || {
            let processes = servers(&server);
            let open = |process: &&Value| process["udp_sessions"]["open"] != 0;
            processes
                .iter()
                .find(open)
                .is_some_and(|process| process["pid"] != former)
                && processes.iter().filter(open).count() == 1
        });
        is_over.store(true, Ordering::Relaxed);
        told
    });
    let words: Vec<_> = told.split_whitespace().collect();
    assert!(
        told.starts_with("server: process ") && told.contains("has taken over"),
        "{told}"
    );
    let next: i32 = words[2].parse().unwrap();
    let successor = Successor(Pid::from_raw(next).unwrap());
    // Whoever waits for it is not the launcher: a service manager is to learn how it ends.
    assert!(
        !successor.parent().contains("_launcher"),
        "{}",
        successor.parent()
    );

    // It is the same session still.
    source.ask(b"moved", PROGRAM_LIMIT);
    assert_eq!(client.status()["udp_sessions"]["total"], 1, "{}", client.status());

    // Streams go on where they were, and new ones begin in the new process.
    streams.iter_mut().for_each(|stream| echo(stream, b"after"));
    let mut late = connect(&pair.client, "127.0.0.1:7000");
    echo(&mut late, b"newer");
    let processes = servers(&server);
    let of = |pid: u32| processes.iter().find(|process| process["pid"] == pid).unwrap();
    assert_eq!(of(former)["state"], "draining");
    assert_eq!(of(former)["tcp"]["open"], STREAMS);
    let present = of(u32::try_from(next).unwrap());
    assert_eq!(
        (&present["state"], &present["tcp"]["open"]),
        (&"listening".into(), &1.into())
    );
    assert!(
        present["classified"]["predecessor"].as_u64().unwrap() > 0,
        "{present}"
    );
    let page = pair
        .server
        .run("curl", ["-s", "http://127.0.0.1:9000/metrics"])
        .unwrap();
    assert!(page.contains("gramway_tcp_connections_opened_total "), "{page}");

    // A second upgrade goes from the new process to another one, while the streams are in the first one.
    let told = run(&mut ctl(&["upgrade", "--timeout", "0"], &server)).unwrap();
    let third: i32 = told.split_whitespace().nth(2).unwrap().parse().unwrap();
    let third = Successor(Pid::from_raw(third).unwrap());
    source.ask(b"third", PROGRAM_LIMIT);
    // Its connections have had their time, and the first process is reached through it.
    let mut rest = Vec::new();
    late.read_to_end(&mut rest).unwrap_err();
    streams.iter_mut().for_each(|stream| echo(stream, b"still"));
    let processes = servers(&server);
    assert_eq!(processes.len(), 3, "{processes:?}");

    // With the streams the first process ends, then the second one, and nobody notices.
    drop(streams);
    let ended = server.process().wait(PROGRAM_LIMIT).unwrap();
    assert_eq!(ended.code(), Some(0));
    assert!(server.process().stderr().contains("ended after"));
    wait_until("the end of the second process", PROGRAM_LIMIT, || {
        !successor.is_alive()
    });
    source.ask(b"alone", PROGRAM_LIMIT);
    assert!(third.is_alive());
}

#[test]
fn a_program_that_cannot_take_over_changes_nothing() {
    require_root!();
    let (pair, directory) = (Pair::new(1500), Directory::create_for_test().unwrap());
    let files = directory.path();
    let _udp = Service::udp_echo(&pair.server, "127.0.0.1:7000");
    let config = directory.write("server.toml", "").unwrap();
    let options = [&OPEN_LOOPBACK[..], &["--config", config.to_str().unwrap()]].concat();
    let mut server = Server::start(&pair.server.place(), "server", LISTEN, &options, files);
    let forwards = ["udp:7000=127.0.0.1:7000"];
    let _client = Client::start(
        &pair.client.place(),
        "client",
        &server.link(),
        &forwards,
        &[],
        files,
    );
    let mut source = Source::new(&pair.client, "127.0.0.1:7000");
    source.ask(b"before", PROGRAM_LIMIT);
    fs::write(&config, "listne = 1\n").unwrap();
    let told = run(&mut ctl(&["upgrade"], &server)).unwrap_err().to_string();
    assert!(
        told.contains("it is not upgraded") && told.contains("listne"),
        "{told}"
    );
    source.ask(b"after", PROGRAM_LIMIT);
    fs::write(&config, "").unwrap();
    assert_eq!(server.status()["state"], "listening");

    // A drain ends the process when its client has given up, at the latest after its time.
    let told = run(&mut ctl(&["drain", "--timeout", "1"], &server)).unwrap();
    assert!(told.starts_with("server: draining: "), "{told}");
    assert_eq!(server.process().wait(PROGRAM_LIMIT).unwrap().code(), Some(0));
    wait_for("nobody's answer", PROGRAM_LIMIT, || {
        let refused = run(&mut ctl(&["drain"], &server)).unwrap_err().to_string();
        refused
            .contains("no server that answers is running")
            .then_some(())
    });
}

/// A wrapper of a server that runs a copy of the program at this path, which a test can replace.
fn copied_to(program: &Path) -> [String; 4] {
    let script = r#"cp "$1" "$0" && shift && exec "$0" "$@""#;
    ["sh", "-c", script, program.to_str().unwrap()].map(str::to_owned)
}

#[test]
fn a_new_process_that_is_too_slow_ends_when_it_goes_on_and_the_former_one_serves() {
    require_root!();
    let (pair, directory) = (Pair::new(1500), Directory::create_for_test().unwrap());
    let files = directory.path();
    let _udp = Service::udp_echo(&pair.server, "127.0.0.1:7000");
    let program = files.join("gramway");
    let wrapper = copied_to(&program);
    let place = pair.server.place();
    let server = Server::start_by(&wrapper, &place, "server", LISTEN, &OPEN_LOOPBACK, files);
    let (link, forwards) = (server.link(), ["udp:7000=127.0.0.1:7000"]);
    let _client = Client::start(&pair.client.place(), "client", &link, &forwards, &[], files);
    let mut source = Source::new(&pair.client, "127.0.0.1:7000");
    source.ask(b"before", PROGRAM_LIMIT);

    // The new process stops before it does anything. Outside of the state directory it can write nothing.
    let [process, code] = ["process", "code"].map(|name| server.state().join(name));
    let outside = files.join("outside");
    let script = format!(
        "#!/bin/sh\ntouch {outside}\necho $$ > {process}.new && mv {process}.new {process}\nkill -STOP $$\n\
         {real} \"$@\"\necho $? > {code}.new && mv {code}.new {code}\n",
        outside = outside.display(),
        process = process.display(),
        real = gramway_binary().display(),
        code = code.display(),
    );
    fs::remove_file(&program).unwrap();
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut upgrade = ctl(&["upgrade", "--start-timeout", "1"], &server);
    let told = run(&mut upgrade).unwrap_err().to_string();
    assert!(told.contains("it is not upgraded"), "{told}");
    wait_until("the new process", PROGRAM_LIMIT, || process.exists());
    let late = fs::read_to_string(&process).unwrap().trim().parse().unwrap();
    let late = Successor(Pid::from_raw(late).unwrap());
    wait_until("its stop", PROGRAM_LIMIT, || late.state() == Some('T'));
    kill_process(late.0, Signal::CONT).unwrap();
    wait_until("its end", PROGRAM_LIMIT, || code.exists());
    assert_eq!(fs::read_to_string(&code).unwrap().trim(), UNAVAILABLE.to_string());
    source.ask(b"after", PROGRAM_LIMIT);
    let processes = servers(&server);
    assert_eq!(processes.len(), 1);
    assert_eq!(processes[0]["state"], "listening");
    assert_eq!(
        processes[0]["classified"]["dropped"],
        json!({}),
        "nobody else has IDs of ours"
    );

    assert!(!outside.exists());

    // The next one is quicker, and confined as the first one was, whatever that one could write since.
    fs::write(server.state().join("config.toml"), "sandbox = false\n").unwrap();
    fs::remove_file(&program).unwrap();
    fs::copy(gramway_binary(), &program).unwrap();
    let told = run(&mut ctl(&["upgrade"], &server)).unwrap();
    let next: i32 = told.split_whitespace().nth(2).unwrap().parse().unwrap();
    let next = Successor(Pid::from_raw(next).unwrap());
    source.ask(b"next", PROGRAM_LIMIT);
    let threads = threads(next.0.as_raw_nonzero().get().unsigned_abs());
    assert_confined(&threads, NET_BIND_SERVICE | NET_ADMIN);
}

/// What an upgrade is to cost under load. It needs two idle cores and the released program.
#[test]
#[ignore = "a measurement: cargo test --workspace --test system -- --ignored --nocapture under_a_gigabit"]
fn an_upgrade_under_a_gigabit_of_udp_and_twenty_streams_has_no_gap_of_a_tenth_of_a_second() {
    require_root!();
    let (pair, directory) = (Pair::new(1500), Directory::create_for_test().unwrap());
    let files = directory.path();
    let _tcp = Service::tcp_echo(&pair.server, "127.0.0.1:7000");
    let mut server = Server::start(&pair.server.place(), "server", LISTEN, &OPEN_LOOPBACK, files);
    let link = server.link();
    let client = Client::start(&pair.client.place(), "client", &link, &both!("7000"), &[], files);
    let entrance = "127.0.0.1:7000".parse().unwrap();
    let (is_over, broken) = (AtomicBool::new(false), AtomicUsize::new(0));
    let upgrade_beside_streams = || {
        thread::scope(|scope| {
            for _ in 0..STREAMS {
                scope.spawn(|| {
                    let mut stream = connect(&pair.client, "127.0.0.1:7000");
                    let (content, mut answer) = ([3; 16 << 10], [0; 16 << 10]);
                    while !is_over.load(Ordering::Relaxed) {
                        let echoed = stream
                            .write_all(&content)
                            .and_then(|()| stream.read_exact(&mut answer));
                        if echoed.is_err() || answer != content {
                            broken.fetch_add(1, Ordering::Relaxed);
                            return;
                        }
                        thread::sleep(Duration::from_millis(20));
                    }
                });
            }
            thread::sleep(Duration::from_secs(3));
            let told = run(&mut ctl(&["upgrade", "--timeout", "600"], &server)).unwrap();
            thread::sleep(Duration::from_secs(5));
            is_over.store(true, Ordering::Relaxed);
            told
        })
    };
    let (flood, told) = Flood::beside(
        [&pair.client, &pair.server],
        entrance,
        entrance,
        upgrade_beside_streams,
    );
    let next: i32 = told.split_whitespace().nth(2).unwrap().parse().unwrap();
    let _successor = Successor(Pid::from_raw(next).unwrap());
    println!("{flood:?}, {} lost", flood.lost());
    println!("{} of {STREAMS} streams lost", broken.load(Ordering::Relaxed));
    assert_eq!(broken.load(Ordering::Relaxed), 0);
    assert!(flood.longest_gap <= Duration::from_millis(100));
    assert_eq!(client.status()["tcp"]["failed"], 0);
    server.kill();
}
