//! Connections with different round trips that share a line: neither who is near nor who is far away takes it all.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use packet::{Ecn, Path};
use peer_proto::{Direction, Read};
use sim::{Clock, LinkConfig, Network, Packet};

use crate::fairness::fairness;
use crate::world::{End, parameters};

/// The line that all share.
const LINE_BITS_PER_SECOND: u64 = 50_000_000;

/// What waits in front of it: 50 ms.
const QUEUE_BYTES: usize = 312_500;

/// Between two looks at the streams.
const STEP: Duration = Duration::from_millis(5);

/// What travels with a packet: where it came from, where it goes, and its mark.
type Passage = (SocketAddr, SocketAddr, Ecn);

/// Senders, each an endpoint at the end of a wire of its own, and a receiver behind the line that starts where these
/// wires end.
struct Site {
    network: Network<Passage>,
    /// The receiver is the last.
    ends: Vec<End>,
    junction: SocketAddr,
}

impl Site {
    fn new(round_trips: &[Duration]) -> Self {
        let mut network = Network::new(Clock::default(), 1);
        let junction = SocketAddr::from(([192, 0, 2, 254], 1));
        let count = round_trips.len();
        let address = |index: usize| format!("192.0.2.{}:4000", index + 1);
        let ends: Vec<End> = (0..=count)
            .map(|index| End::new(parameters(index as u8 + 1), &address(index)))
            .collect();
        for (end, round_trip) in ends.iter().zip(round_trips) {
            let wire = LinkConfig {
                delay: *round_trip / 2,
                ..LinkConfig::default()
            };
            network.join(end.address, junction, wire);
        }
        let line = LinkConfig {
            rate_bits_per_second: Some(LINE_BITS_PER_SECOND),
            queue_bytes: QUEUE_BYTES,
            ..LinkConfig::default()
        };
        network.join(junction, ends[count].address, line);
        Self {
            network,
            ends,
            junction,
        }
    }

    /// Sends what each end has to send, and sets its timer.
    fn flush(&mut self) {
        let now = self.network.now();
        for end in &mut self.ends {
            loop {
                let more = end.peers.flush(now, &mut end.outbox);
                let count = end.outbox.trains().len();
                for train in end.outbox.trains() {
                    let passage = (end.address, train.destination, train.ecn);
                    for segment in packet::segments(&train.bytes, train.segment_size) {
                        self.network
                            .send(end.address, self.junction, segment.to_vec(), passage);
                    }
                }
                end.outbox.release(count);
                if !more {
                    break;
                }
            }
            end.handle_events(now);
            self.network.set_timer(end.address, end.peers.poll_timeout());
        }
    }

    fn drive(&mut self, duration: Duration) {
        let until = self.network.now() + duration;
        loop {
            self.flush();
            let Some(event) = self.network.next_event(until) else {
                return;
            };
            let now = self.network.now();
            let (node, packet) = match event {
                sim::Event::Timer(node) => (node, None),
                sim::Event::Delivery(delivery) => (delivery.node, Some(delivery.packet)),
            };
            let end = self.ends.iter_mut().find(|end| end.address == node);
            match (end, packet) {
                (Some(end), None) => end.peers.handle_timeout(now),
                (Some(end), Some(Packet { bytes, meta })) => {
                    let (remote, _, ecn) = meta;
                    let path = Path { remote, local: None };
                    let bytes = BytesMut::from(&bytes[..]);
                    end.peers
                        .handle_received(now, path, ecn, bytes, 0, &mut end.outbox);
                }
                (None, Some(Packet { bytes, meta })) => {
                    self.network.send(self.junction, meta.1, bytes, meta);
                }
                (None, None) => unreachable!("the junction has no timer"),
            }
        }
    }

    /// Fills a stream of each sender that has begun, and reads at the receiver; bytes by sender.
    fn shares(&mut self, begun: usize, time: Duration) -> Vec<u64> {
        let senders = self.ends.len() - 1;
        let mut shares = vec![0; senders];
        let chunk = Bytes::from(vec![0; 1 << 20]);
        let until = self.network.now() + time;
        while self.network.now() < until {
            for end in &mut self.ends[..begun] {
                let peer = end.peer();
                if end.opened.is_empty() {
                    let stream = end.peers.open_stream(peer, Direction::Unidirectional, 0);
                    end.opened.push(stream.unwrap());
                }
                while let Ok(1..) = end.peers.write(peer, end.opened[0], &mut chunk.clone()) {}
            }
            self.drive(STEP);
            let ids: Vec<_> = self.ends[..senders].iter().map(|end| end.peers.id()).collect();
            // The first stream of a connection has the same number in all of them.
            let stream = self.ends[0].opened[0];
            let receiver = &mut self.ends[senders];
            for (peer, id, _) in receiver.connected.clone() {
                let sender = ids.iter().position(|other| *other == id).unwrap();
                while let Ok(Read::Data(data)) = receiver.peers.read(peer, stream, usize::MAX) {
                    shares[sender] += data.len() as u64;
                }
            }
        }
        shares
    }
}

/// What each sender gets of the line in ten seconds, where they begin one after the other with so much time between.
fn shares(round_trips: &[Duration], between: Duration) -> Vec<u64> {
    let mut site = Site::new(round_trips);
    let senders = round_trips.len();
    let (known, at) = (site.ends[senders].peers.id(), site.ends[senders].address);
    for end in &mut site.ends[..senders] {
        let now = site.network.now();
        end.peers.connect(now, known, &[at]).unwrap();
    }
    site.drive(Duration::from_secs(1));
    for begun in 1..=senders {
        // The first ones have the line already.
        site.shares(begun, between);
    }
    site.shares(senders, Duration::from_secs(5));
    site.shares(senders, Duration::from_secs(10))
}

#[test]
fn connections_with_different_round_trips_share_a_line_and_none_starves() {
    let trips = |milliseconds: &[u64]| -> Vec<Duration> {
        milliseconds.iter().map(|ms| Duration::from_millis(*ms)).collect()
    };
    // Who is far away has more under way and in the queue, and so gets up to twice as much as who is near.
    for (round_trips, least) in [
        (trips(&[10, 100]), 0.8),
        (trips(&[100, 10]), 0.8),
        (trips(&[100, 60, 30, 10]), 0.72),
    ] {
        // Who meets whom in which of its phases is chance, and the median is not.
        let mut runs = [300, 500, 700].map(|between| {
            let shares = shares(&round_trips, Duration::from_millis(between));
            let sum: u64 = shares.iter().sum();
            let (jain, of_line) = (fairness(&shares), sum as f64 * 0.8 / LINE_BITS_PER_SECOND as f64);
            println!("round trips of {round_trips:?}: {jain:.3}, {of_line:.3} of the line: {shares:?}");
            assert!(of_line > 0.92);
            let smallest = shares.iter().min().copied().unwrap_or_default() * shares.len() as u64;
            (jain, smallest as f64 / sum as f64)
        });
        runs.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let (jain, smallest) = runs[1];
        assert!(jain >= least && smallest > 0.4, "{runs:?}");
        assert!(
            runs.iter().all(|(_, smallest)| *smallest > 0.2),
            "one starves: {runs:?}"
        );
    }
}
