//! `gramway relay`: a pair of them around a network that follows TCP connections.

mod analysed;
pub(crate) mod ends;
mod joined;
mod keys;
mod networks;
mod phantun;
mod traffic;
mod wireguard;

use std::net::{Ipv4Addr, SocketAddrV4};

use serde_json::Value;
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::program::gramway_binary;
use system_tests::topology::Routed;
use testbed::namespace::Namespace;
use testbed::process::{Process, Signal};

/// Where the other relay of a pair takes connections.
pub(crate) const LISTEN: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 78, 0, 1), 443);

/// Where the pair's UDP side is on the client's machine, and the target on the server's.
pub(crate) const ENTRANCE: &str = "127.0.0.1:7000";
pub(crate) const TARGET: &str = "127.0.0.1:7001";

/// A flood of handshakes, in SYNs a second.
pub(crate) const SYNS_PER_SECOND: u64 = 10_000;

/// What half-open connections may cost a relay: 512 of half a KiB in each worker, and the packets that wait meanwhile.
pub(crate) const FLOOD_BYTES_MAX: u64 = 16 << 20;

/// A relay in a namespace, ready to carry.
fn start(namespace: &Namespace, listen: &str, to: &str, more: &[&str]) -> Process {
    let mut command = namespace.command(gramway_binary());
    command
        .args(["relay", "--json", "--listen", listen, "--to", to])
        .args(more);
    let mut relay = Process::start(command, "relay").unwrap();
    relay.wait_for_line("relaying ", PROGRAM_LIMIT).unwrap();
    relay
}

/// Both relays of a pair over `net`: the one of the client's machine, and the other.
pub(crate) fn start_pair(net: &Routed, more: &[&str]) -> (Process, Process) {
    let tcp = format!("tcp:{LISTEN}");
    let far = start(&net.server, &tcp, &format!("udp:{TARGET}"), more);
    let near = start(&net.client, &format!("udp:{ENTRANCE}"), &tcp, more);
    (near, far)
}

/// Ends a relay; the counters that it leaves, each datagram accounted for.
pub(crate) fn end(mut relay: Process) -> Value {
    relay.signal(Signal::TERM);
    let status = relay.wait(PROGRAM_LIMIT).unwrap();
    assert_eq!(status.code(), Some(0), "{}", relay.stderr());
    let told = relay.stdout();
    let counters: Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    let number = |path: &str| counters.pointer(path).and_then(Value::as_u64).unwrap();
    let received = number("/udp/received") + number("/tcp/received");
    let sent = number("/udp/sent") + number("/tcp/sent");
    let reasons = ["too_large", "socket_full", "no_connection", "no_flow", "other"];
    let dropped: u64 = reasons
        .iter()
        .map(|reason| number(&format!("/dropped/{reason}")))
        .sum();
    assert_eq!(received, sent + dropped + number("/waiting"), "{counters}");
    counters
}

/// Counts on the router what its connection tracking finds invalid, and RSTs.
pub(crate) fn watch(net: &Routed) {
    net.router
        .nft(
            "table inet watch {\n\
             counter invalid { }\n\
             counter resets { }\n\
             chain passing { type filter hook forward priority 0;\n\
             ct state invalid counter name invalid drop\n\
             tcp flags & rst == rst counter name resets\n\
             }\n}\n",
        )
        .unwrap();
}

/// Packets of a counter of [`watch`].
pub(crate) fn watched(net: &Routed, counter: &str) -> u64 {
    let told = net
        .router
        .run("nft", ["list", "counter", "inet", "watch", counter])
        .unwrap();
    let count = told
        .split("packets ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    count.unwrap().parse().unwrap()
}
