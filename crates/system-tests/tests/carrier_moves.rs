//! UDP that lets handshakes through and is throttled later: the connection moves to TCP's shape, and back when UDP is
//! as good again (specs/path.md). Nothing that goes over it is lost.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use system_tests::limits::PROGRAM_LIMIT;
use system_tests::service::connect;
use system_tests::tunnel::Client;
use system_tests::{require_program, require_python, require_root};
use testbed::namespace::Namespace;
use testbed::wait::{holds_within, wait_until};

use crate::front_door;
use crate::relay::watched;
use crate::tcp_shape::{Scene, carrier};

/// It takes some six seconds; on a busy machine a trial may fail, and the next one begins 30 s later.
const SWITCH_LIMIT: Duration = Duration::from_secs(120);

/// UDP is tried again after 30 s, for ten.
const RETURN_LIMIT: Duration = Duration::from_secs(120);

/// Bytes that a sender wants to send at once, and how often: 16 Mbit/s.
static PIECE: [u8; 20_000] = [7; 20_000];
const PAUSE: Duration = Duration::from_millis(10);

/// Leads to the server's machine.
const FORWARD: &str = "tcp:127.0.0.1:7001=127.0.0.1:7001";
const ENTRANCE: &str = "127.0.0.1:7001";

/// Where the connection goes, and why.
const TO_TCP: (&str, &str) = ("tcp", "it carries more than UDP, which held traffic back");
const TO_UDP: (&str, &str) = ("udp", "UDP carries what is wanted");

/// UDP has 1 Mbit/s where packets pass this hook.
fn throttle(hook: &str) -> String {
    format!(
        "table inet throttle {{ chain {hook} {{ type filter hook {hook} priority -1; \
         meta l4proto udp limit rate over 125 kbytes/second burst 32 kbytes drop; }}; }}"
    )
}

/// Who sends.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Up,
    Down,
}

/// Sends until it is told to stop; how much was sent.
fn send(stream: &mut TcpStream, is_over: &AtomicBool) -> u64 {
    let mut sent = 0;
    while !is_over.load(Ordering::Relaxed) {
        stream.write_all(&PIECE).unwrap();
        sent += PIECE.len() as u64;
        std::thread::sleep(PAUSE);
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    sent
}

/// Receives until the other end has sent all.
fn receive(stream: &mut TcpStream, received: &AtomicU64) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let bytes = stream.read(&mut buffer).unwrap();
        if bytes == 0 {
            return;
        }
        assert!(buffer[..bytes].iter().all(|byte| *byte == 7));
        received.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Ends the sender.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends all the time through [`FORWARD`], while `during` looks at what was received.
fn flows(
    way: Way,
    [near, far]: [&Namespace; 2],
    start: impl FnOnce() -> Client,
    during: impl FnOnce(&Client, &AtomicU64),
) {
    let listener = far.inside(|| TcpListener::bind(ENTRANCE)).unwrap();
    let client = start();
    assert_eq!(carrier(&client).0, "udp");
    let mut near = connect(near, ENTRANCE);
    let (mut far, _) = listener.accept().unwrap();
    for stream in [&near, &far] {
        stream.set_read_timeout(Some(RETURN_LIMIT)).unwrap();
        stream.set_write_timeout(Some(RETURN_LIMIT)).unwrap();
    }
    let (sender, receiver) = match way {
        Way::Up => (&mut near, &mut far),
        Way::Down => (&mut far, &mut near),
    };
    let (is_over, received) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        // A test that fails ends the threads, too.
        let end = End(&is_over);
        let sending = scope.spawn(|| send(sender, &is_over));
        let receiving = scope.spawn(|| receive(receiver, &received));
        wait_until("traffic at full speed", PROGRAM_LIMIT, || {
            received.load(Ordering::Relaxed) > 8 << 20
        });
        during(&client, &received);
        drop(end);
        let sent = sending.join().unwrap();
        receiving.join().unwrap();
        assert_eq!(received.load(Ordering::Relaxed), sent);
    });
    assert_eq!(client.status()["reconnects"], 0);
}

fn wait_for(client: &Client, wanted: (&str, &str), limit: Duration) {
    let is_there = || {
        let (kind, reason) = carrier(client);
        (kind.as_str(), reason.as_str()) == wanted
    };
    assert!(
        holds_within(limit, is_there),
        "not {wanted:?} but {:#}",
        client.status()["shards"]
    );
}

fn moves_and_comes_back(way: Way) {
    require_root!();
    require_program!("nft");
    let scene = Scene::new(&[]);
    let net = &scene.net;
    let start = || {
        let mut client = scene.client_with(&[FORWARD], &["--connections", "1"]);
        client.wait_until_connected(1, PROGRAM_LIMIT);
        client
    };
    flows(way, [&net.client, &net.server], start, |client, _| {
        net.router.nft(&throttle("forward")).unwrap();
        wait_for(client, TO_TCP, SWITCH_LIMIT);
        net.router.nft("delete table inet throttle").unwrap();
        wait_for(client, TO_UDP, RETURN_LIMIT);
        scene.exchange();
    });
    assert_eq!(watched(net, "invalid"), 0);
}

/// PATH-4 to PATH-6.
#[test]
fn an_upload_leaves_throttled_udp_and_comes_back_when_it_is_better() {
    moves_and_comes_back(Way::Up);
}

/// PATH-2.
#[test]
fn a_download_leaves_throttled_udp_and_comes_back_when_it_is_better() {
    moves_and_comes_back(Way::Down);
}

/// There the client's connections have no IDs.
#[test]
fn behind_a_cover_throttled_udp_is_left_as_well() {
    require_root!();
    require_program!("nft");
    let scene = front_door::Scene::new(require_python!(), &["--tcp=:4444"]);
    let pair = &scene.pair;
    let start = || scene.client("client", &[FORWARD], &["--connections", "1"]);
    let ends = [&pair.client, &pair.server];
    flows(Way::Down, ends, start, |client, received| {
        pair.client.nft(&throttle("input")).unwrap();
        wait_for(client, TO_TCP, SWITCH_LIMIT);
        let before = received.load(Ordering::Relaxed);
        wait_until("traffic at full speed again", PROGRAM_LIMIT, || {
            received.load(Ordering::Relaxed) > before + (8 << 20)
        });
    });
}
