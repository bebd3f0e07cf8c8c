//! A client's connection to the server from this shard, its stripe, which is made again whenever it is lost.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use host::Monitor;
use packet_io::{Interest, UdpSocket};
use quic::{CloseReason, ConnectError};
use tunnel_proto::{AddressMove, ConnectAction, Reconnection, RequestId, ServerShard, Target};

use super::stripes::SharedStripes;
use super::tun::{ClientHost, Way};
use crate::driver::delivery::udp_payload_ceiling;
use crate::driver::resolver::Answer;
use crate::driver::tun::MTU_INTERVAL;
use crate::driver::{Inner, Role, Shard, Token};
use crate::handle::{Failure, Notice};

/// How often a client looks at slow things: path MTU, connections that wait for the tunnel.
const TICK: Duration = Duration::from_millis(500);

/// Why an address cannot be tried.
#[derive(Debug, thiserror::Error)]
enum AttemptError {
    /// The kernel refuses the socket.
    #[error(transparent)]
    Socket(#[from] io::Error),
    /// QUIC refuses the name or the address.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

pub(in crate::driver) struct Client {
    reconnection: Reconnection,
    pin: [u8; 32],
    bind: Option<IpAddr>,
    payload_seen: usize,
    payload_settled: usize,
    /// This stripe's number, and all of them.
    index: usize,
    stripes: SharedStripes,
    server_shard: Option<ServerShard>,
    next_tick: Instant,
    pub(in crate::driver) tcp_listeners: Vec<(TcpListener, Target)>,
    /// When a refused session was last told about.
    pub(in crate::driver) refusal_told: Option<Instant>,
    /// The TUN device; `None` where there is none.
    pub(in crate::driver) ip: Option<ClientHost>,
    /// There are no forwards: without an IP session the client is of no use.
    pub(in crate::driver) carries_only_ip: bool,
    /// From when on an IP session is to be asked for, as soon as the other stripes let this one.
    pub(in crate::driver) ip_due: Option<Instant>,
    /// News of links, addresses and routes.
    pub(in crate::driver) monitor: Option<Monitor>,
    /// How the outer socket leaves this machine, where there is a TUN device.
    pub(in crate::driver) way: Option<Way>,
    /// The version of the device's routes that was last looked at.
    pub(in crate::driver) routes_seen: u64,
    /// When the connection moved to another local address, until something is heard there.
    pub(in crate::driver) moved: AddressMove,
    next_ip_turn: Instant,
}

impl Client {
    pub(in crate::driver) fn new(
        reconnection: Reconnection,
        pin: [u8; 32],
        bind: Option<IpAddr>,
        index: usize,
        stripes: SharedStripes,
        now: Instant,
    ) -> Self {
        Self {
            reconnection,
            pin,
            bind,
            payload_seen: 0,
            payload_settled: 0,
            index,
            stripes,
            server_shard: None,
            next_tick: now,
            tcp_listeners: Vec::new(),
            refusal_told: None,
            ip: None,
            carries_only_ip: false,
            ip_due: None,
            monitor: None,
            way: None,
            routes_seen: 0,
            moved: AddressMove::default(),
            next_ip_turn: now,
        }
    }

    /// The server's address that is tried or used.
    pub(in crate::driver) fn server_address(&self) -> Option<SocketAddr> {
        self.reconnection.address()
    }

    /// The local address to use towards the server, where it was chosen.
    pub(in crate::driver) fn bind_address(&self) -> Option<SocketAddr> {
        self.bind.map(|ip| SocketAddr::new(ip, 0))
    }

    pub(in crate::driver) fn is_up(&self) -> bool {
        self.reconnection.is_up()
    }

    /// The server's shard that this stripe is on, where it is up and the server says so; how often it was up again.
    pub(in crate::driver) fn whereabouts(&self) -> (Option<u8>, u64) {
        (
            self.server_shard.map(|shard| shard.index),
            self.reconnection.rejoins(),
        )
    }

    /// Why the connection is about to be given up by us, for the line that people read.
    pub(in crate::driver) fn set_reason(&mut self, reason: &str) {
        self.reconnection.set_reason(reason);
    }

    pub(in crate::driver) fn state_name(&self) -> &'static str {
        self.reconnection.state_name()
    }

    pub(in crate::driver) fn poll_timeout(&self) -> Option<Instant> {
        let next = match self.ip {
            Some(_) => self.next_tick.min(self.next_ip_turn),
            None => self.next_tick,
        };
        self.reconnection
            .poll_timeout()
            .map_or(Some(next), |until| Some(until.min(next)))
    }
}

impl Shard {
    pub(in crate::driver) fn client(&mut self) -> &mut Client {
        match &mut self.role {
            Role::Client(client) => client,
            Role::Server(_) => unreachable!("only a client's driver calls this"),
        }
    }

    pub(in crate::driver) fn client_turn(&mut self, now: Instant) {
        self.client().reconnection.handle_timeout(now);
        self.carry_out_connect_actions(now);
        if self.client().ip.is_some() && self.client().next_ip_turn <= now {
            self.client().next_ip_turn = now + MTU_INTERVAL;
            self.client_ip_turn(now);
        }
        if self.client().next_tick <= now {
            self.client().next_tick = now + TICK;
            self.tick(now);
        }
    }

    pub(in crate::driver) fn server_resolved(&mut self, now: Instant, answer: &Answer) {
        let reconnection = &mut self.client().reconnection;
        reconnection.handle_resolved(now, answer.purpose, &answer.addresses);
        self.carry_out_connect_actions(now);
    }

    /// Does what [`Reconnection`] decided.
    fn carry_out_connect_actions(&mut self, now: Instant) {
        while let Some(action) = self.client().reconnection.poll_action() {
            match action {
                ConnectAction::Resolve {
                    resolution,
                    host,
                    port,
                } => {
                    if !self.resolver.ask(resolution, &host, port) {
                        self.client().reconnection.handle_not_asked(now);
                    }
                }
                ConnectAction::Connect { address, server_name } => {
                    if let Err(error) = self.begin_attempt(now, address, &server_name) {
                        let reason = error.to_string();
                        self.client().reconnection.handle_attempt_failed(now, reason);
                    }
                }
                ConnectAction::Disconnect => self.engine.disconnect(now),
                ConnectAction::Unreachable { reason } => {
                    let news = self.client().stripes.lock().unreachable(reason);
                    news.into_iter().for_each(|news| self.notify(news.into()));
                }
            }
        }
    }

    fn begin_attempt(
        &mut self,
        now: Instant,
        address: SocketAddr,
        server_name: &str,
    ) -> Result<(), AttemptError> {
        let way = self
            .client()
            .ip
            .as_ref()
            .and_then(|host| host.way_to(address.ip()));
        let socket = self.outer_socket(address, way.as_ref())?;
        let client = self.client();
        client.way = way;
        client.moved.forget();
        self.outer.replace(socket, &self.poller)?;
        let pin = self.client().pin;
        self.engine
            .connect(now, address, server_name, pin, udp_payload_ceiling(address))?;
        Ok(())
    }

    pub(in crate::driver) fn tunnel_is_up(
        &mut self,
        now: Instant,
        rtt: Duration,
        shard: Option<ServerShard>,
    ) {
        let payload_unsplit = self.engine.payload_unsplit().unwrap_or(0);
        let client = self.client();
        let address = client.reconnection.address().expect("an address was tried");
        let shared = client.stripes.clone();
        let mut stripes = shared.lock();
        if !stripes.may_stay(client.index, shard) {
            drop(stripes);
            // The same address from another port, once this attempt has ended and the server knows.
            client.reconnection.retry_address();
            self.engine.disconnect(now);
            self.flush_outer(now);
            return;
        }
        let arrival = stripes.arrived(client.index, shard, address, rtt, payload_unsplit);
        drop(stripes);
        let is_again = client.reconnection.handle_up();
        client.server_shard = shard;
        client.payload_seen = payload_unsplit;
        client.payload_settled = payload_unsplit;
        client.next_tick = now + TICK;
        client.ip_due = Some(now);
        client.next_ip_turn = now;
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
    pub(in crate::driver) fn stand_in(&self, now: Instant) -> Option<usize> {
        match &self.role {
            Role::Client(client) if client.reconnection.wants_stand_in(now) => {
                client.stripes.lock().stand_in(client.index)
            }
            _ => None,
        }
    }

    pub(in crate::driver) fn token_refused(&mut self, status: u16) {
        self.failure = Some(Failure::Refused(format!(
            "the server refused the token (HTTP status {status}): ask its owner for a new link"
        )));
    }

    pub(in crate::driver) fn tunnel_lost(&mut self, now: Instant, reason: &CloseReason) {
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
        let was_up = client.reconnection.is_up();
        let told = (*reason != CloseReason::LocallyClosed).then(|| reason.to_string());
        client.reconnection.handle_lost(now, told);
        if was_up {
            client.server_shard = None;
            let reason = client.reconnection.last_reason();
            let news = client.stripes.lock().lost(client.index, reason);
            self.notify(news.into());
            self.neighbours.raise_doubt();
        }
        self.carry_out_connect_actions(now);
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
