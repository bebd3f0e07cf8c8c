//! A client whose way leads to the genuine site: it says so, behaves as a browser that has seen enough, and finds its
//! server again when the way leads there.

use std::time::Duration;

use serde_json::Value;
use system_tests::cover::{Cover, Stack};
use system_tests::{require_program, require_python, require_root};
use testbed::wait::wait_until;

use super::*;

/// Where the site is for those who are led there.
const SITE: &str = "10.77.0.1:8443";

/// Leads there whoever begins to talk to the server, and counts what comes in all.
const LED: &str = "table ip led {
    counter to_the_site { }
    chain lead { type nat hook prerouting priority dstnat; udp dport 4433 redirect to :8443; }
    chain count { type filter hook input priority 0; udp dport 8443 counter name to_the_site; }
}";

/// What a local program sends meanwhile: each payload would take a packet.
const PAYLOADS: u64 = 300;

/// Two clients' handshakes, with what keeps and ends their connections, and those of their next attempts.
const PACKETS_MAX: u64 = PAYLOADS / 2;

/// Of the second pause, twenty seconds, with the attempts around it.
const COMEBACK_LIMIT: Duration = Duration::from_secs(120);

fn packets_at_the_site(scene: &Scene) -> u64 {
    let list = ["-j", "list", "counters", "table", "ip", "led"];
    let listed = scene.pair.server.run("nft", list).unwrap();
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let counters = listed["nftables"].as_array().unwrap();
    let counter = counters.iter().find(|entry| entry["counter"].is_object());
    counter.unwrap()["counter"]["packets"].as_u64().unwrap()
}

/// QR1-19.
#[test]
fn a_client_that_is_led_to_the_genuine_site_says_so_and_finds_its_server_again() {
    require_root!();
    require_program!("nft");
    let scene = Scene::new(require_python!(), &[]);
    let (stack, place) = (Stack::Aioquic(&scene.python), scene.pair.server.place());
    let _site = Cover::start(stack, &place, SITE, (&scene.authority, NAME), &[]);
    scene.pair.server.nft(LED).unwrap();
    let roots = scene.authority.root().to_str().unwrap();
    let options = ["--connections", "1", "--cover-roots", roots];
    let begin = |name: &str, forwards: &[&str], options: &[&str]| {
        let (place, files) = (scene.pair.client.place(), scene.directory.path());
        Client::start_unconnected(&place, name, &scene.server.link(), forwards, options, files)
    };
    let mut client = begin("client", &both!("7000"), &options);
    let mut impatient = begin(
        "impatient",
        &both!("7001"),
        &[&options[..], &["--exit-on-failure"]].concat(),
    );
    wait_until("the client sees where it is", PROGRAM_LIMIT, || {
        client.process().stderr().contains("the genuine site answered")
    });
    assert_eq!(client.status()["state"], "redirected");
    // Nothing of the tunnel goes there, whatever local programs send.
    let source = Source::new(&scene.pair.client, "127.0.0.1:7000");
    let before = packets_at_the_site(&scene);
    for _ in 0..PAYLOADS {
        source.send(&[7; 1_000]);
    }
    let code = impatient.process().wait(PROGRAM_LIMIT).unwrap().code();
    assert_eq!(code, Some(UNAVAILABLE));
    let said = impatient.process().stderr();
    assert!(
        said.contains("no connection in time") && said.contains("the genuine site answered"),
        "{said}"
    );
    let sent = packets_at_the_site(&scene) - before;
    assert!(sent <= PACKETS_MAX, "{sent} packets");
    assert_eq!(scene.of_cover("/relay/taken_over"), 0);

    scene.pair.server.nft("delete table ip led").unwrap();
    client.wait_until_connected(1, COMEBACK_LIMIT);
    assert_carries(&scene);
    assert_eq!(client.status()["state"], "connected");
    assert_eq!(client.stop(), Some(0));
}
