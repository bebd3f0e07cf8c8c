//! Our client at a foreign MASQUE proxy: its requests, its forwards, and how it takes refusals.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::program::PERMISSION;
use system_tests::tunnel::Client;
use system_tests::{python, require_python};
use testbed::directory::Directory;
use testbed::place::Place;
use testbed::port::free_address;
use testbed::process::{Process, Signal};
use testbed::wait::{wait_for, wait_until};

use super::result_of;

/// Within this a refused token ends the client.
const REFUSAL_LIMIT: Duration = Duration::from_secs(10);

/// A running `server.py`.
struct ForeignServer {
    process: Process,
    link: String,
}

impl ForeignServer {
    fn start(python: &Path, arguments: &[&str]) -> Self {
        let mut process = python::start(python, &Place::Host, "server.py", arguments);
        let line = process.wait_for_line("\"link\"", PROGRAM_LIMIT).unwrap();
        let greeting: Value = serde_json::from_str(&line).unwrap();
        let link = greeting["link"].as_str().unwrap().to_owned();
        Self { process, link }
    }

    /// Ends it; it has found nothing wrong. What it counted.
    fn end(mut self) -> Value {
        self.process.signal(Signal::TERM);
        self.process.wait(PROGRAM_LIMIT).unwrap();
        result_of(&self.process)["counts"].take()
    }
}

fn udp_socket() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(PROGRAM_LIMIT)).unwrap();
    socket
}

/// A local socket that talks to the forward on this port.
fn source(port: u16) -> UdpSocket {
    let socket = udp_socket();
    socket.connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    socket
}

/// Sends a payload, which the target gets and sends back.
fn echo(source: &UdpSocket, target: &UdpSocket, payload: &[u8]) {
    let mut buffer = vec![0; 65_535];
    source.send(payload).unwrap();
    let (length, proxy) = target.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], payload);
    target.send_to(payload, proxy).unwrap();
    let length = source.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], payload);
}

fn forward(protocol: &str, listen: u16, target: impl std::fmt::Display) -> String {
    format!("{protocol}:{listen}={target}")
}

fn port_of(address: std::io::Result<SocketAddr>) -> u16 {
    address.unwrap().port()
}

#[test]
fn udp_passes_a_foreign_proxy_and_what_is_too_large_for_it_is_counted() {
    let python = require_python!();
    let directory = Directory::create_for_test().unwrap();
    let server = ForeignServer::start(&python, &[]);
    let target = udp_socket();
    let target_port = port_of(target.local_addr());
    let [plain, interim, refused] = [(); 3].map(|()| free_address().unwrap().port());
    let forwards = [
        forward("udp", plain, format!("127.0.0.1:{target_port}")),
        forward("udp", interim, format!("interim.test:{target_port}")),
        forward("udp", refused, "refused.test:9"),
    ];
    let forwards = forwards.each_ref().map(String::as_str);
    let options = ["--max-udp-payload", "1452"];
    let mut client = Client::start(
        &Place::Host,
        "client",
        &server.link,
        &forwards,
        &options,
        directory.path(),
    );

    let one = source(plain);
    for size in [1, 64, 1_000, 1_150] {
        echo(&one, &target, &vec![b'x'; size]);
    }
    // Two sources of one listener have a session each.
    let other = source(plain);
    echo(&other, &target, b"other");
    // Interim responses before the response mean nothing.
    echo(&source(interim), &target, b"after interim responses");

    let too_large = || {
        let status = client.status();
        status["ingress"]["drops"]["too_large"].as_u64().unwrap_or(0)
    };
    assert_eq!(too_large(), 0);
    for size in [1_453, 9_000, 65_507] {
        one.send(&vec![b'x'; size]).unwrap();
    }
    wait_until("three drops", PROGRAM_LIMIT, || too_large() == 3);
    echo(&one, &target, b"smaller ones go on");

    // What the proxy sends in another form, and in a context that nobody agreed on.
    let mut buffer = [0; 100];
    one.send(b"by capsule, in two pieces").unwrap();
    let length = one.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"by capsule, in two pieces");
    one.send(b"by unknown context").unwrap();
    wait_until("a drop for its context", PROGRAM_LIMIT, || {
        client.status()["egress"]["drops"]["unknown_context"] == 1
    });

    // A refused session says so, once, and the others go on.
    source(refused).send(b"nobody gets this").unwrap();
    let line = client
        .process()
        .wait_for_line("refused UDP", PROGRAM_LIMIT)
        .unwrap();
    assert!(
        line.contains("refused.test:9") && line.contains("not allowed"),
        "{line}"
    );
    echo(&one, &target, b"last");

    assert_eq!(client.stop(), Some(0));
    let counts = server.end();
    assert_eq!(counts["CONNECT-UDP"], 3, "{counts}");
    // The check of its token by each of the client's stripes, and the refused forward.
    let stripes = std::thread::available_parallelism().unwrap().get().min(16) as u64;
    assert_eq!(counts["refused CONNECT-UDP"], stripes + 1, "{counts}");
    assert_eq!(counts["datagrams"], 10, "{counts}");
    assert_eq!(counts["datagrams in other contexts"], Value::Null, "{counts}");
}

#[test]
fn tcp_passes_a_foreign_proxy_with_half_close() {
    /// More than the first credit of a stream and a connection at aioquic.
    const BYTES: usize = 3 << 20;
    let python = require_python!();
    let directory = Directory::create_for_test().unwrap();
    let server = ForeignServer::start(&python, &[]);
    let target = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    target.set_nonblocking(true).unwrap();
    let [plain, refused] = [(); 2].map(|()| free_address().unwrap().port());
    let forwards = [
        forward(
            "tcp",
            plain,
            format!("127.0.0.1:{}", port_of(target.local_addr())),
        ),
        forward("tcp", refused, "refused.test:9"),
    ];
    let forwards = forwards.each_ref().map(String::as_str);
    let mut client = Client::start(
        &Place::Host,
        "client",
        &server.link,
        &forwards,
        &[],
        directory.path(),
    );
    let connect = |port| {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_read_timeout(Some(PROGRAM_LIMIT)).unwrap();
        stream.set_write_timeout(Some(PROGRAM_LIMIT)).unwrap();
        stream
    };

    // The target answers when it has everything, so that each direction ends on its own.
    let mut local = connect(plain);
    let mut remote = wait_for("the proxy's connection", PROGRAM_LIMIT, || target.accept().ok()).0;
    remote.set_nonblocking(false).unwrap();
    remote.set_read_timeout(Some(PROGRAM_LIMIT)).unwrap();
    let sent: Vec<u8> = (0..BYTES).map(|index| (index * 7 % 251) as u8).collect();
    let answering = std::thread::spawn(move || {
        let mut received = Vec::new();
        remote.read_to_end(&mut received).unwrap();
        remote.write_all(&received).unwrap();
    });
    local.write_all(&sent).unwrap();
    local.shutdown(Shutdown::Write).unwrap();
    let mut received = Vec::new();
    local.read_to_end(&mut received).unwrap();
    answering.join().unwrap();
    assert!(received == sent, "{} bytes came back, of {BYTES}", received.len());

    // A refused connection is closed, and the reason told.
    assert!(!matches!(connect(refused).read(&mut [0; 1]), Ok(1)));
    let line = client
        .process()
        .wait_for_line("refused TCP to ", PROGRAM_LIMIT)
        .unwrap();
    assert!(line.contains("503"), "{line}");

    assert_eq!(client.stop(), Some(0));
    let counts = server.end();
    assert_eq!(counts["CONNECT"], 1, "{counts}");
    assert_eq!(counts["refused CONNECT"], 1, "{counts}");
}

#[test]
fn a_foreign_proxy_that_refuses_the_token_ends_the_client_with_exit_code_77() {
    let python = require_python!();
    let directory = Directory::create_for_test().unwrap();
    let server = ForeignServer::start(&python, &["--refuse-token"]);
    let forward = forward("udp", free_address().unwrap().port(), "192.0.2.1:9");
    let began = Instant::now();
    let mut client = Client::start_unconnected(
        &Place::Host,
        "client",
        &server.link,
        &[&forward],
        &[],
        directory.path(),
    );
    let status = client.process().wait(PROGRAM_LIMIT).unwrap();
    assert!(began.elapsed() < REFUSAL_LIMIT, "{:?}", began.elapsed());
    assert_eq!(status.code(), Some(PERMISSION));
    let told = client.process().stderr();
    assert!(told.contains("refused the token"), "{told}");
    server.end();
}

#[test]
fn a_foreign_proxy_without_datagrams_is_told_as_such_and_tried_on() {
    let python = require_python!();
    let directory = Directory::create_for_test().unwrap();
    let server = ForeignServer::start(&python, &["--no-datagrams"]);
    let forward = forward("udp", free_address().unwrap().port(), "192.0.2.1:9");
    let mut client = Client::start_unconnected(
        &Place::Host,
        "client",
        &server.link,
        &[&forward],
        &[],
        directory.path(),
    );
    let line = client
        .process()
        .wait_for_line("cannot reach", REFUSAL_LIMIT)
        .unwrap();
    assert!(
        line.contains("does not offer CONNECT-UDP with datagrams"),
        "{line}"
    );
    assert!(client.process().try_status().is_none());
    assert_eq!(client.stop(), Some(0));
    // It has sent no request that the proxy could not serve.
    assert_eq!(server.end(), serde_json::json!({}));
}
