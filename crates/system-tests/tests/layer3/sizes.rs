//! Path MTUs: from the least to jumbo frames without configuration, and changes under way.

use system_tests::{require_program, require_root};

use super::*;
use crate::scene::load;

/// IP and ICMP headers in front of a ping's payload, in bytes.
const V4_HEADERS: u64 = 28;
const V6_HEADERS: u64 = 48;

/// Whether a ping whose packet has exactly `bytes` is answered, not to be fragmented on the way.
fn passes(machine: &Namespace, address: &str, bytes: u64) -> bool {
    let headers = if address.contains(':') {
        V6_HEADERS
    } else {
        V4_HEADERS
    };
    let payload = (bytes - headers).to_string();
    ping(machine, address, &["-M", "do", "-s", &payload])
}

#[test]
fn paths_of_1280_1500_and_9000_bytes_are_used_whole() {
    require_root!();
    require_program!("ping", "iperf3");
    let _load = load();
    for (path, expected) in [(1280, 1280..=1280), (1500, 1400..=1440), (9000, 8900..=8940)] {
        let tunnel = Tunnel::new(path, &[], &[]);
        let machines = &tunnel.machines;
        let machine = &machines.first;
        wait_until("the path's MTU", PATH_LIMIT, || expected.contains(&mtu(machine)));
        for address in [SERVER_V4, SERVER_V6] {
            wait_until("a packet of the whole MTU", PATH_LIMIT, || {
                passes(machine, address, mtu(machine))
            });
            assert!(!passes(machine, address, mtu(machine) + 1), "{path}");
            iperf(machine, &machines.server, &tcp(address));
            iperf(machine, &machines.server, &tcp(address).reversed());
        }
        tunnel.check();
    }
}

#[test]
fn a_path_that_shrinks_and_grows_is_followed_and_senders_are_told() {
    require_root!();
    require_program!("ping", "iperf3");
    let _load = load();
    // An idle stripe does not learn of the change: it sends nothing that could be lost.
    let one = ["--connections", "1"];
    let mut tunnel = Tunnel::new(1500, &one, &one);
    let machines = &tunnel.machines;
    let machine = &machines.first;
    wait_until("Ethernet's MTU", PATH_LIMIT, || mtu(machine) > 1400);
    let before = mtu(machine);
    // Each direction finds out by its own traffic: TCP's first flight and some of its repetitions are lost whole, which
    // takes about as long as one short connection lives. The next one passes.
    machines.router.set_mtu("outside", 1300).unwrap();
    machines.server.set_mtu("eth0", 1300).unwrap();
    connect_until(machine, &machines.server, &tcp(SERVER_V4), || {
        mtu(machine) == 1280
    });
    iperf(machine, &machines.server, &tcp(SERVER_V4));
    let line = tunnel
        .client
        .process()
        .wait_for_line("MTU 1280", PROGRAM_LIMIT)
        .unwrap();
    assert!(line.contains("routes 10.9.0.0/24, fd09::/64"), "{line}");
    wait_until("a packet of the whole MTU", PATH_LIMIT, || {
        passes(machine, SERVER_V6, 1280)
    });
    connect_until(machine, &machines.server, &tcp(SERVER_V4).reversed(), || {
        mtu(&machines.server) == 1280
    });
    iperf(machine, &machines.server, &tcp(SERVER_V4).reversed());
    let text = ping_says(&machines.server, "10.9.0.2", &["-M", "do", "-s", "1372"]);
    assert!(text.contains("mtu"), "{text}");
    machines.router.set_mtu("outside", 1500).unwrap();
    machines.server.set_mtu("eth0", 1500).unwrap();
    // Larger packets are tried again only now and then; a new connection finds out at once, if the kernel has forgotten
    // what the router said, which it does after ten minutes.
    for namespace in [machine, &machines.server] {
        namespace.run("ip", ["route", "flush", "cache"]).unwrap();
    }
    assert_eq!(tunnel.client.stop(), Some(0));
    let client = connect(machine, "client", &tunnel.server, &one, &tunnel.directory);
    wait_until("Ethernet's MTU again", PATH_LIMIT, || mtu(machine) == before);
    assert_conserved(&client.status());
}

/// Connections of two seconds, each way, in which a path that shrank is found at the latest.
const CONNECTIONS_MAX: usize = 3;

/// Lets one connection after the other run until `is_found`.
fn connect_until(from: &Namespace, to: &Namespace, run: &IperfRun, is_found: impl Fn() -> bool) {
    let mut said = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        said.push(try_iperf(from, to, run));
        if is_found() {
            return;
        }
    }
    panic!("not found by {said:?}");
}
