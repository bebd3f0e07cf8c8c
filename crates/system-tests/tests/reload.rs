//! A configuration that is read again under traffic: what changes takes effect, and no datagram is lost.

use std::fs;
use std::io::ErrorKind;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use system_tests::limits::PROGRAM_LIMIT;
use system_tests::program::gramway_binary;
use system_tests::require_root;
use system_tests::service::Service;
use system_tests::source::Source;
use system_tests::topology::Pair;
use system_tests::tunnel::{Client, Server};
use testbed::directory::Directory;
use testbed::process::Signal;
use testbed::programs::run;

use crate::scene::LISTEN;

/// Datagrams that are on their way at a time.
const WINDOW: u64 = 32;

/// Sends datagrams to an echo and takes their answers until told to stop; how many went. Each has to come back.
fn traffic(source: &Source, is_over: &AtomicBool) -> u64 {
    let (mut sent, mut buffer) = (0_u64, [0; 64]);
    while !is_over.load(Ordering::Relaxed) {
        for number in sent..sent + WINDOW {
            source.send(&number.to_be_bytes());
        }
        sent += WINDOW;
        let deadline = Instant::now() + PROGRAM_LIMIT;
        let mut missing = WINDOW;
        while missing > 0 {
            assert!(
                Instant::now() < deadline,
                "{missing} datagrams up to {sent} are lost"
            );
            match source.socket().recv(&mut buffer) {
                Ok(length) => {
                    assert_eq!(length, 8);
                    missing -= 1;
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
            }
        }
    }
    sent
}

#[test]
fn ten_reloads_and_a_hundred_changes_of_users_lose_no_datagram_and_a_broken_file_changes_nothing() {
    require_root!();
    let (pair, directory) = (Pair::new(1500), Directory::create_for_test().unwrap());
    let files = directory.path();
    let _echoes = ["127.0.0.1:7000", "127.0.0.1:7001"].map(|place| Service::udp_echo(&pair.server, place));
    let open = |ports: &[u16], idle: usize| {
        let targets: Vec<_> = ports.iter().map(|port| format!("127.0.0.1/32:{port}")).collect();
        format!("allow_target = {targets:?}\nudp_idle_timeout_s = {idle}\n")
    };
    let config = directory.write("server.toml", &open(&[7000], 100)).unwrap();
    let options = ["--config", config.to_str().unwrap()];
    let mut server = Server::start(&pair.server.place(), "server", LISTEN, &options, files);
    let forwards = ["udp:7000=127.0.0.1:7000", "udp:7001=127.0.0.1:7001"];
    let place = pair.client.place();
    let link = server.link();
    let mut client = Client::start(&place, "client", &link, &forwards, &["--connections", "1"], files);
    let mut source = Source::new(&pair.client, "127.0.0.1:7000");
    source.ask(b"first", PROGRAM_LIMIT);
    let mut closed = Source::new(&pair.client, "127.0.0.1:7001");
    closed.send(b"refused");
    let refusal = "refused UDP to 127.0.0.1:7001";
    client.process().wait_for_line(refusal, PROGRAM_LIMIT).unwrap();

    let reload = |state: &std::path::Path| {
        let mut command = Command::new(gramway_binary());
        run(command.args(["ctl", "reload", "--state"]).arg(state)).unwrap()
    };
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let flow = scope.spawn(|| traffic(&source, &is_over));
        for number in 0..5 {
            fs::write(&config, open(&[7000], 101 + number)).unwrap();
            assert_eq!(reload(server.state()), "server: udp_idle_timeout_s: changed\n");
            let policy = ["drop-oldest", "drop-newest"][number % 2];
            let text = format!("queue_policy = \"{policy}\"\n");
            fs::write(client.state().join("config.toml"), text).unwrap();
            client.process().signal(Signal::HUP);
            let told = "reload: queue_policy: changed";
            client
                .process()
                .wait_for_starts(told, number + 1, PROGRAM_LIMIT)
                .unwrap();
            for user in 0..10 {
                server.user(&["add", &format!("user{number}{user}")]);
                server.user(&["remove", &format!("user{number}{user}")]);
            }
        }
        fs::write(
            &config,
            "allow_target = [\"127.0.0.1\"]\nudp_idle_timeout_s = 0\n",
        )
        .unwrap();
        server.process().signal(Signal::HUP);
        let told = "reload failed, nothing is changed";
        server.process().wait_for_line(told, PROGRAM_LIMIT).unwrap();
        is_over.store(true, Ordering::Relaxed);
        assert!(flow.join().unwrap() > 0);
    });

    fs::write(&config, open(&[7000, 7001], 105)).unwrap();
    assert_eq!(
        reload(server.state()),
        "server: allow_target: changed for what opens from now on\n"
    );
    closed.ask(b"open", PROGRAM_LIMIT);
    assert_eq!(server.status()["connections"]["total"], 1, "the connection stays");
}
