//! Masses of strangers and somebody new among them, on virtual time: nobody is kept out.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a failed test")]

#[allow(dead_code, unused_imports, reason = "the other test program uses the rest")]
mod support;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use quic::limits::HANDSHAKE_TIME_MAX;
use quic::{ClientParameters, Path};
use support::{Identity, Setup, Side, client_endpoint, server_endpoint};

/// Handshakes a second that stall once the address is proved, and the networks that they come from.
const STALLED_PER_SECOND: u64 = 300;
const STALLED_NETWORKS: u8 = 64;

/// Handshakes a second that one network completes, without a token.
const COMPLETED_PER_SECOND: u64 = 1_500;

/// How long those go on before somebody new comes: some of them expire by then, and the others fill their prefix in a
/// twentieth of a second.
const STALLED_BEFORE: Duration = HANDSHAKE_TIME_MAX.saturating_add(Duration::from_millis(500));
const COMPLETED_BEFORE: Duration = Duration::from_millis(500);

/// Clients of networks that were never here, one after the other.
const HONEST: usize = 20;
const BETWEEN_HONEST: Duration = Duration::from_millis(50);

/// From one end to the other.
const DELAY: Duration = Duration::from_millis(25);

/// In which a client has to be connected, and to have shown its token: a second of it for the token.
const CONNECTED_MAX: Duration = Duration::from_secs(1);
const TOKEN_TIME: Duration = Duration::from_secs(1);

const STEP: Duration = Duration::from_millis(1);

/// Between two looks at those who stall: they are many, and answer nothing in a hurry.
const STALLED_STEPS: u64 = 10;

/// The first byte of a Retry packet (RFC 9000 section 17.2.5).
fn is_retry(packet: &[u8]) -> bool {
    packet[0] & 0xf0 == 0xf0
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Stalls,
    Completes,
    Honest,
}

struct World {
    setup: Setup,
    identity: Identity,
    now: Instant,
    steps: u64,
    server: Side,
    clients: BTreeMap<SocketAddr, (Kind, Side)>,
    /// From, to, and the segments of a train.
    wire: VecDeque<(Instant, SocketAddr, SocketAddr, Vec<u8>, usize)>,
}

impl World {
    fn new() -> Self {
        let (setup, identity) = (Setup::default(), Identity::new());
        let endpoint = server_endpoint(&setup, &identity, [7; 64]);
        let mut server = Side::new(endpoint, "198.51.100.1:443".parse().unwrap(), setup.ceiling);
        (server.authenticates, server.keeps_sent) = (false, false);
        Self {
            setup,
            identity,
            // tidy-allow(pure): first instant of virtual time
            now: Instant::now(),
            steps: 0,
            server,
            clients: BTreeMap::new(),
            wire: VecDeque::new(),
        }
    }

    fn connect(&mut self, kind: Kind, address: SocketAddr) {
        let (setup, remote) = (&self.setup, self.server.address);
        let (_, side) = self.clients.entry(address).or_insert_with(|| {
            let seed = address.port() as u8;
            (
                kind,
                Side::new(client_endpoint(setup, seed), address, setup.ceiling),
            )
        });
        let parameters = ClientParameters::Pin(self.identity.pin);
        let ceiling = setup.ceiling;
        let endpoint = &mut side.endpoint;
        endpoint
            .connect(self.now, remote, "localhost", &parameters, ceiling)
            .unwrap();
    }

    /// Goes on to the next instant.
    fn step(&mut self) {
        self.now += STEP;
        self.steps += 1;
        while let Some((_, from, to, bytes, size)) = self.wire.pop_front_if(|(due, ..)| *due <= self.now) {
            let path = Path {
                remote: from,
                local: None,
            };
            let side = if to == self.server.address {
                &mut self.server
            } else if let Some((_, side)) = self.clients.get_mut(&to) {
                side
            } else {
                continue;
            };
            side.receive(
                self.now,
                path,
                packet::Ecn::NotEct,
                BytesMut::from(&bytes[..]),
                size,
            );
        }
        let arrival = self.now + DELAY;
        let all_work = self.steps.is_multiple_of(STALLED_STEPS);
        for (address, (kind, side)) in &mut self.clients {
            if *kind == Kind::Stalls && !all_work {
                continue;
            }
            side.work(self.now);
            for train in side.take_trains(self.now) {
                let to = train.destination;
                self.wire
                    .push_back((arrival, *address, to, train.bytes, train.segment_size));
            }
        }
        while self.server.work(self.now) || !self.server.outbox.is_empty() {
            for train in self.server.take_trains(self.now) {
                let to = train.destination;
                let is_heard = match self.clients.get(&to) {
                    Some((Kind::Stalls, _)) => is_retry(&train.bytes),
                    Some(_) => true,
                    None => false,
                };
                if is_heard {
                    let from = self.server.address;
                    self.wire
                        .push_back((arrival, from, to, train.bytes, train.segment_size));
                }
            }
        }
    }
}

#[test]
fn somebody_new_is_connected_while_handshakes_stall_and_complete_in_masses() {
    let mut world = World::new();
    let (mut stalled, mut completed, mut waiting, mut connected) = (0, 0, VecDeque::new(), 0);
    let milliseconds = |duration: Duration| duration.as_millis() as u64;
    let honest_after = milliseconds(STALLED_BEFORE);
    let completed_after = milliseconds(STALLED_BEFORE - COMPLETED_BEFORE);
    let interval = milliseconds(BETWEEN_HONEST);
    let end = honest_after + HONEST as u64 * interval + milliseconds(CONNECTED_MAX + TOKEN_TIME);
    for millisecond in 1..=end {
        while stalled * 1_000 < millisecond * STALLED_PER_SECOND {
            let (network, port) = (stalled % u64::from(STALLED_NETWORKS), 1_000 + stalled);
            let address = SocketAddr::from(([10, 0, network as u8, 1], port as u16));
            world.connect(Kind::Stalls, address);
            stalled += 1;
        }
        let completing = millisecond.saturating_sub(completed_after);
        while completed * 1_000 < completing * COMPLETED_PER_SECOND {
            let port = 1_000 + completed % 8;
            world.connect(Kind::Completes, SocketAddr::from(([10, 1, 0, 1], port as u16)));
            completed += 1;
        }
        let number = millisecond.saturating_sub(honest_after) / interval;
        if millisecond > honest_after && millisecond % interval == 0 && number <= HONEST as u64 {
            let address = SocketAddr::from(([10, 2, number as u8, 1], 5_000));
            world.connect(Kind::Honest, address);
            waiting.push_back((world.now, address));
        }
        world.step();
        while let Some((_, address)) =
            waiting.pop_front_if(|(since, _)| world.now - *since >= CONNECTED_MAX + TOKEN_TIME)
        {
            let (_, side) = &world.clients[&address];
            connected += usize::from(side.connected.len() == 1 && side.closed.is_empty());
        }
    }
    let totals = world.server.endpoint.incoming_totals();
    println!("{stalled} stalled, {completed} completed, {totals:?}");
    assert_eq!((connected, waiting.len()), (HONEST, 0));
    assert!(totals.pushed_out > 0 && totals.over_rate > 0, "{totals:?}");
}
