//! Servers of any number of shards, clients of any number of stripes, and a network between them, all in virtual time.
//!
//! Packets travel one by one; what arrives at the same instant is taken as one batch. After every turn of a tunnel
//! end its laws are checked, see [`Tunnel::check`].

mod book;
mod client;
mod foreign;
mod front_door;
mod identity;
pub(crate) mod packets;
mod server;
mod setup;
mod tcp;
mod tunnel;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use packet::Ecn;
use packet::vnet::VnetHeader;
use quic::Outbox;
use rand::Rng;
use rand::rngs::StdRng;
use sim::{Event, LinkConfig, Network};
use tunnel_proto::{Client, ClientAction, Server, ServerAction};

pub(crate) use book::{Book, Way};
use foreign::Foreign;
pub(crate) use server::SLOW_OPENING;
pub(crate) use setup::{RESET_KEY, Setup, stranger, user};
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
    /// The shards of each server that is ours.
    servers: BTreeMap<SocketAddr, Vec<Tunnel<Server>>>,
    /// Every stripe of every client.
    clients: BTreeMap<SocketAddr, Tunnel<Client>>,
    /// Clients with several stripes.
    groups: Vec<Vec<SocketAddr>>,
    /// Who is joined to which server.
    links: Vec<(SocketAddr, SocketAddr)>,
    foreigners: BTreeMap<SocketAddr, Foreign>,
    random: StdRng,
    touched: BTreeSet<SocketAddr>,
    addresses: u8,
    /// Shards started so far: a new one repeats no connection ID of its predecessor.
    starts: u64,
    turns_at_once: (Option<Instant>, usize),
}

impl World {
    /// Lets a client's TUN give a single packet without partial checksum.
    pub(crate) fn send_packet(&mut self, from: SocketAddr, packet: &[u8]) {
        let now = self.now();
        self.tunnel(from).send_packet(now, &VnetHeader::default(), packet);
    }

    /// Changes what is between the servers and everybody else.
    pub(crate) fn set_link(&mut self, link: LinkConfig) {
        for (one, other) in &self.links {
            self.network.set_config(*one, *other, link);
        }
    }

    /// Changes what is between one node and the servers.
    pub(crate) fn set_link_of(&mut self, node: SocketAddr, link: LinkConfig) {
        for (one, other) in self.links.iter().filter(|(one, _)| *one == node) {
            self.network.set_config(*one, *other, link);
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.network.now()
    }

    fn end(&mut self, address: SocketAddr) -> Option<&mut dyn End> {
        ends_at(&mut self.servers, &mut self.clients, address)
            .into_iter()
            .next()
    }

    /// A tunnel end of either role, which gets a turn afterwards; of a server the first shard.
    pub(crate) fn tunnel(&mut self, address: SocketAddr) -> &mut dyn End {
        self.touched.insert(address);
        self.end(address).expect("a tunnel end has this address")
    }

    /// The server's end, of several shards the first.
    pub(crate) fn server(&mut self) -> &mut Tunnel<Server> {
        &mut self.shards(self.server)[0]
    }

    /// All shards of a server.
    pub(crate) fn shards(&mut self, server: SocketAddr) -> &mut [Tunnel<Server>] {
        self.touched.insert(server);
        self.servers.get_mut(&server).expect("the server is ours")
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

    /// How often a client has been connected.
    pub(crate) fn connections_opened(&mut self, client: SocketAddr) -> usize {
        let up = |action: &ClientAction| matches!(action, ClientAction::Up { .. });
        self.client_at(client).count(up)
    }

    /// How many sessions each shard of a server has opened, the fewest first.
    pub(crate) fn sessions_opened(&mut self, server: SocketAddr) -> Vec<usize> {
        let open = |action: &ServerAction| matches!(action, ServerAction::Open { .. });
        let shards = self.shards(server).iter();
        let mut opened: Vec<_> = shards.map(|shard| shard.count(open)).collect();
        opened.sort_unstable();
        opened
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

    /// As [`World::send_from`], by a client with several stripes: each session has its home, and moves while that is down.
    pub(crate) fn send_over(&mut self, stripes: &[SocketAddr], kind: &str, session: u32, sizes: &[usize]) {
        let now = self.now();
        let home = session as usize % stripes.len();
        let place = self.client_at(stripes[home]).stand_in(now).unwrap_or(home);
        self.send_from(stripes[place], kind, session, sizes);
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
        self.run_until(20 * SECOND, |world| world.client_at(client).data.is_up());
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
                if let Some(shards) = self.servers.get_mut(&arrived.node) {
                    receive(shards, now, source, ecn, bytes);
                } else if let Some(client) = self.clients.get_mut(&arrived.node) {
                    client.receive(now, source, ecn, bytes);
                } else if let Some(foreign) = self.foreigners.get_mut(&arrived.node) {
                    foreign.receive(now, source, ecn, bytes);
                }
                arrived.node
            }
        };
        self.touched.insert(address);
    }

    /// Gives a turn to the stripes that a sibling wants to ask something.
    fn call_siblings(&mut self, address: SocketAddr) {
        let Some(group) = self.groups.iter().find(|group| group.contains(&address)) else {
            return;
        };
        let called = self.clients[&address].data.shared.borrow().probes.clone();
        self.touched.extend(called.into_iter().map(|index| group[index]));
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
            let ends = ends_at(&mut self.servers, &mut self.clients, address);
            let due = if !ends.is_empty() {
                let mut due = Vec::new();
                for end in ends {
                    end.work(now, &mut self.book);
                    if let Some(port) = end.take_new_port() {
                        let outside = SocketAddr::new(address.ip(), port);
                        self.network.rebind(address, outside);
                    }
                    loop {
                        let more = end.flush(now);
                        let (network, random) = (&mut self.network, &mut self.random);
                        post(network, random, self.damage, address, end.outbox());
                        if !more {
                            break;
                        }
                    }
                    end.check();
                    due.extend(end.poll_timeout());
                }
                self.call_siblings(address);
                due.into_iter().min()
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

/// The tunnel ends at an address: the shards of a server, or one stripe of a client.
fn ends_at<'a>(
    servers: &'a mut BTreeMap<SocketAddr, Vec<Tunnel<Server>>>,
    clients: &'a mut BTreeMap<SocketAddr, Tunnel<Client>>,
    address: SocketAddr,
) -> Vec<&'a mut dyn End> {
    let shards = servers.get_mut(&address).into_iter().flatten();
    let stripe = clients.get_mut(&address);
    shards
        .map(|shard| shard as &mut dyn End)
        .chain(stripe.map(|stripe| stripe as &mut dyn End))
        .collect()
}

/// A packet comes to the shard that its source leads to, as where the kernel spreads them, and is handed to the one that
/// its connection ID names.
fn receive(shards: &mut [Tunnel<Server>], now: Instant, source: SocketAddr, ecn: Ecn, bytes: &[u8]) {
    let first = usize::from(source.port()) % shards.len();
    shards[first].receive(now, source, ecn, bytes);
    for (shard, source, ecn, segment) in std::mem::take(&mut shards[first].recorder.foreign) {
        shards[usize::from(shard)].receive(now, source, ecn, &segment);
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
