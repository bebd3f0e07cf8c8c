//! Ten thousand spoofed first packets of handshakes a second at a server with a cover, beside an honest client. What it
//! costs the client's speed is a matter of `bench front-door`; here is what holds on any machine.

use std::net::Ipv4Addr;

use serde_json::json;
use system_tests::program::{bench_binary, memory_is_judged};
use system_tests::require_python;
use system_tests::source::pattern;
use system_tests::topology::CLIENT_V4;
use testbed::usage::reset_peak;

use super::*;
use crate::scene::load;

/// Spoofed packets in a second: ten times what the server lets in of new addresses.
const SPOOFED_PER_SECOND: u32 = 10_000;

/// Where they come from: 32,768 networks, of which none exists.
const NOWHERE: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 128, 0, 0), 9);

/// All strangers' flows of a server, as `reality::limits::FLOWS_MAX` has it.
const FLOWS_MAX: u64 = 4_096;

/// What all of them may cost the server, in bytes of resident memory: 4 KiB each for socket and books, and 2 MiB that
/// wait.
const FLOOD_BYTES_MAX: u64 = FLOWS_MAX * (4 << 10) + (2 << 20);

/// What the honest client sends meanwhile, payload by payload, each when the one before has come back.
const PAYLOADS: u64 = 200;

/// For the strangers' table to be full: four seconds on a machine that has nothing else to do.
const FULL_LIMIT: Duration = Duration::from_secs(90);

/// Starts the flood from the client's machine; answers go there, and nobody takes them.
fn start_flood(pair: &Pair) -> Process {
    let (network, bits) = NOWHERE;
    let network_text = format!("{network}/{bits}");
    let route = ["route", "add", &network_text, "via", CLIENT_V4];
    pair.server.run("ip", route).unwrap();
    let options = json!({
        "server": LISTEN, "network": [network, bits], "per_second": SPOOFED_PER_SECOND
    });
    let mut command = pair.client.command(bench_binary());
    command.args(["_spoof", &options.to_string()]);
    let process = Process::start(command, "flood").unwrap();
    let ready = process.next_line(PROGRAM_LIMIT);
    assert_eq!(ready.as_deref(), Some("null"), "{}", process.last_words());
    process
}

/// QR1-25.
#[test]
fn a_flood_of_spoofed_handshakes_takes_bounded_memory_and_no_honest_datagram() {
    require_root!();
    let python = require_python!();
    let _load = load();
    let mut scene = Scene::new(python, &[]);
    let client = scene.client("client", &both!("7000"), &[]);
    assert_carries(&scene);
    let echo = Service::udp_echo(&scene.pair.server, "127.0.0.1:7000");
    let mut source = Source::new(&scene.pair.client, "127.0.0.1:7000");
    let before = scene.server.process().usage().peak_bytes;
    reset_peak(scene.server.process().id());

    let mut flood = start_flood(&scene.pair);
    wait_until("more strangers than the server has room for", FULL_LIMIT, || {
        scene.of_cover("/relay/evicted") > 0
    });
    for number in 0..PAYLOADS {
        source.ask(&pattern(number, 1_000), PROGRAM_LIMIT);
    }
    assert!(scene.of_cover("/flows/open") <= FLOWS_MAX);
    assert!(scene.of_cover("/relay/shed") > 0);
    flood.close_stdin();
    let report: Value = serde_json::from_str(&flood.next_line(PROGRAM_LIMIT).unwrap()).unwrap();
    assert!(report["sent"].as_u64().unwrap() > FLOWS_MAX, "{report}");

    drop(echo);
    let peak = scene.server.process().usage().peak_bytes;
    println!("{report}; memory before and at the peak: {before}, {peak}");
    assert!(
        peak <= before + FLOOD_BYTES_MAX || !memory_is_judged(),
        "{before} bytes before, {peak} at the peak"
    );
    assert_carries(&scene);
    let status = client.status();
    assert_eq!(status["reconnects"], 0, "{status}");
    // Those in all tell nothing: a connection may still look for another shard of the server.
    for shard in status["shards"].as_array().unwrap() {
        assert_eq!(shard["reconnects"], 0, "{status}");
    }
    assert_conserved(&status);
    assert_conserved(&scene.server.status());
    assert_eq!(scene.server.stop(), Some(0));
}
