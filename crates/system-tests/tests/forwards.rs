//! Real traffic through forwards: iperf3 both ways, both protocols on one port, IPv4 and IPv6 inside and outside.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::service::{Service, connect};
use system_tests::source::{Source, pattern};
use system_tests::topology::Pair;
use system_tests::tunnel::{Client, Server};
use system_tests::{require_program, require_root};
use testbed::directory::Directory;
use testbed::iperf::{self, IperfResult, IperfRun, IperfServer};

use crate::scene::{OPEN_LOOPBACK, Scene, both, load};

/// iperf3's server, and on the client's machine the way there.
const TARGET: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 5_201));

/// Far above what a busy machine loses at a fiftieth of the rate that it can carry.
const LOSS_MAX: f64 = 0.05;

fn measure(scene: &Scene, run: &IperfRun) -> IperfResult {
    iperf::run(&scene.pair.client.place(), run).unwrap_or_else(|error| panic!("{run:?}: {error}"))
}

#[test]
fn iperf_passes_udp_and_tcp_in_both_directions_with_one_and_four_flows() {
    require_root!();
    require_program!("iperf3");
    let _load = load();
    let mut scene = Scene::new(&both!("5201"));
    let _target = IperfServer::start(&scene.pair.server.place(), TARGET).unwrap();
    for streams in [1, 4] {
        let run = IperfRun {
            streams,
            ..IperfRun::udp(TARGET, 1, 1150, Some(50_000_000))
        };
        for run in [run.clone(), run.reversed()] {
            let result = measure(&scene, &run);
            assert!(
                result.datagrams > 0 && result.received_bytes > 0.0,
                "{run:?}: {result:?}"
            );
            assert!(result.loss <= LOSS_MAX, "{run:?}: {result:?}");
            scene.check();
        }
    }
    for streams in [1, 4] {
        let run = IperfRun {
            streams,
            ..IperfRun::tcp(TARGET, 1)
        };
        for run in [run.clone(), run.reversed()] {
            let result = measure(&scene, &run);
            assert!(result.received_bytes > 0.0, "{run:?}: {result:?}");
            scene.check();
        }
    }
    assert_eq!(scene.client.stop(), Some(0));
    assert_eq!(scene.server.stop(), Some(0));
}

#[test]
fn udp_and_tcp_share_a_port_number() {
    require_root!();
    let mut scene = Scene::new(&both!("7000"));
    let _udp = Service::udp_echo(&scene.pair.server, "127.0.0.1:7000");
    let _tcp = Service::tcp_echo(&scene.pair.server, "127.0.0.1:7000");
    Source::new(&scene.pair.client, "127.0.0.1:7000").ask(b"over udp", PROGRAM_LIMIT);
    let mut stream = connect(&scene.pair.client, "127.0.0.1:7000");
    stream.write_all(b"over tcp").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"over tcp");
    scene.check();
}

/// The lowest number that no descriptor of the process has: with this limit it gets no other.
fn lowest_free_descriptor(process: u32) -> u64 {
    let entries = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let used: Vec<u64> = entries
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
        .collect();
    (0..).find(|number| !used.contains(number)).unwrap()
}

#[test]
fn a_client_out_of_descriptors_rests_and_accepts_when_there_are_some_again() {
    require_root!();
    let _load = load();
    let mut scene = Scene::new(&both!("7000"));
    let _target = Service::tcp_echo(&scene.pair.server, "127.0.0.1:7000");
    let process = scene.client.process();
    let id = Pid::from_raw(process.id().cast_signed());
    let scarce = Rlimit {
        current: Some(lowest_free_descriptor(process.id())),
        ..getrlimit(Resource::Nofile)
    };
    let usual = prlimit(id, Resource::Nofile, scarce).unwrap();
    let mut stream = connect(&scene.pair.client, "127.0.0.1:7000");
    process
        .wait_for_line("cannot be accepted", PROGRAM_LIMIT)
        .unwrap();
    // A thread that polls all the time takes far more of these two seconds, even on a busy machine.
    let before = process.usage().cpu_seconds;
    std::thread::sleep(Duration::from_secs(2));
    let used = process.usage().cpu_seconds - before;
    assert!(used < 0.3, "{used} s");
    prlimit(id, Resource::Nofile, usual).unwrap();
    stream.write_all(b"late").unwrap();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"late");
    scene.check();
}

#[test]
fn ipv6_works_outside_and_inside() {
    require_root!();
    let forwards = [
        "udp:[::1]:7001=[::1]:7001",
        "tcp:[::1]:7001=[::1]:7001",
        "udp:7002=[::1]:7001",
        "udp:[::]:7003=127.0.0.1:7003",
    ];
    let mut scene = Scene::with(1500, "[fd77::1]:4433", &forwards);
    assert!(scene.server.link().contains("@[fd77::1]:4433?"));
    let _v6 = Service::udp_echo(&scene.pair.server, "[::1]:7001");
    let _v4 = Service::udp_echo(&scene.pair.server, "127.0.0.1:7003");
    let _tcp = Service::tcp_echo(&scene.pair.server, "[::1]:7001");
    // Inside IPv6; IPv4 to an IPv6 target; a wildcard that takes both, from the cable too.
    for listener in [
        "[::1]:7001",
        "127.0.0.1:7002",
        "127.0.0.1:7003",
        "[::1]:7003",
        "[fd77::2]:7003",
    ] {
        let mut source = Source::new(&scene.pair.client, listener);
        source.ask(listener.as_bytes(), PROGRAM_LIMIT);
        source.ask(&pattern(1, 20_000), PROGRAM_LIMIT);
    }
    let mut stream = connect(&scene.pair.client, "[::1]:7001");
    stream.write_all(b"six").unwrap();
    let mut answer = [0; 3];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"six");
    let peer = scene.server.status()["peers"][0]["remote"].clone();
    assert!(
        peer.as_str().is_some_and(|peer| peer.starts_with("[fd77::2]:")),
        "{peer}"
    );
    scene.check();
}

#[test]
fn a_server_on_the_wildcard_answers_over_ipv4_and_ipv6() {
    require_root!();
    let (pair, directory) = (Pair::new(1500), Directory::create_for_test().unwrap());
    let _echo = Service::udp_echo(&pair.server, "127.0.0.1:7000");
    let mut options = vec!["--public", "10.77.0.1", "--public", "fd77::1"];
    options.extend(OPEN_LOOPBACK);
    let server = Server::start(
        &pair.server.place(),
        "server",
        "[::]:4433",
        &options,
        directory.path(),
    );
    let link = server.link();
    let hosts = "10.77.0.1:4433,[fd77::1]:4433";
    assert!(link.contains(hosts), "{link}");
    for (name, host) in [("v4", "10.77.0.1:4433"), ("v6", "[fd77::1]:4433")] {
        let link = link.replace(hosts, host);
        let place = pair.client.place();
        let forward = ["udp:7000=127.0.0.1:7000"];
        let mut client = Client::start(&place, name, &link, &forward, &[], directory.path());
        Source::new(&pair.client, "127.0.0.1:7000").ask(host.as_bytes(), PROGRAM_LIMIT);
        assert_eq!(client.stop(), Some(0));
    }
}
