//! Machines between the relays that join segments: a router, which keeps their size beside them, and a bridge that
//! forgets it.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Instant;

use system_tests::limits::PROGRAM_LIMIT;
use system_tests::service::Service;
use system_tests::source::{Source, pattern};
use system_tests::topology::Routed;
use system_tests::{require_program, require_python, require_root};
use testbed::namespace::{End, Namespace, join};
use testbed::process::Process;

use super::{ENTRANCE, LISTEN, TARGET, end, start, start_pair};

/// Datagrams of one burst, any two of which are longer than a segment.
const SIZES: [usize; 12] = [
    1_200, 1_200, 1_200, 1_200, 900, 800, 1_400, 1_400, 1_000, 1_458, 1_100, 1_100,
];

/// Bursts that have to pass whole.
const BURSTS: u64 = 20;

fn script(namespace: &Namespace, python: &Path, arguments: &[&str]) -> Process {
    let mut command = namespace.command(python);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/joins.py"));
    command.args(arguments);
    Process::start(command, "joins.py").unwrap()
}

fn switch(namespace: &Namespace, python: &Path, arguments: &[&str]) {
    let arguments = [&["switch"], arguments].concat();
    let mut switching = script(namespace, python, &arguments);
    let status = switching.wait(PROGRAM_LIMIT).unwrap();
    assert!(status.success(), "{}", switching.stderr());
}

fn burst(number: u64) -> Vec<Vec<u8>> {
    let datagram = |place: usize| pattern(1_000 * number + place as u64, SIZES[place]);
    (0..SIZES.len()).map(datagram).collect()
}

/// Sends a burst to the echo; whether all of it came back. What came is what was sent, now or in an earlier burst.
fn burst_returns(source: &Source, number: u64) -> bool {
    let mut missing: BTreeSet<_> = burst(number).into_iter().collect();
    missing.iter().for_each(|datagram| source.send(datagram));
    let mut buffer = vec![0; 65_535];
    while !missing.is_empty() {
        match source.socket().recv(&mut buffer) {
            Ok(length) => {
                let came = &buffer[..length];
                let was_sent = missing.remove(came)
                    || (0..number).any(|late| burst(late).iter().any(|sent| sent == came));
                assert!(was_sent, "{length} bytes were not sent so");
            }
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::WouldBlock), "{error}");
                return false;
            }
        }
    }
    true
}

/// Sends bursts until so many in a row came back whole.
fn bursts_return(source: &Source) {
    let deadline = Instant::now() + PROGRAM_LIMIT;
    let (mut number, mut in_a_row) = (0, 0);
    while in_a_row < BURSTS {
        assert!(Instant::now() < deadline, "{in_a_row} bursts in a row");
        number += 1;
        in_a_row = if burst_returns(source, number) {
            in_a_row + 1
        } else {
            0
        };
    }
}

/// FTCP-2.
#[test]
fn a_router_that_joins_segments_keeps_the_borders_of_all_sizes() {
    require_root!();
    require_program!("nft");
    let python = require_python!();
    let net = Routed::new(1500);
    net.router
        .nft(
            "table inet joins {\n\
             counter carried { }\n\
             chain passing { type filter hook forward priority 0; counter name carried\n\
             }\n}\n",
        )
        .unwrap();
    // The ends send segment by segment; only the router joins.
    for machine in [&net.client, &net.server] {
        switch(machine, &python, &["tso", "off", "eth0"]);
    }
    switch(&net.router, &python, &["gro", "on", "inside", "outside"]);
    let _echo = Service::udp_echo(&net.server, TARGET);
    let (near, far) = start_pair(&net, &[]);
    bursts_return(&Source::new(&net.client, ENTRANCE));
    let (near, far) = (end(near), end(far));
    let told = net
        .router
        .run("nft", ["list", "counter", "inet", "joins", "carried"])
        .unwrap();
    let packets = told
        .split("packets ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let packets: u64 = packets.unwrap().parse().unwrap();
    let datagrams = near["tcp"]["sent"].as_u64().unwrap() + far["tcp"]["sent"].as_u64().unwrap();
    assert!(
        packets < datagrams,
        "the router joined nothing: {packets} of {datagrams}"
    );
    assert_eq!(
        (&near["joined_packets"], &far["joined_packets"]),
        (&0.into(), &0.into())
    );
}

/// Two machines and a bridge between them that reads and writes joined packets. Processes end before their machines.
struct Bridged {
    _bridge: Process,
    client: Namespace,
    server: Namespace,
    _middle: Namespace,
}

impl Bridged {
    fn new(python: &Path) -> Self {
        let [client, middle, server] = [(); 3].map(|()| Namespace::create().unwrap());
        for (machine, address, side) in [
            (&client, "10.78.0.2/24", "left"),
            (&server, "10.78.0.1/24", "right"),
        ] {
            let (end, other) = (
                End {
                    namespace: machine,
                    interface: "eth0",
                    addresses: &[address],
                },
                End {
                    namespace: &middle,
                    interface: side,
                    addresses: &[],
                },
            );
            join(end, other, u16::MAX).unwrap();
            // Packets that are joined pass; those that are sent are as short as elsewhere.
            let source = address.trim_end_matches("/24");
            let route = [
                "route",
                "replace",
                "10.78.0.0/24",
                "dev",
                "eth0",
                "src",
                source,
                "mtu",
                "1500",
            ];
            machine.run("ip", route).unwrap();
        }
        switch(&middle, python, &["gro", "on", "left", "right"]);
        let mut bridge = script(&middle, python, &["bridge", "left", "right"]);
        bridge.wait_for_line("ready", PROGRAM_LIMIT).unwrap();
        Self {
            _bridge: bridge,
            client,
            server,
            _middle: middle,
        }
    }

    fn start_pair(&self, more: &[&str]) -> (Process, Process) {
        let tcp = format!("tcp:{LISTEN}");
        let far = start(&self.server, &tcp, &format!("udp:{TARGET}"), more);
        let near = start(&self.client, &format!("udp:{ENTRANCE}"), &tcp, more);
        (near, far)
    }
}

/// FTCP-21, FTCP-22.
#[test]
fn relays_put_lengths_before_datagrams_where_a_bridge_loses_their_borders() {
    require_root!();
    let python = require_python!();
    let net = Bridged::new(&python);
    let _echo = Service::udp_echo(&net.server, TARGET);
    let (near, far) = net.start_pair(&[]);
    bursts_return(&Source::new(&net.client, ENTRANCE));
    for relay in [near, far] {
        let told = relay.stderr().matches("asked to put lengths").count();
        let counters = end(relay);
        assert_ne!(counters["joined_packets"], 0, "{counters}");
        assert_eq!(counters["reconnects"], 0, "{counters}");
        assert_eq!(told, 1);
    }
}

/// FTCP-23.
#[test]
fn joined_packets_of_phantuns_are_counted_and_told_once() {
    require_root!();
    let python = require_python!();
    let net = Bridged::new(&python);
    let _echo = Service::udp_echo(&net.server, TARGET);
    let (near, far) = net.start_pair(&["--compat", "phantun"]);
    let mut source = Source::new(&net.client, ENTRANCE);
    for round in 0..3 {
        source.ask(&pattern(round, 1_400), PROGRAM_LIMIT);
        burst_returns(&source, 10 + round);
    }
    // Of the bursts some were sent as trains.
    let told = far.stderr().matches("a phantun does not put lengths").count();
    assert_ne!(end(far)["joined_packets"], 0);
    assert_eq!(told, 1);
    end(near);
}
