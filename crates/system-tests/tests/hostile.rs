//! Strangers at the server's port: garbage and handshakes that are never finished change nothing for its users.

use std::net::UdpSocket;
use std::path::Path;
use std::time::Duration;

use system_tests::conservation::assert_conserved;
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::program::memory_is_judged;
use system_tests::service::Service;
use system_tests::source::{Source, pattern};
use system_tests::topology::{CLIENT_V4, PAIR_SERVER_V4};
use system_tests::tunnel::Client;
use system_tests::{require_python, require_root};
use testbed::process::Process;
use testbed::wait::wait_until;

use crate::scene::{LISTEN, Scene, load};

const GARBAGE: u64 = 20_000;
const HALF_HANDSHAKES: usize = 2_000;

/// Strangers whose pieces of streams and handshakes wait behind gaps.
const GAPS: usize = 400;

/// What they may cost the server, in bytes of resident memory.
const GAPS_BYTES_MAX: u64 = 96 << 20;

/// For an attack to be made and sent, in Python.
const ATTACK_LIMIT: Duration = Duration::from_secs(120);

const FORWARD: &str = "udp:7000=127.0.0.1:7000";

/// Random bytes; or the beginning of a QUIC Initial, right in its first bytes (RFC 9000 section 17.2.2).
fn garbage(number: u64) -> Vec<u8> {
    let length = 1 + (number * 7919 % 1472) as usize;
    let mut bytes = pattern(number, length.max(32));
    if number.is_multiple_of(2) {
        bytes[0] = 0xc0 | bytes[0] & 0x0f;
        bytes[1..6].copy_from_slice(&[0, 0, 0, 1, 8]);
        // Source connection ID and token are empty; the length field says more than comes.
        bytes[14..18].copy_from_slice(&[0, 0, 0x44, 0xb0]);
    }
    bytes.truncate(length);
    bytes
}

#[test]
fn twenty_thousand_garbage_datagrams_do_not_disturb_a_session() {
    require_root!();
    let _load = load();
    let mut scene = Scene::new(&[FORWARD]);
    let _echo = Service::udp_echo(&scene.pair.server, "127.0.0.1:7000");
    let mut source = Source::new(&scene.pair.client, "127.0.0.1:7000");
    source.ask(b"before", PROGRAM_LIMIT);
    let strangers: Vec<UdpSocket> = scene.pair.client.inside(|| {
        (0..16)
            .map(|_| UdpSocket::bind((CLIENT_V4, 0)).unwrap())
            .collect()
    });
    for number in 0..GARBAGE {
        let stranger = &strangers[(number % 16) as usize];
        // A full buffer of the sender loses one, which is as good as another.
        let _ = stranger.send_to(&garbage(number), LISTEN);
        if number.is_multiple_of(500) {
            source.ask(&number.to_be_bytes(), PROGRAM_LIMIT);
        }
    }
    source.ask(&pattern(1, 40_000), PROGRAM_LIMIT);
    wait_for_connections(&scene, 0);
    let (client, server) = (scene.client.status(), scene.server.status());
    assert_eq!(client["reconnects"], 0, "{client}");
    let received = server["outer_io"]["segments_received"].as_u64();
    assert!(received.is_some_and(|count| count > GARBAGE / 2), "{server}");
    scene.check();
}

/// The server has had the client's connections and so many others, and none of strangers. They are waited for, because
/// a connection of the client may still look for another shard.
fn wait_for_connections(scene: &Scene, others: u64) {
    wait_until("as many connections at both ends", PROGRAM_LIMIT, || {
        let [client, server] = [scene.client.status(), scene.server.status()].map(|status| {
            status["connections"]["total"]
                .as_u64()
                .expect("a status counts them")
        });
        server == client + others
    });
}

/// A user with a session, and attempts of a script towards the server, from many networks behind the user's machine.
struct Attacked {
    attack: Process,
    source: Source,
    _echo: Service,
    scene: Scene,
    /// Of the server before, in bytes.
    peak_before: u64,
}

impl Attacked {
    /// With so many attempts.
    fn start(python: &Path, script: &str, count: usize) -> Self {
        let mut scene = Scene::new(&[FORWARD]);
        let echo = Service::udp_echo(&scene.pair.server, "127.0.0.1:7000");
        let networks = scene.pair.add_stranger_networks();
        let mut source = Source::new(&scene.pair.client, "127.0.0.1:7000");
        source.ask(b"before", PROGRAM_LIMIT);
        let peak_before = scene.server.process().usage().peak_bytes;
        let mut command = scene.pair.client.command(python);
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(script));
        command.args([PAIR_SERVER_V4, "4433", &count.to_string()]);
        command.args(networks.iter().map(ToString::to_string));
        Self {
            attack: Process::start(command, script).unwrap(),
            source,
            _echo: echo,
            scene,
            peak_before,
        }
    }

    /// The user works on until the attempts have ended, and does `more` meanwhile. What the script printed last.
    fn endure(&mut self, mut more: impl FnMut(&Scene)) -> String {
        wait_until("the end of the attack", ATTACK_LIMIT, || {
            let ended = self.attack.try_status();
            self.source.ask(b"meanwhile", PROGRAM_LIMIT);
            more(&self.scene);
            ended.is_some_and(|status| {
                assert!(status.success(), "{}", self.attack.stderr());
                true
            })
        });
        self.attack.stdout().trim().to_owned()
    }
}

#[test]
fn two_thousand_half_handshakes_keep_nobody_out() {
    require_root!();
    let python = require_python!();
    let _load = load();
    let mut attacked = Attacked::start(&python, "half_handshakes.py", HALF_HANDSHAKES);
    // Users that are there work on, and others come in: one after the other as long as it lasts, one afterwards.
    let (place, link) = (attacked.scene.pair.client.place(), attacked.scene.server.link());
    let mut newcomers = 0;
    let told = attacked.endure(|scene| {
        let forward = ["udp:7001=127.0.0.1:7000"];
        let (one, directory) = (["--connections", "1"], scene.directory.path());
        let mut newcomer = Client::start(&place, "newcomer", &link, &forward, &one, directory);
        Source::new(&scene.pair.client, "127.0.0.1:7001").ask(b"newcomer", PROGRAM_LIMIT);
        assert_eq!(newcomer.stop(), Some(0));
        newcomers += 1;
    });
    assert_eq!(told, HALF_HANDSHAKES.to_string());
    let scene = &mut attacked.scene;
    let (client, server) = (scene.client.status(), scene.server.status());
    assert_eq!(client["reconnects"], 0, "{client}");
    let incoming = |name: &str| {
        server["incoming"][name]
            .as_u64()
            .expect("new connections are counted")
    };
    let fates = [
        "accepted", "damaged", "refused", "retried", "ignored", "expired", "waiting",
    ];
    let decided: u64 = fates.into_iter().map(incoming).sum();
    assert_eq!(incoming("offered"), decided, "{server}");
    wait_for_connections(scene, newcomers);
    scene.check();
}

#[test]
fn pieces_behind_gaps_cost_the_server_little_memory_and_its_user_nothing() {
    require_root!();
    let python = require_python!();
    let _load = load();
    let mut attacked = Attacked::start(&python, "gaps.py", GAPS);
    assert_eq!(attacked.endure(|_| ()), (GAPS / 2).to_string());
    let (scene, idle) = (&mut attacked.scene, attacked.peak_before);
    let peak = scene.server.process().usage().peak_bytes;
    assert!(
        peak <= idle + GAPS_BYTES_MAX || !memory_is_judged(),
        "{idle} bytes before, {peak} at most"
    );
    let (client, server) = (scene.client.status(), scene.server.status());
    assert_eq!(client["reconnects"], 0, "{client}");
    assert_conserved(&client);
    assert_conserved(&server);
}
