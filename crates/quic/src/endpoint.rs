//! The endpoint of one shard: its connections, from the first packet or [`Endpoint::connect`] to their end.

mod connecting;
mod events;
mod incoming;
mod receiving;
mod strangers;
mod streams;
mod timers;

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::{hkdf, hmac};
use bytes::{Bytes, BytesMut};
use packet::{Ecn, Path, Turns};
use quinn_proto::crypto;
use quinn_proto::{EndpointConfig, VarInt};

use crate::admission::Admission;
use crate::classifier::{ByShard, Classified, Classifier};
use crate::config::{Aead, ConnectionLimits, EndpointParameters, PeerParameters, Profile, ServerParameters};
use crate::congestion::Gate;
use crate::connection::Connection;
use crate::connection_id::{Generator, IdLength, SteerKey};
use crate::counters::{ConnectionReport, Counters, IncomingCounters};
use crate::error::{CloseReason, ConfigurationError};
use crate::event::{ConnectionKey, Event, IncomingKey};
use crate::memory::TrustedIds;
use crate::resets::ResetBudget;
use crate::trace::Tracer;
use crate::transmit::{DatagramSource, Outbox, OutgoingTrain};
use crate::transport::{Payloads, Rights};
use crate::{limits, tls, transport};

use incoming::Undecided;

/// Takes what arrives while a batch is handled.
pub trait Receiver {
    /// A DATAGRAM frame of `connection`; called in the order of arrival.
    fn datagram(&mut self, connection: ConnectionKey, payload: Bytes);

    /// Largest UDP payload, in bytes, that the interface towards a new peer carries.
    fn udp_payload_ceiling(&mut self, remote: SocketAddr) -> u16;

    /// A datagram whose connection ID names another shard of this process, to be handed to that shard's endpoint as it
    /// is; dropped where this is left out. Never called in an endpoint that is the only one.
    fn foreign_segment(&mut self, shard: u8, path: Path, ecn: Ecn, segment: &[u8]) {
        let _ = (shard, path, ecn, segment);
    }

    /// Datagrams whose connection IDs name a shard of the process whose sockets this one took over ([`crate::Kin`]), as
    /// [`Receiver::given_away`] has them; dropped where this is left out.
    fn predecessor_datagrams(
        &mut self,
        shard: u8,
        path: Path,
        ecn: Ecn,
        datagrams: &[u8],
        segment_size: usize,
    ) {
        let _ = (shard, path, ecn, datagrams, segment_size);
    }

    /// Datagrams that the [`Classifier`] gives away, as they came: each has `segment_size` bytes, the last one may have
    /// fewer. They are dropped where this is left out. The bytes pin the buffer that the socket received them in.
    fn given_away(&mut self, path: Path, ecn: Ecn, datagrams: BytesMut, segment_size: usize) {
        let _ = (path, ecn, datagrams, segment_size);
    }
}

/// Why [`Endpoint::handle_timeout`] wants to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// Loss detection, pacing, delayed acknowledgement, keep-alive or idle timeout of a connection.
    Transport(ConnectionKey),
    /// The time in which a peer has to complete its handshake, and then to show a valid token.
    Authentication(ConnectionKey),
    /// The time in which the caller has to decide on a new connection.
    Decision(IncomingKey),
}

/// Whose a connection is, for [`Endpoint::set_owner`].
pub type Owner = [u8; 16];

/// QUIC of one shard, for any number of connections.
pub struct Endpoint {
    proto: quinn_proto::Endpoint,
    server: Option<quinn_proto::ServerConfig>,
    profile: Profile,
    aead: Aead,
    udp_payload_max: u16,
    id_length: IdLength,
    is_covered: bool,
    classifier: Box<dyn Classifier>,
    classified: Classified,
    connections: Vec<Option<Box<Connection>>>,
    open: usize,
    /// Connections that were closed by us and whose peers have not answered.
    closing: usize,
    admission: Admission,
    resets: ResetBudget,
    undecided: Undecided,
    /// Answers to new connections, for the next flush.
    answers: VecDeque<OutgoingTrain>,
    unsettled: Vec<usize>,
    /// Connections that may have something to send, by owner; strangers and a client's connections have none.
    ready: Turns<Option<Owner>, usize>,
    timers: BTreeSet<(Instant, usize)>,
    events: VecDeque<Event>,
    ended: Counters,
    standing_readers: usize,
    trusted_ids: TrustedIds,
    /// What the strangers keep in memory.
    strangers_bytes: usize,
    strangers_bytes_max: usize,
    copies_received: bool,
    incoming: IncomingCounters,
    /// What it is among peers, where both ends are alike.
    peers: Option<PeerParameters>,
    /// Chooses connections to be traced.
    tracer: Option<Box<dyn Tracer>>,
}

impl Endpoint {
    /// An endpoint that connects, and accepts where `server` is given.
    ///
    /// # Errors
    /// [`ConfigurationError`] where the certificate and key cannot be used.
    ///
    /// # Panics
    /// Where the shard's index is not below its count.
    pub fn new(
        parameters: &EndpointParameters,
        server: Option<ServerParameters>,
    ) -> Result<Self, ConfigurationError> {
        let server = server.map(|server| {
            let tls = tls::server(parameters.aead, &server.certificates);
            (tls, server.token_key)
        });
        Ok(Self::build(parameters, server, None))
    }

    /// An endpoint among peers: it connects by [`Endpoint::connect_peer`] and accepts, both ends prove their keys to each
    /// other, and both open streams of both directions once they are authenticated.
    ///
    /// # Panics
    /// As [`Endpoint::new`].
    #[must_use]
    pub fn of_peers(parameters: &EndpointParameters, peers: PeerParameters) -> Self {
        let tls = tls::accepting_peer(parameters.aead, &peers.identity, peers.protocol);
        Self::build(parameters, Some((tls, peers.token_key)), Some(peers))
    }

    fn build(
        parameters: &EndpointParameters,
        server: Option<(Arc<dyn crypto::ServerConfig>, [u8; 64])>,
        peers: Option<PeerParameters>,
    ) -> Self {
        let udp_payload_max = parameters
            .udp_payload_max
            .unwrap_or(limits::UDP_PAYLOAD_MAX)
            .clamp(limits::UDP_PAYLOAD_MIN, limits::UDP_PAYLOAD_MAX);
        let (shard, generation, seed) = (parameters.shard, parameters.generation, parameters.seed);
        assert!(
            shard.index < shard.count,
            "a shard is one of those that there are"
        );
        let id_key = SteerKey::derive(&parameters.reset_key, parameters.id_length);
        let classifier = Box::new(ByShard::new(id_key.clone(), shard));
        let mut endpoint =
            EndpointConfig::new(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, &parameters.reset_key)));
        endpoint
            .cid_generator(move || Box::new(Generator::new(id_key.clone(), shard.index, generation, &seed)))
            .grease_quic_bit(false)
            // Resets are bounded by a budget of our own.
            .min_reset_interval(Duration::ZERO)
            .max_udp_payload_size(udp_payload_max)
            .expect("the payload is clamped to at least 1,200 bytes");
        let server =
            server.map(|(tls, token_key)| server_config(parameters, tls, &token_key, udp_payload_max));
        let proto =
            quinn_proto::Endpoint::new(Arc::new(endpoint), server.clone().map(Arc::new), true, Some(seed));
        Self {
            proto,
            server,
            profile: parameters.profile,
            aead: parameters.aead,
            udp_payload_max,
            id_length: parameters.id_length,
            is_covered: parameters.is_covered,
            classifier,
            classified: Classified::default(),
            connections: Vec::new(),
            open: 0,
            closing: 0,
            admission: Admission::new(shard.count),
            resets: ResetBudget::new(shard.count),
            undecided: Undecided::new(shard.count),
            answers: VecDeque::new(),
            unsettled: Vec::new(),
            ready: Turns::default(),
            timers: BTreeSet::new(),
            events: VecDeque::new(),
            ended: Counters::default(),
            standing_readers: 0,
            trusted_ids: TrustedIds::new(),
            strangers_bytes: 0,
            strangers_bytes_max: limits::STRANGERS_BYTES_MAX / usize::from(shard.count),
            copies_received: false,
            incoming: IncomingCounters::default(),
            peers,
            tracer: None,
        }
    }

    fn idle_timeout(&self) -> Duration {
        let of_peers = self.peers.as_ref().map(|peers| peers.idle_timeout);
        let time = of_peers.unwrap_or(limits::IDLE_TIMEOUT);
        time.clamp(limits::IDLE_TIMEOUT_MIN, limits::IDLE_TIMEOUT)
    }

    /// Lets `classifier` decide what received datagrams are, instead of [`ByShard`].
    #[must_use]
    pub fn with_classifier(mut self, classifier: Box<dyn Classifier>) -> Self {
        self.classifier = classifier;
        self
    }

    /// Lets `tracer` choose connections to be traced.
    #[must_use]
    pub fn with_tracer(mut self, tracer: Box<dyn Tracer>) -> Self {
        self.tracer = Some(tracer);
        self
    }

    /// The peer of an accepted connection has shown that it is this user.
    pub fn trace_belongs_to(&mut self, connection: ConnectionKey, user: [u8; 16]) {
        if let Some(trace) = self.live(connection).and_then(|entry| entry.trace.take()) {
            trace.belongs_to(user);
        }
    }

    fn insert(&mut self, key: ConnectionKey, mut connection: Connection) {
        connection.owner = Some(self.ready.join(None));
        if self.connections.len() <= key.0 {
            self.connections.resize_with(key.0 + 1, || None);
        }
        debug_assert!(
            self.connections[key.0].is_none(),
            "quinn-proto gives a handle again only once drained"
        );
        self.connections[key.0] = Some(Box::new(connection));
        self.open += 1;
        self.touch(key.0);
    }

    /// The connection's state changed: its events are due, and it may have something to send.
    fn touch(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        if !std::mem::replace(&mut connection.unsettled, true) {
            self.unsettled.push(index);
        }
        if let Some(owner) = connection.become_ready() {
            self.ready.push(owner, index);
        }
    }

    /// Says whose `connection` is: owners take turns in sending, however many connections each has.
    pub fn set_owner(&mut self, connection: ConnectionKey, owner: Owner) {
        if let Some(entry) = self.connections.get_mut(connection.0).and_then(Option::as_mut) {
            let former = entry.owner.replace(self.ready.join(Some(owner)));
            if let Some(former) = former {
                self.ready.leave(former);
            }
        }
    }

    /// Says that the source has datagrams for `connection`, so that the next [`Endpoint::flush`] visits it.
    pub fn mark_ready(&mut self, connection: ConnectionKey) {
        if let Some(entry) = self.connections.get_mut(connection.0).and_then(Option::as_mut)
            && let Some(owner) = entry.become_ready()
        {
            self.ready.push(owner, connection.0);
        }
    }

    /// Fills `outbox` with trains of connections that have something to send. Whether some had to wait, so that the
    /// caller sends what is there and comes back.
    pub fn flush(&mut self, now: Instant, source: &mut impl DatagramSource, outbox: &mut Outbox) -> bool {
        while !outbox.is_full()
            && let Some(answer) = self.answers.pop_front()
        {
            outbox.push(answer);
        }
        // A connection that has more may have another turn before those of an owner who has had much.
        for _ in 0..self.ready.len() + limits::OUTBOX_TRAINS {
            if outbox.is_full() {
                break;
            }
            let Some((turn, index)) = self.ready.pop() else {
                break;
            };
            let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else {
                continue;
            };
            let before = outbox.bytes();
            connection.ready = connection.flush(now, source, outbox);
            self.events.extend(connection.watch_congestion(now));
            self.ready.charge(turn, outbox.bytes().wrapping_sub(before));
            if connection.ready
                && let Some(owner) = connection.owner
            {
                self.ready.push(owner, index);
            }
            // Sending may have given datagrams up, issued IDs or closed the connection.
            if !std::mem::replace(&mut connection.unsettled, true) {
                self.unsettled.push(index);
            }
            self.arm(index);
        }
        self.may_send()
    }

    /// Whether a connection may have something to send, so that [`Self::flush`] is not in vain.
    #[must_use]
    pub fn may_send(&self) -> bool {
        !self.ready.is_empty() || !self.answers.is_empty()
    }

    /// Closes a connection with an application error code (RFC 9114 section 8.1) and a reason for the peer's log.
    pub fn close(&mut self, now: Instant, connection: ConnectionKey, code: u32, reason: &[u8]) {
        self.end(now, connection.0, CloseReason::LocallyClosed, code, reason);
        self.touch(connection.0);
    }

    fn end(&mut self, now: Instant, index: usize, why: CloseReason, code: u32, reason: &[u8]) {
        let Some(connection) = self.live(ConnectionKey(index)) else {
            return;
        };
        connection.deadline = None;
        connection
            .proto
            .close(now, VarInt::from_u32(code), Bytes::copy_from_slice(reason));
        connection.closed = true;
        let begins_closing = connection.begin_closing(now);
        let key = ConnectionKey(index);
        let dropped = events::dropped(connection, key);
        let counters = connection.counters();
        self.events.extend(dropped);
        self.events.push_back(Event::Closed {
            connection: key,
            reason: why,
            counters,
        });
        self.closing += usize::from(begins_closing);
    }

    /// How many connections were closed by us whose peers have not answered; a core that forgets one after three probe
    /// timeouts (RFC 9000 section 10.2) ends its waiting.
    #[must_use]
    pub fn closing(&self) -> usize {
        self.closing
    }

    /// Whether this is one of them.
    #[must_use]
    pub fn is_closing(&self, connection: ConnectionKey) -> bool {
        let entry = self.connections.get(connection.0).and_then(Option::as_ref);
        entry.is_some_and(|entry| entry.closing.is_some())
    }

    /// Our own address changed under a client's connection: the path is validated again (RFC 9000 section 9).
    pub fn local_address_changed(&mut self, connection: ConnectionKey) {
        // One that has just ended may have told the core so already, which knows no connection IDs of it any more.
        if let Some(entry) = self.live(connection)
            && !entry.proto.is_closed()
        {
            entry.proto.local_address_changed();
            self.touch(connection.0);
        }
    }

    /// A connection takes another path from here on, of which nothing is known: estimates, window and path MTU begin
    /// anew (RFC 9000 section 9.4). To be called before what goes on the new path is sent.
    pub fn path_changed(&mut self, now: Instant, connection: ConnectionKey) {
        if let Some(entry) = self.live(connection)
            && !entry.proto.is_closed()
        {
            entry.proto.path_changed(now);
            self.touch(connection.0);
        }
    }

    /// Both ends go on to new keys (RFC 9001 section 6), which QUIC also does by itself, before the limits of the cipher are
    /// near. Nothing happens before the handshake is complete, and for three probe timeouts after an update.
    pub fn update_keys(&mut self, connection: ConnectionKey) {
        if let Some(entry) = self.live(connection) {
            entry.proto.force_key_update();
            self.touch(connection.0);
        }
    }

    fn live(&mut self, connection: ConnectionKey) -> Option<&mut Connection> {
        let entry = self.connections.get_mut(connection.0)?.as_mut()?;
        (!entry.closed).then_some(entry)
    }

    /// State and counters of a living connection.
    pub fn report(&mut self, connection: ConnectionKey) -> Option<ConnectionReport> {
        self.live(connection).map(Connection::report)
    }

    /// Smoothed round-trip time of a living connection.
    #[must_use]
    pub fn round_trip(&self, connection: ConnectionKey) -> Option<Duration> {
        let entry = self.connections.get(connection.0)?.as_ref()?;
        (!entry.closed).then(|| entry.proto.rtt())
    }

    /// The peer's address of a living connection.
    #[must_use]
    pub fn remote(&self, connection: ConnectionKey) -> Option<SocketAddr> {
        let entry = self.connections.get(connection.0)?.as_ref()?;
        (!entry.closed).then(|| entry.proto.remote_address())
    }

    /// Bytes on a living connection that the peer has not acknowledged and that are not lost.
    #[must_use]
    pub fn in_flight(&self, connection: ConnectionKey) -> Option<u64> {
        let entry = self.connections.get(connection.0)?.as_ref()?;
        (!entry.closed).then(|| entry.in_flight())
    }

    /// Frames of acknowledgements and data that came on a living connection. It grows only by what the peer has sent.
    #[must_use]
    pub fn frames_received(&self, connection: ConnectionKey) -> Option<u64> {
        let entry = self.connections.get(connection.0)?.as_ref()?;
        (!entry.closed).then(|| entry.frames_received())
    }

    /// Largest payload of one DATAGRAM frame on `connection` at present, in bytes; `None` where the peer takes none.
    pub fn datagram_max(&mut self, connection: ConnectionKey) -> Option<usize> {
        self.live(connection)?.proto.datagrams().max_size()
    }

    /// Sums over all connections, ended ones included.
    #[must_use]
    pub fn totals(&self) -> Counters {
        let mut totals = self.ended;
        for connection in self.connections.iter().flatten() {
            totals += connection.counters();
        }
        totals
    }

    /// Datagrams inside the core that have been neither sent nor given up.
    #[must_use]
    pub fn datagrams_held(&self) -> u64 {
        self.connections
            .iter()
            .flatten()
            .map(|connection| connection.datagrams_held())
            .sum()
    }

    /// Connections that have not ended, draining ones included.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.open
    }

    /// What was received, by class.
    #[must_use]
    pub fn classified(&self) -> &Classified {
        &self.classified
    }
}

/// What is the same for all connections that this server accepts as a matter of course.
fn server_config(
    parameters: &EndpointParameters,
    tls: Arc<dyn crypto::ServerConfig>,
    token_key: &[u8; 64],
    udp_payload_max: u16,
) -> quinn_proto::ServerConfig {
    let token_key = hkdf::Salt::new(hkdf::HKDF_SHA256, b"gramway token key").extract(token_key);
    let mut config = quinn_proto::ServerConfig::new(tls, Arc::new(token_key));
    config
        .transport_config(transport::settings(
            parameters.profile,
            Payloads::probed(limits::UDP_PAYLOAD_MIN, udp_payload_max),
            Rights::of_stranger(&ConnectionLimits::default()),
            limits::IDLE_TIMEOUT,
            &Gate::default(),
            None,
        ))
        .retry_token_lifetime(limits::RETRY_TOKEN_LIFETIME)
        .max_incoming(limits::STRANGERS_MAX)
        .incoming_buffer_size(limits::INCOMING_BUFFER_BYTES)
        .incoming_buffer_size_total(limits::INCOMING_BUFFER_BYTES * 16);
    config
}
