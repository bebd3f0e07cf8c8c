//! Under a service manager: what it is told, over a socket that this test holds in its place.

use std::cell::RefCell;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use system_tests::limits::PROGRAM_LIMIT;
use system_tests::require_root;
use system_tests::topology::Pair;
use system_tests::tunnel::{Client, Server};
use testbed::directory::Directory;
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
