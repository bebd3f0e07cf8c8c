//! What a world begins with: servers, clients, strangers, and the links between them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use masque::Role;
use quic::{
    Certificates, ClientParameters, Endpoint, EndpointParameters, IdLength, OnlyOurs, Profile,
    ServerParameters, SteerKey,
};
use rand::SeedableRng;
use rand::rngs::StdRng;
use sim::{Clock, LinkConfig, Network};
use tunnel_proto::{
    Acceptance, Authorizer, Budget, CarrierChoice, ClientId, Engine, EngineConfig, IpService, Leases,
    OwnAddresses, Prefix, Reconnection, ServerShard, SoleOwner, TargetRules, Token, TunRoutes, limits,
    own_address,
};

use super::book::Book;
use super::client::{FIRST_PORT, Shared};
use super::foreign::Foreign;
use super::front_door::{self, Doorman};
use super::identity::{Identity, identity};
use super::tunnel::Tunnel;
use super::{CEILING, DELAY, Damage, SECOND, World};

/// How a world is set up.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) link: LinkConfig,
    pub(crate) server: EngineConfig,
    pub(crate) client: EngineConfig,
    /// What the interfaces carry, in bytes of UDP payload.
    pub(crate) ceiling: u16,
    pub(crate) seed: u64,
    /// The server is behind a cover, and its clients know that.
    pub(crate) has_front_door: bool,
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
            has_front_door: false,
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

impl World {
    /// A server alone.
    pub(crate) fn with_server(setup: Setup) -> Self {
        let server = SocketAddr::from(([198, 51, 100, 1], 443));
        let mut world = Self {
            network: Network::new(Clock::default(), setup.seed),
            book: Book::default(),
            damage: Damage::default(),
            server,
            client: SocketAddr::from(([192, 0, 2, 1], FIRST_PORT)),
            servers: BTreeMap::new(),
            clients: BTreeMap::new(),
            groups: Vec::new(),
            links: Vec::new(),
            foreigners: BTreeMap::new(),
            random: StdRng::seed_from_u64(setup.seed),
            touched: BTreeSet::new(),
            addresses: 1,
            starts: 0,
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
        let has_front_door = self.setup.has_front_door;
        let endpoint = match has_front_door {
            true => covered_endpoint(self.setup.seed),
            false => endpoint(self.setup.seed, reset_key, quic::Shard::SOLE),
        };
        let mut engine = Engine::server(endpoint, owner(), self.setup.server.clone());
        if has_front_door {
            engine.use_front_door();
        }
        let mut server = Tunnel::server(engine, self.setup.ceiling);
        server.data.doorman = has_front_door.then(Doorman::new);
        self.servers.insert(self.server, vec![server]);
    }

    /// In place of the server one that lets in whom `authorizer` knows; one of so many shards, which have each its part of
    /// the bounds.
    pub(crate) fn start_server_for(&mut self, authorizer: Box<dyn Authorizer>, shards: u8) {
        let endpoint = endpoint(self.setup.seed, RESET_KEY, quic::Shard::SOLE);
        let engine = Engine::server(endpoint, authorizer, self.setup.server.clone());
        let shard = ServerShard {
            index: 0,
            count: shards,
        };
        let engine = engine.sharded(shard, Budget::whole(limits::UDP_SESSIONS_MAX));
        let server = Tunnel::server(engine, self.setup.ceiling);
        self.servers.insert(self.server, vec![server]);
    }

    /// In place of the server one of its shards.
    pub(crate) fn start_shard(&mut self, shard: ServerShard) {
        let endpoint = endpoint(self.setup.seed, RESET_KEY, quic::Shard::SOLE);
        let engine = Engine::server(endpoint, owner(), self.setup.server.clone());
        let engine = engine.sharded(shard, Budget::whole(limits::UDP_SESSIONS_MAX));
        let server = Tunnel::server(engine, self.setup.ceiling);
        self.servers.insert(self.server, vec![server]);
    }

    /// Starts a server of this many shards, in place of what was at the address.
    pub(crate) fn start_shards(&mut self, address: SocketAddr, count: u8) {
        let sessions = Budget::divided(limits::UDP_SESSIONS_MAX, usize::from(count));
        self.starts += u64::from(count);
        let shards = (0..count).zip(sessions).map(|(index, sessions)| {
            let seed = self.setup.seed + 100 + self.starts - u64::from(index);
            let endpoint = endpoint(seed, RESET_KEY, quic::Shard { index, count });
            let engine = Engine::server(endpoint, owner(), self.setup.server.clone());
            let engine = engine.sharded(ServerShard { index, count }, sessions);
            Tunnel::server(engine, self.setup.ceiling)
        });
        self.servers.insert(address, shards.collect());
    }

    /// A server is gone without a word.
    pub(crate) fn kill_server(&mut self, address: SocketAddr) {
        self.servers.remove(&address);
    }

    /// A client with `token` that begins to connect.
    pub(crate) fn add_client(&mut self, token: &Token) -> SocketAddr {
        let server = self.server;
        self.add_stripes(token, &[("server.test", server)], 1)[0]
    }

    /// A guest who was invited by this number, and knows no key of the server.
    pub(crate) fn add_guest(&mut self, number: u32) -> SocketAddr {
        let address = self.add_client(&user());
        let endpoint = self.client_endpoint(self.setup.seed + 50 + u64::from(self.addresses));
        let engine = Engine::guest(endpoint, number, self.setup.client.clone());
        self.client_at(address).become_guest(engine);
        address
    }

    /// A client with this many stripes that begin to connect to the first of the servers that answers.
    pub(crate) fn add_stripes(
        &mut self,
        token: &Token,
        servers: &[(&str, SocketAddr)],
        count: usize,
    ) -> Vec<SocketAddr> {
        let names: Vec<_> = servers
            .iter()
            .map(|(name, address)| (*name, vec![*address]))
            .collect();
        let shared = Shared::new(count, &names);
        let addresses: Vec<SocketAddr> = (0..count)
            .map(|index| {
                let address = self.next_address();
                let first = self.server;
                for (_, server) in servers.iter().filter(|(_, server)| *server != first) {
                    self.join(address, *server);
                }
                let seed = self.setup.seed + u64::from(self.addresses);
                let endpoint = self.client_endpoint(seed);
                let engine = Engine::client(endpoint, token, self.setup.client.clone());
                let engine = if count > 1 {
                    engine.sharded(
                        ServerShard {
                            index: index as u8,
                            count: count as u8,
                        },
                        Budget::whole(limits::UDP_SESSIONS_MAX),
                    )
                } else {
                    engine
                };
                let servers = servers.iter().map(|(name, _)| ((*name).to_owned(), 443));
                let reconnection =
                    Reconnection::new(servers.collect(), CarrierChoice::UDP, seed, self.network.now());
                let ceiling = self.setup.ceiling;
                let stripe = Tunnel::stripe(
                    engine,
                    ceiling,
                    index,
                    shared.clone(),
                    reconnection,
                    self.client_parameters(),
                );
                self.clients.insert(address, stripe);
                self.touched.insert(address);
                address
            })
            .collect();
        self.groups.push(addresses.clone());
        addresses
    }

    /// A QUIC client of another make that begins to connect.
    pub(crate) fn add_foreign_client(&mut self) -> SocketAddr {
        let address = self.next_address();
        let mut endpoint = self.client_endpoint(self.setup.seed + u64::from(self.addresses));
        let parameters = self.client_parameters();
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
        let service = IpService::new(pools.clone(), &routes, client_to_client, TargetRules::default())
            .with_name_servers(pools.iter().filter_map(own_address).collect());
        let server = self.server();
        server.engine.serve_ip(service, 1);
        server.engine.set_own_addresses(OwnAddresses::of(&[]));
        server.data.leases = Some(Leases::new(&pools));
    }

    /// A client that asks for an IP session under this name and run, and begins to connect.
    pub(crate) fn add_ip_client(&mut self, name: u8, run: u32) -> SocketAddr {
        self.add_ip_client_of(&user(), name, run)
    }

    /// The same with the token of another user.
    pub(crate) fn add_ip_client_of(&mut self, token: &Token, name: u8, run: u32) -> SocketAddr {
        let address = self.add_client(token);
        self.client_at(address).engine.use_ip(
            ClientId([name; 16]),
            run,
            2,
            Acceptance::new(TunRoutes::None, false),
        );
        address
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
        self.servers.remove(&self.server);
        let has_front_door = self.setup.has_front_door;
        let endpoint = match has_front_door {
            true => covered_endpoint(self.setup.seed),
            false => endpoint(self.setup.seed, RESET_KEY, quic::Shard::SOLE),
        };
        let mut foreign = Foreign::new(endpoint, None, greets);
        foreign.doorman = has_front_door.then(Doorman::new);
        self.foreigners.insert(self.server, foreign);
    }

    /// Whoever is on the way to the server leads everybody to the genuine site.
    pub(crate) fn lead_to_the_genuine_site(&mut self) {
        self.servers.remove(&self.server);
        let parameters = endpoint_parameters(self.setup.seed, RESET_KEY);
        let endpoint = serving(&parameters, &front_door::genuine_identity());
        self.foreigners
            .insert(self.server, Foreign::new(endpoint, None, Some(Role::Server)));
    }

    fn client_endpoint(&self, seed: u64) -> Endpoint {
        let mut parameters = endpoint_parameters(seed, [1; 64]);
        if self.setup.has_front_door {
            (parameters.id_length, parameters.is_covered) = (IdLength::NONE, true);
        }
        Endpoint::new(&parameters, None).expect("a client needs no certificate")
    }

    /// How clients know the server.
    fn client_parameters(&self) -> ClientParameters {
        match self.setup.has_front_door {
            true => front_door::client_parameters(),
            false => ClientParameters::Pin(identity().pin),
        }
    }

    fn next_address(&mut self) -> SocketAddr {
        let address = SocketAddr::from(([192, 0, 2, self.addresses], FIRST_PORT));
        self.addresses += 1;
        self.join(address, self.server);
        address
    }

    fn join(&mut self, address: SocketAddr, server: SocketAddr) {
        self.network.join(address, server, self.setup.link);
        self.links.push((address, server));
    }
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

/// A server's.
fn endpoint(seed: u64, reset_key: [u8; 64], shard: quic::Shard) -> Endpoint {
    let mut parameters = endpoint_parameters(seed, reset_key);
    parameters.shard = shard;
    serving(&parameters, identity())
}

/// Of a server behind a cover.
fn covered_endpoint(seed: u64) -> Endpoint {
    let mut parameters = endpoint_parameters(seed, RESET_KEY);
    parameters.is_covered = true;
    let key = SteerKey::derive(&RESET_KEY, parameters.id_length);
    let only_ours = OnlyOurs::new(key, parameters.shard);
    serving(&parameters, identity()).with_classifier(Box::new(only_ours))
}

fn endpoint_parameters(seed: u64, reset_key: [u8; 64]) -> EndpointParameters {
    EndpointParameters {
        udp_payload_max: None,
        profile: Profile::default(),
        aead: quic::Aead::default(),
        reset_key,
        id_length: IdLength::default(),
        is_covered: false,
        shard: quic::Shard::SOLE,
        generation: quic::Generation::default(),
        seed: [seed as u8; 32],
    }
}

fn serving(parameters: &EndpointParameters, identity: &Identity) -> Endpoint {
    let server = ServerParameters {
        certificates: Certificates::new(vec![identity.certificate.clone()], identity.private_key.clone())
            .expect("the certificate and its key are usable"),
        token_key: [9; 64],
    };
    Endpoint::new(parameters, Some(server)).expect("a server")
}
