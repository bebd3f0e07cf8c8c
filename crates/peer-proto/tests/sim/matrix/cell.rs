//! One cell of the matrix of lines: a bulk stream over one line, and small messages of a higher priority beside it.

use std::time::Duration;

use bytes::Bytes;
use peer_proto::{Delivery, Direction, Parameters, Read, StreamId};
use sim::LinkConfig;

use crate::world::{World, parameters};

/// How finely is looked.
const STEP: Duration = Duration::from_millis(1);

/// Between two small messages.
const SMALL_EVERY_STEPS: usize = 20;

/// Bytes of a small message.
const SMALL_BYTES: usize = 64;

/// Steps over which a rate is averaged: the rates of single steps are those of trains.
const RATE_STEPS: usize = 100;

/// A line. Its queue holds what it carries in a round trip, 10 ms at least.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) loss: f64,
    pub(crate) round_trip_ms: u64,
    pub(crate) megabits: u64,
    /// Window of a stream at both ends.
    pub(crate) window_bytes: u32,
    /// Virtual milliseconds that it is watched.
    pub(crate) milliseconds: usize,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// Bytes of the stream in the second half of the time, as a part of what the line carries.
    pub(crate) share: f64,
    /// Milliseconds until nine tenths of that rate.
    pub(crate) full_ms: usize,
    /// Of small messages after the first eighth of the time, from sending to reading, in milliseconds.
    pub(crate) p50_ms: usize,
    pub(crate) p99_ms: usize,
}

impl Cell {
    fn link(self) -> LinkConfig {
        let bits = self.megabits * 1_000_000;
        LinkConfig {
            delay: Duration::from_micros(self.round_trip_ms * 500),
            loss: self.loss,
            rate_bits_per_second: Some(bits),
            queue_bytes: (bits / 8 * self.round_trip_ms.max(10) / 1_000) as usize,
            ..LinkConfig::default()
        }
    }

    pub(crate) fn run(self, seed: u64) -> Figures {
        let ends = [1, 2].map(|number| Parameters {
            stream_window_bytes: self.window_bytes,
            ..parameters(number)
        });
        let mut world = World::connected_as(self.link(), seed, ends);
        let [sender, receiver] = [world.ends[0].peer(), world.ends[1].peer()];
        let stream = world.ends[0]
            .peers
            .open_stream(sender, Direction::Unidirectional, 0);
        let stream = stream.expect("the peer lets streams be opened");
        let chunk = Bytes::from(vec![0; 1 << 20]);
        let mut arrived = vec![0; self.milliseconds];
        let mut took = Vec::new();
        let begin = self.milliseconds / 8;
        for (step, bytes) in arrived.iter_mut().enumerate() {
            write(&mut world, stream, &chunk);
            if step.is_multiple_of(SMALL_EVERY_STEPS) {
                let mut body = step.to_be_bytes().to_vec();
                body.resize(SMALL_BYTES, 0);
                world
                    .send(0, body, Delivery::unordered().with_priority(9))
                    .unwrap();
            }
            world.drive(STEP);
            if let Some(stream) = world.ends[1].opened.first().copied() {
                while let Ok(Read::Data(data)) = world.ends[1].peers.read(receiver, stream, usize::MAX) {
                    *bytes += data.len() as u64;
                }
            }
            let small = world.ends[1].received.drain(..);
            let sent = small.map(|received| number(&received.body));
            took.extend(sent.filter(|sent| *sent >= begin).map(|sent| step + 1 - sent));
        }
        took.sort_unstable();
        let half = self.milliseconds / 2;
        let steady = arrived[half..].iter().sum::<u64>() as f64 / (self.milliseconds - half) as f64;
        let enough = steady * 0.9 * RATE_STEPS as f64;
        let reached = |window: &[u64]| window.iter().sum::<u64>() as f64 >= enough;
        let full = arrived.windows(RATE_STEPS).position(reached);
        let of_line = self.megabits as f64 * 1_000.0 / 8.0;
        Figures {
            share: steady / of_line,
            full_ms: full.map_or(self.milliseconds, |start| start + RATE_STEPS),
            p50_ms: took[took.len() / 2],
            p99_ms: took[took.len() * 99 / 100],
        }
    }
}

/// When a small message was sent.
fn number(body: &[u8]) -> usize {
    body.first_chunk().map_or(0, |bytes| usize::from_be_bytes(*bytes))
}

/// Keeps the stream's buffer full.
fn write(world: &mut World, stream: StreamId, chunk: &Bytes) {
    let peer = world.ends[0].peer();
    loop {
        let mut data = chunk.clone();
        match world.ends[0].peers.write(peer, stream, &mut data) {
            Ok(1..) if data.is_empty() => {}
            _ => return,
        }
    }
}
