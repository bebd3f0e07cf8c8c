//! UDP through SOCKS5 (RFC 1928 section 7): a DNS client of others, and what an association takes and does not.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};

use serde_json::Value;
use system_tests::conservation::assert_conserved;
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::service::Service;
use system_tests::{python, require_python, require_root};
use testbed::namespace::Namespace;
use testbed::wait::wait_until;

use crate::scene::Scene;

const PROXY: &str = "127.0.0.1:1080";

/// Answers every datagram with itself, at the server's machine.
const ECHO: &str = "127.0.0.1:9000";

/// The bytes by which a datagram names it.
const TO_ECHO: &[u8] = b"\0\0\0\x01\x7f\0\0\x01\x23\x28";

/// Nobody listens at the targets' addresses on the client's machine, so whoever is answered was led to the server's.
const PROXIES: [&str; 4] = ["--socks", "1080", "--http", "1080"];

#[test]
fn a_dns_client_reaches_several_servers_by_address_and_by_name_over_two_associations() {
    require_root!();
    let python = require_python!();
    let scene = Scene::of_proxies(&PROXIES);
    let Scene { client, pair, .. } = &scene;
    let program = "dns_over_socks.py";
    let targets = ["127.0.0.1", "127.0.0.2", "::1"];
    let serving = [&["serve"][..], &targets].concat();
    let mut servers = python::start(&python, &pair.server.place(), program, serving);
    servers.wait_for_line("serving", PROGRAM_LIMIT).unwrap();

    let hosts = ["127.0.0.1", "127.0.0.2", "::1", "localhost", "127.0.0.1"];
    let asking = [&["ask", PROXY][..], &hosts].concat();
    let mut asker = python::start(&python, &pair.client.place(), program, asking);
    let status = asker.wait(PROGRAM_LIMIT).unwrap();
    assert!(status.success(), "{}", asker.last_words());
    let answers: Vec<Value> = serde_json::from_str(&asker.stdout()).unwrap();
    assert_eq!(answers.len(), 2 * hosts.len(), "{answers:?}");
    for answer in &answers {
        let (asked, reached) = (&answer["asked"], &answer["reached"]);
        // The name is the server's to resolve; the answer is from whom was asked, by name where it was one.
        if asked == "localhost" {
            assert!(reached == "127.0.0.1" || reached == "::1", "{answer}");
        } else {
            assert_eq!(asked, reached, "{answer}");
        }
        assert_eq!(answer["source"], serde_json::json!([asked, 5353]), "{answer}");
    }
    // Both associations are over with their program, and all their sessions with them.
    wait_until("the end of the sessions", PROGRAM_LIMIT, || {
        let status = client.status();
        status["udp_sessions"]["open"] == 0 && status["sources"]["association"]["open"] == 0
    });
    let status = client.status();
    assert_eq!(
        status["udp_sessions"]["total"], 8,
        "four targets for each association"
    );
    assert_eq!(status["sources"]["association"]["total"], 2);
    assert_conserved(&status);
}

/// An association, as a program has it.
struct Association {
    control: TcpStream,
    relay: SocketAddr,
}

impl Association {
    fn open(machine: &Namespace) -> Self {
        let mut control = machine.inside(|| TcpStream::connect(PROXY)).unwrap();
        control.set_read_timeout(Some(PROGRAM_LIMIT)).unwrap();
        control
            .write_all(b"\x05\x01\0\x05\x03\0\x01\0\0\0\0\0\0")
            .unwrap();
        let mut answer = [0; 12];
        control.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..10], *b"\x05\0\x05\0\0\x01\x7f\0\0\x01");
        let port = u16::from_be_bytes([answer[10], answer[11]]);
        let relay = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self { control, relay }
    }
}

fn socket(machine: &Namespace, address: &str) -> UdpSocket {
    let socket = machine.inside(|| UdpSocket::bind((address, 0))).unwrap();
    socket.set_read_timeout(Some(PROGRAM_LIMIT)).unwrap();
    socket
}

/// What comes back to this payload.
fn echoed(socket: &UdpSocket, relay: SocketAddr, payload: &[u8]) -> Vec<u8> {
    socket.send_to(&[TO_ECHO, payload].concat(), relay).unwrap();
    let mut answer = vec![0; 65_536];
    let length = socket.recv(&mut answer).unwrap();
    answer.truncate(length);
    answer
}

#[test]
fn an_association_takes_whole_datagrams_of_its_program_alone_and_ends_with_its_connection() {
    require_root!();
    let scene = Scene::of_proxies(&PROXIES);
    let Scene {
        client, server, pair, ..
    } = &scene;
    let _echo = Service::udp_echo(&pair.server, ECHO);
    let association = Association::open(&pair.client);
    let relay = association.relay;
    let own = socket(&pair.client, "127.0.0.1");
    assert_eq!(echoed(&own, relay, b"one"), [TO_ECHO, b"one"].concat());
    // The longest that an answer with its header can be, and an empty one.
    for payload in [vec![7; 65_507 - TO_ECHO.len()], Vec::new()] {
        assert!(echoed(&own, relay, &payload) == [TO_ECHO, &payload].concat());
    }

    // A fragment, bytes that are no datagram, a port that nobody has; then another machine's datagram, as it looks.
    for refused in [
        &b"\0\0\x01\x01\x7f\0\0\x01\x23\x28one"[..],
        b"\0\0",
        b"\0\0\0\x01\x7f\0\0\x01\0\0",
    ] {
        own.send_to(refused, relay).unwrap();
    }
    let foreign = socket(&pair.client, "127.0.0.2");
    foreign.send_to(&[TO_ECHO, b"two"].concat(), relay).unwrap();
    // They had their turn before this one.
    assert_eq!(echoed(&own, relay, b"three"), [TO_ECHO, b"three"].concat());
    let drops = client.status()["ingress"]["drops"].clone();
    assert_eq!(
        (&drops["malformed"], &drops["source_spoofed"]),
        (&3.into(), &1.into()),
        "{drops}"
    );

    drop(association.control);
    wait_until("the end of the association", PROGRAM_LIMIT, || {
        let (here, there) = (client.status(), server.status());
        here["sources"]["association"]["open"] == 0
            && here["udp_sessions"]["open"] == 0
            && there["udp_sessions"]["open"] == 0
    });
    own.connect(relay).unwrap();
    let refused = own.send(b"gone").and_then(|_| own.recv(&mut [0; 16]));
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    assert_conserved(&client.status());
}
