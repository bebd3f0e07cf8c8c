//! A client with the links of two servers: it goes on with the second when the first is gone, and with the first again
//! when the second is.

use std::io::{Read, Write};

use system_tests::limits::PROGRAM_LIMIT;
use system_tests::require_root;
use system_tests::service::{Service, connect};
use system_tests::source::Source;
use system_tests::topology::Pair;
use system_tests::tunnel::{Client, Server};
use testbed::directory::Directory;

use crate::scene::{LISTEN, OPEN_LOOPBACK, both};

const SECOND: &str = "10.77.0.1:4434";

/// Two servers on one machine. Processes end before their machines, and files go last.
struct Scene {
    first: Server,
    second: Server,
    _udp: Service,
    pair: Pair,
    directory: Directory,
}

impl Scene {
    fn new() -> Self {
        let (pair, directory) = (Pair::new(1500), Directory::create_for_test().unwrap());
        let place = pair.server.place();
        let start = |name, listen| Server::start(&place, name, listen, &OPEN_LOOPBACK, directory.path());
        Self {
            first: start("first", LISTEN),
            second: start("second", SECOND),
            _udp: Service::udp_echo(&pair.server, "127.0.0.1:7000"),
            pair,
            directory,
        }
    }

    /// With this link, and that of the second server.
    fn client(&self, link: &str, forwards: &[&str]) -> Client {
        let second = self.directory.write("second.link", &self.second.link()).unwrap();
        let options = ["--fallback", second.to_str().unwrap(), "--connections", "1"];
        let place = self.pair.client.place();
        Client::start(&place, "client", link, forwards, &options, self.directory.path())
    }

    fn source(&self) -> Source {
        Source::new(&self.pair.client, "127.0.0.1:7000")
    }
}

#[test]
fn a_client_goes_on_with_its_second_server_and_returns_to_the_first_when_that_is_lost() {
    require_root!();
    let mut scene = Scene::new();
    let _tcp = Service::tcp_echo(&scene.pair.server, "127.0.0.1:7000");
    let mut client = scene.client(&scene.first.link(), &both!("7000"));
    let mut source = scene.source();
    source.ask(b"first", PROGRAM_LIMIT);
    let tcp_works = |scene: &Scene| {
        let mut stream = connect(&scene.pair.client, "127.0.0.1:7000");
        stream.write_all(b"again").unwrap();
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"again");
    };
    tcp_works(&scene);

    scene.first.kill();
    let told = "going on with server 2 of 2: there is no connection";
    client.process().wait_for_line(told, PROGRAM_LIMIT).unwrap();
    source.ask(b"second", PROGRAM_LIMIT);
    tcp_works(&scene);
    assert_eq!(scene.second.status()["connections"]["open"], 1);

    scene.first.start_again();
    scene.second.kill();
    let told = "going on with server 1 of 2: there is no connection";
    client.process().wait_for_line(told, PROGRAM_LIMIT).unwrap();
    source.ask(b"first again", PROGRAM_LIMIT);
    tcp_works(&scene);
    assert_eq!(scene.first.status()["connections"]["open"], 1);
    assert_eq!(client.stop(), Some(0));
}

#[test]
fn a_client_that_its_first_server_refuses_goes_on_with_the_second_at_once() {
    require_root!();
    let scene = Scene::new();
    let refused = scene.first.user(&["add", "alice"]);
    scene.first.user(&["remove", "alice"]);
    let mut client = scene.client(&refused, &["udp:7000=127.0.0.1:7000"]);
    let told = "going on with server 2 of 2: ";
    client.process().wait_for_line(told, PROGRAM_LIMIT).unwrap();
    scene.source().ask(b"second", PROGRAM_LIMIT);
    assert_eq!(client.stop(), Some(0));
}
