//! A server with a cover (specs/qr1.md): who has its link goes through, everybody else meets the cover, a foreign web
//! site that stands on the server's machine.

mod changes;
mod constants;
mod flood;
mod metrics;
mod peers;
mod redirection;
mod watched;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use system_tests::conservation::assert_conserved;
use system_tests::cover::{Authority, Cover, Stack};
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::program::{UNAVAILABLE, gramway_binary};
use system_tests::service::{Service, connect};
use system_tests::source::Source;
use system_tests::topology::Pair;
use system_tests::tunnel::{Client, Server};
use system_tests::{python, require_program, require_python, require_root};
use testbed::directory::Directory;
use testbed::namespace::Namespace;
use testbed::place::Place;
use testbed::process::Process;
use testbed::wait::wait_until;

use crate::scene::{LISTEN, OPEN_LOOPBACK, both};

/// The name of the web site.
const NAME: &str = "www.harbour.example";

/// Where it is on the server's machine.
const COVER: &str = "127.0.0.1:8443";

/// What makes it a server's cover.
const COVERED: [&str; 4] = ["--cover", COVER, "--cover-name", NAME];

/// How long somebody who gets no answer waits for one.
const SILENCE: Duration = Duration::from_secs(2);

/// A server in front of a web site. Processes end before their machines, and files go last.
pub(crate) struct Scene {
    server: Server,
    cover: Cover,
    authority: Authority,
    python: PathBuf,
    pub(crate) pair: Pair,
    directory: Directory,
}

impl Scene {
    pub(crate) fn new(python: PathBuf, options: &[&str]) -> Self {
        Self::behind(python, &[], options)
    }

    /// In front of a web site that is started with `site` as its options.
    fn behind(python: PathBuf, site: &[&str], options: &[&str]) -> Self {
        let (pair, directory) = (Pair::new(1500), Directory::create_for_test().unwrap());
        let authority = Authority::create(directory.path());
        let place = pair.server.place();
        let cover = Cover::start(Stack::Aioquic(&python), &place, COVER, (&authority, NAME), site);
        let covered = COVERED;
        let options = [&covered[..], &OPEN_LOOPBACK, options].concat();
        let server = Server::start(&place, "server", LISTEN, &options, directory.path());
        Self {
            server,
            cover,
            authority,
            python,
            pair,
            directory,
        }
    }

    pub(crate) fn client(&self, name: &str, forwards: &[&str], options: &[&str]) -> Client {
        self.client_by(&self.server.link(), name, forwards, options)
    }

    /// A client with this link.
    fn client_by(&self, link: &str, name: &str, forwards: &[&str], options: &[&str]) -> Client {
        let place = self.pair.client.place();
        Client::start(&place, name, link, forwards, options, self.directory.path())
    }

    /// What a visitor without the link gets at the server's address.
    fn visit(&self) -> Value {
        let root = self.authority.root().display().to_string();
        let arguments = [LISTEN, "--name", NAME, "--root", &root];
        let place = self.pair.client.place();
        let mut visitor = python::start(&self.python, &place, "visitor.py", arguments);
        let line = visitor.wait_for_line("\"status\"", PROGRAM_LIMIT).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// What a client sends that has the link, and of which the server has heard nothing.
    fn first_flight(&self) -> Recorder {
        self.first_flight_by(&self.server.link())
    }

    /// The same of a client with this link.
    fn first_flight_by(&self, link: &str) -> Recorder {
        let mut recorder = Recorder::listen(&self.pair.client, "10.77.0.2:4433");
        let link = link.replace("10.77.0.1", "10.77.0.2");
        let place = self.pair.client.place();
        let options = ["--connections", "1"];
        let files = self.directory.path();
        let client = Client::start_unconnected(&place, "recorded", &link, &both!("7000"), &options, files);
        recorder.record();
        drop(client);
        recorder
    }

    /// A counter of the server's cover.
    fn of_cover(&self, pointer: &str) -> u64 {
        let status = self.server.status();
        assert!(status["cover"].is_object(), "{status}");
        // Zeros are left out.
        let counter = status.pointer(&format!("/cover{pointer}"));
        counter.and_then(Value::as_u64).unwrap_or(0)
    }
}

/// UDP and TCP come back through the forwards of port 7000.
fn assert_carries(scene: &Scene) {
    let _udp = Service::udp_echo(&scene.pair.server, "127.0.0.1:7000");
    let _tcp = Service::tcp_echo(&scene.pair.server, "127.0.0.1:7000");
    Source::new(&scene.pair.client, "127.0.0.1:7000").ask(b"through the front door", PROGRAM_LIMIT);
    let mut stream = connect(&scene.pair.client, "127.0.0.1:7000");
    let sent = vec![7; 1 << 20];
    let mut writer = stream.try_clone().unwrap();
    let (mut received, bytes) = (Vec::new(), sent.clone());
    let writing = std::thread::spawn(move || {
        writer.write_all(&bytes).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    stream.read_to_end(&mut received).unwrap();
    writing.join().unwrap();
    assert!(received == sent);
}

#[test]
fn the_front_door_knows_each_user_and_a_removed_one_meets_the_cover() {
    require_root!();
    let scene = Scene::new(require_python!(), &[]);
    let link = scene.server.user(&["add", "alice"]);
    assert!(link.contains("!cover="), "{link}");
    wait_until("a user in the server", PROGRAM_LIMIT, || {
        scene.server.status().to_string().contains("\"alice\"")
    });
    let root = scene.authority.root().display().to_string();
    let mut client = scene.client_by(&link, "alice", &both!("7000"), &["--cover-roots", &root]);
    assert_carries(&scene);
    scene.server.user(&["remove", "alice"]);
    let told = client
        .process()
        .wait_for_line("this user was removed", PROGRAM_LIMIT);
    told.unwrap();
    let told = client
        .process()
        .wait_for_line("the genuine site answered", PROGRAM_LIMIT);
    told.unwrap();
    assert_eq!(scene.visit()["status"], 200);
}

#[test]
fn the_front_door_opens_in_tcps_shape_too() {
    require_root!();
    let mut scene = Scene::new(require_python!(), &["--tcp=:4444"]);
    let mut client = scene.client("client", &both!("7000"), &["--carrier", "tcp"]);
    assert_carries(&scene);
    // One connection is enough for traffic; the others may still be on their way.
    wait_until("all connections in TCP's shape", PROGRAM_LIMIT, || {
        let status = client.status();
        let mut shards = status["shards"].as_array().unwrap().iter();
        shards.all(|shard| shard["carrier"]["kind"] == "tcp")
    });
    assert_eq!(client.stop(), Some(0));
    assert_eq!(scene.server.stop(), Some(0));
}

#[test]
fn who_has_the_link_goes_through_and_a_visitor_gets_the_covers_page() {
    require_root!();
    let mut scene = Scene::new(require_python!(), &[]);
    let mut client = scene.client("client", &both!("7000"), &[]);
    assert_carries(&scene);
    assert_eq!(scene.visit()["status"], 200);
    assert_carries(&scene);
    assert_conserved(&client.status());
    assert_conserved(&scene.server.status());
    assert!(scene.of_cover("/relay/taken_over") >= 1);
    assert!(scene.of_cover("/flows/total") >= 1);
    assert_eq!(client.stop(), Some(0));
    assert_eq!(scene.server.stop(), Some(0));
}

#[test]
fn four_shards_share_the_front_door() {
    require_root!();
    let scene = Scene::new(require_python!(), &["--connections", "4"]);
    let mut client = scene.client("client", &both!("7000"), &["--connections", "4"]);
    wait_until("four connections", PROGRAM_LIMIT, || {
        client.status()["peers"]
            .as_array()
            .is_some_and(|peers| peers.len() == 4)
    });
    assert_carries(&scene);
    for _ in 0..3 {
        assert_eq!(scene.visit()["status"], 200);
    }
    assert_eq!(client.stop(), Some(0));
}

#[test]
fn ip_packets_go_through_the_front_door_as_well() {
    require_root!();
    require_program!("ping");
    let scene = Scene::new(require_python!(), &["--tun"]);
    let _client = scene.client("client", &[], &["--tun"]);
    wait_until("an answer to a ping through the TUN", PROGRAM_LIMIT, || {
        let ping = ["-c", "1", "-W", "1", "10.86.0.1"];
        scene.pair.client.run("ping", ping).is_ok()
    });
}

#[test]
fn tcp_at_the_servers_port_reaches_the_cover() {
    require_root!();
    let scene = Scene::new(require_python!(), &[]);
    let _web = Service::tcp_echo(&scene.pair.server, COVER);
    let mut stream = connect(&scene.pair.client, LISTEN);
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(scene.of_cover("/tcp/total"), 1);
}

/// Bytes of the connection ID that the sender of this long header chose for itself (RFC 8999 section 5.1).
fn source_id_bytes(datagram: &[u8]) -> u8 {
    assert_eq!(datagram[0] & 0x80, 0x80);
    datagram[6 + usize::from(datagram[5])]
}

/// Records what a client sends first, and sends it again.
struct Recorder {
    socket: UdpSocket,
    recorded: Vec<Vec<u8>>,
}

impl Recorder {
    /// Stands at `address` of the client's machine, where a link may lead instead of to the server.
    fn listen(namespace: &Namespace, address: &str) -> Self {
        let mut bound = None;
        // A process that another test is about to start may still hold the socket of the last one.
        wait_until("the address to be free", PROGRAM_LIMIT, || {
            bound = namespace.inside(|| UdpSocket::bind(address)).ok();
            bound.is_some()
        });
        let socket = bound.unwrap();
        socket.set_read_timeout(Some(PROGRAM_LIMIT)).unwrap();
        Self {
            socket,
            recorded: Vec::new(),
        }
    }

    /// The datagrams of a whole first flight: a browser's hello takes two.
    fn record(&mut self) {
        let mut buffer = [0; 2_048];
        while self.recorded.len() < 2 {
            let (length, _) = self.socket.recv_from(&mut buffer).unwrap();
            self.recorded.push(buffer[..length].to_vec());
        }
    }

    /// Sends them to the server from a new port; the first answer, if there is one in time.
    fn replay(&self, namespace: &Namespace, patience: Duration) -> Option<Vec<u8>> {
        let socket = namespace.inside(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
        socket.set_read_timeout(Some(patience)).unwrap();
        let server: SocketAddr = LISTEN.parse().unwrap();
        for datagram in &self.recorded {
            socket.send_to(datagram, server).unwrap();
        }
        let mut buffer = [0; 2_048];
        match socket.recv_from(&mut buffer) {
            Ok((length, _)) => Some(buffer[..length].to_vec()),
            Err(error) => {
                assert!(
                    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
                    "{error}"
                );
                None
            }
        }
    }
}

/// Longer than it takes to find out that a path is dead and another port is, too.
const OUTAGE: Duration = Duration::from_secs(8);

/// The server hears nobody.
const DEAF: &str = "table ip deaf {
    chain hear { type filter hook input priority 0; udp dport 4433 drop; }
}";

#[test]
fn an_outage_of_some_seconds_costs_a_client_none_of_its_connections() {
    require_root!();
    require_program!("nft");
    let scene = Scene::new(require_python!(), &[]);
    let client = scene.client("client", &both!("7000"), &["--connections", "1"]);
    let _tcp = Service::tcp_echo(&scene.pair.server, "127.0.0.1:7000");
    let mut stream = connect(&scene.pair.client, "127.0.0.1:7000");
    let mut echo = [0; 6];
    stream.write_all(b"before").unwrap();
    stream.read_exact(&mut echo).unwrap();
    scene.pair.server.nft(DEAF).unwrap();
    stream.write_all(b"during").unwrap();
    std::thread::sleep(OUTAGE);
    scene.pair.server.nft("delete table ip deaf").unwrap();
    stream.read_exact(&mut echo).unwrap();
    assert_eq!(&echo, b"during");
    assert_eq!(client.status()["reconnects"], 0);
}

/// QR1-10, QR1-11.
#[test]
fn a_hello_that_was_accepted_meets_the_cover_when_it_comes_again_also_after_a_restart() {
    require_root!();
    let mut scene = Scene::new(require_python!(), &[]);
    let recorder = scene.first_flight();
    // The original is the first to come.
    assert!(recorder.replay(&scene.pair.client, PROGRAM_LIMIT).is_some());
    assert_eq!(scene.of_cover("/relay/taken_over"), 1);
    assert_eq!(scene.of_cover("/flows/total"), 0);
    assert!(recorder.replay(&scene.pair.client, PROGRAM_LIMIT).is_some());
    assert_eq!(scene.of_cover("/relay/taken_over"), 1);
    assert_eq!(scene.of_cover("/flows/total"), 1);
    scene.server.kill();
    scene.server.start_again();
    // The cover remembers the connection that it has from the first time.
    scene.cover.process().kill();
    let place = scene.pair.server.place();
    let site = (&scene.authority, NAME);
    scene.cover = Cover::start(Stack::Aioquic(&scene.python), &place, COVER, site, &[]);
    assert!(recorder.replay(&scene.pair.client, PROGRAM_LIMIT).is_some());
    assert_eq!(scene.of_cover("/relay/taken_over"), 0);
    assert_eq!(scene.of_cover("/flows/total"), 1);
}

/// QR1-26.
#[test]
fn without_its_cover_a_server_is_silent_to_strangers_and_still_there_for_its_clients() {
    require_root!();
    let mut scene = Scene::new(require_python!(), &[]);
    scene.cover.process().kill();
    let stranger = scene.pair.client.inside(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    stranger.set_read_timeout(Some(SILENCE)).unwrap();
    stranger.connect(LISTEN).unwrap();
    // An unknown version (RFC 9000 section 6.1), a short header, and no QUIC at all.
    let version = [&[0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8][..], &[7; 1_194]].concat();
    for probe in [version, vec![0x40; 64], b"hello?".to_vec()] {
        stranger.send(&probe).unwrap();
        let silent = stranger.recv(&mut [0; 2_048]).unwrap_err();
        assert!(
            matches!(silent.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            "{silent}"
        );
    }
    let _client = scene.client("client", &both!("7000"), &[]);
    assert_carries(&scene);
}

const X25519: u64 = 0x001d;

/// QR1-27.
#[test]
fn a_server_looks_like_its_cover_also_when_it_starts_while_that_is_down() {
    require_root!();
    let mut scene = Scene::behind(require_python!(), &["--id-length", "12"], &[]);
    let recorder = scene.first_flight();
    // The first time it is the server's answer, then the cover's.
    let [own, covers] = [1, 2].map(|_| recorder.replay(&scene.pair.client, PROGRAM_LIMIT).unwrap());
    assert_eq!(scene.of_cover("/relay/taken_over"), 1);
    assert_eq!(scene.of_cover("/flows/total"), 1);
    assert_eq!((source_id_bytes(&own), source_id_bytes(&covers)), (12, 12));
    let measured = scene.server.status()["cover"]["profile"].clone();
    assert_eq!(measured["group"], X25519, "{measured}");
    assert_eq!(measured["id_bytes"], 12, "{measured}");
    scene.server.kill();
    scene.cover.process().kill();
    scene.server.start_again();
    let kept = &scene.server.status()["cover"]["profile"];
    for name in ["suite", "group", "id_bytes", "certificate_bytes"] {
        assert_eq!(kept[name], measured[name], "{name}");
    }
    let _client = scene.client("client", &both!("7000"), &[]);
    assert_carries(&scene);
}

/// QR1-27.
#[test]
fn a_server_does_not_start_in_front_of_a_cover_that_does_not_fit_or_was_never_met() {
    require_root!();
    let python = require_python!();
    let (pair, directory) = (Pair::new(1500), Directory::create_for_test().unwrap());
    let authority = Authority::create(directory.path());
    let place = pair.server.place();
    let refused = || {
        let mut command = place.command(gramway_binary());
        command.args(["up", "--listen", LISTEN, "--state"]);
        command.arg(directory.path().join("state")).args(COVERED);
        let mut process = Process::start(command, "server").unwrap();
        let code = process.wait(PROGRAM_LIMIT).unwrap().code();
        assert_eq!(code, Some(UNAVAILABLE), "{}", process.stderr());
        assert!(!directory.path().join("state").exists());
        process.stderr()
    };
    let said = refused();
    assert!(said.contains("without having met it: nobody answers"), "{said}");
    let stack = Stack::Aioquic(&python);
    let _cover = Cover::start(stack, &place, COVER, (&authority, NAME), &["--id-length", "7"]);
    let said = refused();
    assert!(
        said.contains("cannot be a cover: its connection IDs have 7 bytes"),
        "{said}"
    );
}
