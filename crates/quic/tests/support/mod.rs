//! Two endpoints joined by a link in memory, on virtual time: nothing here reads a clock or a socket.

mod link;
mod side;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use packet::Ecn;
use quic::{
    Aead, Certificates, ClientParameters, ConnectError, ConnectionKey, Endpoint, EndpointParameters,
    IdLength, Path, Profile, ServerParameters, Shard, public_key_pin,
};

pub(crate) use link::{Direction, Link, Random};
pub(crate) use side::{Sent, Side};

/// Most instants that one drive may visit, so that a livelock fails instead of hanging.
const STEPS_MAX: usize = 20_000_000;

/// Most rounds at one instant, for the same reason.
const ROUNDS_MAX: usize = 100_000;

/// Certificate and key of a server, with its pin.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) certificate: Vec<u8>,
    pub(crate) certificates: Certificates,
    pub(crate) pin: [u8; 32],
}

impl Identity {
    pub(crate) fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let certificate = made.cert.der().to_vec();
        let pin = public_key_pin(&certificate).unwrap();
        Self {
            certificates: Certificates::new(vec![certificate.clone()], made.signing_key.serialize_der())
                .unwrap(),
            certificate,
            pin,
        }
    }
}

/// How a [`Pair`] is set up.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) link: Link,
    pub(crate) profile: Profile,
    pub(crate) client_payload_max: Option<u16>,
    pub(crate) server_payload_max: Option<u16>,
    /// What both interfaces carry, in bytes of UDP payload.
    pub(crate) ceiling: u16,
    /// Both endpoints are covered.
    pub(crate) is_covered: bool,
    pub(crate) client_ids: IdLength,
    pub(crate) server_ids: IdLength,
    pub(crate) server_shard: Shard,
    pub(crate) seed: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            link: Link::default(),
            profile: Profile::Throughput,
            client_payload_max: None,
            server_payload_max: None,
            ceiling: 1_452,
            is_covered: false,
            client_ids: IdLength::default(),
            server_ids: IdLength::default(),
            server_shard: Shard::SOLE,
            seed: 1,
        }
    }
}

struct Message {
    to: Direction,
    from: SocketAddr,
    ecn: Ecn,
    bytes: BytesMut,
    segment_size: usize,
}

/// A client, a server, and the link between them.
pub(crate) struct Pair {
    pub(crate) setup: Setup,
    pub(crate) identity: Identity,
    pub(crate) start: Instant,
    pub(crate) now: Instant,
    pub(crate) client: Side,
    pub(crate) server: Side,
    pub(crate) link: Link,
    random: Random,
    wire: BTreeMap<(Instant, u64), Message>,
    messages: u64,
}

impl Pair {
    pub(crate) fn new(setup: Setup) -> Self {
        let identity = Identity::new();
        // tidy-allow(pure): first instant of virtual time
        let start = Instant::now();
        let client = Side::new(
            client_endpoint(&setup, 1),
            "192.0.2.1:40000".parse().unwrap(),
            setup.ceiling,
        );
        let server = server_endpoint(&setup, &identity, [7; 64]);
        let server = Side::new(server, "198.51.100.1:443".parse().unwrap(), setup.ceiling);
        Self {
            link: setup.link.clone(),
            random: Random(setup.seed),
            setup,
            identity,
            start,
            now: start,
            client,
            server,
            wire: BTreeMap::new(),
            messages: 0,
        }
    }

    /// A pair with one connection whose handshake is complete and whose path MTU has been searched.
    pub(crate) fn connected(setup: Setup) -> (Self, ConnectionKey, ConnectionKey) {
        let mut pair = Self::new(setup);
        let client = pair.connect();
        let server = pair.drive_until(Duration::from_secs(5), |pair| {
            pair.server.connected.last().copied()
        });
        pair.drive_until(Duration::from_secs(5), |pair| {
            pair.client.connected.last().copied()
        });
        pair.drive(Duration::from_secs(2));
        (pair, client, server)
    }

    pub(crate) fn connect(&mut self) -> ConnectionKey {
        self.connect_with_pin(self.identity.pin)
    }

    pub(crate) fn connect_with_pin(&mut self, pin: [u8; 32]) -> ConnectionKey {
        self.connect_with(&ClientParameters::Pin(pin)).unwrap()
    }

    pub(crate) fn connect_with(
        &mut self,
        parameters: &ClientParameters,
    ) -> Result<ConnectionKey, ConnectError> {
        let (remote, ceiling) = (self.server.address, self.setup.ceiling);
        self.client
            .endpoint
            .connect(self.now, remote, "localhost", parameters, ceiling)
    }

    /// Replaces the client by a new one at `address`; the old one says nothing any more.
    pub(crate) fn replace_client(&mut self, address: &str, seed: u8) {
        self.client = Side::new(
            client_endpoint(&self.setup, seed),
            address.parse().unwrap(),
            self.setup.ceiling,
        );
        self.wire.clear();
    }

    /// Replaces the server's process; what it had sent is still under way.
    pub(crate) fn restart_server(&mut self, reset_key: [u8; 64]) {
        let endpoint = server_endpoint(&self.setup, &self.identity, reset_key);
        self.server = Side::new(endpoint, self.server.address, self.setup.ceiling);
    }

    /// Lets `duration` of virtual time pass.
    pub(crate) fn drive(&mut self, duration: Duration) {
        let end = self.now + duration;
        for _ in 0..STEPS_MAX {
            if !self.step(end) {
                return;
            }
        }
        panic!("the pair does not come to rest");
    }

    /// Drives until `condition` gives something; panics where it does not within `limit` of virtual time.
    pub(crate) fn drive_until<T>(&mut self, limit: Duration, condition: impl Fn(&Self) -> Option<T>) -> T {
        let end = self.now + limit;
        let mut goes_on = true;
        loop {
            if let Some(found) = condition(self) {
                return found;
            }
            assert!(goes_on, "the condition did not come true in {limit:?}");
            goes_on = self.step(end);
        }
    }

    /// Does what is due now, and moves to the next instant at which something is; `false` at `end`.
    fn step(&mut self, end: Instant) -> bool {
        let mut rounds = 0;
        loop {
            self.deliver();
            let client = self.exchange(Direction::ToServer);
            let server = self.exchange(Direction::ToClient);
            if !client && !server {
                break;
            }
            rounds += 1;
            assert!(rounds < ROUNDS_MAX, "no end of packets at one instant");
        }
        let timers =
            [&self.client, &self.server].map(|side| side.endpoint.poll_timeout().map(|(due, _)| due));
        let arrival = self.wire.first_key_value().map(|((due, _), _)| *due);
        let next = timers.into_iter().flatten().chain(arrival).min().unwrap_or(end);
        if next > end {
            self.now = end;
            return false;
        }
        // A timer in the past would be due at once; time still goes on.
        self.now = self.now.max(next);
        self.now < end
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.wire.first_entry()
            && entry.key().0 <= self.now
        {
            let message = entry.remove();
            let side = match message.to {
                Direction::ToServer => &mut self.server,
                Direction::ToClient => &mut self.client,
            };
            let path = Path {
                remote: message.from,
                local: None,
            };
            side.receive(self.now, path, message.ecn, message.bytes, message.segment_size);
        }
    }

    /// Timers, events and packets of the sender of `direction`. Whether it wants to go on at this instant.
    fn exchange(&mut self, direction: Direction) -> bool {
        let side = match direction {
            Direction::ToServer => &mut self.client,
            Direction::ToClient => &mut self.server,
        };
        let more = side.work(self.now);
        let from = side.address;
        let trains = side.take_trains(self.now);
        let sent = !trains.is_empty();
        for train in trains {
            let arrival = self.link.carry(
                direction,
                self.now,
                &train.bytes,
                train.segment_size,
                &mut self.random,
            );
            if let Some((due, bytes)) = arrival {
                self.messages += 1;
                let message = Message {
                    to: direction,
                    from,
                    ecn: train.ecn,
                    bytes,
                    segment_size: train.segment_size,
                };
                self.wire.insert((due, self.messages), message);
            }
        }
        sent || more
    }
}

pub(crate) fn client_endpoint(setup: &Setup, seed: u8) -> Endpoint {
    let parameters = EndpointParameters {
        udp_payload_max: setup.client_payload_max,
        profile: setup.profile,
        aead: Aead::default(),
        reset_key: [seed; 64],
        id_length: setup.client_ids,
        is_covered: setup.is_covered,
        shard: Shard::SOLE,
        generation: quic::Generation::default(),
        seed: [seed; 32],
    };
    Endpoint::new(&parameters, None).unwrap()
}

pub(crate) fn server_endpoint(setup: &Setup, identity: &Identity, reset_key: [u8; 64]) -> Endpoint {
    let parameters = EndpointParameters {
        udp_payload_max: setup.server_payload_max,
        profile: setup.profile,
        aead: Aead::default(),
        reset_key,
        id_length: setup.server_ids,
        is_covered: setup.is_covered,
        shard: setup.server_shard,
        generation: quic::Generation::default(),
        seed: [2; 32],
    };
    let server = ServerParameters {
        certificates: identity.certificates.clone(),
        token_key: [9; 64],
    };
    Endpoint::new(&parameters, Some(server)).unwrap()
}
