//! Under a service manager: what it is told, over a socket that a test holds in its place, and the units for it.

use std::cell::RefCell;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;

use system_tests::limits::PROGRAM_LIMIT;
use system_tests::program::{CONFIGURATION, UNAVAILABLE, USAGE, gramway_binary};
use system_tests::topology::Pair;
use system_tests::tunnel::{Client, Server};
use system_tests::{require_machine, require_program, require_root};
use testbed::directory::Directory;
use testbed::machine::Machine;
use testbed::process::{Process, Signal};
use testbed::programs::run;
use testbed::wait::wait_until;

use crate::scene::LISTEN;

/// Takes what the program says, as systemd does.
struct Manager {
    socket: UnixDatagram,
    heard: RefCell<Vec<String>>,
    /// What starts a program that is watched.
    wrapper: [String; 3],
}

impl Manager {
    fn new(directory: &Path, name: &str) -> Self {
        let path = directory.join(name);
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let place = format!("NOTIFY_SOCKET={}", path.display());
        Self {
            socket,
            heard: RefCell::default(),
            wrapper: ["env".to_owned(), place, "WATCHDOG_USEC=300000".to_owned()],
        }
    }

    /// How often this was said up to now.
    fn count(&self, line: &str) -> usize {
        let mut bytes = [0; 4_096];
        let mut heard = self.heard.borrow_mut();
        while let Ok(length) = self.socket.recv(&mut bytes) {
            let text = String::from_utf8(bytes[..length].to_vec()).unwrap();
            heard.extend(text.lines().map(str::to_owned));
        }
        heard.iter().filter(|said| *said == line).count()
    }

    fn wait_for(&self, line: &str) {
        wait_until(line, PROGRAM_LIMIT, || self.count(line) > 0);
    }
}

#[test]
fn both_ends_say_that_they_are_ready_and_live_and_that_they_end_and_no_address() {
    require_root!();
    let (pair, directory) = (Pair::new(1500), Directory::create_for_test().unwrap());
    let files = directory.path();
    let managers = ["server.notify", "client.notify"].map(|name| Manager::new(files, name));
    let [of_server, of_client] = &managers;
    let place = pair.server.place();
    let mut server = Server::start_by(&of_server.wrapper, &place, "server", LISTEN, &[], files);
    let place = pair.client.place();
    let forwards = ["udp:5000=127.0.0.1:5000"];
    let wrapper = &of_client.wrapper;
    let mut client =
        Client::start_unconnected_by(wrapper, &place, "client", &server.link(), &forwards, &[], files);
    of_client.wait_for("STATUS=connected");
    for manager in &managers {
        manager.wait_for("READY=1");
        let before = manager.count("WATCHDOG=1");
        wait_until("two more signs of life", PROGRAM_LIMIT, || {
            manager.count("WATCHDOG=1") > before + 1
        });
        assert_eq!(manager.count("STOPPING=1"), 0);
    }
    server.process().signal(Signal::HUP);
    of_server.wait_for("RELOADING=1");
    wait_until("the end of the reload", PROGRAM_LIMIT, || {
        of_server.count("READY=1") == 2
    });
    let is_time = |said: &String| {
        said.strip_prefix("MONOTONIC_USEC=")
            .is_some_and(|time| time.parse::<u64>().is_ok())
    };
    assert!(of_server.heard.borrow().iter().any(is_time));
    server.kill();
    of_client.wait_for("STATUS=connecting again");
    server.start_again();
    assert_eq!(client.stop(), Some(0));
    assert_eq!(server.stop(), Some(0));
    for manager in &managers {
        manager.wait_for("STOPPING=1");
        for said in &*manager.heard.borrow() {
            assert!(!said.contains("10.77."), "{said}");
        }
    }
}

/// `gramway service` with these words.
fn service(words: &[&str]) -> Command {
    let mut command = Command::new(gramway_binary());
    command.arg("service").args(words);
    command
}

#[test]
fn each_mode_is_rated_secure_by_systemd_and_its_unit_is_well_formed() {
    require_program!("systemd-analyze");
    // In tenths. Name servers of the machine are root's to set (0.4), and packet sockets cost 0.2: one mode needs both.
    for (threshold, words) in [
        (20, "up"),
        (20, "up -- --listen [::]:8443"),
        (20, "up -- --tcp"),
        (20, "up -- --tun --nat"),
        (20, "up -- --tun --tcp"),
        (20, "connect -- --socks 1080"),
        (20, "connect -- -L udp:53=10.0.0.1:53"),
        (20, "connect -- --tun"),
        (20, "connect -- --tun --default-route --no-dns"),
        (20, "connect -- --tun --default-route --carrier udp"),
        (22, "connect -- --tun --default-route"),
    ] {
        let words: Vec<_> = words.split(' ').collect();
        let name = match words[0] {
            "up" => "gramway.service",
            _ => "gramway-connect@.service",
        };
        let text = run(service(&["print"]).args(&words)).unwrap();
        let directory = Directory::create_for_test().unwrap();
        let unit = directory.write(name, &text).unwrap();
        let mut rate = Command::new("systemd-analyze");
        rate.args(["security", "--offline=yes", "--no-pager"]);
        rate.arg(format!("--threshold={threshold}")).arg(&unit);
        run(&mut rate).unwrap();
        // Of keys that systemd does not know it says so and goes on.
        let verify = Command::new("systemd-analyze")
            .args(["verify", "--recursive-errors=no"])
            .arg(&unit)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&verify.stderr);
        assert!(!told.contains(&format!("{name}:")), "{words:?}: {told}");
    }
}

#[test]
fn what_is_installed_is_removed_and_a_foreign_unit_stays() {
    let directory = Directory::create_for_test().unwrap();
    let place = directory.path().to_str().unwrap();
    let unit = directory.join("gramway-connect@.service");
    let files = || fs::read_dir(directory.path()).unwrap().count();
    let before = files();
    let install = [
        "install",
        "connect",
        "--directory",
        place,
        "--",
        "--socks",
        "1080",
    ];
    let remove = ["remove", "connect", "--directory", place];
    for _ in 0..2 {
        run(&mut service(&install)).unwrap();
        let printed = run(&mut service(&["print", "connect", "--", "--socks", "1080"])).unwrap();
        assert_eq!(fs::read_to_string(&unit).unwrap(), printed);
        assert_eq!(files(), before + 1);
    }
    run(&mut service(&remove)).unwrap();
    assert_eq!(files(), before);
    let refused = |words: &[&str], code: i32, part: &str| {
        let output = service(words).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{told}");
        assert!(told.contains(part), "{told}");
    };
    refused(&remove, UNAVAILABLE, "nothing to remove");
    fs::write(&unit, "[Service]\n").unwrap();
    for words in [&install[..], &remove] {
        refused(words, CONFIGURATION, "it stays as it is");
    }
    assert_eq!(fs::read_to_string(&unit).unwrap(), "[Service]\n");
    for (words, part) in [
        (
            ["print", "connect", "--", "gramway://secret"],
            "/etc/gramway/NAME.link",
        ),
        (["print", "up", "--", "--state=/x"], "leave --state out"),
        (["print", "up", "--", "--lisen=1"], "--lisen"),
    ] {
        refused(&words, USAGE, part);
    }
}

#[test]
fn under_systemd_a_server_becomes_the_service_that_it_offers_and_root_administers_it() {
    require_root!();
    require_program!("script");
    require_machine!();
    let machine = Machine::boot().unwrap();
    let gramway = |words: &[&str]| machine.run("gramway", words).unwrap();
    let systemctl = |words: &[&str]| machine.run("systemctl", words).unwrap();
    machine.copy(&gramway_binary(), "/usr/local/bin/gramway").unwrap();

    // On a terminal.
    let mut terminal = machine.command("script");
    terminal.args(["--quiet", "--return", "--command"]);
    terminal.args(["gramway up --public vpn.example.com --tun --nat", "/dev/null"]);
    let mut by_hand = Process::start(terminal, "gramway up on a terminal").unwrap();
    let offered = "gramway service install up -- --public vpn.example.com --tun --nat && systemctl enable --now gramway";
    by_hand.wait_for_line(offered, PROGRAM_LIMIT).unwrap();
    let link = gramway(&["link"]);
    by_hand.tell("\u{3}").unwrap();
    by_hand.wait(PROGRAM_LIMIT).unwrap();

    machine.run("sh", &["-c", offered]).unwrap();
    let main_process = || systemctl(&["show", "--property=MainPID", "--value", "gramway"]);
    let first = main_process();
    let place = format!("/proc/{}", first.trim());
    assert_ne!(machine.run("stat", &["--format=%u", &place]).unwrap().trim(), "0");
    assert_eq!(gramway(&["link"]), link);

    assert!(gramway(&["status"]).contains("sandbox"));
    assert!(gramway(&["ctl", "reload"]).starts_with("server: "));
    systemctl(&["reload", "gramway"]);
    // The answer to `add` waits for the server, which reads what root has written as the service's user.
    let users_link = gramway(&["user", "add", "alice"]);
    assert!(users_link.starts_with("gramway://"), "{users_link}");
    assert!(gramway(&["status", "--json"]).contains("alice"));
    let files = ["/var/lib/private/gramway", "-user", "root"];
    assert_eq!(machine.run("find", &files).unwrap(), "");

    // Its helper and its guardian have other rights than it, and see it nevertheless.
    systemctl(&["kill", "--kill-whom=main", "--signal=KILL", "gramway"]);
    let forwarding = || {
        machine
            .run("sysctl", &["--values", "net.ipv4.ip_forward"])
            .unwrap()
    };
    wait_until("another start that forwards", PROGRAM_LIMIT, || {
        let next = main_process();
        let command = &mut machine.command("systemctl");
        let is_active = run(command.args(["is-active", "gramway"])).is_ok();
        next != first && next.trim() != "0" && is_active && forwarding().trim() == "1"
    });
    assert_eq!(gramway(&["link"]), link);

    // A process that has taken over is the service's as well: systemd starts another one after it crashed.
    gramway(&["service", "install", "up", "--", "--public", "vpn.example.com"]);
    systemctl(&["restart", "gramway"]);
    let former = main_process();
    gramway(&["ctl", "upgrade", "--timeout", "0"]);
    let next = main_process();
    assert_ne!(next, former);
    let ended = format!("/proc/{}", former.trim());
    wait_until("the end of the former process", PROGRAM_LIMIT, || {
        machine.run("stat", &[&ended]).is_err()
    });
    systemctl(&["kill", "--kill-whom=main", "--signal=KILL", "gramway"]);
    wait_until("a start after the crash of what took over", PROGRAM_LIMIT, || {
        let other = main_process();
        let is_active = run(machine.command("systemctl").args(["is-active", "gramway"])).is_ok();
        other != next && other.trim() != "0" && is_active
    });

    gramway(&["service", "remove"]);
    assert_eq!(
        systemctl(&["list-units", "--plain", "--no-legend", "gramway*"]),
        ""
    );
    assert!(!machine.file("/etc/systemd/system/gramway.service").exists());
    wait_until("the end of forwarding", PROGRAM_LIMIT, || {
        forwarding().trim() == "0"
    });
}
