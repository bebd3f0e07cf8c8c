//! A server, clients and a network between them, all in virtual time.
//!
//! Packets travel one by one; what arrives at the same instant is taken as one batch. After every turn of a tunnel
//! end its laws are checked, see [`Tunnel::check`].

mod book;
mod client;
mod foreign;
mod identity;
pub(crate) mod packets;
mod server;
mod tcp;
mod tunnel;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use masque::Role;
use packet::Ecn;
use packet::vnet::VnetHeader;
use quic::{ClientParameters, Endpoint, EndpointParameters, Outbox, Profile, ServerParameters};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sim::{Clock, Event, LinkConfig, Network};
use tunnel_proto::{
    Authorizer, Budget, Client, ClientId, Engine, EngineConfig, IpService, Leases, Prefix, Server,
    ServerShard, SoleOwner, TargetRules, Token, limits,
};

pub(crate) use book::{Book, Way};
use client::Remote;
use foreign::Foreign;
use identity::identity;
pub(crate) use server::SLOW_OPENING;
pub(crate) use tcp::Script;
pub(crate) use tunnel::{End, Tunnel};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MILLISECOND: Duration = Duration::from_millis(1);

/// One way, where a test says nothing else.
pub(crate) const DELAY: Duration = Duration::from_millis(10);

/// UDP payload that Ethernet carries over IPv6, in bytes.
pub(crate) const CEILING: u16 = 1_452;

/// Turns at one instant, so that an end that never rests fails instead of hanging.
const TURNS_AT_ONCE_MAX: usize = 100_000;

/// How a world is set up.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) link: LinkConfig,
    pub(crate) server: EngineConfig,
    pub(crate) client: EngineConfig,
    /// What the interfaces carry, in bytes of UDP payload.
    pub(crate) ceiling: u16,
    pub(crate) seed: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            link: LinkConfig {
                delay: DELAY,
                ..LinkConfig::default()
            },
            server: EngineConfig::default(),
            client: EngineConfig::default(),
            ceiling: CEILING,
            seed: 1,
        }
    }
}

impl Setup {
    pub(crate) fn on(link: LinkConfig) -> Self {
        Self {
            link,
            ..Self::default()
        }
    }
}

/// Packets that are damaged under way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Damage {
    /// Probability of one flipped bit, 0 to 1.
    pub(crate) corrupt: f64,
    /// Probability that the end is cut off, 0 to 1.
    pub(crate) truncate: f64,
}

/// Everything there is.
pub(crate) struct World {
    pub(crate) setup: Setup,
    pub(crate) network: Network<Ecn>,
    pub(crate) book: Book,
    pub(crate) damage: Damage,
    pub(crate) server: SocketAddr,
    /// The first client.
    pub(crate) client: SocketAddr,
    /// The server; `None` where one of another make is in its place.
    server_end: Option<Tunnel<Server>>,
    clients: BTreeMap<SocketAddr, Tunnel<Client>>,
    foreigners: BTreeMap<SocketAddr, Foreign>,
    random: StdRng,
    touched: BTreeSet<SocketAddr>,
    addresses: u8,
    turns_at_once: (Option<Instant>, usize),
}

impl World {
    /// A server alone.
    pub(crate) fn with_server(setup: Setup) -> Self {
        let server = SocketAddr::from(([198, 51, 100, 1], 443));
        let mut world = Self {
            network: Network::new(Clock::default(), setup.seed),
            book: Book::default(),
            damage: Damage::default(),
            server,
            client: SocketAddr::from(([192, 0, 2, 1], 40_000)),
            server_end: None,
            clients: BTreeMap::new(),
            foreigners: BTreeMap::new(),
            random: StdRng::seed_from_u64(setup.seed),
            touched: BTreeSet::new(),
            addresses: 1,
            turns_at_once: (None, 0),
            setup,
        };
        world.start_server(RESET_KEY);
        world
    }

    /// A server, and a client that begins to connect.
    pub(crate) fn new(setup: Setup) -> Self {
        let mut world = Self::with_server(setup);
        world.client = world.add_client(&user());
        world
    }

    /// A server, and a client that is connected and knows its path.
    pub(crate) fn connected(setup: Setup) -> Self {
        let mut world = Self::new(setup);
        let client = world.client;
        world.wait_until_up(client);
        world.run(2 * SECOND);
        world
    }

    /// Starts the server, or replaces it by one that has forgotten everything but its keys.
    pub(crate) fn start_server(&mut self, reset_key: [u8; 64]) {
        let endpoint = endpoint(self.setup.seed, reset_key, true);
        let engine = Engine::server(endpoint, owner(), self.setup.server.clone());
        self.server_end = Some(Tunnel::server(engine, self.setup.ceiling));
    }

    /// In place of the server one that lets in whom `authorizer` knows; one of so many shards, which have each its part of
    /// the bounds.
    pub(crate) fn start_server_for(&mut self, authorizer: Box<dyn Authorizer>, shards: u8) {
        let endpoint = endpoint(self.setup.seed, RESET_KEY, true);
        let engine = Engine::server(endpoint, authorizer, self.setup.server.clone());
        let shard = ServerShard {
            index: 0,
            count: shards,
        };
        let engine = engine.sharded(shard, Budget::whole(limits::UDP_SESSIONS_MAX));
        self.server_end = Some(Tunnel::server(engine, self.setup.ceiling));
    }

    /// In place of the server one of its shards.
    pub(crate) fn start_shard(&mut self, shard: ServerShard) {
        let endpoint = endpoint(self.setup.seed, RESET_KEY, true);
        let engine = Engine::server(endpoint, owner(), self.setup.server.clone());
        let engine = engine.sharded(shard, Budget::whole(limits::UDP_SESSIONS_MAX));
        self.server_end = Some(Tunnel::server(engine, self.setup.ceiling));
    }

    /// A client with `token` that begins to connect.
    pub(crate) fn add_client(&mut self, token: &Token) -> SocketAddr {
        let address = self.next_address();
        let endpoint = endpoint(self.setup.seed + u64::from(self.addresses), [1; 64], false);
        let engine = Engine::client(endpoint, token, self.setup.client.clone());
        let server = Remote {
            address: self.server,
            pin: identity().pin,
        };
        let mut client = Tunnel::client(engine, self.setup.ceiling, server);
        client.connect(self.network.now());
        self.clients.insert(address, client);
        self.touched.insert(address);
        address
    }

    /// A QUIC client of another make that begins to connect.
    pub(crate) fn add_foreign_client(&mut self) -> SocketAddr {
        let address = self.next_address();
        let mut endpoint = endpoint(self.setup.seed + u64::from(self.addresses), [1; 64], false);
        let parameters = ClientParameters { pin: identity().pin };
        let connection = endpoint
            .connect(
                self.network.now(),
                self.server,
                "server.test",
                &parameters,
                CEILING,
            )
            .expect("the name and the address are usable");
        self.foreigners.insert(
            address,
            Foreign::new(endpoint, Some(connection), Some(Role::Client)),
        );
        self.touched.insert(address);
        address
    }

    /// The server serves IP from these pools; to be called before clients connect.
    pub(crate) fn serve_ip(&mut self, pools: &[&str], routes: &[&str], client_to_client: bool) {
        let parse = |texts: &[&str]| -> Vec<Prefix> {
            texts
                .iter()
                .map(|text| text.parse().expect("tests name prefixes"))
                .collect()
        };
        let (pools, routes) = (parse(pools), parse(routes));
        let service = IpService::new(pools.clone(), &routes, client_to_client, TargetRules::default());
        let server = self.server();
        server.engine.serve_ip(service, 1);
        server.data.leases = Some(Leases::new(&pools));
    }

    /// A client that asks for an IP session under this name and run, and begins to connect.
    pub(crate) fn add_ip_client(&mut self, name: u8, run: u32) -> SocketAddr {
        self.add_ip_client_of(&user(), name, run)
    }

    /// The same with the token of another user.
    pub(crate) fn add_ip_client_of(&mut self, token: &Token, name: u8, run: u32) -> SocketAddr {
        let address = self.add_client(token);
        self.client_at(address)
            .engine
            .use_ip(ClientId([name; 16]), run, 2);
        address
    }

    /// Lets a client's TUN give a single packet without partial checksum.
    pub(crate) fn send_packet(&mut self, from: SocketAddr, packet: &[u8]) {
        let now = self.now();
        self.tunnel(from).send_packet(now, &VnetHeader::default(), packet);
    }

    /// In place of the server one of another make, which says what the test has it say.
    pub(crate) fn replace_server_by_a_foreign_one(&mut self) {
        self.replace_server(Some(Role::Server));
    }

    /// In place of the server one that completes handshakes and says nothing.
    pub(crate) fn replace_server_by_a_silent_one(&mut self) {
        self.replace_server(None);
    }

    fn replace_server(&mut self, greets: Option<Role>) {
        self.server_end = None;
        let endpoint = endpoint(self.setup.seed, RESET_KEY, true);
        self.foreigners
            .insert(self.server, Foreign::new(endpoint, None, greets));
    }

    fn next_address(&mut self) -> SocketAddr {
        let address = SocketAddr::from(([192, 0, 2, self.addresses], 40_000));
        self.addresses += 1;
        self.network.join(address, self.server, self.setup.link);
        address
    }

    /// Changes what is between the server and everybody else.
    pub(crate) fn set_link(&mut self, link: LinkConfig) {
        let others: Vec<_> = self
            .clients
            .keys()
            .chain(self.foreigners.keys())
            .copied()
            .collect();
        for other in others.into_iter().filter(|other| *other != self.server) {
            self.network.set_config(other, self.server, link);
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.network.now()
    }

    fn end(&mut self, address: SocketAddr) -> Option<&mut dyn End> {
        if address == self.server {
            self.server_end.as_mut().map(|end| end as &mut dyn End)
        } else {
            self.clients.get_mut(&address).map(|end| end as &mut dyn End)
        }
    }

    /// A tunnel end of either role, which gets a turn afterwards.
    pub(crate) fn tunnel(&mut self, address: SocketAddr) -> &mut dyn End {
        self.touched.insert(address);
        self.end(address).expect("a tunnel end has this address")
    }

    /// The server's end.
    pub(crate) fn server(&mut self) -> &mut Tunnel<Server> {
        self.touched.insert(self.server);
        self.server_end.as_mut().expect("the server is ours")
    }

    /// A client's end.
    pub(crate) fn client_at(&mut self, address: SocketAddr) -> &mut Tunnel<Client> {
        self.touched.insert(address);
        self.clients.get_mut(&address).expect("a client has this address")
    }

    /// The first client's end.
    pub(crate) fn client(&mut self) -> &mut Tunnel<Client> {
        self.client_at(self.client)
    }

    /// A peer of another make, which gets a turn afterwards.
    pub(crate) fn foreign(&mut self, address: SocketAddr) -> &mut Foreign {
        self.touched.insert(address);
        self.foreigners
            .get_mut(&address)
            .expect("a foreigner has this address")
    }

    /// Sends payloads of these sizes in one batch, from a client's source to its target.
    pub(crate) fn send_from(&mut self, client: SocketAddr, kind: &str, session: u32, sizes: &[usize]) {
        let payloads: Vec<_> = sizes
            .iter()
            .map(|size| self.book.payload(session, *size))
            .collect();
        let now = self.now();
        self.tunnel(client).send(now, kind, session, &payloads);
    }

    /// As [`World::send_from`], by the first client.
    pub(crate) fn send(&mut self, kind: &str, session: u32, sizes: &[usize]) {
        self.send_from(self.client, kind, session, sizes);
    }

    /// The target of a session sends payloads of these sizes.
    pub(crate) fn answer(&mut self, session: u32, sizes: &[usize]) {
        self.send_from(self.server, "", session, sizes);
    }

    /// Opens a TCP connection through the first client, to a target that listens if it has a script; returns its
    /// session.
    pub(crate) fn open_tcp(&mut self, local: Script, target: impl Into<Option<Script>>) -> u32 {
        let session = self.book.session();
        let now = self.now();
        if let Some(script) = target.into() {
            self.server().data.scripts.insert(session, script);
        }
        self.client().open_tcp(now, session, local);
        session
    }

    /// Runs until the client's token was taken.
    pub(crate) fn wait_until_up(&mut self, client: SocketAddr) {
        self.run_until(20 * SECOND, |world| world.client_at(client).data.up);
    }

    /// Lets time pass.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now() + time;
        while self.step(end) {}
    }

    /// Runs until `condition` holds; panics where it does not within `limit`.
    pub(crate) fn run_until(&mut self, limit: Duration, mut condition: impl FnMut(&mut Self) -> bool) {
        let end = self.now() + limit;
        let mut goes_on = true;
        while !condition(self) {
            assert!(goes_on, "the condition did not come true in {limit:?}");
            goes_on = self.step(end);
        }
    }

    /// Gives turns to those who were touched, then takes everything of the next instant. Whether there was one.
    fn step(&mut self, end: Instant) -> bool {
        self.turns();
        let Some(event) = self.network.next_event(end) else {
            return false;
        };
        let now = self.now();
        let mut next = Some(event);
        while let Some(event) = next {
            self.take(now, event);
            next = self.network.next_event(now);
        }
        self.turns();
        true
    }

    fn take(&mut self, now: Instant, event: Event<Ecn>) {
        let address = match event {
            Event::Timer(address) => address,
            Event::Delivery(arrived) => {
                let (source, bytes, ecn) = (arrived.source, &arrived.packet.bytes, arrived.packet.meta);
                if let Some(end) = self.end(arrived.node) {
                    end.receive(now, source, ecn, bytes);
                } else if let Some(foreign) = self.foreigners.get_mut(&arrived.node) {
                    foreign.receive(now, source, ecn, bytes);
                }
                arrived.node
            }
        };
        self.touched.insert(address);
    }

    fn turns(&mut self) {
        let now = self.now();
        while let Some(address) = self.touched.pop_first() {
            let at_once = &mut self.turns_at_once;
            *at_once = if at_once.0 == Some(now) {
                (Some(now), at_once.1 + 1)
            } else {
                (Some(now), 0)
            };
            let end = if address == self.server {
                self.server_end.as_mut().map(|end| end as &mut dyn End)
            } else {
                self.clients.get_mut(&address).map(|end| end as &mut dyn End)
            };
            let due = if let Some(end) = end {
                end.work(now, &mut self.book);
                loop {
                    let more = end.flush(now);
                    let (network, random) = (&mut self.network, &mut self.random);
                    post(network, random, self.damage, address, end.outbox());
                    if !more {
                        break;
                    }
                }
                end.check();
                end.poll_timeout()
            } else if let Some(foreign) = self.foreigners.get_mut(&address) {
                foreign.work(now);
                while foreign.flush(now) {
                    let (network, random) = (&mut self.network, &mut self.random);
                    post(network, random, self.damage, address, &mut foreign.outbox);
                }
                let (network, random) = (&mut self.network, &mut self.random);
                post(network, random, self.damage, address, &mut foreign.outbox);
                foreign.poll_timeout()
            } else {
                continue;
            };
            assert!(
                self.turns_at_once.1 < TURNS_AT_ONCE_MAX,
                "no end of turns at {now:?}; {address} is due at {due:?}"
            );
            self.network.set_timer(address, due);
        }
    }
}

/// Puts the packets of all trains on the network.
fn post(
    network: &mut Network<Ecn>,
    random: &mut StdRng,
    damage: Damage,
    from: SocketAddr,
    outbox: &mut Outbox,
) {
    for train in outbox.trains() {
        for segment in packet::segments(&train.bytes, train.segment_size) {
            let mut bytes = segment.to_vec();
            if random.random_bool(damage.corrupt) {
                let place = random.random_range(0..bytes.len());
                bytes[place] ^= 1 << random.random_range(0..8);
            }
            if random.random_bool(damage.truncate) {
                bytes.truncate(random.random_range(1..=bytes.len()));
            }
            network.send(from, train.destination, bytes, train.ecn);
        }
    }
    outbox.release(usize::MAX);
}

/// Key of stateless resets that a server keeps over restarts.
pub(crate) const RESET_KEY: [u8; 64] = [7; 64];

/// The token that opens the server.
pub(crate) fn user() -> Token {
    Token::from_bytes([42; 32])
}

fn owner() -> Box<dyn Authorizer> {
    Box::new(SoleOwner::new(vec![user()]))
}

/// A token that does not.
pub(crate) fn stranger() -> Token {
    Token::from_bytes([43; 32])
}

fn endpoint(seed: u64, reset_key: [u8; 64], serves: bool) -> Endpoint {
    let parameters = EndpointParameters {
        udp_payload_max: None,
        profile: Profile::default(),
        aead: quic::Aead::default(),
        reset_key,
        shard: quic::Shard::SOLE,
        seed: [seed as u8; 32],
    };
    let server = serves.then(|| ServerParameters {
        certificate_chain: vec![identity().certificate.clone()],
        private_key: identity().private_key.clone(),
        token_key: [9; 64],
    });
    Endpoint::new(&parameters, server).expect("the certificate and its key are usable")
}
