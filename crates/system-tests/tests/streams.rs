//! TCP as its users know it: half-close, reset, refusal, and a slow reader that holds up nobody but itself.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::service::{Service, connect, try_connect};
use system_tests::source::pattern;
use system_tests::{require_program, require_root};
use testbed::iperf::{self, IperfRun, IperfServer};
use testbed::process::Signal;
use testbed::wait::wait_until;

use crate::scene::{Scene, load};

const FORWARD: &str = "tcp:7000=127.0.0.1:7000";

/// Ends what runs beside a test when the test does, by a failure too.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Makes closing tell the other end that it did not end well.
fn reset(stream: TcpStream) {
    set_socket_linger(&stream, Some(Duration::ZERO)).expect("TCP knows it");
}

#[test]
fn half_close_passes_both_ways() {
    require_root!();
    let mut scene = Scene::new(&[FORWARD, "tcp:7001=127.0.0.1:7001"]);
    // A question ends by its half-close; the answer comes after.
    let _server = Service::tcp(&scene.pair.server, "127.0.0.1:7000", |mut stream| {
        let mut question = Vec::new();
        stream.read_to_end(&mut question).unwrap();
        stream
            .write_all(format!("{} bytes", question.len()).as_bytes())
            .unwrap();
    });
    let mut stream = connect(&scene.pair.client, "127.0.0.1:7000");
    stream.write_all(&pattern(1, 1_000_000)).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "1000000 bytes");
    // The other way round: the target ends its side first.
    let (sender, receiver) = mpsc::channel();
    let _server = Service::tcp(&scene.pair.server, "127.0.0.1:7001", move |mut stream| {
        stream.write_all(b"greeting").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        sender.send(rest).unwrap();
    });
    let mut stream = connect(&scene.pair.client, "127.0.0.1:7001");
    let mut greeting = String::new();
    stream.read_to_string(&mut greeting).unwrap();
    assert_eq!(greeting, "greeting");
    stream.write_all(b"still heard").unwrap();
    drop(stream);
    assert_eq!(receiver.recv_timeout(PROGRAM_LIMIT).unwrap(), b"still heard");
    wait_until("the end of both connections", PROGRAM_LIMIT, || {
        scene.client.status()["tcp"]["open"] == 0 && scene.server.status()["tcp"]["open"] == 0
    });
    scene.check();
}

/// What the kernel does when a target vanishes: it is watched for, without a word of the target's.
#[test]
fn a_target_that_is_silent_is_probed() {
    require_root!();
    require_program!("ss");
    let scene = Scene::new(&[FORWARD]);
    let _echo = Service::tcp_echo(&scene.pair.server, "127.0.0.1:7000");
    let mut stream = connect(&scene.pair.client, "127.0.0.1:7000");
    stream.write_all(b"echo").unwrap();
    stream.read_exact(&mut [0; 4]).unwrap();
    let wanted = ["-tnoH", "state", "established", "dport", "=", ":7000"];
    wait_until("a timer of probes", PROGRAM_LIMIT, || {
        let connections = scene.pair.server.run("ss", wanted).unwrap();
        connections.lines().count() == 1 && connections.contains("timer:(keepalive,")
    });
}

#[test]
fn a_reset_passes_both_ways() {
    require_root!();
    let mut scene = Scene::new(&[FORWARD]);
    let (sender, receiver) = mpsc::channel();
    let _server = Service::tcp(&scene.pair.server, "127.0.0.1:7000", move |mut stream| {
        let mut first = [0];
        stream.read_exact(&mut first).unwrap();
        if first == *b"r" {
            return reset(stream);
        }
        stream.write_all(b"k").unwrap();
        let result = stream.read_exact(&mut first).map_err(|error| error.kind());
        sender.send(result).unwrap();
    });
    let mut stream = connect(&scene.pair.client, "127.0.0.1:7000");
    stream.write_all(b"r").unwrap();
    let error = stream.read_exact(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let mut stream = connect(&scene.pair.client, "127.0.0.1:7000");
    stream.write_all(b"k").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    reset(stream);
    let seen = receiver.recv_timeout(PROGRAM_LIMIT).unwrap();
    assert_eq!(seen, Err(ErrorKind::ConnectionReset));
    scene.check();
}

#[test]
fn a_target_where_nobody_listens_resets_the_connection_and_is_told() {
    require_root!();
    let mut scene = Scene::new(&[FORWARD]);
    let stream = try_connect(&scene.pair.client, "127.0.0.1:7000");
    let error = stream
        .and_then(|mut stream| stream.read_exact(&mut [0]))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let warning = "the server refused TCP to 127.0.0.1:7000: nothing listens at the target";
    scene
        .client
        .process()
        .wait_for_line(warning, PROGRAM_LIMIT)
        .unwrap();
    assert_eq!(scene.client.status()["tcp"]["failed"], 1);
}

#[test]
fn a_target_that_resets_while_its_reader_pauses_costs_no_processor_time() {
    require_root!();
    let mut scene = Scene::new(&[FORWARD]);
    let (sender, receiver) = mpsc::channel();
    let _server = Service::tcp(&scene.pair.server, "127.0.0.1:7000", move |mut stream| {
        // Until the tunnel takes no more, for the reader takes nothing.
        stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        let chunk = pattern(1, 64 << 10);
        while stream.write_all(&chunk).is_ok() {}
        reset(stream);
        sender.send(()).unwrap();
    });
    let mut stream = connect(&scene.pair.client, "127.0.0.1:7000");
    receiver.recv_timeout(PROGRAM_LIMIT).unwrap();
    for process in [scene.client.process(), scene.server.process()] {
        let start = process.usage().cpu_seconds;
        // What is measured is that nothing happens for a while.
        std::thread::sleep(Duration::from_secs(1));
        let used = process.usage().cpu_seconds - start;
        assert!(used < 0.3, "{used} s of one second");
    }
    let error = stream.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    scene.check();
}

#[test]
fn a_slow_tcp_reader_beside_saturated_udp_costs_little_memory_and_stops_nobody() {
    require_root!();
    require_program!("iperf3");
    let _load = load();
    let forwards = [FORWARD, "udp:5201=127.0.0.1:5201", "tcp:5201=127.0.0.1:5201"];
    let mut scene = Scene::new(&forwards);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 5_201));
    let _iperf = IperfServer::start(&scene.pair.server.place(), address).unwrap();
    // Sends as much as it may, for as long as somebody takes it.
    let sent = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&sent);
    let _source = Service::tcp(&scene.pair.server, "127.0.0.1:7000", move |mut stream| {
        let chunk = pattern(1, 64 << 10);
        while stream.write_all(&chunk).is_ok() {
            counter.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        }
    });
    let mut stream = connect(&scene.pair.client, "127.0.0.1:7000");
    stream.read_exact(&mut [0; 64]).unwrap();
    let read = AtomicU64::new(0);
    let running = AtomicBool::new(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = [0; 1000];
            while running.load(Ordering::Relaxed) {
                stream.read_exact(&mut buffer).unwrap();
                read.fetch_add(1000, Ordering::Relaxed);
                // The pace of the reader is what is tested.
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let _stop = Stop(&running);
        let run = IperfRun::udp(address, 3, 1150, None);
        for run in [run.clone(), run.reversed()] {
            let result = iperf::run(&scene.pair.client.place(), &run);
            let flows = result
                .as_ref()
                .is_ok_and(|result| result.received_bytes > 1_000_000.0);
            assert!(flows, "{run:?}: {result:?}");
            scene.check();
        }
        let before = read.load(Ordering::Relaxed);
        wait_until("the slow reader to read on", PROGRAM_LIMIT, || {
            read.load(Ordering::Relaxed) > before
        });
    });
    // What the tunnel and the sockets on the way hold is bounded; the rest waits at its source.
    let (sent, read) = (sent.load(Ordering::Relaxed), read.load(Ordering::Relaxed));
    let under_way = sent.saturating_sub(read);
    assert!(under_way < 64 << 20, "{under_way} bytes are on the way");
    drop(stream);
    wait_until("the end of the connection at both ends", PROGRAM_LIMIT, || {
        scene.client.status()["tcp"]["open"] == 0 && scene.server.status()["tcp"]["open"] == 0
    });
}

#[test]
fn while_a_client_drains_its_listeners_are_closed_and_what_runs_goes_on() {
    require_root!();
    let mut scene = Scene::new(&[FORWARD, "udp:7001=127.0.0.1:7001"]);
    let _echo = Service::tcp_echo(&scene.pair.server, "127.0.0.1:7000");
    let mut stream = connect(&scene.pair.client, "127.0.0.1:7000");
    let mut answer = [0; 5];
    stream.write_all(b"first").unwrap();
    stream.read_exact(&mut answer).unwrap();
    let udp = scene
        .pair
        .client
        .inside(|| UdpSocket::bind("127.0.0.1:0").unwrap());
    udp.connect("127.0.0.1:7001").unwrap();
    udp.set_nonblocking(true).unwrap();
    scene.client.process().signal(Signal::TERM);
    let address = SocketAddr::from(([127, 0, 0, 1], 7000));
    wait_until("a refusal of TCP", PROGRAM_LIMIT, || {
        let connecting = scene.pair.client.inside(|| TcpStream::connect(address));
        connecting.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    });
    wait_until("a refusal of UDP", PROGRAM_LIMIT, || {
        udp.send(b"late")
            .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    });
    stream.write_all(b"still").unwrap();
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"still");
    drop(stream);
    assert_eq!(
        scene.client.process().wait(PROGRAM_LIMIT).unwrap().code(),
        Some(0)
    );
}
