//! What passes in TCP's shape, and which carrier a client takes.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;
use system_tests::conservation::assert_conserved;
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::service::connect;
use system_tests::source::{Source, pattern};
use system_tests::{require_program, require_root};
use testbed::wait::wait_until;

use super::{ENTRANCE, Scene, carrier};
use crate::relay::watched;

/// UDP has 300 ms of advance; the rest is for handshakes on a busy machine.
const SWITCH_LIMIT: Duration = Duration::from_secs(10);

/// Ports that a client loses one after the other.
const MOVES: u32 = 4;

/// Longer than what a client bears in silence before it heeds a refusal.
const PAUSE: Duration = Duration::from_millis(1_500);

/// Clients of which one has to keep its connection all the time.
const TRIES: u32 = 3;

#[test]
fn forwards_pass_in_tcps_shape_and_no_packet_is_invalid_to_a_firewall() {
    require_root!();
    require_program!("nft");
    let mut scene = Scene::new(&[]);
    let mut client = scene.client(&["--carrier", "tcp"]);
    let line = client.wait_until_connected(1, PROGRAM_LIMIT);
    assert!(line.contains("in packets that look like TCP"), "{line}");
    scene.exchange();
    assert_eq!(carrier(&client).0, "tcp");
    assert_eq!(scene.server.status()["peers"][0]["carrier"], "tcp");
    assert_conserved(&client.status());
    assert_conserved(&scene.server.status());
    assert_eq!(client.stop(), Some(0));
    assert_eq!(scene.server.stop(), Some(0));
    assert_eq!(watched(&scene.net, "invalid"), 0);
}

#[test]
fn ip_packets_pass_in_tcps_shape() {
    require_root!();
    require_program!("nft", "ping");
    let scene = Scene::new(&["--tun=tun0"]);
    let mut client = scene.client(&["--carrier", "tcp", "--tun=tun0"]);
    client.wait_until_connected(1, PROGRAM_LIMIT);
    for size in ["56", "1400", "4000"] {
        wait_until("an answer through the tunnel", PROGRAM_LIMIT, || {
            let mut ping = scene.net.client.command("ping");
            ping.args(["-n", "-c", "1", "-W", "1", "-s", size, "10.86.0.1"]);
            ping.output().unwrap().status.success()
        });
    }
    assert_conserved(&client.status());
    assert_conserved(&scene.server.status());
    assert_eq!(watched(&scene.net, "invalid"), 0);
}

#[test]
fn a_path_that_grows_narrow_below_a_connection_is_heeded() {
    require_root!();
    require_program!("nft");
    let scene = Scene::new(&[]);
    let mut client = scene.client(&["--carrier", "tcp", "--connections", "1"]);
    client.wait_until_connected(1, PROGRAM_LIMIT);
    scene.exchange();
    // QUIC has room in it, but not for packets as long as those that passed until now.
    scene.net.router.set_mtu("outside", 1_300).unwrap();
    scene.net.server.set_mtu("eth0", 1_300).unwrap();
    let mut source = Source::new(&scene.net.client, ENTRANCE);
    wait_until("an answer by the narrow path", PROGRAM_LIMIT, || {
        source
            .try_ask(&pattern(1, 1_200), Duration::from_millis(500))
            .is_some()
    });
    scene.exchange();
    assert_eq!(client.status()["reconnects"], 0);
    assert_conserved(&client.status());
    assert_eq!(watched(&scene.net, "invalid"), 0);
}

#[test]
fn udp_comes_first_where_it_works() {
    require_root!();
    require_program!("nft");
    let scene = Scene::new(&[]);
    let mut client = scene.client(&["--connections", "1"]);
    client.wait_until_connected(1, PROGRAM_LIMIT);
    scene.exchange();
    assert_eq!(
        carrier(&client),
        ("udp".to_owned(), "it answered first".to_owned())
    );
}

/// PATH-8.
#[test]
fn where_a_firewall_drops_all_udp_a_connection_moves_and_another_client_begins_in_tcps_shape() {
    require_root!();
    require_program!("nft");
    let scene = Scene::new(&[]);
    let mut client = scene.client(&["--connections", "1"]);
    client.wait_until_connected(1, PROGRAM_LIMIT);
    assert_eq!(carrier(&client).0, "udp");
    let mut stream = connect(&scene.net.client, ENTRANCE);
    stream.set_read_timeout(Some(PROGRAM_LIMIT)).unwrap();
    let hole =
        "table inet hole { chain forward { type filter hook forward priority -1; meta l4proto udp drop; }; }";
    scene.net.router.nft(hole).unwrap();
    let began = Instant::now();
    let mut received = [0; 5];
    stream.write_all(b"on it").unwrap();
    stream.read_exact(&mut received).unwrap();
    println!("moved within {:?}", began.elapsed());
    assert_eq!(&received, b"on it");
    let wanted = ("tcp".to_owned(), "nothing answered over UDP".to_owned());
    assert_eq!(carrier(&client), wanted);
    assert_eq!(client.status()["reconnects"], 0);
    assert_eq!(client.stop(), Some(0));
    let mut client = scene.client(&["--connections", "1"]);
    client.wait_until_connected(1, SWITCH_LIMIT);
    scene.exchange();
    assert_eq!(carrier(&client), wanted);
    assert_eq!(watched(&scene.net, "invalid"), 0);
}

/// PATH-8.
#[test]
fn where_a_firewall_rejects_all_udp_the_connection_itself_moves() {
    require_root!();
    require_program!("nft");
    let scene = Scene::new(&[]);
    let mut client = scene.client(&["--connections", "1"]);
    client.wait_until_connected(1, PROGRAM_LIMIT);
    let mut stream = connect(&scene.net.client, ENTRANCE);
    stream.set_read_timeout(Some(PROGRAM_LIMIT)).unwrap();
    let mut received = [0; 5];
    let mut echo = || {
        stream.write_all(b"on it").unwrap();
        stream.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"on it");
    };
    echo();
    // Then the first refusal says as much as silence.
    let mut heard = (Instant::now(), Value::Null);
    wait_until("a pause in which nothing comes", PROGRAM_LIMIT, || {
        let received = client.status()["quic"]["packets_received"].clone();
        if received != heard.1 {
            heard = (Instant::now(), received);
        }
        heard.0.elapsed() > PAUSE
    });
    let wall = "table inet wall { chain forward { type filter hook forward priority -1; \
                meta l4proto udp reject; }; }";
    scene.net.router.nft(wall).unwrap();
    echo();
    let wanted = ("tcp".to_owned(), "nothing answered over UDP".to_owned());
    assert_eq!(carrier(&client), wanted);
    let status = client.status();
    assert_eq!(status["reconnects"], 0, "{status}");
}

#[test]
fn a_connection_that_moves_to_other_ports_goes_on_whichever_shard_gets_them() {
    require_root!();
    require_program!("nft");
    // On a busy machine a move may take longer than a client waits for it, and then another connection is as good.
    assert!((0..TRIES).any(|_| goes_on_over_other_ports()), "none of {TRIES}");
}

/// Takes one port after the other from a connection. Whether it lived on; another one in its place is told.
fn goes_on_over_other_ports() -> bool {
    let scene = Scene::new(&["--connections", "2"]);
    let mut client = scene.client(&["--carrier", "tcp", "--connections", "1"]);
    client.wait_until_connected(1, PROGRAM_LIMIT);
    let mut stream = connect(&scene.net.client, ENTRANCE);
    stream.set_read_timeout(Some(PROGRAM_LIMIT)).unwrap();
    let mut received = [0; 5];
    // A port leads to the other shard as often as not.
    for hole in 0..MOVES {
        let status = client.status();
        let local: SocketAddr = status["local"].as_str().unwrap().parse().unwrap();
        let port = local.port();
        let script = format!(
            "table inet hole{hole} {{ chain forward {{ type filter hook forward priority -1; \
             tcp sport {port} drop; tcp dport {port} drop; }}; }}"
        );
        scene.net.router.nft(&script).unwrap();
        let answer = stream
            .write_all(b"on it")
            .and_then(|()| stream.read_exact(&mut received));
        if let Err(error) = answer {
            assert_ne!(client.status()["reconnects"], 0, "{error}");
            return false;
        }
        assert_eq!(&received, b"on it");
    }
    assert_eq!(client.status()["reconnects"], 0);
    assert_eq!(scene.server.status()["connections"]["total"], 1);
    true
}
