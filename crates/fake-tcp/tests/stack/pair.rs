//! Two stacks with a link in each direction, a firewall at each end, and a hand that takes packets out.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use fake_tcp::segment::Segment;
use fake_tcp::{Config, ConnectionId, Event, Headers, Profile, Refused, Stack};
use packet::checksum::{self, ChecksumState};
use packet::segmentation::Segmenter;
use packet::{Ecn, Train};
use sim::{Clock, Link, LinkConfig, Packet};

use super::conntrack::Conntrack;
use super::joined::join;

/// The end that connects, and the one that listens.
pub(crate) const CLIENT: usize = 0;
pub(crate) const SERVER: usize = 1;

pub(crate) const PORT: u16 = 4_433;

/// A packet that left, as it was cut.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) from: usize,
    pub(crate) at: Duration,
    pub(crate) segment: Segment,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) type Filter = Box<dyn FnMut(&Sent) -> bool>;

pub(crate) struct Pair {
    pub(crate) clock: Clock,
    pub(crate) stacks: [Stack; 2],
    pub(crate) addresses: [SocketAddr; 2],
    /// What each end received, one entry for each datagram.
    pub(crate) received: [Vec<Vec<u8>>; 2],
    pub(crate) events: [Vec<Event>; 2],
    /// Everything that left, also what was taken out.
    pub(crate) sent: Vec<Sent>,
    /// Takes packets out by `false`.
    pub(crate) filter: Filter,
    links: [Link<()>; 2],
    firewalls: [Conntrack; 2],
    /// Whether the firewalls' opinion matters; not where packets are forged or a stack starts anew.
    pub(crate) is_watched: bool,
    /// Whether the path joins segments.
    pub(crate) joins: bool,
}

pub(crate) fn delayed(milliseconds: u64) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(milliseconds),
        mtu: 1_500,
        ..LinkConfig::default()
    }
}

pub(crate) fn listening(profile: Profile) -> Config {
    Config {
        listen: Some(PORT),
        ..Config::new(profile)
    }
}

impl Pair {
    /// Two ends of Linux's profile, 10 ms apart.
    pub(crate) fn new() -> Self {
        let profile = Profile::Linux;
        Self::with(
            [Config::new(profile), listening(profile)],
            delayed(10),
            ["192.0.2.1:40000", "198.51.100.2:4433"],
            1,
        )
    }

    pub(crate) fn with(configs: [Config; 2], link: LinkConfig, addresses: [&str; 2], seed: u64) -> Self {
        let stack_seed = |end: u8| {
            let mut bytes = [end; 32];
            bytes[..8].copy_from_slice(&seed.to_be_bytes());
            bytes
        };
        Self {
            clock: Clock::default(),
            stacks: [
                Stack::new(configs[0], stack_seed(0)),
                Stack::new(configs[1], stack_seed(1)),
            ],
            addresses: addresses.map(|address| address.parse().unwrap()),
            received: Default::default(),
            events: Default::default(),
            sent: Vec::new(),
            filter: Box::new(|_| true),
            links: [Link::new(link, seed), Link::new(link, seed + 1_000)],
            firewalls: Default::default(),
            is_watched: true,
            joins: false,
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(crate) fn set_link(&mut self, config: LinkConfig) {
        self.links.iter_mut().for_each(|link| link.set_config(config));
    }

    pub(crate) fn connect(&mut self) -> ConnectionId {
        let id = self.stacks[CLIENT]
            .connect(self.clock.now(), self.addresses[CLIENT], self.addresses[SERVER])
            .unwrap();
        self.flush();
        id
    }

    /// A pair whose handshake is complete, and both IDs.
    pub(crate) fn connected(mut self) -> (Self, [ConnectionId; 2]) {
        let client = self.connect();
        self.run(Duration::from_millis(200));
        assert_eq!(self.events[CLIENT], [Event::Connected { connection: client }]);
        let [
            Event::Accepted {
                connection: server, ..
            },
        ] = self.events[SERVER][..]
        else {
            panic!("{:?}", self.events[SERVER]);
        };
        self.events = Default::default();
        (self, [client, server])
    }

    /// Sends a train from one end.
    pub(crate) fn send(
        &mut self,
        from: usize,
        id: ConnectionId,
        payload: &[u8],
        segment_size: usize,
    ) -> Result<(), Refused> {
        let mut framed = Vec::new();
        let now = self.clock.now();
        let headers = self.stacks[from].send(now, id, payload, segment_size, Ecn::NotEct, &mut framed)?;
        self.flush();
        let payload = if framed.is_empty() { payload } else { &framed };
        self.emit(from, &headers, payload);
        Ok(())
    }

    /// Headers of a train of the client's that does not leave.
    pub(crate) fn headers(
        &mut self,
        id: ConnectionId,
        payload: &[u8],
        segment_size: usize,
        ecn: Ecn,
    ) -> Result<Headers, Refused> {
        let (now, mut framed) = (self.clock.now(), Vec::new());
        self.stacks[CLIENT].send(now, id, payload, segment_size, ecn, &mut framed)
    }

    /// Lets time pass.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.clock.now() + time;
        loop {
            self.flush();
            let timeouts = self.stacks.iter().map(Stack::poll_timeout);
            let arrivals = self.links.iter().map(Link::poll_timeout);
            let next = timeouts.chain(arrivals).flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else {
                break;
            };
            self.clock.advance_to(next);
            for to in [CLIENT, SERVER] {
                let now = self.clock.now();
                let came = std::iter::from_fn(|| self.links[1 - to].poll_delivery(now));
                let mut came: Vec<_> = came.map(|packet| packet.bytes).collect();
                if self.joins {
                    came = join(came);
                }
                for packet in came {
                    self.deliver(to, &packet, None);
                }
                self.stacks[to].handle_timeout(self.clock.now());
            }
        }
        self.clock.advance_to(end);
    }

    /// Hands a packet to one end.
    pub(crate) fn deliver(&mut self, to: usize, packet: &[u8], segment_size: Option<u16>) {
        let now = self.clock.now();
        if self.is_watched {
            let segment = Segment::parse(packet).unwrap();
            assert!(self.firewalls[to].takes(1 - to, &segment), "INVALID: {segment:?}");
        }
        if let Some(data) = self.stacks[to].receive(now, packet, segment_size) {
            let of_trains = data.trains.iter().flat_map(Train::datagrams);
            self.received[to].extend(of_trains.map(<[u8]>::to_vec));
            if !data.payload.is_empty() {
                let datagrams = packet::segments(&packet[data.payload], data.segment_size);
                self.received[to].extend(datagrams.map(<[u8]>::to_vec));
            }
        }
        self.flush();
    }

    /// Sends what the stacks have to send, and collects their events.
    pub(crate) fn flush(&mut self) {
        for end in [CLIENT, SERVER] {
            while let Some(transmit) = self.stacks[end].poll_segment() {
                assert_eq!(transmit.local.ip(), self.addresses[end].ip());
                self.emit(end, &transmit.headers, &[]);
            }
            while let Some(event) = self.stacks[end].poll_event() {
                self.events[end].push(event);
            }
        }
    }

    /// Puts a packet, or the parts of a super-segment, on the link.
    fn emit(&mut self, from: usize, headers: &Headers, payload: &[u8]) {
        let packet = [headers.bytes(), payload].concat();
        let mut segmenter = Segmenter::new(&headers.vnet(), &packet, 65_535).unwrap();
        let mut cut = BytesMut::new();
        while let Some(bytes) = segmenter.next_into(&mut cut, ChecksumState::Full) {
            let bytes = cut.split_to(bytes).to_vec();
            assert!(checksum::verify(&bytes));
            let sent = Sent {
                from,
                at: self.clock.elapsed(),
                segment: Segment::parse(&bytes).unwrap(),
                bytes,
            };
            if self.is_watched {
                let is_valid = self.firewalls[from].takes(from, &sent.segment);
                assert!(is_valid, "INVALID: {:?}", sent.segment);
            }
            if (self.filter)(&sent) {
                let packet = Packet {
                    bytes: sent.bytes.clone(),
                    meta: (),
                };
                self.links[from].send(self.clock.now(), packet);
            }
            self.sent.push(sent);
        }
    }

    /// What one end sent since the last look.
    pub(crate) fn take_sent(&mut self, from: usize) -> Vec<Sent> {
        let (taken, kept) = std::mem::take(&mut self.sent)
            .into_iter()
            .partition(|sent| sent.from == from);
        self.sent = kept;
        taken
    }
}
