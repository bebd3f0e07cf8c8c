//! A router whose network goes through the tunnel without knowing it (`connect --tproxy`): a machine behind it, and a
//! server beyond it, with a target that only the server reaches.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};

use system_tests::conservation::assert_conserved;
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::require_root;
use system_tests::service::{Service, connect, try_connect};
use system_tests::topology::Routed;
use system_tests::tunnel::{Client, Server};
use testbed::directory::Directory;
use testbed::namespace::Namespace;
use testbed::wait::wait_until;

use crate::scene::no_load;

/// Addresses at the server's machine to which the router has no route.
const TARGETS: [&str; 2] = ["203.0.113.9", "2001:db8:9::9"];

const LISTEN: &str = "10.78.0.1:4433";

fn at(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// What the target answers, and that it is the target who does: a connected socket hears nobody else.
fn ask_udp(machine: &Namespace, target: &str, payload: &[u8]) {
    let target: SocketAddr = target.parse().unwrap();
    let any = if target.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let socket = machine.inside(|| UdpSocket::bind(any)).unwrap();
    machine.inside(|| socket.connect(target)).unwrap();
    socket.set_read_timeout(Some(PROGRAM_LIMIT / 10)).unwrap();
    // UDP is lost now and then on a busy machine.
    wait_until("an answer", PROGRAM_LIMIT, || {
        socket.send(payload).unwrap();
        let mut answer = vec![0; 65_536];
        socket
            .recv(&mut answer)
            .is_ok_and(|length| answer[..length] == *payload)
    });
}

fn ask_tcp(machine: &Namespace, target: &str, payload: &[u8]) {
    let mut stream = connect(machine, target);
    stream.write_all(payload).unwrap();
    let mut answer = vec![0; payload.len()];
    stream.read_exact(&mut answer).unwrap();
    assert!(answer == payload, "{target}");
}

/// What the router's kernel has for it.
fn traces(router: &Namespace) -> String {
    let lists = [
        ("nft", &["list", "tables"][..]),
        ("ip", &["rule"]),
        ("ip", &["-6", "rule"]),
        (
            "ip",
            &["route", "show", "table", "all", "type", "local", "0.0.0.0/0"],
        ),
    ];
    lists
        .map(|(program, arguments)| router.run(program, arguments).unwrap())
        .concat()
}

/// At the listener's own port a machine of the network finds nothing, and the router's programs are refused. The same
/// port of another machine is a target like others.
fn the_listener_leads_nobody_to_itself(routed: &Routed, client: &mut Client) {
    let echo = at(TARGETS[0], 12_345);
    let _echo = Service::tcp_echo(&routed.server, &echo);
    ask_tcp(&routed.client, &echo, b"the port of another machine");
    let inside = || TcpStream::connect("10.77.0.1:12345");
    let error = routed.client.inside(inside).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    let malformed = |client: &Client| client.status()["ingress"]["drops"]["malformed"].as_u64();
    for own in ["127.0.0.1:12345", "[::1]:12345"] {
        let before = client.status();
        let read = try_connect(&routed.router, own).and_then(|mut stream| stream.read(&mut [0]));
        assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset, "{own}");
        let dropped = malformed(client);
        let from = own.replace("12345", "0");
        let socket = routed.router.inside(|| UdpSocket::bind(&from)).unwrap();
        routed.router.inside(|| socket.send_to(b"itself", own)).unwrap();
        wait_until("the datagram to be refused", PROGRAM_LIMIT, || {
            malformed(client) > dropped
        });
        let after = client.status();
        assert_eq!(after["udp_sessions"]["total"], before["udp_sessions"]["total"]);
        assert_conserved(&after);
    }
    client
        .process()
        .wait_for_line("refused what was sent to it directly", PROGRAM_LIMIT)
        .unwrap();
}

#[test]
fn a_network_behind_a_router_reaches_any_target_through_the_tunnel_and_the_router_is_as_before_afterwards() {
    require_root!();
    let _no_load = no_load();
    let (routed, directory) = (Routed::new(1500), Directory::create_for_test().unwrap());
    for target in TARGETS {
        routed
            .server
            .run("ip", ["address", "add", target, "dev", "lo"])
            .unwrap();
    }
    let echoes: Vec<_> = TARGETS
        .iter()
        .flat_map(|target| {
            let target = at(target, 7000);
            [
                Service::udp_echo(&routed.server, &target),
                Service::tcp_echo(&routed.server, &target),
            ]
        })
        .collect();
    // The router itself, and a private network: both stay outside. The latter tells whom it sees.
    let _router = Service::tcp_echo(&routed.router, "10.77.0.1:7000");
    let _near = Service::tcp(&routed.server, "10.78.0.1:7001", |mut stream| {
        let peer = stream.peer_addr().unwrap().ip().to_string();
        let _ = stream.write_all(peer.as_bytes());
    });
    let before = traces(&routed.router);
    let allowed = [
        "--allow-target",
        "203.0.113.9/32",
        "--allow-target",
        "2001:db8:9::9/128",
    ];
    let server = Server::start(
        &routed.server.place(),
        "server",
        LISTEN,
        &allowed,
        directory.path(),
    );
    let place = routed.router.place();
    let options = [
        "--tproxy",
        "12345",
        "--tproxy-interface",
        "inside",
        "--connections",
        "2",
    ];
    let mut client = Client::start(&place, "client", &server.link(), &[], &options, directory.path());
    let line = client.wait_until_connected(1, PROGRAM_LIMIT);
    assert!(
        line.contains("transparent proxy of inside on port 12345"),
        "{line}"
    );
    assert!(traces(&routed.router).contains("gramway_tproxy"));

    for target in TARGETS.map(|target| at(target, 7000)) {
        for number in 0..8 {
            ask_udp(&routed.client, &target, &[number; 1_000]);
            ask_tcp(&routed.client, &target, &vec![number; 100_000]);
        }
    }
    // What does not fit a packet comes in fragments.
    ask_udp(&routed.client, &at(TARGETS[0], 7000), &[9; 5_000]);
    ask_tcp(&routed.client, "10.77.0.1:7000", b"the router");
    let mut peer = String::new();
    connect(&routed.client, "10.78.0.1:7001")
        .read_to_string(&mut peer)
        .unwrap();
    assert_eq!(peer, "10.77.0.2", "it was not proxied");
    let status = client.status();
    assert_eq!(status["tcp"]["total"], 16, "{}", status["tcp"]);
    assert_conserved(&status);
    drop(echoes);
    the_listener_leads_nobody_to_itself(&routed, &mut client);

    // Nothing stays, whether it is killed or ends.
    client.kill();
    let is_as_before = || traces(&routed.router) == before;
    wait_until("the guardian to undo it", PROGRAM_LIMIT, is_as_before);
    client.start_again();
    assert!(!is_as_before());
    assert_eq!(client.stop(), Some(0));
    wait_until("the end of it", PROGRAM_LIMIT, is_as_before);
}
