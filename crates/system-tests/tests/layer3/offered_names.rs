//! The server's offer of name servers: its own one, asked by the C library of a client's machine and by hostile
//! clients.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use system_tests::name_server::answer;
use system_tests::service::{Service, connect as connect_stream, try_connect};
use system_tests::tunnel::with_mounts;
use system_tests::{require_program, require_root};

use super::*;

/// What the server's machine asks: the router, on its side.
const UPSTREAM: &str = "198.51.100.2";

/// What every name is there.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 77);

/// More questions than one client may have open.
const FLOOD: u16 = 1_000;

/// A tunnel to a server whose machine asks [`UPSTREAM`], with a client whose `/etc/resolv.conf` is a file of ours.
struct World {
    client: Client,
    server: Server,
    _upstream: [Service; 2],
    machines: Machines,
    file: PathBuf,
    directory: Directory,
}

/// What knows one address for every name, and stays silent about those that begin with `silent`.
fn upstream(machines: &Machines) -> [Service; 2] {
    let known = |question: &[u8]| {
        let is_silent = question.get(13..).is_some_and(|name| name.starts_with(b"silent"));
        answer(question, ADDRESS).filter(|_| !is_silent)
    };
    let address = format!("{UPSTREAM}:53");
    let udp = Service::udp(&machines.router, &address, move |socket, question, source| {
        // Whoever asked asks again, as UDP does.
        let _ = known(question).map(|answer| socket.send_to(&answer, source));
    });
    let tcp = Service::tcp(&machines.router, &address, move |mut stream| {
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut question).unwrap();
        if let Some(answer) = known(&question) {
            let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
            stream.write_all(&[&length, &answer[..]].concat()).unwrap();
        }
    });
    [udp, tcp]
}

impl World {
    fn new(serving: &[&str], connecting: &[&str]) -> Self {
        let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
        let asks = |name: &str, server: &str| {
            let file = directory.join(name);
            fs::write(&file, format!("nameserver {server}\n")).unwrap();
            let words = with_mounts(&format!("mount --bind '{}' /etc/resolv.conf", file.display()));
            (file, words)
        };
        let upstream = upstream(&machines);
        let (place, files) = (machines.server.place(), directory.path());
        let (_, wrapper) = asks("server.conf", UPSTREAM);
        let options = [&POOLS[..], &["--nat"], serving].concat();
        let server = Server::start_by(&wrapper, &place, "server", LISTEN, &options, files);
        let (file, wrapper) = asks("client.conf", "192.0.2.1");
        let (place, link) = (machines.first.place(), server.link());
        let options = [&[TUN], connecting].concat();
        let mut client =
            Client::start_unconnected_by(&wrapper, &place, "client", &link, &[], &options, files);
        client.process().wait_for_starts("TUN", 1, PROGRAM_LIMIT).unwrap();
        Self {
            client,
            server,
            _upstream: upstream,
            machines,
            file,
            directory,
        }
    }

    /// The name servers that the client's machine has.
    fn named(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.file).unwrap();
        let servers = text.lines().filter_map(|line| line.strip_prefix("nameserver "));
        servers.map(str::to_owned).collect()
    }

    fn wait_until_named(&self, servers: &[&str]) {
        wait_until("the name servers", PROGRAM_LIMIT, || self.named() == servers);
    }

    /// What the C library of the client's machine finds, by its own settings.
    fn resolve(&self, name: &str) -> String {
        self.resolve_by(&self.file, name)
    }

    /// The same with this name server and these options.
    fn resolve_with(&self, name: &str, server: &str, options: &str) -> String {
        let file = self.directory.join("asks.conf");
        fs::write(&file, format!("nameserver {server}\noptions {options}\n")).unwrap();
        self.resolve_by(&file, name)
    }

    fn resolve_by(&self, file: &Path, name: &str) -> String {
        let script = format!(
            "mount --bind '{}' /etc/resolv.conf && getent ahostsv4 {name}",
            file.display()
        );
        let words = ["--mount", "sh", "-c", &script];
        self.machines.first.run("unshare", words).unwrap_or_default()
    }

    fn counters(&self) -> Value {
        self.server.status()["tun"]["name_server"].clone()
    }
}

fn count(counters: &Value, name: &str) -> u64 {
    counters[name].as_u64().unwrap()
}

/// A question for the address of a name (RFC 1035 section 4.1).
fn question(number: u16, name: &str) -> Vec<u8> {
    let mut message = number.to_be_bytes().to_vec();
    message.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        message.push(u8::try_from(label.len()).unwrap());
        message.extend(label.as_bytes());
    }
    message.extend([0, 0, 1, 0, 1]);
    message
}

fn socket(machine: &Namespace, server: &str) -> UdpSocket {
    let socket = machine.inside(|| UdpSocket::bind("0.0.0.0:0").unwrap());
    socket.connect((server, 53)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    socket
}

/// Whether the question is answered with the address, asked a few times.
fn is_answered(socket: &UdpSocket, number: u16, name: &str) -> bool {
    let mut buffer = [0; 512];
    (0..10).any(|_| {
        socket.send(&question(number, name)).unwrap();
        let received = socket.recv(&mut buffer);
        received.is_ok_and(|length| {
            buffer[..2] == number.to_be_bytes() && buffer[..length].ends_with(&ADDRESS.octets())
        })
    })
}

#[test]
fn with_a_default_route_the_machine_asks_the_server_which_asks_those_of_its_machine() {
    require_root!();
    require_program!("unshare", "getent");
    let mut world = World::new(&[], &["--default-route"]);
    // The router is on the link, where no route of the tunnel leads.
    let overheard = Arc::new(AtomicUsize::new(0));
    let count_of_router = Arc::clone(&overheard);
    let _router = Service::udp(&world.machines.router, "192.0.2.1:53", move |_, _, _| {
        count_of_router.fetch_add(1, Ordering::SeqCst);
    });
    world.wait_until_named(&[SERVER_V4, SERVER_V6]);
    let said = format!(
        "name servers {SERVER_V4}, {SERVER_V6} of the server, set in /etc/resolv.conf; 192.0.2.1 is asked no more"
    );
    wait_until(&said, PROGRAM_LIMIT, || {
        world.client.process().stderr().contains(&said)
    });
    assert_eq!(world.client.status()["tun"]["names"]["is_offered"], true);
    let expected = ADDRESS.to_string();
    for server in [SERVER_V4, SERVER_V6] {
        for transport in ["timeout:5", "use-vc"] {
            let found = world.resolve_with("known.test", server, transport);
            assert!(found.contains(&expected), "{server} {transport}: {found:?}");
        }
    }
    let counters = world.counters();
    assert!(count(&counters, "answered") >= 4, "{counters}");
    assert!(world.resolve("known.test").contains(&expected));
    assert!(world.resolve("silent.test").is_empty());
    assert_eq!(overheard.load(Ordering::SeqCst), 0, "the router was asked");
    assert_eq!(world.client.stop(), Some(0));
    assert_eq!(world.named(), ["192.0.2.1"]);
}

#[test]
fn an_offer_is_the_owners_and_taking_it_the_users_choice() {
    require_root!();
    let named = World::new(&["--dns", "203.0.113.2"], &["--default-route"]);
    named.wait_until_named(&["203.0.113.2"]);
    assert!(named.counters().is_null(), "nobody listens");
    drop(named);

    let mut none = World::new(&["--no-dns"], &["--default-route"]);
    let said = "the server offers no name server, so names are asked of 192.0.2.1";
    wait_until(said, PROGRAM_LIMIT, || {
        none.client.process().stderr().contains(said)
    });
    assert_eq!(none.named(), ["192.0.2.1"]);
    drop(none);

    for connecting in [&["--default-route", "--no-dns"][..], &[]] {
        let world = World::new(&[], connecting);
        reaches(&world.machines.first, SERVER_V4);
        // What is set is set within a turn of half a second after the TUN.
        world
            .machines
            .first
            .run("ping", ["-n", "-i", "0.1", "-c", "20", SERVER_V4])
            .unwrap();
        assert_eq!(world.named(), ["192.0.2.1"], "{connecting:?}");
        assert!(world.client.status()["tun"]["names"].is_null());
    }
}

#[test]
fn a_flood_without_answers_is_bounded_and_keeps_no_other_client_from_its_names() {
    require_root!();
    let world = World::new(&[], &[]);
    let _other = connect(
        &world.machines.second,
        "other",
        &world.server,
        &[],
        &world.directory,
    );
    let (flood, other) = (
        socket(&world.machines.first, SERVER_V4),
        socket(&world.machines.second, SERVER_V4),
    );
    reaches(&world.machines.first, SERVER_V4);
    reaches(&world.machines.second, SERVER_V4);
    // On a busy machine a part of it is lost on the way.
    wait_until("more questions than may wait", PROGRAM_LIMIT, || {
        for number in 0..FLOOD {
            flood
                .send(&question(number, &format!("silent-{number}.test")))
                .unwrap();
        }
        count(&world.counters(), "over_limit") > 0
    });
    assert!(is_answered(&other, 7, "known.test"));
    // What nobody answers is told to be so, and leaves nothing.
    let counters = wait_for("the end of all questions", PROGRAM_LIMIT, || {
        let counters = world.counters();
        (count(&counters, "waiting") == 0).then_some(counters)
    });
    let settled = ["answered", "unanswered", "malformed", "over_limit"];
    let settled: u64 = settled.iter().map(|name| count(&counters, name)).sum();
    assert_eq!(settled, count(&counters, "questions"), "{counters}");
    assert!(count(&counters, "unanswered") > 0, "{counters}");
    // That socket is full of such answers.
    let again = socket(&world.machines.first, SERVER_V4);
    assert!(is_answered(&again, 9, "known.test"));

    // Connections are bounded, too: those beyond are closed at once.
    let address = format!("{SERVER_V4}:53");
    let streams: Vec<_> = (0..20)
        .filter_map(|_| try_connect(&world.machines.first, &address).ok())
        .collect();
    wait_until("connections over the limit", PROGRAM_LIMIT, || {
        let counters = world.counters();
        count(&counters, "streams_over_limit") > 0 && count(&counters, "streams") > 0
    });
    drop(streams);
    wait_until("the end of all connections", PROGRAM_LIMIT, || {
        count(&world.counters(), "streams") == 0
    });
}

#[test]
fn what_is_no_question_is_dropped_and_who_is_no_client_not_heard() {
    require_root!();
    let world = World::new(&[], &[]);
    reaches(&world.machines.first, SERVER_V4);
    let client = socket(&world.machines.first, SERVER_V4);
    let mut answer = question(1, "known.test");
    answer[2] |= 0x80;
    for message in [&[][..], &[0; 11], &[0xff; 600], &answer] {
        client.send(message).unwrap();
    }
    wait_until("four that are no questions", PROGRAM_LIMIT, || {
        count(&world.counters(), "malformed") == 4
    });
    let address = format!("{SERVER_V4}:53");
    let mut stream = connect_stream(&world.machines.first, &address);
    stream.write_all(&[0, 3, 1, 2, 3]).unwrap();
    assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0, "it is closed");
    assert!(is_answered(&client, 2, "known.test"));

    // Neither a program of the server's machine nor the world behind it.
    let local = socket(&world.machines.server, SERVER_V4);
    let outside = socket(&world.machines.world, "203.0.113.1");
    let before = count(&world.counters(), "answered");
    for socket in [local, outside] {
        // It may be refused at once.
        let _ = socket.send(&question(3, "known.test"));
        let refused = socket.recv(&mut [0; 512]).unwrap_err().kind();
        assert!(
            matches!(refused, ErrorKind::WouldBlock | ErrorKind::ConnectionRefused),
            "{refused:?}"
        );
    }
    assert_eq!(count(&world.counters(), "answered"), before);
}
