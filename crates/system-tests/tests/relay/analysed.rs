//! What a foreign analyser of TCP says about a capture of a relay's connections.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use packet_io::{DatagramSocket, Outgoing, ReceiveBatch, SLOT_BYTES_MAX};
use system_tests::skip::{find, skip};
use system_tests::topology::Routed;
use system_tests::{require_program, require_root, test_name};
use testbed::directory::Directory;
use testbed::process::{Process, Signal};
use testbed::programs;
use testbed::wait::wait_until;

use super::traffic::{DATAGRAM_BYTES, FLOWS, WINDOW, expect, socket, window};
use super::{ENTRANCE, TARGET, end, start_pair, watch, watched};

/// Bytes of datagrams there and back, in an ordinary run and in a long one.
const BYTES: u64 = 64 << 20;
const BYTES_LONG: u64 = 1 << 30;

/// To begin and to end a capture.
const CAPTURE_LIMIT: Duration = Duration::from_secs(60);

/// Bytes of a file in which its last packets are.
const TAIL_BYTES: usize = 64 << 10;

/// What the analyser says about an ordinary connection (FTCP-29): how it begins and ends.
const ORDINARY: [&str; 5] = [
    "Connection establish request (SYN)",
    "Connection establish acknowledge (SYN+ACK)",
    "Connection finish (FIN)",
    "This frame initiates the connection closing",
    "This frame undergoes the connection closing",
];

/// Captures the headers of what passes the router until it is told to end.
fn capture(net: &Routed, file: &Path) -> Process {
    let mut command = net.router.command("tshark");
    let filter = "tcp port 443 or udp port 9";
    command.args([
        "-q", "-i", "outside", "-f", filter, "-s", "128", "-B", "256", "-w",
    ]);
    command.arg(file);
    let process = Process::start(command, "tshark").unwrap();
    // It has begun when a probe is in the file, behind the file's own headers.
    let probe = net.client.inside(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    let mut header = 0;
    wait_until("the capture begins", CAPTURE_LIMIT, || {
        let bytes = std::fs::metadata(file).map_or(0, |file| file.len());
        if header == 0 {
            header = bytes;
        }
        // A refusal of an earlier one is no matter.
        let _ = probe.send_to(b"a probe", "10.78.0.1:9");
        header > 0 && bytes > header
    });
    process
}

/// Ends a capture when all that passed so far is in its file: packets are written in their order.
fn finish(mut capturing: Process, net: &Routed, file: &Path) {
    let probe = net.client.inside(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    let last = b"the last packet of the capture";
    wait_until("the end of the capture", CAPTURE_LIMIT, || {
        let _ = probe.send_to(last, "10.78.0.1:9");
        let bytes = std::fs::read(file).unwrap();
        let tail = &bytes[bytes.len().saturating_sub(TAIL_BYTES)..];
        tail.windows(last.len()).any(|window| window == last)
    });
    capturing.signal(Signal::INT);
    capturing.wait(CAPTURE_LIMIT).unwrap();
}

/// What the analyser says about packets, each once; and how many there are.
fn said(file: &Path) -> (BTreeSet<String>, u64) {
    let fields = |arguments: &[&str]| {
        let mut command = Command::new("tshark");
        command
            .arg("-r")
            .arg(file)
            .args(["-d", "tcp.port==443,data", "-T", "fields"]);
        programs::run(command.args(arguments)).unwrap()
    };
    let numbers = fields(&["-Y", "tcp", "-e", "frame.number"]);
    let messages = fields(&[
        "-Y",
        "_ws.expert",
        "-E",
        "aggregator=;",
        "-e",
        "_ws.expert.message",
    ]);
    let messages = messages.lines().flat_map(|line| line.split(';'));
    // A SYN's names its port.
    let named = |message: &str| message.split(": server port").next().unwrap_or("").to_owned();
    (messages.map(named).collect(), numbers.lines().count() as u64)
}

/// Sends so many bytes through a pair of relays, half of them back, and has a capture of it analysed.
fn is_analysed(bytes: u64) {
    let (net, directory) = (Routed::new(1500), Directory::create_for_test().unwrap());
    watch(&net);
    let file = directory.path().join("relay.pcapng");
    let capturing = capture(&net, &file);
    let (near, far) = start_pair(&net, &[]);
    let mut target = socket(&net.server, TARGET);
    let mut sources: Vec<_> = (0..FLOWS).map(|_| socket(&net.client, "127.0.0.1:0")).collect();
    let mut batch = ReceiveBatch::new(64, SLOT_BYTES_MAX);
    let entrance = ENTRANCE.parse().unwrap();
    let rounds = bytes / 2 / (u64::from(WINDOW) * (FLOWS * DATAGRAM_BYTES) as u64);
    let mut there = [0; FLOWS];
    let mut back = [[0; FLOWS]; FLOWS];
    for round in 0..rounds as u32 {
        let reached = (round + 1) * WINDOW;
        for (flow, source) in sources.iter_mut().enumerate() {
            let train = window(flow, round * WINDOW);
            source
                .send(&[Outgoing::to(entrance, &train[..], DATAGRAM_BYTES)])
                .unwrap();
        }
        let from = expect(&mut target, &mut batch, &mut there, reached);
        for (flow, source) in sources.iter_mut().enumerate() {
            let train = window(flow, round * WINDOW);
            target
                .send(&[Outgoing::to(from[flow], &train[..], DATAGRAM_BYTES)])
                .unwrap();
            let next = &mut back[flow];
            (0..FLOWS)
                .filter(|other| *other != flow)
                .for_each(|other| next[other] = reached);
            expect(source, &mut batch, next, reached);
        }
    }
    end(near);
    end(far);
    finish(capturing, &net, &file);
    let (said, packets) = said(&file);
    println!("{packets} packets, {} MB: {said:?}", bytes / 1_000_000);
    // Super-segments have 45 datagrams at most.
    assert!(
        packets > bytes / (45 * DATAGRAM_BYTES as u64),
        "{packets} packets"
    );
    let (begin, end) = (ORDINARY[0], ORDINARY[2]);
    assert!(
        said.contains(begin) && said.contains(end),
        "it analyses: {said:?}"
    );
    let unusual: Vec<_> = said
        .iter()
        .filter(|said| !ORDINARY.contains(&said.as_str()))
        .collect();
    assert_eq!(unusual, Vec::<&String>::new());
    assert_eq!(watched(&net, "invalid"), 0);
}

/// FTCP-29.
#[test]
fn tshark_finds_an_ordinary_stream() {
    require_root!();
    require_program!("nft");
    if find(&["tshark"]).is_none() {
        let reason = "needs tshark, which no step installs: its packages take 128 MB";
        return skip(test_name!(), reason);
    }
    is_analysed(BYTES);
}

#[test]
#[ignore = "takes a minute: `cargo test -p system-tests -- --ignored analysed`, as root and with tshark"]
fn tshark_finds_an_ordinary_stream_in_a_gigabyte() {
    require_root!();
    require_program!("nft", "tshark");
    is_analysed(BYTES_LONG);
}
