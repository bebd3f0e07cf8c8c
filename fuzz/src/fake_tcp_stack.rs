//! Two stacks and somebody between them who drops, repeats, changes and holds back segments, and lets time pass:
//! nothing is delivered that was not sent or forged, answers are bounded, and in the end nothing is kept.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fake_tcp::{Config, ConnectionId, Event, Key, Profile, Stack};
use packet::Ecn;

use crate::input::Input;

/// Segments that may be on the way at a time.
const HELD_MAX: usize = 64;

struct End {
    stack: Stack,
    open: Vec<ConnectionId>,
}

struct World {
    now: Instant,
    ends: [End; 2],
    /// Packets to each end.
    held: [VecDeque<Vec<u8>>; 2],
    datagrams: u64,
    /// Nothing forged is delivered.
    is_sealed: bool,
}

impl World {
    fn new(profile: Profile, key: Option<Key>) -> Self {
        let end = |listen, seed| End {
            stack: Stack::new(
                Config {
                    listen,
                    key,
                    idle: Some(Duration::from_secs(40)),
                    ..Config::new(profile)
                },
                [seed; 32],
            ),
            open: Vec::new(),
        };
        Self {
            now: Instant::now(),
            ends: [end(None, 1), end(Some(443), 2)],
            held: Default::default(),
            datagrams: 0,
            is_sealed: key.is_some(),
        }
    }

    fn connect(&mut self, port: u8) {
        let (local, remote) = (
            ([10, 0, 0, 1], 1_000 + u16::from(port)).into(),
            ([10, 0, 0, 2], 443).into(),
        );
        let _ = self.ends[0].stack.connect(self.now, local, remote);
    }

    fn send(&mut self, from: usize, which: u8, bytes: usize, segment_size: usize) {
        let end = &mut self.ends[from];
        let Some(id) = end.open.get(usize::from(which) % end.open.len().max(1)) else {
            return;
        };
        let (mut payload, mut framed) = (vec![0x55; bytes], Vec::new());
        let sent = (end.stack).send(self.now, *id, &payload, segment_size, Ecn::NotEct, &mut framed);
        let Ok(headers) = sent else {
            return;
        };
        self.datagrams += bytes.div_ceil(segment_size.clamp(1, bytes)) as u64;
        if !framed.is_empty() {
            payload = framed;
        }
        let packet = [headers.bytes(), &payload].concat();
        self.held[1 - from].push_back(packet);
    }

    fn receive(&mut self, to: usize, packet: &[u8], segment_size: Option<u16>, is_genuine: bool) {
        let end = &mut self.ends[to];
        let Some(data) = end.stack.receive(self.now, packet, segment_size) else {
            return;
        };
        let of_trains = data
            .trains
            .iter()
            .map(|train| (train.bytes(), train.segment_size()));
        let payload = &packet[data.payload.clone()];
        let as_it_is = Some((payload, data.segment_size)).filter(|_| data.trains.is_empty());
        for (payload, segment_size) in of_trains.chain(as_it_is) {
            assert!(!payload.is_empty() && segment_size > 0 && segment_size <= payload.len());
            if is_genuine || self.is_sealed {
                assert!(payload.iter().all(|byte| *byte == 0x55));
            }
        }
    }

    fn settle(&mut self) {
        for (index, end) in self.ends.iter_mut().enumerate() {
            end.stack.handle_timeout(self.now);
            assert!(end.stack.poll_timeout().is_none_or(|at| at > self.now));
            while let Some(segment) = end.stack.poll_segment() {
                self.held[1 - index].push_back(segment.headers.bytes().to_vec());
            }
            while let Some(event) = end.stack.poll_event() {
                match event {
                    Event::Connected { connection } | Event::Accepted { connection, .. } => {
                        end.open.push(connection);
                    }
                    Event::Closed { connection, .. } => end.open.retain(|open| *open != connection),
                    Event::PathMtu { .. } => {}
                }
            }
            self.held[index].truncate(HELD_MAX);
        }
    }

    /// Lets hours pass without anybody between.
    fn finish(&mut self) {
        self.held = Default::default();
        for _ in 0..10_000 {
            let Some(next) = self.ends.iter().filter_map(|end| end.stack.poll_timeout()).min() else {
                break;
            };
            self.now = next;
            self.settle();
            self.held = Default::default();
        }
        for end in &self.ends {
            assert_eq!(end.stack.connections(), 0, "everything ends in silence");
            assert!(end.open.is_empty());
        }
    }
}

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let (profile, key) = match input.byte() & 3 {
        0 => (Profile::Linux, None),
        2 => (Profile::Linux, Some(Key([7; 32]))),
        _ => (Profile::Phantun, None),
    };
    let mut world = World::new(profile, key);
    let mut is_genuine = true;
    while !input.is_empty() {
        let step = input.byte();
        let to = usize::from(step >> 7);
        match step & 0x0f {
            0 => world.connect(input.byte() & 3),
            1 => world.send(
                1 - to,
                input.byte(),
                1 + usize::from(input.u16() % 4_000),
                usize::from(input.u16() % 1_500),
            ),
            2..=4 => {
                if let Some(packet) = world.held[to].pop_front() {
                    world.receive(to, &packet, None, is_genuine);
                }
            }
            5 => drop(world.held[to].pop_front()),
            6 => world.held[to].rotate_left(usize::from(step >> 4 & 1).min(world.held[to].len())),
            7 => {
                if let Some(packet) = world.held[to].front().cloned() {
                    world.held[to].push_back(packet);
                }
            }
            8..=10 => {
                is_genuine = false;
                if let Some(mut packet) = world.held[to].front().cloned() {
                    let at = usize::from(input.byte()) % packet.len();
                    packet[at] = input.byte();
                    world.receive(to, &packet, Some(input.u16() % 1_500), false);
                }
            }
            11 => {
                let end = &mut world.ends[to];
                if let Some(id) = end.open.pop() {
                    end.stack.close(world.now, id);
                }
            }
            12 => world.now += Duration::from_millis(input.u16().into()),
            13 => world.now += Duration::from_secs(u64::from(input.byte() & 0x0f)),
            _ => {
                is_genuine = false;
                world.receive(to, input.take(60), None, false);
            }
        }
        world.settle();
    }
    world.finish();
}

pub fn seeds() -> Vec<Vec<u8>> {
    let (to_server, to_client) = (0x82, 0x02);
    let handshake = [0, 1, to_server, to_client, to_server];
    let data = [
        0x81, 0, 0x0f, 0, 3, 0xe8, to_server, to_client, 0x01, 0, 0, 9, 0, 0, to_client,
    ];
    let steps: [&[u8]; 8] = [
        &[0x8b, to_client, to_server, to_server],
        &[0x0b, to_server, to_client, to_client, 0, 1],
        &[13, 15, 13, 15, 13, 15],
        &[0x85, 13, 1, to_server, to_client],
        &[0x88, 33, 4, 0, 0, to_client],
        &[0x87, to_server, to_server, 0x86, to_server],
        &[12, 1, 244, to_client, 0x81, 0, 1, 0, 1, 0, 0x85],
        &[],
    ];
    let mut seeds = Vec::new();
    for profile in [0, 1, 2] {
        let hello: &[u8] = if profile == 2 { &[to_client] } else { &[] };
        for steps in steps {
            seeds.push([&[profile][..], &handshake, hello, &data, steps].concat());
        }
    }
    seeds
}
