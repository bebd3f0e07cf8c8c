//! The event loop of one shard: sockets and clock around the [`Engine`], in either role.
//!
//! One turn: wait for readiness; run due timers; take one batch from every ready socket; let the engine settle and
//! carry out its actions; send the trains for inner sockets; flush QUIC. A datagram passes through in one turn
//! without leaving the thread, and batches form by themselves while the thread was busy.

mod aead;
mod client;
mod delivery;
mod inner;
mod intake;
mod neighbours;
mod outer;
mod poll_token;
mod relay;
mod report;
mod resolver;
mod server;
mod start;
mod tun;

use std::sync::mpsc;
use std::time::{Duration, Instant};

use packet_io::{Interest, Poller, Ready, ReceiveBatch};
use tunnel_proto::{Action, Engine, RequestId, Room};

use crate::config::CommonConfig;
use crate::handle::{Command, Failure, Notice};
use crate::snapshot::{IoCounters, Snapshot, TcpCounters};
use client::connection::Client;
use client::listeners::UdpListener;
use delivery::Delivery;
use inner::{Inner, inner_batch};
use neighbours::{Neighbours, Parcel};
use outer::Outer;
use poll_token::Token;
use relay::Relay;
use resolver::Resolver;
use server::targets::Server;

pub use start::{start_client, start_server};

enum Role {
    Server(Server),
    Client(Box<Client>),
}

/// Everything that one shard's thread owns.
struct Shard {
    engine: Engine,
    role: Role,
    common: CommonConfig,
    poller: Poller,
    ready: Vec<Ready>,
    commands: mpsc::Receiver<Command>,
    notices: mpsc::SyncSender<Notice>,
    resolver: Resolver,
    /// The other shards of the process.
    neighbours: Neighbours,
    outer: Outer,
    inner_batch: ReceiveBatch,
    delivery: Delivery,
    inner: Vec<Option<Inner>>,
    udp_listeners: Vec<UdpListener>,
    /// TCP relays that have more to do at once.
    again: Vec<RequestId>,
    /// The last flush left something that can be sent at once.
    more_to_send: bool,
    tcp: TcpCounters,
    /// Room for TCP connections.
    tcp_room: Room,
    /// Counters of inner sockets that are closed.
    inner_io_past: IoCounters,
    reconnects: u64,
    started: Instant,
    drain_until: Option<Instant>,
    failure: Option<Failure>,
    stopping: bool,
}

impl Shard {
    /// Runs until it is stopped or fails.
    fn run(mut self) -> Result<Snapshot, Failure> {
        let mut busy = true;
        loop {
            let now = Instant::now();
            let timeout = if busy {
                Some(Duration::ZERO)
            } else {
                self.time_to_wait(now)
            };
            self.poller
                .wait(&mut self.ready, timeout)
                .map_err(|error| Failure::Bug(format!("waiting for sockets failed: {error}")))?;
            let now = Instant::now();
            busy = self.turn(now);
            if let Some(failure) = self.failure.take() {
                self.say_goodbye();
                return Err(failure);
            }
            let is_idle = self.tcp.open == 0 && self.engine.closing() == 0;
            let drained = self
                .drain_until
                .is_some_and(|until| until <= now || (is_idle && self.neighbours.all_may_end()));
            if self.stopping || drained {
                self.say_goodbye();
                return Ok(self.snapshot());
            }
        }
    }

    fn time_to_wait(&mut self, now: Instant) -> Option<Duration> {
        let role = match &self.role {
            Role::Server(server) => server.poll_timeout(),
            Role::Client(client) => client.poll_timeout(),
        };
        [self.engine.poll_timeout(), role, self.drain_until]
            .into_iter()
            .flatten()
            .min()
            .map(|due| due.saturating_duration_since(now))
    }

    /// One turn; whether the next one should not wait.
    fn turn(&mut self, now: Instant) -> bool {
        if self.engine.poll_timeout().is_some_and(|due| due <= now) {
            self.engine.handle_timeout(now);
        }
        let mut ready = std::mem::take(&mut self.ready);
        for event in &ready {
            match Token::decode(event.token) {
                Token::Outer => self.outer_ready(now, *event),
                Token::Waker => {
                    self.take_commands(now);
                    self.take_parcels(now);
                }
                Token::UdpListener(index) => self.receive_at_listener(now, index),
                Token::TcpListener(index) => self.accept_tcp(now, index),
                Token::Tun => self.read_tun(now),
                Token::Monitor => self.uplink_news(now),
                Token::Request(index) => self.inner_ready(now, RequestId::from_index(index), *event),
            }
        }
        ready.clear();
        self.ready = ready;
        for id in std::mem::take(&mut self.again) {
            self.step_relay(id);
        }
        match self.role {
            Role::Server(_) => self.server_turn(now),
            Role::Client(_) => self.client_turn(now),
        }
        self.settle(now);
        self.flush_delivery();
        self.more_to_send = self.flush_outer(now);
        self.neighbours.ring();
        self.more_to_send || !self.again.is_empty()
    }

    /// Lets the engine work off its events and carries out what it asks for.
    fn settle(&mut self, now: Instant) {
        loop {
            self.engine.settle(now, &mut self.delivery);
            let Some(action) = self.engine.poll_action() else {
                return;
            };
            self.carry_out(now, action);
            while let Some(action) = self.engine.poll_action() {
                self.carry_out(now, action);
            }
        }
    }

    fn carry_out(&mut self, now: Instant, action: Action) {
        match action {
            Action::Open {
                request,
                protocol,
                target,
            } => self.open_target(now, request, protocol, &target),
            Action::Established { request } => self.established(request),
            Action::BodyReadable { request } => {
                if let Some(relay) = self.relay(request) {
                    relay.body_is_readable();
                    self.step_relay(request);
                }
            }
            Action::BodyWritable { request } => {
                if let Some(relay) = self.relay(request) {
                    relay.body_is_writable();
                    self.step_relay(request);
                }
            }
            Action::Ended { request, ending } => {
                self.request_ended(request, &ending);
                self.engine.release(request);
            }
            Action::Refused {
                request,
                status,
                error,
            } => self.session_refused(now, request, status, error),
            Action::Up { rtt, shard } => self.tunnel_is_up(now, rtt, shard),
            Action::TokenRefused { status } => self.token_refused(status),
            Action::Lost { reason } => self.tunnel_lost(now, &reason),
            // The connection goes on until the server closes it; then a new one is made.
            Action::GoingAway => {}
            Action::Lease { .. }
            | Action::LeaseOver { .. }
            | Action::Assigned { .. }
            | Action::IpRefused { .. }
            | Action::IpLost => self.carry_out_ip(now, action),
        }
    }

    /// Runs what other threads asked for.
    fn take_commands(&mut self, now: Instant) {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Snapshot(answer) => {
                    // What waits in trains for inner sockets is in no count.
                    self.flush_delivery();
                    let snapshot = self.snapshot();
                    // Whoever asked may have stopped waiting.
                    let _ = answer.try_send(snapshot);
                }
                Command::Drain(limit) => {
                    self.engine.start_drain();
                    self.drain_until = Some(now + limit);
                    self.stop_accepting();
                }
                Command::Stop => self.stopping = true,
            }
        }
        while let Some(answer) = self.resolver.poll() {
            match self.role {
                Role::Server(_) => self.target_resolved(now, &answer),
                Role::Client(_) => self.server_resolved(now, &answer),
            }
        }
    }

    /// Takes what other shards gave to this one; their number is bounded by the queue.
    fn take_parcels(&mut self, now: Instant) {
        while let Some(parcel) = self.neighbours.take() {
            match parcel {
                Parcel::Segment { path, ecn, bytes } => self.take_segment(now, path, ecn, bytes),
                Parcel::Datagrams {
                    listener,
                    source,
                    bytes,
                    segment_size,
                } => self.take_in_for_sibling(now, listener, source, &bytes, segment_size),
                Parcel::Packet { header, mut bytes } => self.take_handed_packet(now, &header, &mut bytes),
                Parcel::OlderRuns { owner } => self.engine.end_older_runs(owner),
                Parcel::Connection { listener, stream } => self.adopt(now, listener, stream),
                Parcel::Doubt => self.engine.doubt(),
            }
        }
    }

    /// Tells all peers that this end is going.
    fn say_goodbye(&mut self) {
        let now = Instant::now();
        self.flush_delivery();
        self.engine.close_all(now);
        self.engine.settle(now, &mut self.delivery);
        while self.flush_outer(now) && !self.outer.is_blocked() {}
        self.save_leases(now);
    }

    /// Tells the program; a reader that does not keep up misses notices, never blocks the shard.
    fn notify(&self, notice: Notice) {
        let _ = self.notices.try_send(notice);
    }

    fn watch(
        &self,
        source: &impl std::os::fd::AsFd,
        token: Token,
        interest: Interest,
    ) -> std::io::Result<()> {
        self.poller.add(source, token.encode(), interest)
    }
}
