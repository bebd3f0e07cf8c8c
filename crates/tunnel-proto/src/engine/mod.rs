//! The tunnel without sockets: QUIC, HTTP/3, sessions, queues and the account of every datagram, for both roles.
//!
//! [`Engine`] does no I/O and reads no clock, so that it runs under `sim` in virtual time. The driver gives it what
//! the outer socket received and what inner sockets received, carries out its [`Action`]s, delivers datagrams through
//! [`Deliver`], and sends what [`Engine::flush`] puts into the outbox.

mod action;
mod body;
mod bound;
mod client;
mod connections;
mod delay_control;
mod egress;
mod handler;
mod held_back;
mod hold_queue;
mod ingress;
mod ip;
mod life;
mod listening;
mod messages;
mod offer;
mod pacing;
mod peer;
mod queue;
mod queue_writer;
mod repair;
mod report;
mod request;
mod role;
mod server;
mod service;
mod source;
mod timers;
mod udp;

use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use packet::Ecn;
use quic::{ConnectionKey, Event, Outbox, Path};
use slab::Slab;

pub use action::{Action, ClientAction, Ending, ServerAction};
pub use body::Body;
pub use bound::NoContext;
pub use client::Client;
pub use client::ip::Assignment;
pub(crate) use connections::SHUTDOWN_REASON;
pub use egress::Deliver;
pub use ip::Owner;
pub(crate) use ip::bucket::Bucket;
pub(crate) use ip::is_confined;
pub use life::End;
pub use listening::CONNECTION_CAME;
pub use masque::ip::{ClientId, Prefix};
pub use masque::listen::ListenPath;
pub use masque::response::ProxyError;
pub use masque::{ServerShard, Target};
pub use request::RequestId;
pub use role::Role;
pub use server::Server;
pub(crate) use server::WrongTokens;
pub use server::ip::Elsewhere;
pub use server::ip_service::IpService;
pub use server::lease::{
    ClientIdentity, Judged, Lease, LeaseSnapshot, Leases, NoLease, Runs, StoredLease, own_address,
};
pub use service::{NoService, Service, ServiceProvider, ServiceRequest, ServiceStream};

use crate::budget::Budget;
use crate::config::EngineConfig;
use crate::drops::{DropReason, Ledger};
use crate::idleness::Idleness;
use crate::limits;
use crate::snapshot::TimeSamples;
use hold_queue::HoldQueue;
use life::{Cause, Life};
use peer::Peer;
use request::{Holder, Request};

/// The state beside QUIC; apart from the endpoint, so that QUIC can call back into it.
pub struct State<R: Role> {
    role: R,
    config: EngineConfig,
    peers: Vec<Option<Peer>>,
    /// The peer that inner sockets or the TUN gave something last.
    filled: Option<ConnectionKey>,
    requests: Slab<Request>,
    ledger: Ledger,
    times: TimeSamples,
    actions: VecDeque<Action<R::Action>>,
    arena: BytesMut,
    /// Client: requests that have not been sent.
    queued: BTreeSet<RequestId>,
    /// Client: datagrams of sessions whose request has not been sent.
    waiting: HoldQueue<RequestId>,
    /// Connections whose peer broke a rule that ends them.
    broken: Vec<(ConnectionKey, masque::ConnectionError)>,
    /// Connections whose number of unread forwards may have changed.
    unread_changed: Vec<ConnectionKey>,
    /// TCP forwards and services in [`Life::Closing`].
    closing: usize,
    /// No new requests are taken.
    draining: bool,
    udp_sessions: u64,
    connections_total: u64,
    sessions_total: u64,
    /// Budget for UDP sessions: every one that has not ended holds a place.
    sessions: Budget,
    /// The same sessions, by who has them.
    idleness: Idleness<Holder, RequestId>,
    ip: ip::IpState,
    repair: repair::RepairState,
    pacing: pacing::Pacing,
    /// Datagrams of services, for their next turn.
    service_datagrams: VecDeque<(RequestId, Vec<u8>)>,
    /// Server: what payloads between bound sockets leave for the end of the turn.
    relayed: bound::RelayTurn,
}

/// One shard's tunnel.
pub struct Engine<R: Role> {
    endpoint: quic::Endpoint,
    state: State<R>,
    next_sweep: Option<Instant>,
}

impl<R: Role> Engine<R> {
    fn new(endpoint: quic::Endpoint, role: R, config: EngineConfig) -> Self {
        let state = State {
            role,
            config,
            peers: Vec::new(),
            filled: None,
            requests: Slab::new(),
            ledger: Ledger::default(),
            times: TimeSamples::default(),
            actions: VecDeque::new(),
            arena: BytesMut::new(),
            queued: BTreeSet::new(),
            waiting: HoldQueue::new(limits::WAITING_BYTES_MAX),
            broken: Vec::new(),
            unread_changed: Vec::new(),
            closing: 0,
            draining: false,
            udp_sessions: 0,
            connections_total: 0,
            sessions_total: 0,
            sessions: Budget::whole(limits::UDP_SESSIONS_MAX),
            idleness: Idleness::default(),
            ip: ip::IpState::default(),
            repair: repair::RepairState::default(),
            pacing: pacing::Pacing::default(),
            service_datagrams: VecDeque::new(),
            relayed: bound::RelayTurn::default(),
        };
        Self {
            endpoint,
            state,
            next_sweep: None,
        }
    }

    /// One of several shards: its number, its part of the room for UDP sessions. A client's driver then says with
    /// [`Engine::keep_connection`] when requests may follow the token check.
    #[must_use]
    pub fn sharded(mut self, shard: ServerShard, sessions: Budget) -> Self {
        self.state.role.set_shard(shard);
        self.state.sessions = sessions;
        self
    }

    /// Replaces the settings: idle times, the queues' policy and the line for all sessions, the rest for those that open
    /// later.
    pub fn change(&mut self, config: EngineConfig) {
        self.state.pacing.set_line(config.line);
        self.state.config = config;
    }

    /// Takes one received message of the outer socket, possibly several datagrams of `segment_size` bytes.
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one received message, and the two ways on"
    )]
    pub fn handle_outer(
        &mut self,
        now: Instant,
        path: Path,
        ecn: Ecn,
        data: BytesMut,
        segment_size: usize,
        deliver: &mut impl Deliver,
        outbox: &mut Outbox,
    ) {
        let mut receiver = egress::Egress {
            now,
            state: &mut self.state,
            deliver,
        };
        self.endpoint
            .handle_received(now, path, ecn, data, segment_size, &mut receiver, outbox);
    }

    /// Takes one datagram that QUIC's classifier gave away and that the driver lets in all the same
    /// ([`quic::Endpoint::handle_admitted`]).
    pub fn handle_admitted(
        &mut self,
        now: Instant,
        path: Path,
        ecn: Ecn,
        datagram: BytesMut,
        deliver: &mut impl Deliver,
        outbox: &mut Outbox,
    ) {
        let mut receiver = egress::Egress {
            now,
            state: &mut self.state,
            deliver,
        };
        self.endpoint
            .handle_admitted(now, path, ecn, datagram, &mut receiver, outbox);
    }

    /// Whether QUIC copies what it is given ([`quic::Endpoint::set_copies_received`]).
    pub fn set_copies_received(&mut self, copies: bool) {
        self.endpoint.set_copies_received(copies);
    }

    /// Processes pending events. To be called after inputs and before [`Engine::poll_action`].
    pub fn settle(&mut self, now: Instant, deliver: &mut impl Deliver) {
        self.next_sweep.get_or_insert(now + limits::SWEEP_INTERVAL);
        self.state.pacing.begin_turn(now);
        // What came before a stream's end is handed out before it.
        self.hand_out_service_datagrams(now);
        loop {
            while let Some(event) = self.endpoint.poll_event() {
                self.handle_event(now, event, deliver);
                // What had overtaken the request that this event opened.
                self.hand_out_service_datagrams(now);
            }
            if let Some(id) = R::service_to_wake(&mut self.state) {
                self.wake_service(now, id, deliver);
            } else if self.state.broken.is_empty() {
                return R::relay(self, now);
            } else {
                self.close_broken_peers(now);
            }
        }
    }

    fn handle_event(&mut self, now: Instant, event: Event, deliver: &mut impl Deliver) {
        match event {
            // Whoever else serves here, or at another address, is tried the sooner.
            Event::Incoming(new) if self.state.draining => self.endpoint.refuse(now, new.key),
            Event::Incoming(new) => match R::acceptance(self, &new) {
                // A first packet that cannot be used is its sender's affair; the endpoint counts it.
                Some(parameters) => drop(self.endpoint.accept(now, new.key, &parameters)),
                None => self.endpoint.ignore(now, new.key),
            },
            // The last two come among peers only.
            Event::IncomingExpired { .. }
            | Event::PathMtuChanged { .. }
            | Event::Congestion { .. }
            | Event::CreditWanted { .. } => {}
            Event::RemoteChanged { connection, remote } => {
                self.tell_services_of_remote(now, connection, remote);
            }
            Event::Connected { connection } => self.connected(now, connection),
            Event::Redirected { connection } => R::redirected(&mut self.state, connection),
            Event::Closed {
                connection,
                reason,
                counters,
            } => self.lose(connection, reason, &counters),
            Event::DatagramsDropped { count, .. } => {
                self.state.ledger.ingress.drop(DropReason::PathChanged, count);
            }
            Event::StreamOpened { connection, stream } => self.take_stream(now, connection, stream, deliver),
            Event::StreamReadable { connection, stream } => {
                self.read_stream(now, connection, stream, deliver)
            }
            Event::StreamWritable { connection, stream } => {
                self.resume_stream(now, connection, stream, deliver);
            }
            Event::StreamStopped {
                connection, stream, ..
            } => self.stopped_stream(connection, stream),
            Event::StreamFinished { connection, stream } => self.stream_acknowledged(connection, stream),
            Event::StreamsAvailable { connection, .. } => R::streams_available(self, now, connection),
        }
    }

    /// The next thing that the driver has to do.
    pub fn poll_action(&mut self) -> Option<Action<R::Action>> {
        let action = self.state.actions.pop_front()?;
        if let Action::Ended { request, .. } = action {
            // The driver takes the news, and the ID may be used again.
            self.state.requests.remove(request.0);
        }
        Some(action)
    }

    /// Fills the outbox. Whether there is more to send than fits.
    pub fn flush(&mut self, now: Instant, outbox: &mut Outbox) -> bool {
        while let Some(connection) = self.state.unread_changed.pop() {
            let unread = self.state.peer(connection).map_or(0, |peer| peer.unread);
            self.endpoint.set_standing_readers(connection, unread);
        }
        let mut source = source::Source::new(now, &mut self.state);
        self.endpoint.flush(now, &mut source, outbox)
    }
}

impl<R: Role> State<R> {
    fn peer(&mut self, connection: ConnectionKey) -> Option<&mut Peer> {
        self.peers.get_mut(connection.index())?.as_mut()
    }

    fn insert_request(&mut self, request: Request) -> RequestId {
        let id = RequestId(self.requests.insert(request));
        let request = &self.requests[id.0];
        if matches!(request.life, Life::Queued(_)) {
            self.queued.insert(id);
        }
        if request.is_udp() {
            self.session_opened(id);
        }
        id
    }

    /// A request is a UDP session from here on.
    fn session_opened(&mut self, id: RequestId) {
        self.udp_sessions += 1;
        self.sessions_total += 1;
        let request = &self.requests[id.0];
        self.idleness.add(id, request.holder(), request.last_active);
    }
}

impl<R: Role> Engine<R> {
    /// Reserves a slot for a UDP session; if none is free, who has most of this shard's loses its idlest.
    fn reserve_session(&mut self) {
        while !self.state.sessions.take() {
            let State {
                idleness, requests, ..
            } = &mut self.state;
            let idlest = idleness
                .idlest(|id| last_active(requests, id))
                .expect("a shard without sessions finds its guaranteed room");
            self.end_for(idlest, Cause::Idle);
        }
    }
}

/// When a request was active; `None` where it has ended.
fn last_active(requests: &Slab<Request>, id: RequestId) -> Option<Instant> {
    requests.get(id.0).map(|request| request.last_active)
}

/// The Quarter Stream ID of a request stream (RFC 9297 section 2.1).
fn quarter(stream: quic::StreamId) -> u64 {
    u64::from(stream) / 4
}

/// HTTP/3 error codes fit 32 bits (RFC 9114 section 8.1).
fn masque_code(code: masque::Code) -> u32 {
    u32::try_from(code.value()).expect("codes of RFC 9114, 9204 and 9297 are below 2^16")
}

/// Largest payload in context 0 behind a one-byte Quarter Stream ID.
fn payload_unsplit(datagram_max: usize) -> usize {
    datagram_max.saturating_sub(2)
}

/// Bytes without a copy, for small own messages.
fn owned(bytes: Vec<u8>) -> Bytes {
    Bytes::from(bytes)
}
