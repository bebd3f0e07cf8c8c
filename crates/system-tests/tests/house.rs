//! The helpers themselves: what they create works, and is gone afterwards.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Command;

use system_tests::limits::PROGRAM_LIMIT;
use system_tests::skip::skip;
use system_tests::topology::{self, Pair, Routed};
use system_tests::{require_program, require_root, test_name};
use testbed::control_group::ControlGroup;
use testbed::iperf::{self, IperfRun, IperfServer};
use testbed::namespace::Namespace;
use testbed::place::Place;
use testbed::process::{Process, Signal};
use testbed::wait::wait_until;

#[test]
fn a_test_knows_its_name() {
    assert_eq!(test_name!(), "house::a_test_knows_its_name");
}

#[test]
fn a_namespace_and_its_processes_vanish_even_after_a_panic() {
    require_root!();
    let (sender, receiver) = std::sync::mpsc::channel();
    let result = std::thread::scope(|scope| {
        let body = || {
            let namespace = Namespace::create().unwrap();
            let mut command = namespace.command("sleep");
            command.arg("1000");
            let process = Process::start(command, "sleep").unwrap();
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
fn the_time_of_a_process_that_nobody_waits_for_is_counted_and_it_ends_with_its_group() {
    require_root!();
    let group = match ControlGroup::create() {
        Ok(group) => group,
        Err(error) => return skip(test_name!(), &error.to_string()),
    };
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "setsid sh -c 'while :; do :; done' < /dev/null > /dev/null 2>&1 &",
    ]);
    let mut shell = Process::start(group.wrap(&command), "sh").unwrap();
    assert!(shell.wait(PROGRAM_LIMIT).unwrap().success());
    wait_until("processor time of the stray process", PROGRAM_LIMIT, || {
        group.cpu_seconds() > 0.2
    });
    let strays = group.processes();
    assert_eq!(strays.len(), 1);
    drop(group);
    // It may stay as a zombie, until whoever adopted it waits for it.
    let status = std::fs::read_to_string(format!("/proc/{}/status", strays[0])).unwrap_or_default();
    assert!(
        status.is_empty() || status.contains("State:\tZ"),
        "it lives on: {status}"
    );
    let left = testbed::leftovers::control_groups_of(std::process::id());
    assert_eq!(left.count(), 0);
}

#[test]
fn a_pair_of_machines_reaches_each_other_over_both_protocols() {
    require_root!();
    require_program!("ping");
    let pair = Pair::new(1500);
    for address in [topology::PAIR_SERVER_V4, topology::PAIR_SERVER_V6] {
        pair.client
            .run("ping", ["-c", "1", "-W", "5", "-s", "1400", "-M", "do", address])
            .unwrap();
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
    let pair = Pair::new(1500);
    let address = SocketAddr::new(topology::PAIR_SERVER_V4.parse().unwrap(), 5_201);
    let _server = IperfServer::start(&pair.server.place(), address).unwrap();
    let run = |run: &IperfRun| iperf::run(&pair.client.place(), run);
    let udp = run(&IperfRun::udp(address, 1, 1000, Some(1_000_000))).unwrap();
    assert!(udp.datagrams > 0 && udp.received_bytes > 0.0, "{udp:?}");
    assert!(run(&IperfRun::tcp(address, 1)).unwrap().received_bytes > 0.0);
    let nobody = SocketAddr::new(address.ip(), 5_202);
    let error = run(&IperfRun::tcp(nobody, 1)).unwrap_err();
    assert!(error.to_string().contains("unable to connect"), "{error}");
}

#[test]
fn a_process_is_waited_for_and_signalled() {
    let mut command = Place::Host.command("sh");
    command.args([
        "-c",
        "trap 'exit 7' TERM; echo ready >&2; while :; do sleep 0.05; done",
    ]);
    let mut process = Process::start(command, "trap").unwrap();
    assert_eq!(process.wait_for_line("ready", PROGRAM_LIMIT).unwrap(), "ready");
    assert!(process.usage().peak_bytes > 0);
    process.signal(Signal::TERM);
    assert_eq!(process.wait(PROGRAM_LIMIT).unwrap().code(), Some(7));
}
