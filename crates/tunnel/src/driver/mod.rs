//! The event loop of one shard: sockets and clock around the [`Engine`], in either role.
//!
//! One turn: wait for readiness; run due timers; take one batch from every ready socket; let the engine settle and
//! carry out its actions; send the trains for inner sockets; flush QUIC. A datagram passes through in one turn
//! without leaving the thread, and batches form by themselves while the thread was busy.

mod aead;
mod client;
mod delivery;
mod intake;
mod outer;
mod relay;
mod report;
mod resolver;
mod server;
mod start;
mod token;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use packet_io::{DatagramSocket, Interest, Poller, Ready, ReceiveBatch, UdpSocket};

use crate::config::CommonConfig;
use crate::core::{Action, Engine, RequestId, Target};
use crate::handle::{Command, Failure, Notice};
use crate::limits;
use crate::snapshot::{IoCounters, Snapshot, TcpCounters};
use client::Client;
use delivery::Delivery;
use outer::Outer;
use relay::{Relay, Step};
use resolver::Resolver;
use server::Server;
use token::Token;

pub use start::{start_client, start_server};

/// The inner end of a request.
enum Inner {
    /// Server: a target that is being resolved or connected.
    Opening(server::Opening),
    /// Server: a UDP socket connected to the target.
    Upstream(Box<UdpSocket>),
    /// Client: a source behind a UDP listener.
    Source { listener: usize, address: SocketAddr },
    /// Both: a TCP connection.
    Tcp(Relay),
}

/// A client's UDP listener and the sessions behind it.
struct UdpListener {
    socket: UdpSocket,
    sessions: HashMap<SocketAddr, RequestId>,
    target: Target,
}

enum Role {
    Server(Server),
    Client(Client),
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
            let drained = self
                .drain_until
                .is_some_and(|until| until <= now || (self.tcp.open == 0 && self.engine.closing() == 0));
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
                Token::Waker => self.take_commands(now),
                Token::UdpListener(index) => self.receive_at_listener(now, index),
                Token::TcpListener(index) => self.accept_tcp(now, index),
                Token::Request(index) => self.inner_ready(now, RequestId(index), *event),
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
            Action::Up { rtt } => self.tunnel_is_up(now, rtt),
            Action::TokenRefused { status } => self.token_refused(status),
            Action::Lost { reason } => self.tunnel_lost(now, &reason),
            // The connection goes on until the server closes it; then a new one is made.
            Action::GoingAway => {}
        }
    }

    fn relay(&mut self, id: RequestId) -> Option<&mut Relay> {
        match self.inner.get_mut(id.index())?.as_mut()? {
            Inner::Tcp(relay) => Some(relay),
            _ => None,
        }
    }

    fn insert_inner(&mut self, id: RequestId, inner: Inner) {
        if self.inner.len() <= id.index() {
            self.inner.resize_with(id.index() + 1, || None);
        }
        self.inner[id.index()] = Some(inner);
    }

    /// Moves a relay's bytes, then follows what it needs.
    fn step_relay(&mut self, id: RequestId) {
        let Some(Some(Inner::Tcp(relay))) = self.inner.get_mut(id.index()) else {
            return;
        };
        let step = relay.step(id, &mut self.engine, &mut self.tcp);
        match step {
            Step::Wait | Step::Again => {
                let wanted = relay.wanted();
                if wanted != relay.interest {
                    relay.interest = wanted;
                    let token = Token::of(id).encode();
                    // A hang-up is reported whatever the interest, again and again: without any it is not watched.
                    let _ = if wanted == Interest::NONE {
                        self.poller.remove(&relay.stream)
                    } else {
                        let known = self.poller.modify(&relay.stream, token, wanted);
                        known.or_else(|_| self.poller.add(&relay.stream, token, wanted))
                    };
                }
                if step == Step::Again {
                    self.again.push(id);
                }
            }
            Step::Done => {
                self.close_inner(id, false);
                self.engine.forget(id);
            }
            Step::Failed => {
                self.close_inner(id, true);
                self.engine.abort(id);
            }
            Step::Ended => {}
        }
    }

    /// Closes the inner end of a request; `reset` tells a TCP peer that it did not end well.
    fn close_inner(&mut self, id: RequestId, reset: bool) {
        let Some(inner) = self.inner.get_mut(id.index()).and_then(Option::take) else {
            return;
        };
        match inner {
            Inner::Opening(opening) => opening.close(&self.poller),
            Inner::Upstream(mut socket) => {
                // What the kernel dropped since the last datagram is known now or never.
                let _ = socket.refresh_kernel_drops();
                self.inner_io_past += report::io_counters(socket.stats());
            }
            Inner::Source { listener, address } => {
                // The source may have a new session already.
                if let Some(listener) = self.udp_listeners.get_mut(listener)
                    && listener.sessions.get(&address) == Some(&id)
                {
                    listener.sessions.remove(&address);
                }
            }
            Inner::Tcp(relay) => {
                if reset {
                    relay.reset_on_close();
                }
                self.tcp.open -= 1;
            }
        }
    }

    fn inner_ready(&mut self, now: Instant, id: RequestId, event: Ready) {
        match self.inner.get_mut(id.index()) {
            Some(Some(Inner::Upstream(_))) => self.receive_upstream(now, id),
            Some(Some(Inner::Tcp(relay))) => {
                if event.hangup && !relay.open {
                    self.close_inner(id, false);
                    self.engine.abort(id);
                } else {
                    self.step_relay(id);
                }
            }
            Some(Some(Inner::Opening(_))) => self.target_ready(now, id),
            Some(Some(Inner::Source { .. }) | None) | None => {}
        }
    }

    /// Sends the trains that were collected for inner sockets.
    fn flush_delivery(&mut self) {
        if self.delivery.is_empty() {
            return;
        }
        let (inner, listeners) = (&mut self.inner, &mut self.udp_listeners);
        match self.role {
            Role::Server(_) => {
                self.delivery.flush(
                    self.engine.egress(),
                    |id| Some((id.index(), None)),
                    |index, send| {
                        if let Some(Some(Inner::Upstream(socket))) = inner.get_mut(index) {
                            send(socket);
                        }
                    },
                );
            }
            Role::Client(_) => {
                let destination = |id: RequestId| match inner.get(id.index()) {
                    Some(Some(Inner::Source { listener, address })) => Some((*listener, Some(*address))),
                    _ => None,
                };
                self.delivery
                    .flush(self.engine.egress(), destination, |index, send| {
                        if let Some(listener) = listeners.get_mut(index) {
                            send(&mut listener.socket);
                        }
                    });
            }
        }
    }

    /// Runs what other threads asked for.
    fn take_commands(&mut self, now: Instant) {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Snapshot(answer) => {
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

    /// Tells all peers that this end is going.
    fn say_goodbye(&mut self) {
        let now = Instant::now();
        self.flush_delivery();
        self.engine.close_all(now);
        self.engine.settle(now, &mut self.delivery);
        while self.flush_outer(now) && !self.outer.is_blocked() {}
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

/// Room for one batch of an inner socket.
fn inner_batch() -> ReceiveBatch {
    ReceiveBatch::new(limits::INNER_RECEIVE_SLOTS, packet_io::SLOT_BYTES_MAX)
}
