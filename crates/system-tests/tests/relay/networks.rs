//! What networks between the relays do: a firewall that waits for acknowledgements, a router that translates and
//! forgets, a path that grows narrow, a flood of handshakes.

use std::net::UdpSocket;
use std::time::Duration;

use system_tests::limits::PROGRAM_LIMIT;
use system_tests::service::Service;
use system_tests::source::{Source, pattern};
use system_tests::topology::Routed;
use system_tests::{require_program, require_root};
use testbed::usage::reset_peak;

use super::{ENTRANCE, FLOOD_BYTES_MAX, LISTEN, SYNS_PER_SECOND, TARGET, end, start_pair, watch, watched};
use crate::attackers::syn_flood::SynFlood;

/// How long the firewall waits for an acknowledgement of data, in seconds; Linux waits 300.
const UNACKNOWLEDGED_S: u64 = 4;

/// How long the flood lasts at least, and who opens a connection meanwhile.
const FLOOD: Duration = Duration::from_secs(4);
const NEWCOMERS: u64 = 40;

#[test]
fn data_that_nobody_answers_is_acknowledged_before_a_firewall_forgets_the_connection() {
    require_root!();
    require_program!("nft");
    let net = Routed::new(1500);
    watch(&net);
    for (parameter, value) in [
        ("nf_conntrack_tcp_timeout_unacknowledged", UNACKNOWLEDGED_S),
        // It does not take part of a connection for a new one.
        ("nf_conntrack_tcp_loose", 0),
    ] {
        let name = format!("net.netfilter.{parameter}");
        net.router.set_parameter(&name, &value.to_string()).unwrap();
    }
    let target = net.server.inside(|| UdpSocket::bind(TARGET).unwrap());
    target.set_read_timeout(Some(PROGRAM_LIMIT)).unwrap();
    let (near, far) = start_pair(&net, &[]);
    let source = Source::new(&net.client, ENTRANCE);
    let mut buffer = [0; 2_048];
    for round in 0..3_u64 {
        if round > 0 {
            std::thread::sleep(Duration::from_secs(UNACKNOWLEDGED_S + 1));
        }
        let sent = pattern(round, 1_000);
        source.send(&sent);
        let (length, _) = target.recv_from(&mut buffer).unwrap();
        assert_eq!(buffer[..length], sent);
    }
    let counters = end(near);
    assert_eq!(counters["reconnects"], 0, "{counters}");
    end(far);
    assert_eq!(watched(&net, "invalid"), 0);
}

#[test]
fn a_router_that_translates_and_forgets_costs_a_flow_its_connection_and_nothing_else() {
    require_root!();
    require_program!("nft");
    let net = Routed::new(1500);
    watch(&net);
    // Each connection gets another port, a forgotten one that goes on, too.
    net.router
        .nft(
            "table ip translated {\n\
             chain leaving { type nat hook postrouting priority 100;\n\
             oifname \"outside\" masquerade fully-random\n\
             }\n}\n",
        )
        .unwrap();
    let _echo = Service::udp_echo(&net.server, TARGET);
    let (near, far) = start_pair(&net, &[]);
    let mut source = Source::new(&net.client, ENTRANCE);
    for round in 0..3 {
        source.ask(&pattern(round, 1_000), PROGRAM_LIMIT);
        // Linux forgets what it masqueraded by an interface that is gone.
        net.router.set_link("outside", false).unwrap();
        net.router.set_link("outside", true).unwrap();
        let default = ["-6", "route", "replace", "fd78::/64", "dev", "outside"];
        net.router.run("ip", default).unwrap();
    }
    source.ask(b"still the same flow", PROGRAM_LIMIT);
    let counters = end(near);
    assert_eq!(counters["flows"]["all"], 1, "{counters}");
    assert_ne!(counters["reconnects"], 0, "{counters}");
    end(far);
}

#[test]
fn a_path_that_grows_narrow_is_told_by_its_router_and_heeded() {
    require_root!();
    require_program!("nft");
    let net = Routed::new(1500);
    watch(&net);
    let _echo = Service::udp_echo(&net.server, TARGET);
    let (near, far) = start_pair(&net, &[]);
    let mut source = Source::new(&net.client, ENTRANCE);
    source.ask(&pattern(1, 1_460), PROGRAM_LIMIT);
    net.router.set_mtu("outside", 1_280).unwrap();
    net.server.set_mtu("eth0", 1_280).unwrap();
    // The first that is too long is lost, and the router tells.
    source.send(&pattern(2, 1_460));
    source.ask(&pattern(3, 1_240), PROGRAM_LIMIT);
    source.send(&pattern(4, 1_241));
    source.ask(&pattern(5, 1_240), PROGRAM_LIMIT);
    let counters = end(near);
    assert_eq!(counters["dropped"]["too_large"], 1, "{counters}");
    assert_eq!(counters["reconnects"], 0, "{counters}");
    end(far);
    assert_eq!(watched(&net, "invalid"), 0);
}

#[test]
fn a_flood_of_handshakes_keeps_nobody_out_and_costs_little_memory() {
    require_root!();
    require_program!("nft");
    let net = Routed::new(1500);
    let _echo = Service::udp_echo(&net.server, TARGET);
    let (near, far) = start_pair(&net, &[]);
    let mut before = Source::new(&net.client, ENTRANCE);
    before.ask(b"before", PROGRAM_LIMIT);
    let idle = far.usage().peak_bytes;
    reset_peak(far.id());
    let flood = SynFlood::start(&net.client, LISTEN, SYNS_PER_SECOND);
    // Those that are there keep their ports: each newcomer has another one.
    let mut newcomers = Vec::new();
    for number in 0..NEWCOMERS {
        // One that has a connection, and one that needs another.
        before.ask(&pattern(number, 1_000), PROGRAM_LIMIT);
        let mut newcomer = Source::new(&net.client, ENTRANCE);
        newcomer.ask(&pattern(number, 1_000), PROGRAM_LIMIT);
        newcomers.push(newcomer);
        std::thread::sleep(FLOOD / NEWCOMERS as u32);
    }
    assert!(flood.rate() > 0.5 * SYNS_PER_SECOND as f64, "{}", flood.rate());
    drop(flood);
    let grown = far.usage().peak_bytes.saturating_sub(idle);
    assert!(grown <= FLOOD_BYTES_MAX, "it grew by {grown} bytes");
    let counters = end(near);
    assert_eq!(counters["reconnects"], 0, "{counters}");
    assert_eq!(counters["flows"]["all"], NEWCOMERS + 1, "{counters}");
    end(far);
}
