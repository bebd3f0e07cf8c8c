//! Repair by the real program, over a path that loses one packet of twenty in each direction.

use std::time::{Duration, Instant};

use serde_json::Value;
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::service::Service;
use system_tests::source::{Source, pattern};
use system_tests::topology::Pair;
use system_tests::tunnel::{Client, Server};
use system_tests::{require_program, require_root};
use testbed::directory::Directory;

use crate::scene::{LISTEN, OPEN_LOOPBACK, Scene};

const FORWARD: &str = "udp:7000=127.0.0.1:7000";

/// Bytes of a payload; those of a question that was asked twice are fewer.
const PAYLOAD_BYTES: usize = 300;

/// Between two payloads.
const BETWEEN: Duration = Duration::from_millis(5);

/// Drops one packet of the tunnel of twenty that come in.
const LOSS: &str = "table inet loss {\n\
                    chain input { type filter hook input priority 0; \
                    meta l4proto udp th dport PORT numgen random mod 20 == 0 drop; }\n\
                    }\n";

fn repaired(status: &Value) -> u64 {
    status["egress"]["repaired"].as_u64().expect("a counter")
}

/// Sends `count` payloads at an even pace; returns how many came back.
fn stream(source: &mut Source, first: u64, count: u64) -> usize {
    let socket = source.socket();
    socket
        .set_nonblocking(true)
        .expect("a socket may be told not to wait");
    let mut buffer = [0; 2_000];
    let mut came = 0;
    let begin = Instant::now();
    for number in 0..count {
        let payload = pattern(first + number, PAYLOAD_BYTES);
        source.send(&payload);
        let next = begin + BETWEEN * (number as u32 + 1);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        while let Ok(bytes) = socket.recv(&mut buffer) {
            came += usize::from(bytes == PAYLOAD_BYTES);
        }
    }
    let last = Instant::now() + Duration::from_secs(1);
    while came < count as usize && Instant::now() < last {
        std::thread::sleep(BETWEEN);
        while let Ok(bytes) = socket.recv(&mut buffer) {
            came += usize::from(bytes == PAYLOAD_BYTES);
        }
    }
    came
}

#[test]
fn what_a_lossy_path_loses_is_repaired_in_both_directions() {
    require_root!();
    require_program!("nft");
    let (pair, directory) = (Pair::new(1500), Directory::create_for_test().unwrap());
    let (place, files) = (pair.server.place(), directory.path());
    let server = Server::start(&place, "server", LISTEN, &OPEN_LOOPBACK, files);
    let options = ["--repair", "250ms", "--connections", "1"];
    let client = Client::start(
        &pair.client.place(),
        "client",
        &server.link(),
        &[FORWARD],
        &options,
        files,
    );
    let mut scene = Scene {
        client,
        server,
        pair,
        directory,
    };
    let _echo = Service::udp_echo(&scene.pair.server, "127.0.0.1:7000");
    let mut source = Source::new(&scene.pair.client, "127.0.0.1:7000");
    source.ask(b"before", PROGRAM_LIMIT);
    assert_eq!(stream(&mut source, 0, 200), 200);
    assert_eq!(
        scene.client.status()["ingress"]["parity_sent"],
        0,
        "nothing is lost"
    );
    scene
        .pair
        .server
        .nft(&LOSS.replace("dport PORT", "dport 4433"))
        .unwrap();
    scene
        .pair
        .client
        .nft(&LOSS.replace("dport PORT", "sport 4433"))
        .unwrap();
    let mut first = 1_000;
    let deadline = Instant::now() + PROGRAM_LIMIT;
    while repaired(&scene.client.status()).min(repaired(&scene.server.status())) < 30 {
        assert!(Instant::now() < deadline, "{}", scene.client.status());
        stream(&mut source, first, 200);
        first += 200;
    }
    let came = stream(&mut source, first, 1_000);
    // The path alone loses every twentieth on each way, 97 of 1,000.
    assert!(came > 980, "{came} of 1000 came back: {}", scene.client.status());
    scene.check();
}
