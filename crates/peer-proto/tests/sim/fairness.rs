//! Connections that share a line: each gets its part, without anything that limits them together.

use std::time::Duration;

use bytes::Bytes;
use peer_proto::{Direction, PeerKey, Read, StreamId};
use sim::LinkConfig;

use crate::world::{World, parameters};

/// Bytes that the stream of each connection brought within `time`.
fn shares(world: &mut World, streams: &[(PeerKey, StreamId)], time: Duration) -> Vec<u64> {
    let readers: Vec<PeerKey> = world.ends[1].connected.iter().map(|(peer, ..)| *peer).collect();
    let mut shares = vec![0; readers.len()];
    let chunk = Bytes::from(vec![0; 1 << 20]);
    let until = world.now() + time;
    while world.now() < until {
        for (peer, stream) in streams {
            while let Ok(1..) = world.ends[0].peers.write(*peer, *stream, &mut chunk.clone()) {}
        }
        world.drive(Duration::from_millis(5));
        for (reader, share) in readers.iter().zip(&mut shares) {
            // The first stream of a connection has the same number in all of them.
            while let Ok(Read::Data(data)) = world.ends[1].peers.read(*reader, streams[0].1, usize::MAX) {
                *share += data.len() as u64;
            }
        }
    }
    shares
}

/// Jain's index: 1 where all have the same, 1/n where one has everything.
pub(crate) fn fairness(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    sum * sum / (shares.len() as f64 * squares)
}

#[test]
fn connections_of_one_endpoint_share_a_line_and_fill_it_and_none_starves() {
    let link = LinkConfig {
        delay: Duration::from_millis(15),
        rate_bits_per_second: Some(50_000_000),
        queue_bytes: 190_000,
        ..LinkConfig::default()
    };
    // Of ten, the one that had the line first keeps more than its part for long.
    for (count, least) in [(2, 0.95), (5, 0.87), (10, 0.68)] {
        let mut world = World::new(link, 1, [parameters(1), parameters(2)]);
        for _ in 0..count {
            world.connect();
        }
        world.drive_until(|world| world.ends.iter().all(|end| end.connected.len() == count));
        let peers = world.ends[0].connected.clone();
        let mut streams = Vec::new();
        for (peer, ..) in peers {
            // One after the other, so that the first ones have the line already.
            let stream = world.ends[0]
                .peers
                .open_stream(peer, Direction::Unidirectional, 0);
            streams.push((peer, stream.unwrap()));
            shares(&mut world, &streams, Duration::from_millis(300));
        }
        shares(&mut world, &streams, Duration::from_secs(5));
        let shares = shares(&mut world, &streams, Duration::from_secs(10));
        let sum: u64 = shares.iter().sum();
        let (jain, of_line) = (fairness(&shares), sum as f64 * 8.0 / 10.0 / 50e6);
        println!("{count} connections: {jain:.3}, {of_line:.3} of the line: {shares:?}");
        assert!(jain >= least && of_line > 0.92);
        let smallest = shares.iter().min().copied().unwrap_or_default() * count as u64;
        assert!(smallest as f64 > 0.4 * sum as f64, "one starves");
    }
}
