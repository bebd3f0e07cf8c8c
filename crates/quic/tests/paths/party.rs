//! Who uses a bottleneck: a pair of Gramway's endpoints with a load, or a rival.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use packet::Ecn;
use quic::{ConnectionKey, ConnectionReport, Direction, Path, Profile};
use sim::Packet;

use crate::support::{Identity, Setup, Side, client_endpoint, server_endpoint};
use crate::world::{Meta, Way};

/// Somebody who sends.
pub(crate) trait Party {
    fn deliver(&mut self, now: Instant, way: Way, packet: Packet<Meta>);
    fn work(&mut self, now: Instant, out: &mut Vec<(Way, Packet<Meta>)>);
    fn next_timer(&self) -> Option<Instant>;
    /// Bytes of payload that have arrived.
    fn delivered(&self) -> u64;
    /// The controller's view, where there is one.
    fn report(&mut self) -> Option<ConnectionReport> {
        None
    }
    /// Stops or resumes a bulk stream.
    fn pause(&mut self, _is_paused: bool) {}
    /// What became of its datagrams, where it has some.
    fn datagrams(&self) -> Option<Datagrams> {
        None
    }
}

/// What a datagram load is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steady {
    pub(crate) interval: Duration,
    pub(crate) bytes: usize,
}

impl Steady {
    pub(crate) fn of(bits_per_second: u64) -> Self {
        let bytes = 1_150;
        Self {
            interval: Duration::from_nanos(bytes as u64 * 8_000_000_000 / bits_per_second),
            bytes,
        }
    }
}

/// What became of a datagram load.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Datagrams {
    pub(crate) offered: u64,
    pub(crate) delivered: u64,
    /// Dropped by the sender because they waited too long.
    pub(crate) expired: u64,
    pub(crate) delay_p99: Duration,
}

/// What one client sends or receives.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// A stream that always has more to say.
    pub(crate) bulk: bool,
    pub(crate) steady: Option<Steady>,
    /// When it begins, after the start of the world.
    pub(crate) after: Duration,
    /// When datagrams end, after the start of the world.
    pub(crate) until: Option<Duration>,
}

/// A datagram that waits longer than this is dropped by the sender, as the tunnel's queue does.
const WAIT_MAX: Duration = Duration::from_millis(50);

/// When a datagram was offered, which it says itself.
fn sent_at(begins: Instant, datagram: &Bytes) -> Instant {
    begins + Duration::from_nanos(u64::from_be_bytes(datagram[..8].try_into().unwrap()))
}

pub(crate) struct Gramway {
    index: usize,
    way: Way,
    load: Load,
    begins: Instant,
    ends: Option<Instant>,
    client: Side,
    server: Side,
    sender: Option<ConnectionKey>,
    has_begun: bool,
    next_datagram: Instant,
    offered: u64,
    expired: u64,
    delays: Vec<Duration>,
    paused: Option<(ConnectionKey, quic::StreamId)>,
    seen: usize,
}

impl Gramway {
    pub(crate) fn new(
        index: usize,
        start: Instant,
        way: Way,
        profile: Profile,
        load: Load,
        seed: u64,
    ) -> Self {
        let identity = Identity::new();
        let setup = Setup {
            profile,
            seed,
            ..Setup::default()
        };
        let address = |host: u8| format!("192.0.2.{host}:4433").parse().unwrap();
        let client_endpoint = client_endpoint(&setup, index as u8 + 1);
        let mut client = Side::new(client_endpoint, address(index as u8 * 2 + 1), setup.ceiling);
        let server_endpoint = server_endpoint(&setup, &identity, [index as u8 + 100; 64]);
        let mut server = Side::new(server_endpoint, address(index as u8 * 2 + 2), setup.ceiling);
        client.keeps_sent = false;
        server.keeps_sent = false;
        let parameters = quic::ClientParameters::Pin(identity.pin);
        client
            .endpoint
            .connect(start, server.address, "localhost", &parameters, setup.ceiling)
            .unwrap();
        Self {
            index,
            way,
            load,
            begins: start + load.after,
            ends: load.until.map(|until| start + until),
            client,
            server,
            sender: None,
            has_begun: false,
            next_datagram: start + load.after,
            offered: 0,
            expired: 0,
            delays: Vec::new(),
            paused: None,
            seen: 0,
        }
    }

    fn sending_side(&mut self) -> &mut Side {
        match self.way {
            Way::Up => &mut self.client,
            Way::Down => &mut self.server,
        }
    }

    fn receiving_side(&self) -> &Side {
        match self.way {
            Way::Up => &self.server,
            Way::Down => &self.client,
        }
    }

    /// Begins the load once it is time and both ends stand.
    fn begin(&mut self, now: Instant) {
        let (Some(sender), Some(&client)) = (self.sender, self.client.connected.last()) else {
            return;
        };
        if !self.has_begun && now >= self.begins {
            self.has_begun = true;
            self.next_datagram = now;
            if self.load.bulk {
                let stream = self
                    .client
                    .endpoint
                    .open_stream(client, Direction::Bidirectional)
                    .unwrap();
                // The server learns of the stream by its first byte.
                self.client.endpoint.write(client, stream, b"?").unwrap();
                self.client.endpoint.mark_ready(client);
                if self.way == Way::Up {
                    self.client.bulk = Some((client, stream));
                }
            }
        }
        if self.way == Way::Down && self.load.bulk && self.server.bulk.is_none() && self.paused.is_none() {
            self.server.bulk = self.server.opened.first().map(|stream| (sender, *stream));
        }
    }

    fn is_connected(&self) -> bool {
        self.sender.is_some() && !self.client.connected.is_empty()
    }

    fn offer(&mut self, now: Instant) {
        let (Some(steady), Some(key), true) = (self.load.steady, self.sender, self.has_begun) else {
            return;
        };
        while self.next_datagram <= now && self.ends.is_none_or(|ends| self.next_datagram < ends) {
            let mut bytes = BytesMut::zeroed(steady.bytes);
            let at = now - self.begins;
            bytes[..8].copy_from_slice(&(at.as_nanos() as u64).to_be_bytes());
            self.offered += 1;
            let datagram: Bytes = bytes.freeze();
            self.sending_side().send_datagram(key, datagram);
            self.next_datagram += steady.interval;
        }
        let begins = self.begins;
        let queue = self.sending_side().source.queues.entry(key).or_default();
        let mut expired = 0;
        while queue
            .front()
            .is_some_and(|datagram| now - sent_at(begins, datagram) > WAIT_MAX)
        {
            queue.pop_front();
            expired += 1;
        }
        self.expired += expired;
    }
}

impl Party for Gramway {
    fn deliver(&mut self, now: Instant, way: Way, packet: Packet<Meta>) {
        let (from, side) = match way {
            Way::Up => (self.client.address, &mut self.server),
            Way::Down => (self.server.address, &mut self.client),
        };
        let path = Path {
            remote: from,
            local: None,
        };
        let size = packet.bytes.len();
        let ecn = Ecn::from_bits(packet.meta.number as u8);
        side.receive(now, path, ecn, BytesMut::from(&packet.bytes[..]), size);
        let begins = self.begins;
        let receiver = match self.way {
            Way::Up => &mut self.server,
            Way::Down => &mut self.client,
        };
        for datagram in receiver.recorder.datagrams.drain(..) {
            self.delays.push(now - sent_at(begins, &datagram));
            self.seen += 1;
        }
    }

    fn work(&mut self, now: Instant, out: &mut Vec<(Way, Packet<Meta>)>) {
        if self.sender.is_none() {
            self.sender = self.sending_side().connected.last().copied();
        }
        self.begin(now);
        self.offer(now);
        for way in [Way::Up, Way::Down] {
            let side = match way {
                Way::Up => &mut self.client,
                Way::Down => &mut self.server,
            };
            side.work(now);
            for train in side.take_trains(now) {
                let segments = packet::segments(&train.bytes, train.segment_size);
                for (place, segment) in segments.enumerate() {
                    out.push((
                        way,
                        Packet {
                            bytes: segment.to_vec(),
                            meta: Meta {
                                party: self.index,
                                number: u64::from(train.ecn.bits()),
                                follows: place > 0,
                            },
                        },
                    ));
                }
            }
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        let timers =
            [&self.client, &self.server].map(|side| side.endpoint.poll_timeout().map(|(due, _)| due));
        let begins = (!self.has_begun && self.is_connected()).then_some(self.begins);
        let offers = self.has_begun && self.load.steady.is_some();
        let has_ended = self.ends.is_some_and(|ends| self.next_datagram >= ends);
        let datagram = (offers && !has_ended).then_some(self.next_datagram);
        timers.into_iter().chain([begins, datagram]).flatten().min()
    }

    fn delivered(&self) -> u64 {
        let side = self.receiving_side();
        side.stream_bytes + side.recorder.datagram_bytes
    }

    fn report(&mut self) -> Option<ConnectionReport> {
        let key = self.sender?;
        self.sending_side().endpoint.report(key)
    }

    fn pause(&mut self, is_paused: bool) {
        let key = self.sender;
        let side = self.sending_side();
        if is_paused {
            self.paused = side.bulk.take();
        } else {
            self.sending_side().bulk = self.paused.take();
            if let Some(key) = key {
                let side = self.sending_side();
                side.mark();
                side.endpoint.mark_ready(key);
            }
        }
    }

    fn datagrams(&self) -> Option<Datagrams> {
        self.load.steady?;
        let mut delays = self.delays.clone();
        delays.sort_unstable();
        Some(Datagrams {
            offered: self.offered,
            delivered: self.seen as u64,
            expired: self.expired,
            delay_p99: delays.get(delays.len() * 99 / 100).copied().unwrap_or_default(),
        })
    }
}
