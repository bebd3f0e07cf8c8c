//! Under a service manager: what it is told, over a socket that a test holds in its place, and the units for it.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;

use system_tests::limits::PROGRAM_LIMIT;
use system_tests::program::{CONFIGURATION, UNAVAILABLE, USAGE, gramway_binary};
use system_tests::topology::Pair;
use system_tests::tunnel::{Client, Server};
use system_tests::{require_program, require_root};
use testbed::directory::Directory;
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
    // In tenths. A TUN's helper has to be seen (0.2), and whoever sets the machine's name servers is root (0.4).
    for (threshold, words) in [
        (20, "up"),
        (20, "up -- --listen [::]:8443"),
        (20, "up -- --tcp"),
        (20, "up -- --tun --nat"),
        (21, "up -- --tun --tcp"),
        (20, "connect -- --socks 1080"),
        (20, "connect -- -L udp:53=10.0.0.1:53"),
        (21, "connect -- --tun --no-dns"),
        (22, "connect -- --tun --carrier udp"),
        (24, "connect -- --tun"),
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
fn root_prints_the_link_of_a_service_of_another_user() {
    require_root!();
    let (pair, directory) = (Pair::new(1500), Directory::create_for_test().unwrap());
    let mut server = Server::start(&pair.server.place(), "server", LISTEN, &[], directory.path());
    let link = server.link();
    assert_eq!(server.stop(), Some(0));
    run(Command::new("chown")
        .args(["-R", "65534:65534"])
        .arg(server.state()))
    .unwrap();
    // As systemd's directory of such states.
    let closed = fs::Permissions::from_mode(0o700);
    fs::set_permissions(directory.path(), closed).unwrap();
    let mut command = Command::new(gramway_binary());
    command.args(["link", "--state"]).arg(server.state());
    assert_eq!(run(&mut command).unwrap().trim(), link.trim());
}
