//! What passes, in which order, and with how many packets.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use packet_io::{DatagramSocket, Outgoing, ReceiveBatch, SLOT_BYTES_MAX, SocketOptions, UdpSocket};
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::service::Service;
use system_tests::source::{Source, pattern};
use system_tests::topology::Routed;
use system_tests::{require_program, require_root};
use testbed::namespace::Namespace;

use super::{ENTRANCE, TARGET, end, start, start_pair, watch, watched};

pub(super) const FLOWS: usize = 4;
pub(super) const DATAGRAM_BYTES: usize = 1_150;

/// Datagrams of one flow that are under way at a time: less than any buffer holds, and than wait for a connection.
pub(super) const WINDOW: u32 = 32;
const WINDOWS: u32 = 200;

#[test]
fn datagrams_of_all_sizes_pass_both_ways_by_ipv4_and_ipv6() {
    require_root!();
    require_program!("nft");
    [1_500, 9_000].into_iter().for_each(all_sizes_pass);
}

/// On a path with this MTU.
fn all_sizes_pass(mtu: u16) {
    let net = Routed::new(mtu);
    watch(&net);
    let _echo = Service::udp_echo(&net.server, TARGET);
    for (listen, to, headers) in [
        ("tcp:10.78.0.1:443", "tcp:10.78.0.1:443", 40),
        ("tcp:[::]:443", "tcp:[fd78::1]:443", 60),
    ] {
        let most = usize::from(mtu) - headers;
        let far = start(&net.server, listen, &format!("udp:{TARGET}"), &[]);
        let near = start(&net.client, &format!("udp:{ENTRANCE}"), to, &[]);
        let mut sources: Vec<_> = (0..20).map(|_| Source::new(&net.client, ENTRANCE)).collect();
        for (number, source) in sources.iter_mut().enumerate() {
            for size in [1, 2, 100, 1_150, most] {
                source.ask(&pattern(number as u64, size), PROGRAM_LIMIT);
            }
        }
        // What fits no segment is counted, and nothing else suffers.
        sources[0].send(&pattern(0, most + 1));
        sources[0].ask(b"and on", PROGRAM_LIMIT);
        let counters = end(near);
        assert_eq!(counters["dropped"]["too_large"], 1, "{counters}");
        assert_eq!(counters["flows"]["all"], 20, "{counters}");
        assert_eq!(counters["flows"]["open"], 20, "{counters}");
        let counters = end(far);
        assert_eq!(counters["flows"]["all"], 20, "{counters}");
        // Those that the other relay ended are gone; it ended all.
        assert_eq!(counters["dropped"]["no_flow"], 0, "{counters}");
    }
    assert_eq!(watched(&net, "invalid"), 0);
    assert_eq!(watched(&net, "resets"), 0);
}

/// A socket with buffers that hold all windows.
pub(super) fn socket(namespace: &Namespace, local: &str) -> UdpSocket {
    let options = SocketOptions {
        receive_buffer_bytes: 4 << 20,
        send_buffer_bytes: 4 << 20,
        ..SocketOptions::default()
    };
    namespace.inside(|| UdpSocket::bind(local.parse().unwrap(), &options).unwrap())
}

/// One window of numbered datagrams as one train.
pub(super) fn window(flow: usize, first: u32) -> Vec<u8> {
    let datagram = |number: u32| {
        let mut bytes = vec![flow as u8; DATAGRAM_BYTES];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        bytes[4] = flow as u8;
        bytes
    };
    (first..first + WINDOW).flat_map(datagram).collect()
}

/// Receives until each flow has come up to `end`, in order and without a gap; where each flow came from.
pub(super) fn expect(
    socket: &mut UdpSocket,
    batch: &mut ReceiveBatch,
    next: &mut [u32; FLOWS],
    end: u32,
) -> [SocketAddr; FLOWS] {
    let mut from = [([0, 0, 0, 0], 0).into(); FLOWS];
    let deadline = Instant::now() + PROGRAM_LIMIT;
    while next.iter().any(|next| *next < end) {
        assert!(Instant::now() < deadline, "{next:?} of {end}");
        if socket.receive(batch).unwrap() == 0 {
            std::thread::sleep(Duration::from_micros(100));
        }
        for received in batch.iter() {
            for datagram in received.segments() {
                assert_eq!(datagram.len(), DATAGRAM_BYTES);
                let flow = usize::from(datagram[4]);
                let number = u32::from_be_bytes(datagram[..4].try_into().unwrap());
                assert_eq!(number, next[flow], "flow {flow}");
                next[flow] += 1;
                from[flow] = received.meta.source;
            }
        }
    }
    from
}

#[test]
fn trains_of_several_flows_keep_their_order_and_their_borders() {
    require_root!();
    require_program!("nft");
    let net = Routed::new(1500);
    watch(&net);
    let (near, far) = start_pair(&net, &["--workers", "2"]);
    let mut target = socket(&net.server, TARGET);
    let mut sources: Vec<_> = (0..FLOWS).map(|_| socket(&net.client, "127.0.0.1:0")).collect();
    let mut batch = ReceiveBatch::new(64, SLOT_BYTES_MAX);
    let entrance: SocketAddr = ENTRANCE.parse().unwrap();
    // The first window waits for the connections.
    let mut next = [0; FLOWS];
    let mut from = [entrance; FLOWS];
    for round in 0..WINDOWS {
        for (flow, source) in sources.iter_mut().enumerate() {
            let train = window(flow, round * WINDOW);
            let outcome = source
                .send(&[Outgoing::to(entrance, &train[..], DATAGRAM_BYTES)])
                .unwrap();
            assert_eq!(outcome.segments, u64::from(WINDOW));
        }
        from = expect(&mut target, &mut batch, &mut next, (round + 1) * WINDOW);
    }
    // And back, to where each flow came from.
    let mut next = [[0; FLOWS]; FLOWS];
    for round in 0..WINDOWS {
        for (flow, address) in from.iter().enumerate() {
            let train = window(flow, round * WINDOW);
            target
                .send(&[Outgoing::to(*address, &train, DATAGRAM_BYTES)])
                .unwrap();
        }
        for (flow, source) in sources.iter_mut().enumerate() {
            let next = &mut next[flow];
            // Only its own flow comes to a source.
            let others = (round + 1) * WINDOW;
            (0..FLOWS)
                .filter(|other| *other != flow)
                .for_each(|other| next[other] = others);
            expect(source, &mut batch, next, others);
        }
    }
    let datagrams = u64::from(WINDOW * WINDOWS) * FLOWS as u64;
    let near = end(near);
    for (way, other) in [("udp", "tcp"), ("tcp", "udp")] {
        assert_eq!(near[way]["received"], datagrams, "{near}");
        assert_eq!(near[other]["sent"], datagrams, "{near}");
    }
    end(far);
    assert_eq!(watched(&net, "invalid"), 0);
}
