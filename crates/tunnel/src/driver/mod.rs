//! The event loop of one shard: sockets and clock around the [`Engine`], in either role ([`role::Role`]).
//!
//! One turn: wait for readiness; run due timers; take one batch from every ready socket; let the engine settle and
//! carry out its actions; send the trains for inner sockets; flush QUIC. A datagram passes through in one turn
//! without leaving the thread, and batches form by themselves while the thread was busy.

mod aead;
mod beside;
mod client;
mod connecting;
mod core_yield;
mod delivery;
mod drain;
mod host_worker;
mod inner;
mod inner_turns;
mod intake;
mod io;
mod neighbours;
mod outer;
mod poll_token;
mod relay;
mod report;
mod resolver;
mod role;
mod server;
mod sources;
mod start;
mod tun;

use std::sync::mpsc;
use std::time::{Duration, Instant};

use packet_io::{Ready, ReceiveBatch};
use tunnel_proto::{Action, Ending, Engine, RequestId};

use crate::handle::{Command, Failure};
use crate::snapshot::Snapshot;
use core_yield::CoreYield;
use delivery::Delivery;
use drain::Drain;
use inner::{Inner, inner_batch};
use inner_turns::InnerTurns;
use io::Io;
use neighbours::{Message, Neighbours};
use poll_token::PollToken;
use relay::Relay;
use role::Role;
use sources::Sources;

pub use client::start::start_client;
pub use resolver::fuzz as fuzz_look_up;
pub(crate) use resolver::resolve_once;
pub use server::fuzz_name_message;
pub use server::start::start_server;

/// Everything that one shard's thread owns.
struct Shard<R: Role> {
    engine: Engine<R::Proto>,
    role: R,
    io: Io,
    sources: Sources<R::Source>,
    ready: Vec<Ready>,
    commands: mpsc::Receiver<Command>,
    /// The other shards of the process.
    neighbours: Neighbours<R::Message>,
    inner_batch: ReceiveBatch,
    delivery: Delivery,
    core_yield: CoreYield,
    inner: Vec<Option<Inner<R::Inner>>>,
    /// Inner sockets that are ready, by turns of users.
    inner_turns: InnerTurns,
    /// The last flush left something that can be sent at once.
    more_to_send: bool,
    /// By when a drain ends, and what it waits for.
    drain: Option<Drain>,
    failure: Option<Failure>,
    stopping: bool,
}

impl<R: Role> Shard<R> {
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
            self.io
                .poller
                .wait(&mut self.ready, timeout)
                .map_err(|error| Failure::Bug(format!("waiting for sockets failed: {error}")))?;
            let now = Instant::now();
            busy = self.turn(now);
            if let Some(failure) = self.failure.take() {
                self.say_goodbye();
                return Err(failure);
            }
            if self.stopping || self.is_drained(now) {
                self.say_goodbye();
                return Ok(self.snapshot());
            }
        }
    }

    fn time_to_wait(&mut self, now: Instant) -> Option<Duration> {
        [
            self.engine.poll_timeout(),
            self.role.poll_timeout(),
            self.io.outer.poll_timeout(),
            self.sources.poll_timeout(),
            self.drain.and_then(|drain| drain.due),
        ]
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
        self.io.outer.handle_timeout(now);
        let mut ready = std::mem::take(&mut self.ready);
        for event in &ready {
            match PollToken::decode(event.token) {
                PollToken::Outer => self.outer_ready(now, *event),
                PollToken::Attempt(attempt) => R::attempt_ready(self, now, attempt),
                PollToken::Waker => {
                    self.take_commands(now);
                    self.take_messages(now);
                    R::woken(self, now);
                }
                PollToken::Tun => self.read_tun(now),
                PollToken::Request(index) => self.inner_ready(now, RequestId::from_index(index)),
                PollToken::Source(id) => {
                    if self.sources.take_event(id) {
                        R::source_ready(self, now, id);
                    }
                }
            }
        }
        ready.clear();
        self.ready = ready;
        self.serve_inner(now);
        while let Some(id) = self.sources.poll_due(now) {
            R::source_due(self, now, id);
        }
        R::turn(self, now);
        self.settle(now);
        self.flush_delivery();
        self.more_to_send = self.flush_outer(now);
        self.neighbours.wake_others();
        self.more_to_send || !self.inner_turns.is_empty()
    }

    /// Has the engine process its events, and carries out what it asks for.
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

    fn carry_out(&mut self, now: Instant, action: Action<R::Action>) {
        match action {
            Action::BodyReadable { request } => {
                if let Some(relay) = self.relay(request) {
                    relay.body_is_readable();
                    self.step_relay(request);
                } else {
                    R::content_came(self, now, request);
                }
            }
            Action::BodyWritable { request } => {
                if let Some(relay) = self.relay(request) {
                    relay.body_is_writable();
                    self.step_relay(request);
                }
            }
            Action::Ended { request, ending } => {
                R::request_ended(self, now, request, &ending);
                self.close_inner(request, ending != Ending::Finished);
            }
            Action::Role(action) => R::carry_out(self, now, action),
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
                Command::Change(settings) => {
                    self.engine.change(settings.engine.clone());
                    R::allow_targets(self, &settings.allowed_targets);
                }
                Command::Drain { limit, until } => {
                    self.engine.start_drain();
                    self.drain = Some(Drain::new(now + limit, until));
                    R::start_drain(self);
                }
                Command::Offer(answer) => {
                    let offered = R::offer(self);
                    // Whoever asked may have stopped waiting, and withdraws it then.
                    let _ = answer.try_send(offered);
                }
                Command::HandOver => self.hand_over(),
                Command::TakeOver => self.read_held_carrier(),
                Command::Withdraw => R::withdraw(self),
                Command::Stop => self.stopping = true,
            }
        }
        while let Some(answer) = self.io.resolver.poll() {
            R::resolved(self, now, answer);
        }
    }

    /// Takes what other shards gave to this one; their number is bounded by the queue.
    fn take_messages(&mut self, now: Instant) {
        while let Some(message) = self.neighbours.take() {
            match message {
                Message::Segment(segment) => self.take_segment(now, segment),
                Message::Role(message) => R::handed_over(self, now, message),
            }
        }
    }

    /// Tells all peers that this end is going.
    fn say_goodbye(&mut self) {
        let now = Instant::now();
        self.close_connections(now);
        R::end(self, now);
    }

    fn close_connections(&mut self, now: Instant) {
        self.flush_delivery();
        self.engine.close_all(now);
        self.engine.settle(now, &mut self.delivery);
        while self.flush_outer(now) && !self.io.outer.is_blocked() {}
    }
}
