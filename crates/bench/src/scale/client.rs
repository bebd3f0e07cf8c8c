//! A client's end: the engine, its flows, and what it heard. What it costs does not count.

use std::net::SocketAddr;
use std::time::Instant;

use quic::{ClientParameters, Outbox};
use tunnel_proto::{
    Action, AttemptId, Client, ClientAction, Engine, EngineConfig, Protocol, RequestId, Target,
};

use super::end::{Message, PAYLOAD, SHARD, Setting, Taken, UDP_PAYLOAD_MAX, failed, sessions};
use crate::Error;
use crate::floor::identity::SERVER_NAME;

/// Each client connects once.
const ONLY_ATTEMPT: AttemptId = 1;

pub(super) struct ClientEnd {
    engine: Engine<Client>,
    flows: Vec<RequestId>,
    /// The flow of the next datagram.
    next: usize,
    taken: Taken,
    /// The server took the token.
    pub(super) is_up: bool,
    /// Flows that the server has accepted.
    pub(super) accepted: usize,
    /// Datagrams that arrived here.
    pub(super) received: u64,
    /// As the world's table of timers has it.
    pub(super) timer: Option<Instant>,
    /// The world has yet to flush it.
    pub(super) is_touched: bool,
}

impl ClientEnd {
    /// A client that begins to connect.
    ///
    /// # Errors
    /// QUIC refuses its parameters or the server's name.
    pub(super) fn connect(
        setting: &Setting,
        number: u32,
        now: Instant,
        server: SocketAddr,
    ) -> Result<Self, Error> {
        let endpoint = setting.client_endpoint(number)?;
        let engine = Engine::client(endpoint, setting.token_of(number), EngineConfig::default());
        let mut engine = engine.sharded(SHARD, sessions());
        engine
            .connect(
                now,
                ONLY_ATTEMPT,
                server,
                SERVER_NAME,
                &ClientParameters::Pin(setting.pin),
                UDP_PAYLOAD_MAX,
            )
            .map_err(|error| failed(&error))?;
        Ok(Self {
            engine,
            flows: Vec::new(),
            next: 0,
            taken: Taken::default(),
            is_up: false,
            accepted: 0,
            received: 0,
            timer: None,
            is_touched: false,
        })
    }

    /// Opens so many flows more.
    ///
    /// # Errors
    /// The target is none, which cannot be.
    pub(super) fn open(&mut self, now: Instant, flows: usize) -> Result<(), Error> {
        let target = Target::new("target.test", 7).map_err(|error| failed(&error))?;
        for _ in 0..flows {
            let id = self.engine.open(now, Protocol::Udp, target.clone());
            self.flows.push(id);
        }
        Ok(())
    }

    /// Sends a burst of `count` datagrams, each of the next flow.
    pub(super) fn send(&mut self, now: Instant, count: usize) {
        for _ in 0..count {
            let id = self.flows[self.next];
            self.next = (self.next + 1) % self.flows.len();
            self.engine.send_datagrams(now, id, std::iter::once(&PAYLOAD[..]));
        }
    }

    pub(super) fn take(&mut self, now: Instant, message: Message, outbox: &mut Outbox) {
        let (path, ecn, segment_size) = (message.path(), message.ecn, message.segment_size);
        let taken = &mut self.taken;
        self.engine
            .handle_outer(now, path, ecn, message.bytes, segment_size, taken, outbox);
    }

    /// Runs timers and processes what arrived.
    ///
    /// # Errors
    /// The connection or a flow has ended.
    pub(super) fn work(&mut self, now: Instant) -> Result<(), Error> {
        if self.engine.poll_timeout().is_some_and(|due| due <= now) {
            self.engine.handle_timeout(now);
        }
        loop {
            self.engine.settle(now, &mut self.taken);
            let Some(action) = self.engine.poll_action() else {
                break;
            };
            match action {
                Action::Role(ClientAction::Connected { attempt }) => self.engine.choose(now, attempt),
                Action::Role(ClientAction::Up { .. }) => self.is_up = true,
                Action::Role(ClientAction::Established { .. }) => self.accepted += 1,
                Action::Role(ClientAction::Lost { reason, .. }) => {
                    return Err(failed(&format!("a client lost its connection: {reason}")));
                }
                other => return Err(failed(&format!("a client did not expect {other:?}"))),
            }
        }
        self.received += self.taken.0.len() as u64;
        self.engine.egress().sent += self.taken.0.len() as u64;
        self.taken.0.clear();
        Ok(())
    }

    /// Fills the outbox; whether there is more than fits.
    pub(super) fn flush(&mut self, now: Instant, outbox: &mut Outbox) -> bool {
        self.engine.flush(now, outbox)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.engine.poll_timeout()
    }
}
