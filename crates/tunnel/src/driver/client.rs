//! A client's connection to the server from this shard, its stripe, which is made again whenever it is lost.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use host::Monitor;
use packet_io::{Interest, UdpSocket};
use quic::CloseReason;
use rand::Rng;
use tunnel_proto::{RequestId, ServerShard, Target};

use super::delivery::udp_payload_ceiling;
use super::ip::MTU_INTERVAL;
use super::ip::client::{ClientHost, Way};
use super::resolver::Answer;
use super::stripes::SharedStripes;
use super::{Inner, Role, Shard, Token};
use crate::handle::{Failure, Notice};
use crate::limits;

/// How often a client looks at slow things: path MTU, connections that wait for the tunnel.
const TICK: Duration = Duration::from_millis(500);

/// Where the connection to the server stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// A server's name is being resolved.
    Resolving,
    /// An address is being tried.
    Attempt { until: Instant },
    /// The server has taken the token.
    Up,
    /// Every address has failed; a pause.
    Pause { until: Instant },
}

pub(super) struct Client {
    servers: Vec<(String, u16)>,
    pin: [u8; 32],
    bind: Option<IpAddr>,
    link: Link,
    /// The server that is tried, by index.
    server: usize,
    /// Its addresses that have not been tried, last first.
    untried: Vec<SocketAddr>,
    /// The address that is tried or used.
    address: Option<SocketAddr>,
    /// Rounds over all servers that failed one after the other.
    failed_rounds: u32,
    has_been_up: bool,
    last_reason: String,
    payload_seen: usize,
    payload_settled: usize,
    /// This stripe's number, and all of them.
    index: usize,
    stripes: SharedStripes,
    server_shard: Option<ServerShard>,
    /// How often the stripe was up again.
    rejoins: u64,
    /// Until when a stripe that has not been up keeps its local traffic.
    grace_until: Instant,
    next_tick: Instant,
    /// Numbers the resolutions, so that only the last answer counts.
    resolutions: u64,
    pub(super) tcp_listeners: Vec<(TcpListener, Target)>,
    /// When a refused session was last told about.
    pub(super) refusal_told: Option<Instant>,
    /// The TUN device; `None` where there is none.
    pub(super) ip: Option<ClientHost>,
    /// There are no forwards: without an IP session the client is of no use.
    pub(super) carries_only_ip: bool,
    /// From when on an IP session is to be asked for, as soon as the other stripes let this one.
    pub(super) ip_due: Option<Instant>,
    /// News of links, addresses and routes.
    pub(super) monitor: Option<Monitor>,
    /// How the outer socket leaves this machine, where there is a TUN device.
    pub(super) way: Option<Way>,
    /// The version of the device's routes that was last looked at.
    pub(super) routes_seen: u64,
    /// When the connection moved to another local address, until something is heard there.
    pub(super) moved: Option<Instant>,
    next_ip_turn: Instant,
}

impl Client {
    pub(super) fn new(
        servers: Vec<(String, u16)>,
        pin: [u8; 32],
        bind: Option<IpAddr>,
        index: usize,
        stripes: SharedStripes,
        now: Instant,
    ) -> Self {
        Self {
            servers,
            pin,
            bind,
            link: Link::Pause { until: now },
            server: 0,
            untried: Vec::new(),
            address: None,
            failed_rounds: 0,
            has_been_up: false,
            last_reason: String::new(),
            payload_seen: 0,
            payload_settled: 0,
            index,
            stripes,
            server_shard: None,
            rejoins: 0,
            grace_until: now + limits::STRIPE_GRACE,
            next_tick: now,
            resolutions: 0,
            tcp_listeners: Vec::new(),
            refusal_told: None,
            ip: None,
            carries_only_ip: false,
            ip_due: None,
            monitor: None,
            way: None,
            routes_seen: 0,
            moved: None,
            next_ip_turn: now,
        }
    }

    /// The server's address that is tried or used.
    pub(super) fn server_address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The local address to use towards the server, where it was chosen.
    pub(super) fn bind_address(&self) -> Option<SocketAddr> {
        self.bind.map(|ip| SocketAddr::new(ip, 0))
    }

    pub(super) fn is_up(&self) -> bool {
        self.link == Link::Up
    }

    /// The server's shard that this stripe is on, where it is up and the server says so; how often it was up again.
    pub(super) fn whereabouts(&self) -> (Option<u8>, u64) {
        (self.server_shard.map(|shard| shard.index), self.rejoins)
    }

    /// Why the connection is about to be given up by us, for the line that people read.
    pub(super) fn set_reason(&mut self, reason: &str) {
        reason.clone_into(&mut self.last_reason);
    }

    pub(super) fn state_name(&self) -> &'static str {
        match self.link {
            Link::Up => "connected",
            _ if self.has_been_up => "reconnecting",
            _ => "connecting",
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let next = match self.ip {
            Some(_) => self.next_tick.min(self.next_ip_turn),
            None => self.next_tick,
        };
        Some(match self.link {
            Link::Attempt { until } | Link::Pause { until } => until.min(next),
            Link::Resolving | Link::Up => next,
        })
    }

    /// The pause after a failed round: doubling, bounded, the second half of it random.
    fn pause(&mut self) -> Duration {
        let doubled = limits::BACKOFF_MIN.saturating_mul(1 << self.failed_rounds.min(16));
        self.failed_rounds = self.failed_rounds.saturating_add(1);
        doubled
            .min(limits::BACKOFF_MAX)
            .mul_f64(rand::rng().random_range(0.5..=1.0))
    }
}

impl Shard {
    pub(super) fn client(&mut self) -> &mut Client {
        match &mut self.role {
            Role::Client(client) => client,
            Role::Server(_) => unreachable!("only a client's driver calls this"),
        }
    }

    pub(super) fn client_turn(&mut self, now: Instant) {
        match self.client().link {
            Link::Attempt { until } if until <= now => {
                self.client().last_reason = "no answer".to_owned();
                self.engine.disconnect(now);
            }
            Link::Pause { until } if until <= now => self.try_server(now, 0),
            _ => {}
        }
        if self.client().ip.is_some() && self.client().next_ip_turn <= now {
            self.client().next_ip_turn = now + MTU_INTERVAL;
            self.client_ip_turn(now);
        }
        if self.client().next_tick <= now {
            self.client().next_tick = now + TICK;
            self.tick(now);
        }
    }

    /// Begins with the server of this index.
    fn try_server(&mut self, now: Instant, index: usize) {
        let client = self.client();
        client.server = index;
        client.untried.clear();
        client.link = Link::Resolving;
        client.resolutions += 1;
        let (resolution, (host, port)) = (client.resolutions, client.servers[index].clone());
        if let Ok(address) = host.parse::<IpAddr>() {
            self.client().untried = vec![SocketAddr::new(address, port)];
            self.try_next_server_address(now);
        } else if !self.resolver.ask(resolution, &host, port) {
            self.try_next_server_address(now);
        }
    }

    pub(super) fn server_resolved(&mut self, now: Instant, answer: &Answer) {
        let client = self.client();
        if client.link != Link::Resolving || client.resolutions != answer.purpose {
            return;
        }
        if answer.addresses.is_empty() {
            client.last_reason = format!("the name {} cannot be resolved", client.servers[client.server].0);
        }
        client.untried = answer.addresses.iter().rev().copied().collect();
        self.try_next_server_address(now);
    }

    /// Tries the next address, the next server, or pauses.
    fn try_next_server_address(&mut self, now: Instant) {
        while let Some(address) = self.client().untried.pop() {
            match self.begin_attempt(now, address) {
                Ok(()) => {
                    self.client().address = Some(address);
                    self.client().link = Link::Attempt {
                        until: now + limits::CONNECT_ATTEMPT,
                    };
                    return;
                }
                Err(reason) => self.client().last_reason = reason,
            }
        }
        let next = self.client().server + 1;
        if next < self.client().servers.len() {
            return self.try_server(now, next);
        }
        let client = self.client();
        let until = now + client.pause();
        client.link = Link::Pause { until };
        let (host, port) = &client.servers[client.server];
        let reason = format!(
            "{host}:{port} cannot be reached ({}); trying on",
            client.last_reason
        );
        let news = client.stripes.lock().unreachable(reason);
        news.into_iter().for_each(|news| self.notify(news.into()));
    }

    fn begin_attempt(&mut self, now: Instant, address: SocketAddr) -> Result<(), String> {
        let way = self
            .client()
            .ip
            .as_ref()
            .and_then(|host| host.way_to(address.ip()));
        let socket = self.outer_socket(address, way.as_ref())?;
        let client = self.client();
        client.way = way;
        client.moved = None;
        self.outer
            .replace(socket, &self.poller)
            .map_err(|error| error.to_string())?;
        let client = self.client();
        let (pin, name) = (client.pin, client.servers[client.server].0.clone());
        self.engine
            .connect(now, address, &name, pin, udp_payload_ceiling(address))
    }

    pub(super) fn tunnel_is_up(&mut self, now: Instant, rtt: Duration, shard: Option<ServerShard>) {
        let payload_unsplit = self.engine.payload_unsplit().unwrap_or(0);
        let client = self.client();
        let address = client.address.expect("an address was tried");
        let shared = client.stripes.clone();
        let mut stripes = shared.lock();
        if !stripes.may_stay(client.index, shard) {
            drop(stripes);
            // The same address from another port, once this attempt has ended and the server knows.
            client.untried.push(address);
            self.engine.disconnect(now);
            self.flush_outer(now);
            return;
        }
        let arrival = stripes.arrived(client.index, shard, address, rtt, payload_unsplit);
        drop(stripes);
        client.link = Link::Up;
        client.server_shard = shard;
        client.failed_rounds = 0;
        client.payload_seen = payload_unsplit;
        client.payload_settled = payload_unsplit;
        client.next_tick = now + TICK;
        client.ip_due = Some(now);
        client.next_ip_turn = now;
        let is_again = std::mem::replace(&mut client.has_been_up, true);
        client.rejoins += u64::from(is_again);
        let is_first_stripe = client.index == 0;
        self.reconnects += u64::from(arrival.is_tunnel_again);
        if let Some(text) = self
            .outer
            .socket()
            .and_then(UdpSocket::buffer_warning)
            .filter(|_| is_first_stripe && !is_again)
        {
            self.notify(Notice::Warning { text });
        }
        if let Some(news) = arrival.news {
            self.notify(news.into());
        }
        self.engine.stay(now);
    }

    /// The sibling that takes this shard's local traffic: only while its own stripe is down and a sibling's is up.
    pub(super) fn stand_in(&self, now: Instant) -> Option<usize> {
        match &self.role {
            Role::Client(client) if !client.is_up() && (client.has_been_up || client.grace_until <= now) => {
                client.stripes.lock().stand_in(client.index)
            }
            _ => None,
        }
    }

    pub(super) fn token_refused(&mut self, status: u16) {
        self.failure = Some(Failure::Refused(format!(
            "the server refused the token (HTTP status {status}): ask its owner for a new link"
        )));
    }

    pub(super) fn tunnel_lost(&mut self, now: Instant, reason: &CloseReason) {
        if *reason == CloseReason::WrongPin {
            self.failure = Some(Failure::Refused(reason.to_string()));
            return;
        }
        if self.stopping {
            return;
        }
        let client = self.client();
        client.ip_due = None;
        if let Some(host) = &client.ip {
            host.lost(client.index);
        }
        if *reason != CloseReason::LocallyClosed {
            client.last_reason = reason.to_string();
        }
        match client.link {
            Link::Up => {
                client.server_shard = None;
                let news = client.stripes.lock().lost(client.index, &client.last_reason);
                self.notify(news.into());
                self.neighbours.raise_doubt();
                self.try_server(now, 0);
            }
            Link::Attempt { .. } => self.try_next_server_address(now),
            Link::Resolving | Link::Pause { .. } => {}
        }
    }

    /// Path MTU that has settled at another value, and local connections that waited too long for the tunnel.
    fn tick(&mut self, now: Instant) {
        if let Some(bytes) = self.engine.payload_unsplit().filter(|_| self.client().is_up()) {
            let client = self.client();
            let is_settled = std::mem::replace(&mut client.payload_seen, bytes) == bytes;
            if is_settled && std::mem::replace(&mut client.payload_settled, bytes) != bytes {
                let news = client.stripes.lock().payload_settled(client.index, bytes);
                news.into_iter().for_each(|news| self.notify(news.into()));
            }
        }
        let overdue: Vec<usize> = self
            .inner
            .iter()
            .enumerate()
            .filter(
                |(_, inner)| matches!(inner, Some(Inner::Tcp(relay)) if !relay.open && relay.deadline <= now),
            )
            .map(|(index, _)| index)
            .filter(|index| self.engine.is_queued(RequestId::from_index(*index)))
            .collect();
        for index in overdue {
            let id = RequestId::from_index(index);
            self.tcp.failed += 1;
            self.tell_refused(
                now,
                "a local TCP connection was closed: the tunnel is down".to_owned(),
            );
            self.close_inner(id, true);
            self.engine.abort(id);
        }
        for index in 0..self.client().tcp_listeners.len() {
            // Accepting may have been paused for want of descriptors.
            let client = self.client();
            let listener = client.tcp_listeners[index].0.try_clone();
            if let Ok(listener) = listener {
                let interest = if self.drain_until.is_some() {
                    Interest::NONE
                } else {
                    Interest::READABLE
                };
                let _ = self
                    .poller
                    .modify(&listener, Token::TcpListener(index).encode(), interest);
            }
        }
    }
}
