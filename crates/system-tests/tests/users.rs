//! Users of a server besides its owner: each comes by a link of its own, and goes without the others noticing.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::program::{PERMISSION, UNAVAILABLE, gramway_binary};
use system_tests::require_root;
use system_tests::service::{Service, connect, try_connect};
use system_tests::source::Source;
use system_tests::topology::Pair;
use system_tests::tunnel::{Client, Server};
use testbed::directory::Directory;
use testbed::programs::run;
use testbed::wait::wait_until;

use crate::scene::{LISTEN, OPEN_LOOPBACK, both, no_load};

/// Within which a user who may do nothing any more is told so.
const END_LIMIT: Duration = Duration::from_secs(5);

/// The forwards of two users.
const ALICES: [&str; 2] = both!("7000");
const BOBS: [&str; 2] = ["udp:7001=127.0.0.1:7000", "tcp:7001=127.0.0.1:7000"];

/// A server with echoes behind it. Processes end before their machines, and files go last.
struct Scene {
    server: Server,
    _echoes: [Service; 2],
    pair: Pair,
    disk: Option<SmallDisk>,
    directory: Directory,
}

/// A disk of a megabyte, mounted until it is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: PathBuf) -> Self {
        std::fs::create_dir(&at).unwrap();
        let mut mount = Command::new("mount");
        run(mount
            .args(["-t", "tmpfs", "-o", "size=1M,mode=0700", "none"])
            .arg(&at))
        .unwrap();
        Self(at)
    }

    fn set_read_only(&self) {
        run(Command::new("mount").args(["-o", "remount,ro"]).arg(&self.0)).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

impl Scene {
    fn new() -> Self {
        Self::start(Directory::create_for_test().unwrap(), None)
    }

    /// With the server's state on a small disk.
    fn on_a_small_disk() -> Self {
        let directory = Directory::create_for_test().unwrap();
        let disk = SmallDisk::mount(directory.path().join("server"));
        Self::start(directory, Some(disk))
    }

    fn start(directory: Directory, disk: Option<SmallDisk>) -> Self {
        let pair = Pair::new(1500);
        let place = pair.server.place();
        let server = Server::start(&place, "server", LISTEN, &OPEN_LOOPBACK, directory.path());
        Self {
            server,
            _echoes: [
                Service::udp_echo(&pair.server, "127.0.0.1:7000"),
                Service::tcp_echo(&pair.server, "127.0.0.1:7000"),
            ],
            pair,
            disk,
            directory,
        }
    }

    fn add(&self, name: &str, words: &[&str]) -> String {
        self.server.user(&[&["add", name][..], words].concat())
    }

    fn client(&self, name: &str, link: &str, forwards: &[&str]) -> Client {
        let place = self.pair.client.place();
        Client::start(
            &place,
            name,
            link,
            forwards,
            &["--connections", "1"],
            self.directory.path(),
        )
    }

    /// Adds a user who connects.
    fn user(&self, name: &str, words: &[&str], forwards: &[&str]) -> Client {
        // A running server knows it a second later, and refuses it until then.
        let link = self.add(name, words);
        wait_until("a user in the server", PROGRAM_LIMIT, || {
            !self.status_of(name).is_null()
        });
        self.client(name, &link, forwards)
    }

    fn ask(&self, listener: &str, payload: &[u8]) {
        Source::new(&self.pair.client, listener).ask(payload, PROGRAM_LIMIT);
    }

    /// The listener is there, and the server refuses its target.
    fn is_turned_away(&self, listener: &str) {
        let opened = try_connect(&self.pair.client, listener);
        let end = opened.and_then(|mut stream| stream.read_exact(&mut [0]));
        let kind = end.unwrap_err().kind();
        let ends = [ErrorKind::ConnectionReset, ErrorKind::UnexpectedEof];
        assert!(ends.contains(&kind), "{listener}: {kind}");
    }

    /// What `status` shows of a user.
    fn status_of(&self, name: &str) -> Value {
        let status = self.server.status();
        let users = status["users"].as_object().unwrap();
        let found = users.values().find(|user| user["name"] == name);
        found.cloned().unwrap_or_default()
    }

    /// Bytes that the database has of a user.
    fn recorded(&self, name: &str) -> u64 {
        let list: Value = serde_json::from_str(&self.server.user(&["list", "--json"])).unwrap();
        let user = list.as_array().unwrap().iter().find(|user| user["name"] == name);
        user.unwrap()["used_bytes"].as_u64().unwrap()
    }
}

fn echo(stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
    let mut answer = vec![0; bytes.len()];
    stream.read_exact(&mut answer).unwrap();
    assert!(answer == bytes);
}

/// Waits until the client has shown this reason.
fn wait_for_reason(client: &mut Client, reason: &str) {
    client.process().wait_for_line(reason, PROGRAM_LIMIT).unwrap();
}

#[test]
fn a_removed_user_is_told_so_within_five_seconds_and_anothers_transfer_goes_on() {
    require_root!();
    let _no_load = no_load();
    let mut scene = Scene::new();
    let mut alice = scene.user("alice", &[], &ALICES);
    let mut bob = scene.user("bob", &[], &BOBS);
    let mut streams =
        ["127.0.0.1:7000", "127.0.0.1:7001"].map(|listener| connect(&scene.pair.client, listener));
    for stream in &mut streams {
        echo(stream, &[7; 100_000]);
    }
    let [mut alices, mut bobs] = streams;
    let transfer = std::thread::spawn(move || {
        let start = Instant::now();
        while start.elapsed() < END_LIMIT {
            echo(&mut bobs, &[9; 100_000]);
        }
    });
    let start = Instant::now();
    scene.server.user(&["remove", "alice"]);
    wait_for_reason(&mut alice, "this user was removed");
    assert!(start.elapsed() <= END_LIMIT, "told after {:?}", start.elapsed());
    assert!(alices.read_exact(&mut [0]).is_err(), "its connection is over");
    // Its link is of no use any more.
    assert_eq!(alice.process().wait(PROGRAM_LIMIT).unwrap().code(), Some(77));
    transfer.join().unwrap();
    scene.ask("127.0.0.1:7001", b"still here");
    assert_eq!(bob.status()["reconnects"], 0);
    assert_eq!(bob.stop(), Some(0));
    let list = scene.server.user(&["list"]);
    assert!(list.starts_with("bob ") && list.lines().count() == 1, "{list}");
    assert_eq!(scene.server.stop(), Some(0));
}

#[test]
fn a_user_who_is_disabled_expired_or_over_its_quota_is_told_so_and_comes_back_when_it_may() {
    require_root!();
    let _no_load = no_load();
    let scene = Scene::new();
    let mut client = scene.user("alice", &[], &ALICES);
    for (words, reason, cure) in [
        (
            &["disable", "alice"][..],
            "this user is disabled",
            &["enable", "alice"][..],
        ),
        (
            &["renew", "alice", "--expires", "1s"],
            "this user has expired",
            &["renew", "alice", "--expires", "never"],
        ),
        (
            &["renew", "alice", "--quota", "1k/day"],
            "this user's quota is used up",
            &["renew", "alice", "--quota", "1G/day"],
        ),
    ] {
        scene.ask("127.0.0.1:7000", reason.as_bytes());
        scene.server.user(words);
        wait_for_reason(&mut client, reason);
        assert_eq!(scene.status_of("alice")["excluded"], reason);
        scene.server.user(cure);
        scene.ask("127.0.0.1:7000", b"back again");
    }
}

#[test]
fn a_user_without_tcp_has_the_rest_and_a_new_link_ends_the_former() {
    require_root!();
    let _no_load = no_load();
    let scene = Scene::new();
    let mut client = scene.user("alice", &["--no-tcp"], &ALICES);
    scene.ask("127.0.0.1:7000", b"by UDP");
    scene.is_turned_away("127.0.0.1:7000");
    let link = scene.server.user(&["link", "alice"]);
    wait_for_reason(&mut client, "this user has a new link");
    assert_eq!(client.process().wait(PROGRAM_LIMIT).unwrap().code(), Some(77));
    let _client = scene.client("again", &link, &ALICES);
    scene.ask("127.0.0.1:7000", b"by the new link");
}

#[test]
fn a_user_reaches_its_networks_alone_by_name_and_by_address() {
    require_root!();
    let _no_load = no_load();
    let scene = Scene::new();
    let _other = Service::tcp_echo(&scene.pair.server, "127.0.0.1:7001");
    let forwards = [
        ALICES[0],
        ALICES[1],
        "tcp:7001=127.0.0.1:7001",
        "tcp:7002=localhost:7000",
        "tcp:7003=localhost:7001",
    ];
    let _alice = scene.user("alice", &["--reach", "127.0.0.0/8:7000"], &forwards);
    scene.ask("127.0.0.1:7000", b"by UDP");
    for (listener, is_reached) in [
        ("127.0.0.1:7000", true),
        ("127.0.0.1:7001", false),
        ("127.0.0.1:7002", true),
        ("127.0.0.1:7003", false),
    ] {
        if is_reached {
            echo(&mut connect(&scene.pair.client, listener), b"by TCP");
        } else {
            scene.is_turned_away(listener);
        }
    }
    // The server's own rules let others reach it.
    let _owner = scene.client("owner", &scene.server.link(), &["tcp:7004=127.0.0.1:7001"]);
    echo(&mut connect(&scene.pair.client, "127.0.0.1:7004"), b"the owner");
}

#[test]
fn a_rate_slows_its_user_alone_until_it_is_taken_back_from_a_live_connection() {
    require_root!();
    let _no_load = no_load();
    let scene = Scene::new();
    let _alice = scene.user("alice", &["--rate", "8M"], &ALICES);
    let _bob = scene.user("bob", &[], &BOBS);
    scene.ask("127.0.0.1:7000", b"by UDP");
    // A megabyte takes a second at that rate.
    let mut stream = connect(&scene.pair.client, "127.0.0.1:7000");
    let start = Instant::now();
    (0..30).for_each(|_| echo(&mut stream, &[7; 100_000]));
    let elapsed = start.elapsed();
    assert!(elapsed > Duration::from_millis(2_800), "3 MB in {elapsed:?}");
    let unlimited = |stream: &mut TcpStream| {
        let start = Instant::now();
        (0..150).for_each(|_| echo(stream, &[9; 100_000]));
        let elapsed = start.elapsed();
        assert!(elapsed < Duration::from_secs(14), "15 MB in {elapsed:?}");
    };
    unlimited(&mut connect(&scene.pair.client, "127.0.0.1:7001"));
    scene.server.user(&["renew", "alice", "--rate", "none"]);
    wait_until("the rate to be gone", PROGRAM_LIMIT, || {
        scene.status_of("alice")["bits_per_second"].is_null()
    });
    unlimited(&mut stream);
}

#[test]
fn use_outlives_a_killed_server_and_users_come_back_by_themselves() {
    require_root!();
    let _no_load = no_load();
    let mut scene = Scene::new();
    let _client = scene.user("alice", &["--quota", "1T/month"], &ALICES);
    echo(
        &mut connect(&scene.pair.client, "127.0.0.1:7000"),
        &[7; 1_000_000],
    );
    wait_until("a record of a megabyte both ways", PROGRAM_LIMIT, || {
        scene.recorded("alice") > 2_000_000
    });
    scene.server.kill();
    let recorded = scene.recorded("alice");
    assert!(recorded > 2_000_000);
    scene.server.start_again();
    let counted = scene.status_of("alice")["used_bytes"].as_u64().unwrap();
    assert!(counted >= recorded, "{counted} of {recorded}");
    scene.ask("127.0.0.1:7000", b"after the kill");
}

#[test]
fn a_damaged_database_is_kept_aside_and_its_users_are_refused_while_the_owner_goes_on() {
    require_root!();
    let _no_load = no_load();
    let mut scene = Scene::new();
    let link = scene.add("alice", &[]);
    assert_eq!(scene.server.stop(), Some(0));
    let state = scene.server.state().to_owned();
    std::fs::write(state.join("users.db"), [0x5a; 20_000]).unwrap();
    scene.server.start_again();
    let told = scene.server.process().stderr();
    assert!(
        told.contains("users.db is damaged") && told.contains("are refused"),
        "{told}"
    );
    let names = std::fs::read_dir(&state)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let aside = names.filter(|name| name.to_string_lossy().starts_with("users.db.damaged-"));
    assert_eq!(aside.count(), 1);
    let place = scene.pair.client.place();
    let mut alice = Client::start_unconnected(&place, "alice", &link, &BOBS, &[], scene.directory.path());
    assert_eq!(alice.process().wait(PROGRAM_LIMIT).unwrap().code(), Some(77));
    let _owner = scene.client("owner", &scene.server.link(), &ALICES);
    scene.ask("127.0.0.1:7000", b"the owner");
    let _alice = scene.user("alice", &[], &BOBS);
    scene.ask("127.0.0.1:7001", b"added again");
}

#[test]
fn a_full_or_read_only_disk_is_told_and_those_who_are_there_go_on() {
    require_root!();
    let _no_load = no_load();
    let mut scene = Scene::on_a_small_disk();
    let _alice = scene.user("alice", &[], &ALICES);
    let state = scene.server.state().to_owned();
    let user = |words: &[&str]| {
        let mut command = Command::new(gramway_binary());
        let output = command
            .arg("user")
            .args(words)
            .arg("--state")
            .arg(&state)
            .output();
        let output = output.unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let filler = state.join("filler");
    // Until nothing more fits.
    std::fs::write(&filler, vec![0; 2 << 20]).unwrap_err();
    let (code, told) = user(&["add", "bob"]);
    assert_eq!(code, Some(UNAVAILABLE), "{told}");
    assert!(told.contains("users.db: the disk is full"), "{told}");
    let warning = "users.db: the disk is full; users who are known are served on, changes wait";
    wait_until("a warning of the server", PROGRAM_LIMIT, || {
        // What alice moves is to be recorded.
        scene.ask("127.0.0.1:7000", b"on a full disk");
        scene.server.process().stderr().contains(warning)
    });
    std::fs::remove_file(&filler).unwrap();
    let again = "the users' database can be used again";
    scene
        .server
        .process()
        .wait_for_line(again, PROGRAM_LIMIT)
        .unwrap();
    assert_eq!(user(&["add", "bob"]).0, Some(0));

    assert_eq!(scene.server.stop(), Some(0));
    scene.disk.as_ref().unwrap().set_read_only();
    let (code, told) = user(&["add", "carol"]);
    assert_eq!(code, Some(PERMISSION), "{told}");
    assert!(told.contains("read-only"), "{told}");
    let mut up = scene.pair.server.place().command(gramway_binary());
    let output = up
        .args(["up", "--listen", LISTEN, "--state"])
        .arg(&state)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(PERMISSION), "{told}");
    assert!(told.contains("read-only") || told.contains("Read-only"), "{told}");
}
