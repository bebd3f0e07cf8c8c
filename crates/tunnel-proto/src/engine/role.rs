//! Where the two ends of a tunnel differ: the events and packets that a client and a server treat each in its own way.
//!
//! Everything else of the engine is the same at both ends and knows of the role only what stands here.

use std::fmt::Debug;
use std::net::IpAddr;
use std::time::Instant;

use masque::bind::BindCapsule;
use masque::ip::IpCapsule;
use masque::{HeaderList, HeldBack, MessageError, ServerShard};
use packet::ip::IpView;
use quic::{AcceptParameters, CloseReason, ConnectionKey, ConnectionReport, Counters, Incoming, StreamId};
use slab::Slab;

use super::ip::session::IpSession;
use super::request::{Request, RequestId};
use super::{Deliver, Engine, State};
use crate::drops::DropReason;

/// The role of an end: [`Client`](super::Client) or [`Server`](super::Server).
pub trait Role: Side {}

impl<S: Side> Role for S {}

/// What the engine asks its role.
pub trait Side: Sized {
    /// What only this role asks of its driver.
    type Action: Debug + PartialEq;

    /// As the HTTP/3 layer calls it.
    const HTTP: masque::Role;

    /// It is one of several shards.
    fn set_shard(&mut self, shard: ServerShard);

    /// Connections that may not be among the peers, because their handshake is not complete.
    fn connecting(&self) -> Vec<ConnectionKey>;

    /// How a new connection is accepted; `None` where it is to be ignored.
    fn acceptance(engine: &mut Engine<Self>, new: &Incoming) -> Option<AcceptParameters>;

    /// The handshake is complete, and the peer is the genuine site of a cover: the connection is not among the peers.
    fn redirected(state: &mut State<Self>, connection: ConnectionKey);

    /// The handshake is complete, and the connection is among the peers.
    fn connected(state: &mut State<Self>, connection: ConnectionKey);

    /// The peer has opened a bidirectional stream.
    fn request_stream_opened(
        state: &mut State<Self>,
        now: Instant,
        connection: ConnectionKey,
        stream: StreamId,
    );

    /// The peer's SETTINGS have come.
    fn settings_received(engine: &mut Engine<Self>, now: Instant, connection: ConnectionKey);

    /// The peer takes no new requests, and none whose stream is `first` or a later one (RFC 9114 section 5.2).
    fn goaway_received(engine: &mut Engine<Self>, now: Instant, connection: ConnectionKey, first: u64);

    /// The peer has more to send than the path lets through.
    fn held_back(state: &mut State<Self>, now: Instant, connection: ConnectionKey, held_back: HeldBack);

    /// A request of a service that has news from elsewhere.
    fn service_to_wake(state: &mut State<Self>) -> Option<RequestId>;

    /// A capsule about a context of a bound socket.
    fn bind_capsule(
        engine: &mut Engine<Self>,
        now: Instant,
        id: RequestId,
        capsule: &BindCapsule,
    ) -> Result<(), MessageError>;

    /// A payload in a context of a bound socket; it is counted as accepted already.
    fn take_relayed(
        state: &mut State<Self>,
        now: Instant,
        id: RequestId,
        context: u64,
        payload: &[u8],
        deliver: &mut impl Deliver,
    );

    /// The end of a turn: payloads go on to other bound sockets.
    fn relay(engine: &mut Engine<Self>, now: Instant);

    /// The peer allows more streams.
    fn streams_available(engine: &mut Engine<Self>, now: Instant, connection: ConnectionKey);

    /// A connection is gone, and its requests have ended; `counters` are its last.
    fn connection_lost(
        state: &mut State<Self>,
        connection: ConnectionKey,
        reason: CloseReason,
        counters: &Counters,
    );

    /// Headers of a request, or the answer to one, have come.
    fn headers_received(
        engine: &mut Engine<Self>,
        now: Instant,
        id: RequestId,
        list: &HeaderList,
        deliver: &mut impl Deliver,
    );

    /// What came at once of a request's content has been read.
    fn content_read(state: &mut State<Self>, now: Instant, id: RequestId);

    /// When [`Side::handle_due`] is due.
    fn next_due(engine: &Engine<Self>) -> Option<Instant>;

    /// What only this role has timers for.
    fn handle_due(engine: &mut Engine<Self>, now: Instant);

    /// The state of a living connection, every second.
    fn connection_reported(
        engine: &mut Engine<Self>,
        now: Instant,
        connection: ConnectionKey,
        report: &ConnectionReport,
    );

    /// What is due every second.
    fn sweep(engine: &mut Engine<Self>, now: Instant);

    /// IP sessions that take packets.
    fn ip_sessions(&self) -> Vec<RequestId>;

    /// A request has ended: nothing of the role finds it any more.
    fn request_ended(state: &mut State<Self>, id: RequestId);

    /// A capsule of addresses or routes.
    fn ip_capsule(engine: &mut Engine<Self>, id: RequestId, capsule: IpCapsule);

    /// The address of this version that ICMP answers to the TUN come from.
    fn tun_address(&self, is_ipv4: bool, requests: &Slab<Request>) -> Option<IpAddr>;

    /// Whether a packet of the TUN may go to the peer: at both ends both addresses are looked at.
    fn may_enter(&self, session: &IpSession, view: &IpView) -> Result<(), DropReason>;

    /// Whether a packet of the peer may go on: at both ends both addresses are looked at.
    fn may_leave(&self, session: &mut IpSession, view: &IpView, packet: &[u8]) -> Result<(), DropReason>;

    /// A packet of the peer was refused for `reason`.
    fn packet_refused(
        state: &mut State<Self>,
        now: Instant,
        id: RequestId,
        packet: &[u8],
        reason: DropReason,
    );
}
