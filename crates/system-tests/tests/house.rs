//! The helpers themselves: what they create works, and is gone afterwards.

use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use system_tests::directory::TestDirectory;
use system_tests::iperf::{IperfLoad, IperfServer, run_iperf};
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::namespace::Namespace;
use system_tests::place::Place;
use system_tests::process::{Process, Signal};
use system_tests::topology::{self, Pair, Routed};
use system_tests::wait::wait_until;
use system_tests::{require_program, require_root, test_name};

#[test]
fn a_test_knows_its_name() {
    assert_eq!(test_name!(), "house::a_test_knows_its_name");
}

#[test]
fn a_namespace_and_its_processes_vanish_even_after_a_panic() {
    require_root!();
    let directory = TestDirectory::new();
    let (sender, receiver) = std::sync::mpsc::channel();
    let result = std::thread::scope(|scope| {
        let body = || {
            let namespace = Namespace::new();
            let mut command = namespace.command("sleep");
            command.arg("1000");
            let process = Process::start(command, "sleep", directory.path());
            // Unguarded, as a program that a program started.
            let stray = namespace.command("sleep").arg("100").spawn().unwrap();
            // Inside only once `ip` has become the program.
            let name = format!("/proc/{}/comm", stray.id());
            wait_until("the stray process", PROGRAM_LIMIT, || {
                std::fs::read_to_string(&name).is_ok_and(|name| name.trim() == "sleep")
            });
            sender
                .send((namespace.name().to_owned(), process.id(), stray))
                .unwrap();
            panic!("on purpose");
        };
        scope.spawn(body).join()
    });
    assert!(result.is_err());
    let (name, guarded, mut stray) = receiver.recv().unwrap();
    assert!(!Path::new("/run/netns").join(name).exists());
    assert!(!Path::new("/proc").join(guarded.to_string()).exists());
    wait_until("the end of the stray process", PROGRAM_LIMIT, || {
        stray.try_wait().unwrap().is_some()
    });
}

#[test]
fn a_pair_of_machines_reaches_each_other_over_both_protocols() {
    require_root!();
    require_program!("ping");
    let pair = Pair::new(1500);
    for address in [topology::PAIR_SERVER_V4, topology::PAIR_SERVER_V6] {
        pair.client
            .run("ping", ["-c", "1", "-W", "5", "-s", "1400", "-M", "do", address]);
    }
}

#[test]
fn a_small_mtu_holds() {
    require_root!();
    require_program!("ping");
    let pair = Pair::new(1280);
    let mut too_large = pair.client.command("ping");
    too_large.args([
        "-c",
        "1",
        "-W",
        "1",
        "-s",
        "1400",
        "-M",
        "do",
        topology::PAIR_SERVER_V4,
    ]);
    assert!(!too_large.output().unwrap().status.success());
}

#[test]
fn a_router_moves_a_flow_to_another_port() {
    require_root!();
    require_program!("nft");
    let network = Routed::new(1500);
    let bind = |namespace: &Namespace, address: &str| {
        let socket = namespace.inside(|| UdpSocket::bind((address, 0)).unwrap());
        socket.set_read_timeout(Some(PROGRAM_LIMIT)).unwrap();
        socket
    };
    let server = bind(&network.server, topology::ROUTED_SERVER_V4);
    let client = bind(&network.client, topology::CLIENT_V4);
    client.connect(server.local_addr().unwrap()).unwrap();
    for outside_port in [40_001, 40_002] {
        network.translate_udp(client.local_addr().unwrap().port(), outside_port);
        let mut buffer = [0; 16];
        client.send(b"ping").unwrap();
        let (length, seen) = server.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..length], seen.port()), (&b"ping"[..], outside_port));
        assert_eq!(seen.ip().to_string(), topology::ROUTER_OUTSIDE_V4);
        server.send_to(b"pong", seen).unwrap();
        let length = client.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"pong");
    }
}

#[test]
fn iperf_reports_what_it_measured() {
    require_root!();
    require_program!("iperf3");
    let directory = TestDirectory::new();
    let pair = Pair::new(1500);
    let address = topology::PAIR_SERVER_V4.parse().unwrap();
    let _server = IperfServer::start(&pair.server.place(), address, 5201, directory.path());
    let arguments = ["-b", "1M", "-l", "1000"].map(str::to_owned).to_vec();
    let load = IperfLoad {
        address,
        port: 5201,
        udp: true,
        seconds: 1,
        arguments,
    };
    let report = run_iperf(&pair.client.place(), &load, directory.path()).unwrap();
    assert!(report.packets > 0 && report.received_bytes > 0, "{report:?}");
    let load = IperfLoad {
        udp: false,
        arguments: Vec::new(),
        ..load
    };
    assert!(
        run_iperf(&pair.client.place(), &load, directory.path())
            .unwrap()
            .received_bytes
            > 0
    );
    let load = IperfLoad { port: 5202, ..load };
    assert!(
        run_iperf(&pair.client.place(), &load, directory.path())
            .unwrap_err()
            .contains("unable to connect")
    );
}

#[test]
fn a_process_is_waited_for_and_signalled() {
    let directory = TestDirectory::new();
    let mut command = Place::Host.command("sh");
    command.args([
        "-c",
        "trap 'exit 7' TERM; echo ready >&2; while :; do sleep 0.05; done",
    ]);
    let mut process = Process::start(command, "trap", directory.path());
    assert_eq!(process.wait_for_line("ready", PROGRAM_LIMIT), "ready");
    assert!(process.peak_memory_bytes().unwrap() > 0);
    process.signal(Signal::TERM);
    assert_eq!(process.wait(PROGRAM_LIMIT).code(), Some(7));
}

#[test]
fn waiting_for_a_line_of_a_program_that_ended_fails_at_once() {
    let directory = TestDirectory::new();
    let waiting = || {
        let mut process = Process::start(Command::new("true"), "true", directory.path());
        process.wait_for_line("never", Duration::from_secs(3600))
    };
    assert!(std::thread::scope(|scope| scope.spawn(waiting).join()).is_err());
}
