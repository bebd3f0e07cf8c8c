//! The link emulator of the benchmarks: a link between two namespaces that delays, loses and limits as it is told, and
//! accounts for every packet. Other tests may stand on [`EmulatedLink`].

use std::net::SocketAddr;

use serde_json::{Value, json};
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::program::gramway_binary;
use system_tests::{require_program, require_root};
use testbed::iperf::{self, IperfRun, IperfServer};
use testbed::namespace::Namespace;
use testbed::place::Place;
use testbed::process::Process;

/// Addresses of the two ends.
const ADDRESSES: [&str; 2] = ["10.79.0.1", "10.79.0.2"];

/// Two machines, `link0` each, and an emulated link of MTU 1,500 between them. IPv4 only, so that the kernel sends
/// nothing of its own.
pub(crate) struct EmulatedLink {
    process: Process,
    /// The machine with the first address.
    pub(crate) left: Namespace,
    /// The machine with the second address.
    pub(crate) right: Namespace,
}

impl EmulatedLink {
    /// Builds it. `there` and `back` are settings as `bench::emulator::LinkSettings` has them.
    pub(crate) fn new(there: &Value, back: &Value) -> Self {
        let (left, right) = (Namespace::create().unwrap(), Namespace::create().unwrap());
        let end = |namespace: &Namespace, address: &str| {
            namespace
                .set_parameter("net.ipv6.conf.default.disable_ipv6", "1")
                .unwrap();
            json!({"namespace": namespace.name(), "interface": "link0", "addresses": [format!("{address}/24")]})
        };
        let options = json!({
            "ends": [end(&left, ADDRESSES[0]), end(&right, ADDRESSES[1])],
            "mtu_bytes": 1_500, "links": [there, back], "seed": 7
        });
        let mut command = Place::Host.command(gramway_binary());
        command.args(["bench", "_emulate", &options.to_string()]);
        let process = Process::start(command, "emulator").unwrap();
        let ready = process.next_line(PROGRAM_LIMIT);
        assert_eq!(ready.as_deref(), Some("null"), "{}", process.last_words());
        Self { process, left, right }
    }

    /// Ends the link and gives what happened on it, there and back; each packet has one fate.
    pub(crate) fn finish(mut self) -> [Value; 2] {
        self.process.close_stdin();
        let report = self.process.next_line(PROGRAM_LIMIT).unwrap();
        let report: Value = serde_json::from_str(&report).unwrap();
        [0, 1].map(|direction| {
            let link = report["links"][direction].clone();
            let sum = |names: &[&str]| names.iter().map(|name| count(&link, name)).sum::<u64>();
            assert_eq!(
                sum(&["sent", "duplicated"]),
                sum(&["delivered", "lost", "queue_full", "in_flight"]),
                "{link}"
            );
            link
        })
    }

    /// Pings the right machine from the left one, 100 times a second; the times of the answers in milliseconds.
    fn ping(&self, number: u32) -> Vec<f64> {
        let mut command = self.left.command("ping");
        command.args([
            "-n",
            "-i",
            "0.01",
            "-W",
            "1",
            "-c",
            &number.to_string(),
            ADDRESSES[1],
        ]);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let time = |line: &str| line.split_once("time=")?.1.split(' ').next()?.parse().ok();
        text.lines().filter_map(time).collect()
    }
}

fn count(link: &Value, name: &str) -> u64 {
    link[name]
        .as_u64()
        .unwrap_or_else(|| panic!("no number {name} in {link}"))
}

#[test]
fn a_round_trip_takes_the_delay_of_both_directions() {
    require_root!();
    require_program!("ping");
    let link = EmulatedLink::new(
        &json!({"delay_us": 12_000}),
        &json!({"delay_us": 8_000, "jitter_us": 2_000}),
    );
    let times = link.ping(100);
    assert_eq!(times.len(), 100);
    // Only a floor: how much later an answer comes is up to the machine. ping rounds to the microsecond.
    let fastest = times.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(fastest >= 19.99, "{fastest} ms is less than the link's delay");
    let [there, back] = link.finish();
    assert_eq!(
        [count(&there, "delivered"), count(&back, "delivered")],
        [100, 100]
    );
}

#[test]
fn every_packet_has_one_fate_and_losses_are_those_that_ping_misses() {
    require_root!();
    require_program!("ping");
    let link = EmulatedLink::new(&json!({"loss": 0.2}), &json!({"loss": 0.1, "duplicate": 0.1}));
    let answers = link.ping(400).len() as u64;
    let [there, back] = link.finish();
    assert_eq!(count(&there, "sent"), 400);
    assert_eq!(count(&back, "sent"), count(&there, "delivered"));
    assert_eq!(answers, count(&back, "delivered"));
    for (link, losses) in [(&there, 50..110), (&back, 10..60)] {
        assert!(losses.contains(&count(link, "lost")), "{link}");
    }
    assert!(count(&back, "duplicated") > 10, "{back}");
    assert_eq!(count(&there, "refused") + count(&back, "refused"), 0);
}

#[test]
fn tcp_and_udp_pass_and_the_rate_holds() {
    require_root!();
    require_program!("iperf3");
    let limited = json!({"delay_us": 2_000, "rate_bits_per_second": 20_000_000, "queue_bytes": 30_000});
    let link = EmulatedLink::new(&limited, &json!({"delay_us": 2_000}));
    let address = SocketAddr::new(ADDRESSES[1].parse().unwrap(), 5_201);
    let _server = IperfServer::start(&link.right.place(), address).unwrap();
    let run = |run: IperfRun| iperf::run(&link.left.place(), &run).unwrap();
    let tcp = run(IperfRun::tcp(address, 2));
    assert!((1e6..20e6).contains(&tcp.receiver_bits_per_second), "{tcp:?}");
    let udp = run(IperfRun::udp(address, 2, 1150, Some(40_000_000)));
    assert!(udp.lost_datagrams > 0, "{udp:?}");
    let [there, _] = link.finish();
    assert!(count(&there, "queue_full") >= udp.lost_datagrams, "{there}");
}
