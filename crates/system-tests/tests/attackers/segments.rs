//! A pair of relays that carries 500 Mbit/s in TCP's shape, without and beside a flood of handshakes that nobody
//! completes.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use packet_io::{DatagramSocket, Outgoing, ReceiveBatch, SLOT_BYTES_MAX, SocketOptions, UdpSocket};
use system_tests::topology::Routed;
use system_tests::{require_program, require_root};
use testbed::namespace::Namespace;
use testbed::usage::reset_peak;

use super::report::Report;
use super::syn_flood::SynFlood;
use crate::relay::{ENTRANCE, FLOOD_BYTES_MAX, LISTEN, SYNS_PER_SECOND, TARGET, end, start_pair};
use crate::scene::load;

/// What passes: trains of 54 datagrams of 1,150 bytes, one in each millisecond.
const DATAGRAM_BYTES: usize = 1_150;
const TRAIN: usize = 54;
const INTERVAL: Duration = Duration::from_millis(1);

/// Runs of each sort, in turns, and how long each goes.
const ROUNDS: usize = 3;
const RUN: Duration = Duration::from_secs(5);

/// Until what is on the way has arrived.
const REST: Duration = Duration::from_millis(500);

const LOSS_MAX: f64 = 0.01;

fn socket(namespace: &Namespace, local: &str) -> UdpSocket {
    let options = SocketOptions {
        receive_buffer_bytes: 8 << 20,
        send_buffer_bytes: 4 << 20,
        ..SocketOptions::default()
    };
    namespace.inside(|| UdpSocket::bind(local.parse().unwrap(), &options).unwrap())
}

/// Sends at a steady rate for a time; how many datagrams were sent, and how many came.
fn run(source: &mut UdpSocket, target: &mut UdpSocket) -> [u64; 2] {
    let entrance: SocketAddr = ENTRANCE.parse().unwrap();
    let (payload, start) = (vec![7; TRAIN * DATAGRAM_BYTES], Instant::now());
    std::thread::scope(|scope| {
        let received = scope.spawn(|| {
            let (mut batch, mut count) = (ReceiveBatch::new(64, SLOT_BYTES_MAX), 0);
            while start.elapsed() < RUN + REST {
                if target.receive(&mut batch).unwrap() == 0 {
                    std::thread::sleep(INTERVAL);
                }
                count += batch
                    .iter()
                    .map(|received| received.meta.segments() as u64)
                    .sum::<u64>();
            }
            count
        });
        let mut sent = 0;
        let mut due = start;
        while start.elapsed() < RUN {
            let outcome = source
                .send(&[Outgoing::to(entrance, &payload[..], DATAGRAM_BYTES)])
                .unwrap();
            sent += outcome.segments;
            due += INTERVAL;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        [sent, received.join().unwrap()]
    })
}

fn loss([sent, received]: [u64; 2]) -> f64 {
    sent.saturating_sub(received) as f64 / sent.max(1) as f64
}

#[test]
#[ignore = "loads the machine: `cargo xtask hostile` runs it"]
fn a_relay_loses_little_beside_ten_thousand_handshakes_a_second() {
    require_root!();
    require_program!("ip");
    let _load = load();
    let net = Routed::new(1500);
    let (near, far) = start_pair(&net, &[]);
    let (mut source, mut target) = (socket(&net.client, "127.0.0.1:0"), socket(&net.server, TARGET));
    let mut report = Report::new("500 Mbit/s through relays, beside a flood of SYNs");
    let (mut alone, mut beside, mut rates) = ([0; 2], [0; 2], Vec::new());
    // The first datagrams wait for their connection.
    run(&mut source, &mut target);
    reset_peak(far.id());
    let before = far.usage().peak_bytes;
    let add = |sum: &mut [u64; 2], run: [u64; 2]| *sum = [sum[0] + run[0], sum[1] + run[1]];
    for _ in 0..ROUNDS {
        add(&mut alone, run(&mut source, &mut target));
        let flood = SynFlood::start(&net.client, LISTEN, SYNS_PER_SECOND);
        add(&mut beside, run(&mut source, &mut target));
        rates.push(flood.rate());
    }
    let rate = rates.iter().sum::<f64>() / rates.len() as f64;
    let sent = (ROUNDS as f64) * RUN.as_secs_f64();
    let carried = beside[1] as f64 * 8.0 * DATAGRAM_BYTES as f64 / sent / 1e6;
    report.check(
        "SYNs a second",
        format!("{rate:.0}"),
        format!("{SYNS_PER_SECOND}"),
        rate > 0.95 * SYNS_PER_SECOND as f64,
    );
    report.tell("carried beside them", format!("{carried:.0} Mbit/s"));
    report.tell("loss without them", format!("{:.3} %", 100.0 * loss(alone)));
    report.check(
        "loss beside them",
        format!("{:.3} %", 100.0 * loss(beside)),
        format!("≤ {} %", 100.0 * LOSS_MAX),
        loss(beside) <= LOSS_MAX,
    );
    let grown = far.usage().peak_bytes.saturating_sub(before);
    report.check(
        "memory",
        format!("{} KiB more", grown >> 10),
        format!("≤ {} MiB", FLOOD_BYTES_MAX >> 20),
        grown <= FLOOD_BYTES_MAX,
    );
    end(near);
    end(far);
    report.finish();
}
