//! The server's end: the engine, and what its driver does for a datagram. Every target answers with what it gets.
//!
//! Processor time is read once before and once after each turn, and what a turn sends is collected in as many outboxes
//! as it needs, so that neither the clock nor the copies that stand for the network count.

use std::time::{Duration, Instant};

use quic::Outbox;
use rustix::time::{ClockId, clock_gettime};
use tunnel_proto::{Action, Engine, EngineConfig, Server, ServerAction};

use super::end::{Message, PAYLOAD, SHARD, Setting, Taken, sessions};
use super::members::Members;
use crate::Error;

pub(super) struct ServerEnd {
    engine: Engine<Server>,
    outboxes: Vec<Outbox>,
    /// The outbox that is being filled; those before it are full.
    filling: usize,
    taken: Taken,
    /// Processor time of all turns.
    pub(super) busy: Duration,
    /// Datagrams that arrived here, all of which were answered.
    pub(super) received: u64,
}

impl ServerEnd {
    pub(super) fn new(setting: &Setting) -> Result<Self, Error> {
        let endpoint = setting.server_endpoint()?;
        let members = Members::new(&setting.tokens);
        let engine = Engine::server(endpoint, Box::new(members), EngineConfig::default());
        Ok(Self {
            engine: engine.sharded(SHARD, sessions()),
            outboxes: vec![Outbox::default()],
            filling: 0,
            taken: Taken::default(),
            busy: Duration::ZERO,
            received: 0,
        })
    }

    /// When the next turn is due although nothing arrives.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.engine.poll_timeout()
    }

    /// Open sessions, and authenticated connections.
    pub(super) fn open(&mut self) -> (usize, usize) {
        let [(sessions, _), _] = self.engine.gauges();
        let peers = self.engine.peers();
        let authenticated = peers.iter().filter(|peer| peer.authenticated).count();
        (sessions as usize, authenticated)
    }

    /// Takes what arrived, answers it, and fills the outboxes.
    pub(super) fn turn(&mut self, now: Instant, arrived: &mut Vec<Message>) {
        let start = thread_time();
        if self.engine.poll_timeout().is_some_and(|due| due <= now) {
            self.engine.handle_timeout(now);
        }
        for message in arrived.drain(..) {
            let (path, ecn, segment_size) = (message.path(), message.ecn, message.segment_size);
            let outbox = &mut self.outboxes[self.filling];
            let (bytes, taken) = (message.bytes, &mut self.taken);
            self.engine
                .handle_outer(now, path, ecn, bytes, segment_size, taken, outbox);
        }
        self.settle(now);
        self.answer(now);
        self.flush(now);
        self.busy += thread_time().saturating_sub(start);
    }

    fn settle(&mut self, now: Instant) {
        loop {
            self.engine.settle(now, &mut self.taken);
            let Some(action) = self.engine.poll_action() else {
                return;
            };
            if let Action::Role(ServerAction::Open { request, .. }) = action {
                self.engine.accept(now, request, &mut self.taken);
            }
        }
    }

    fn answer(&mut self, now: Instant) {
        let requests = std::mem::take(&mut self.taken.0);
        self.received += requests.len() as u64;
        self.engine.egress().sent += requests.len() as u64;
        // A batch is what one socket gives.
        for batch in requests.chunk_by(|one, other| one == other) {
            let payloads = batch.iter().map(|_| &PAYLOAD[..]);
            self.engine.send_datagrams(now, batch[0], payloads);
            if self.engine.queue_is_long() {
                self.flush(now);
            }
        }
        self.taken.0 = requests;
        self.taken.0.clear();
    }

    fn flush(&mut self, now: Instant) {
        loop {
            let more = self.engine.flush(now, &mut self.outboxes[self.filling]);
            if self.outboxes[self.filling].is_full() {
                self.filling += 1;
                if self.filling == self.outboxes.len() {
                    self.outboxes.push(Outbox::default());
                }
            }
            if !more {
                return;
            }
        }
    }

    /// Gives `post` everything that the last turn sent.
    pub(super) fn post(&mut self, mut post: impl FnMut(Message)) {
        for outbox in &mut self.outboxes[..=self.filling] {
            for train in outbox.trains() {
                post(Message::new(train, train.destination));
            }
            outbox.release(usize::MAX);
        }
        self.filling = 0;
    }
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}
