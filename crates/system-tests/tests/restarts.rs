//! Either end dies and comes back: the other one lives on, and traffic flows again without anybody's help.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use system_tests::conservation::assert_conserved;
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::require_root;
use system_tests::service::{Service, connect};
use system_tests::source::Source;
use testbed::process::Signal;
use testbed::wait::wait_until;

use crate::scene::{Scene, both, load};

/// What the users of UDP are promised after a restart of the server.
const BACK_LIMIT: Duration = Duration::from_secs(3);

struct Restartable {
    scene: Scene,
    source: Source,
    _udp: Service,
    _tcp: Service,
}

fn restartable() -> Restartable {
    let scene = Scene::new(&both!("7000"));
    let udp = Service::udp_echo(&scene.pair.server, "127.0.0.1:7000");
    let tcp = Service::tcp_echo(&scene.pair.server, "127.0.0.1:7000");
    let mut source = Source::new(&scene.pair.client, "127.0.0.1:7000");
    source.ask(b"before", PROGRAM_LIMIT);
    Restartable {
        scene,
        source,
        _udp: udp,
        _tcp: tcp,
    }
}

impl Restartable {
    /// The server is restarted; UDP is back in time, on the same listener and from the same source.
    fn restart_server(&mut self, name: &str) {
        let start = Instant::now();
        self.scene.server.start_again();
        self.source.ask(name.as_bytes(), PROGRAM_LIMIT);
        let taken = start.elapsed();
        assert!(taken <= BACK_LIMIT, "{name}: UDP was back after {taken:?}");
    }

    fn tcp_works(&self) {
        let mut stream = connect(&self.scene.pair.client, "127.0.0.1:7000");
        stream.write_all(b"again").unwrap();
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"again");
    }
}

#[test]
fn udp_is_back_within_three_seconds_of_a_servers_restart() {
    require_root!();
    let _load = load();
    let mut state = restartable();
    let client = state.scene.client.process().id();
    // At once: the client does not know yet, the new server tells it by a stateless reset.
    state.scene.server.kill();
    state.restart_server("at once");
    // After a while: the client knows, and has begun to pause between its attempts. One of its stripes may have been
    // back before the others were lost.
    let told = state
        .scene
        .client
        .process()
        .stderr()
        .matches("connecting again")
        .count();
    state.scene.server.kill();
    let Restartable { scene, source, .. } = &mut state;
    assert_eq!(source.try_ask(b"nobody", Duration::from_secs(3)), None);
    scene
        .client
        .process()
        .wait_for_starts("connecting again", told + 1, PROGRAM_LIMIT)
        .unwrap();
    state.restart_server("after a while");
    state.tcp_works();
    let status = state.scene.client.status();
    assert_eq!(status["reconnects"], told + 1, "{status}");
    assert_eq!(state.scene.client.process().id(), client);
    state.scene.check();
}

#[test]
fn a_tcp_connection_ends_clearly_when_its_server_dies() {
    require_root!();
    let mut state = restartable();
    let mut stream = connect(&state.scene.pair.client, "127.0.0.1:7000");
    stream.write_all(b"hello").unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).unwrap();
    state.scene.server.kill();
    state.scene.server.start_again();
    state.source.ask(b"back", PROGRAM_LIMIT);
    // A reset, not an orderly end: nobody may take what has come for all there was.
    let error = stream.read_exact(&mut answer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    state.tcp_works();
}

#[test]
fn a_new_tcp_connection_fails_clearly_while_the_server_is_away() {
    require_root!();
    let mut state = restartable();
    state.scene.server.kill();
    assert_eq!(state.source.try_ask(b"nobody", Duration::from_secs(2)), None);
    let lost = "connecting again";
    state
        .scene
        .client
        .process()
        .wait_for_starts(lost, 1, PROGRAM_LIMIT)
        .unwrap();
    let mut stream = connect(&state.scene.pair.client, "127.0.0.1:7000");
    let error = stream.read_exact(&mut [0; 5]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let warning = "a local TCP connection was closed: the tunnel is down";
    state
        .scene
        .client
        .process()
        .wait_for_line(warning, PROGRAM_LIMIT)
        .unwrap();
    assert_eq!(state.scene.client.status()["tcp"]["failed"], 1);
}

#[test]
fn a_killed_client_starts_again_on_the_same_ports() {
    require_root!();
    let mut state = restartable();
    state.scene.client.kill();
    state.scene.client.start_again();
    state.source.ask(b"back", PROGRAM_LIMIT);
    state.tcp_works();
    state.scene.check();
}

#[test]
fn a_drained_end_lets_a_transfer_finish_and_ends_with_zero() {
    require_root!();
    let mut state = restartable();
    for is_server in [false, true] {
        let mut stream = connect(&state.scene.pair.client, "127.0.0.1:7000");
        let mut echo = |text: &[u8; 5]| {
            stream.write_all(text).unwrap();
            let mut answer = [0; 5];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, text);
        };
        echo(b"first");
        let scene = &mut state.scene;
        let process = match is_server {
            true => scene.server.process(),
            false => scene.client.process(),
        };
        process.signal(Signal::TERM);
        process.wait_for_starts("stopping", 1, PROGRAM_LIMIT).unwrap();
        if !is_server {
            // Who comes now is refused at once, and does not wait for somebody who will never answer.
            let client = &scene.pair.client;
            wait_until("the end of the listener", PROGRAM_LIMIT, || {
                let late = client.inside(|| TcpStream::connect("127.0.0.1:7000"));
                late.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
            });
        }
        echo(b"after");
        assert!(process.try_status().is_none(), "it waits for the transfer");
        drop(stream);
        assert_eq!(process.wait(PROGRAM_LIMIT).unwrap().code(), Some(0));
        assert!(
            process
                .stderr()
                .lines()
                .last()
                .is_some_and(|line| line.starts_with("ended after"))
        );
        if !is_server {
            assert_conserved(&scene.server.status());
            scene.client.start_again();
        }
    }
}

#[test]
fn a_second_signal_ends_at_once_in_spite_of_a_transfer() {
    require_root!();
    let mut state = restartable();
    for is_server in [true, false] {
        let mut stream = connect(&state.scene.pair.client, "127.0.0.1:7000");
        stream.write_all(b"hello").unwrap();
        stream.read_exact(&mut [0; 5]).unwrap();
        let process = match is_server {
            true => state.scene.server.process(),
            false => state.scene.client.process(),
        };
        process.signal(Signal::TERM);
        process.wait_for_starts("stopping", 1, PROGRAM_LIMIT).unwrap();
        let start = Instant::now();
        process.signal(Signal::TERM);
        assert_eq!(process.wait(PROGRAM_LIMIT).unwrap().code(), Some(0));
        // Clearly before the ten seconds that a transfer has.
        assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
        if is_server {
            state.scene.server.start_again();
            state.source.ask(b"back", PROGRAM_LIMIT);
        }
    }
}
