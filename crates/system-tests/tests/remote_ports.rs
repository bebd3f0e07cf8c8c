//! Ports of the server that lead to a client (`connect -R`): who may have them, and that they come back.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use serde_json::Value;
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::require_root;
use system_tests::service::{Service, connect, try_connect};
use system_tests::topology::Pair;
use system_tests::tunnel::{Client, Server};
use testbed::directory::Directory;
use testbed::namespace::Namespace;
use testbed::wait::wait_until;

use crate::scene::{LISTEN, no_load};

/// Where the clients' machine has an echo.
const ECHO: &str = "127.0.0.1:7000";

/// Processes end before their machines, and files go last.
struct Scene {
    server: Server,
    _echo: Service,
    pair: Pair,
    directory: Directory,
}

impl Scene {
    fn new() -> Self {
        let (pair, directory) = (Pair::new(1500), Directory::create_for_test().unwrap());
        let server = Server::start(&pair.server.place(), "server", LISTEN, &[], directory.path());
        let _echo = Service::tcp_echo(&pair.client, ECHO);
        Self {
            server,
            _echo,
            pair,
            directory,
        }
    }

    fn client(&self, name: &str, link: &str, options: &[&str]) -> Client {
        let place = self.pair.client.place();
        Client::start(&place, name, link, &[], options, self.directory.path())
    }

    /// Adds a user; a running server knows it a second later.
    fn add(&self, words: &[&str]) -> String {
        let link = self.server.user(&[&["add"][..], words].concat());
        wait_until("a user in the server", PROGRAM_LIMIT, || {
            let status = self.server.status();
            let mut users = status["users"].as_object().unwrap().values();
            users.any(|user| user["name"] == words[0])
        });
        link
    }

    /// What a program at the server's machine gets from one of its ports.
    fn answers(&self, port: &str, bytes: &[u8]) {
        echo(&mut connect(&self.pair.server, port), bytes);
    }

    fn is_closed(&self, port: &str) -> bool {
        is_closed(&self.pair.server, port)
    }
}

fn is_closed(machine: &Namespace, port: &str) -> bool {
    let refused = try_connect(machine, port).err().map(|error| error.kind());
    refused == Some(ErrorKind::ConnectionRefused)
}

fn echo(stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
    let mut answer = vec![0; bytes.len()];
    stream.read_exact(&mut answer).unwrap();
    assert!(answer == bytes);
}

/// A port, as one end shows it.
fn listener(status: &Value, address: &str) -> Value {
    let listeners = status["listeners"].as_array().unwrap();
    let found = listeners.iter().find(|listener| listener["address"] == address);
    found.cloned().unwrap_or_default()
}

#[test]
fn connections_to_a_servers_port_reach_the_clients_target_also_many_at_once_and_after_a_lost_connection() {
    require_root!();
    let _no_load = no_load();
    let mut scene = Scene::new();
    let options = [
        "-R",
        "tcp:8080=localhost:7000",
        "-R",
        "tcp:10.77.0.1:8081=127.0.0.1:7001",
        "--connections",
        "2",
    ];
    let mut client = scene.client("client", &scene.server.link(), &options);
    client
        .process()
        .wait_for_line("the server listens on 127.0.0.1:8080", PROGRAM_LIMIT)
        .unwrap();
    client
        .process()
        .wait_for_line("the server listens on 10.77.0.1:8081", PROGRAM_LIMIT)
        .unwrap();

    // More than wait at first, all open at once.
    let mut streams: Vec<_> = (0..40)
        .map(|_| connect(&scene.pair.server, "127.0.0.1:8080"))
        .collect();
    for (number, stream) in streams.iter_mut().enumerate() {
        echo(stream, &vec![number as u8; 50_000]);
    }
    // Bytes that come at once with the connection, and an end after them.
    let mut stream = connect(&scene.pair.server, "127.0.0.1:8080");
    stream.write_all(&[7; 300_000]).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer == [7; 300_000]);
    // Nobody listens at the other target: whoever came is told, and the client says so.
    let mut lost = connect(&scene.pair.server, "10.77.0.1:8081");
    assert!(matches!(lost.read(&mut [0]), Ok(0) | Err(_)));
    client
        .process()
        .wait_for_line("does not reach 127.0.0.1:7001: connection refused", PROGRAM_LIMIT)
        .unwrap();

    let status = client.status();
    assert_eq!(listener(&status, "127.0.0.1:8080")["total"], 41);
    assert_eq!(listener(&status, "127.0.0.1:8080")["target"], "localhost:7000");
    let of_server = listener(&scene.server.status(), "127.0.0.1:8080");
    assert_eq!(
        (&of_server["total"], &of_server["user"]),
        (&41.into(), &"owner".into())
    );

    // The server forgets everything, and the client asks again.
    drop(streams);
    scene.server.kill();
    scene.server.start_again();
    wait_until("the port to be open again", PROGRAM_LIMIT, || {
        !scene.is_closed("127.0.0.1:8080")
    });
    scene.answers("127.0.0.1:8080", b"after the server was killed");

    // A client that ends leaves nothing.
    assert_eq!(client.stop(), Some(0));
    wait_until("the port to be closed", PROGRAM_LIMIT, || {
        scene.is_closed("127.0.0.1:8080")
    });
}

/// LISTEN-8.
#[test]
fn a_user_listens_where_it_may_alone_and_no_longer_when_it_is_disabled() {
    require_root!();
    let _no_load = no_load();
    let scene = Scene::new();
    let link = scene.add(&["alice", "--listen", "8000-8001"]);
    let ports = [
        "-R",
        "tcp:8000=127.0.0.1:7000",
        "-R",
        "tcp::8001=127.0.0.1:7000",
        "-R",
        "tcp:8002=127.0.0.1:7000",
    ];
    let mut alice = scene.client("alice", &link, &ports);
    alice
        .process()
        .wait_for_line("the server listens on 127.0.0.1:8000", PROGRAM_LIMIT)
        .unwrap();
    for refused in ["[::]:8001", "127.0.0.1:8002"] {
        let line = format!("the server does not listen on {refused}: this user may not listen there");
        alice.process().wait_for_line(&line, PROGRAM_LIMIT).unwrap();
    }
    scene.answers("127.0.0.1:8000", b"of alice");
    assert!(scene.is_closed("127.0.0.1:8001") && scene.is_closed("127.0.0.1:8002"));

    // What she has is in use for others, and hers alone.
    let link = scene.add(&["bob", "--listen", ":8000"]);
    let mut bob = scene.client("bob", &link, &["-R", "tcp:8000=127.0.0.1:7001"]);
    let line = "the server does not listen on 127.0.0.1:8000: the port is in use there";
    bob.process().wait_for_line(line, PROGRAM_LIMIT).unwrap();
    scene.answers("127.0.0.1:8000", b"still of alice");

    // Disabled, she has it no longer, and who waits for it gets it.
    scene.server.user(&["disable", "alice"]);
    alice
        .process()
        .wait_for_line("this user is disabled", PROGRAM_LIMIT)
        .unwrap();
    bob.process()
        .wait_for_line("the server listens on 127.0.0.1:8000", PROGRAM_LIMIT)
        .unwrap();
}
