//! The peers of one socket: connections by key, and the ways of messages and streams through QUIC.
//!
//! Here are the table of peers and the verbs of the socket; [`stages`] has the life of a peer, [`meeting`] how its
//! connection comes about, [`messages`] and [`streams`] what it carries, [`turns`] what follows from each input.

mod bound;
mod inbound;
mod meeting;
mod messages;
mod parameters;
mod paths;
mod source;
mod stages;
mod stats;
mod streams;
mod turns;
mod windows;

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use packet::{Ecn, Path};
use quic::limits::{STREAM_WINDOW_BYTES, STREAM_WINDOW_BYTES_MAX};
use quic::{ConnectionKey, Endpoint, EndpointParameters, Outbox, PeerParameters};

use crate::event::Event;
use crate::id::PeerId;
use crate::incoming::Incoming;
use crate::lazy::Lazy;
use crate::limits::PROTOCOL;
use crate::paths::Routes;
use crate::payloads::Payloads;
use crate::peer::{Peer, Stage};
use bound::Bound;
pub(crate) use inbound::Inbound;
use meeting::Checks;
pub use parameters::{Parameters, code};
use source::Source;
pub use stats::{PathStats, Refusals};
pub(crate) use windows::Share;
use windows::Windows;

/// Names a peer from [`Peers::connect`] or [`Event::Connected`] to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerKey {
    index: u32,
    generation: u32,
}

impl PeerKey {
    /// A small number, which no other living peer has.
    #[must_use]
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// All peers of one socket.
pub struct Peers {
    quic: Endpoint,
    own: PeerId,
    allowed: Option<BTreeSet<PeerId>>,
    udp_payload_max: u16,
    payloads: Payloads,
    message_bytes_max: usize,
    send_bytes_max: usize,
    peers: Vec<Option<Box<Peer>>>,
    free: Vec<usize>,
    generations: u32,
    /// Peers by the connections of QUIC.
    by_connection: Vec<Option<usize>>,
    touched: Vec<usize>,
    timers: BTreeSet<(Instant, usize)>,
    bound: Bound,
    windows: Windows,
    refusals: Refusals,
    events: VecDeque<Event>,
    arena: BytesMut,
    /// Packets are copied out of the buffers that they are received in.
    copies_received: bool,
    /// What came in DATAGRAM frames of the batch that is being handled.
    arrived: Vec<(ConnectionKey, Bytes)>,
    /// Peers that are being connected and whose checks may come.
    meeting_peers: Vec<usize>,
    /// Checks that go to peers that are about to connect.
    checks: Vec<Checks>,
    routes: Routes,
    path_timers: BTreeSet<(Instant, usize)>,
    /// Peers to whose paths checks are to be sent.
    checking: Vec<usize>,
    /// Connections that are closing and had several paths, by their nominal addresses.
    closing: Vec<(ConnectionKey, SocketAddr)>,
    /// Peers that should be met again.
    wishes: Vec<PeerKey>,
}

impl Peers {
    /// Without any connection.
    #[must_use]
    pub fn new(parameters: Parameters) -> Self {
        let mut endpoint = EndpointParameters::of_client(parameters.seed);
        endpoint.profile = parameters.profile;
        endpoint.udp_payload_max = Some(parameters.udp_payload_max);
        endpoint.reset_key = doubled(parameters.seed, 0x52);
        let own = PeerId::from(parameters.identity.public_key());
        let stream_window_bytes = parameters
            .stream_window_bytes
            .clamp(STREAM_WINDOW_BYTES, STREAM_WINDOW_BYTES_MAX);
        let peers = PeerParameters {
            identity: parameters.identity,
            protocol: PROTOCOL,
            token_key: doubled(parameters.seed, 0x54),
            idle_timeout: parameters.idle_timeout,
            stream_window_bytes,
        };
        Self {
            quic: Endpoint::of_peers(&endpoint, peers),
            own,
            allowed: parameters.allowed,
            udp_payload_max: parameters.udp_payload_max,
            payloads: Payloads::new(parameters.udp_payload_to),
            message_bytes_max: parameters.message_bytes_max,
            send_bytes_max: parameters.send_bytes_max,
            peers: Vec::new(),
            free: Vec::new(),
            generations: 0,
            by_connection: Vec::new(),
            touched: Vec::new(),
            timers: BTreeSet::new(),
            bound: Bound::new(parameters.receive_bytes_max),
            windows: Windows::new(parameters.accepted_window_bytes_max, stream_window_bytes),
            refusals: Refusals::default(),
            events: VecDeque::new(),
            arena: BytesMut::new(),
            copies_received: false,
            arrived: Vec::new(),
            meeting_peers: Vec::new(),
            checks: Vec::new(),
            routes: Routes::default(),
            path_timers: BTreeSet::new(),
            checking: Vec::new(),
            closing: Vec::new(),
            wishes: Vec::new(),
        }
    }

    /// Our own peer ID.
    #[must_use]
    pub fn id(&self) -> PeerId {
        self.own
    }

    fn insert(&mut self, stage: Stage, id: Option<PeerId>) -> PeerKey {
        let index = self.free.pop().unwrap_or(self.peers.len());
        if index == self.peers.len() {
            self.peers.push(None);
        }
        self.generations = self.generations.wrapping_add(1);
        self.peers[index] = Some(Box::new(Peer {
            generation: self.generations,
            id,
            is_accepted: matches!(stage, Stage::Connecting(_)),
            is_caller: matches!(stage, Stage::Connecting(_)),
            paths: None,
            counted: 0,
            share: Share::default(),
            stage,
            sender: Lazy::default(),
            receiver: Lazy::default(),
            incoming: Incoming::new(self.message_bytes_max),
            inbound: Inbound::default(),
            untyped: Default::default(),
            told: false,
            timer: None,
            is_touched: false,
            verdict: None,
        }));
        self.key(index)
    }

    fn key(&self, index: usize) -> PeerKey {
        let generation = self.peers[index].as_ref().map_or(0, |peer| peer.generation);
        PeerKey {
            index: index as u32,
            generation,
        }
    }

    fn belongs_to(&mut self, connection: ConnectionKey, index: usize) {
        let place = connection.index();
        if self.by_connection.len() <= place {
            self.by_connection.resize(place + 1, None);
        }
        self.by_connection[place] = Some(index);
    }

    fn index_of(&self, connection: ConnectionKey) -> Option<usize> {
        self.by_connection.get(connection.index()).copied().flatten()
    }

    fn peer(&mut self, key: PeerKey) -> Option<&mut Peer> {
        let peer = self.peers.get_mut(key.index())?.as_deref_mut()?;
        (peer.generation == key.generation).then_some(peer)
    }

    /// Whether packets are copied out of the buffers that they are received in ([`Endpoint::set_copies_received`]).
    pub fn set_copies_received(&mut self, copies: bool) {
        self.copies_received = copies;
        self.quic.set_copies_received(copies);
    }

    /// Our address changed: paths are validated again.
    pub fn local_address_changed(&mut self) {
        self.payloads.forget();
        let connections: Vec<_> = self
            .peers
            .iter()
            .flatten()
            .filter_map(|peer| peer.connection())
            .collect();
        for connection in connections {
            self.quic.local_address_changed(connection);
        }
    }

    /// Takes one received message: one UDP datagram, or several of `segment_size` bytes that the kernel coalesced.
    pub fn handle_received(
        &mut self,
        now: Instant,
        path: Path,
        ecn: Ecn,
        data: BytesMut,
        segment_size: usize,
        outbox: &mut Outbox,
    ) {
        if !self.meeting_peers.is_empty() || !self.routes.is_empty() {
            self.take_checks(now, path, &data, segment_size);
        }
        let first = outbox.trains().len();
        let from = path.remote;
        let (remote, on_path_of) = self.routes.inward(from, &data);
        let path = Path { remote, ..path };
        let frames = on_path_of.and_then(|index| self.frames_of(index));
        let mut arrivals = source::Arrivals {
            datagrams: &mut self.arrived,
            now,
            payloads: &mut self.payloads,
        };
        self.quic
            .handle_received(now, path, ecn, data, segment_size, &mut arrivals, outbox);
        let mut arrived = std::mem::take(&mut self.arrived);
        for (connection, datagram) in arrived.drain(..) {
            if let Some(index) = self.index_of(connection)
                && let Err(violation) = self.take_frame(now, index, connection, datagram)
            {
                self.condemn(now, index, violation);
            }
        }
        self.arrived = arrived;
        if let Some(index) = on_path_of
            && self.frames_of(index) > frames
        {
            self.heard_on(now, index, from);
        }
        self.settle(now);
        self.direct_trains(now, first, outbox);
    }

    /// Fills `outbox` with trains of connections that have something to send. Whether some had to wait.
    pub fn flush(&mut self, now: Instant, outbox: &mut Outbox) -> bool {
        self.settle(now);
        self.flush_checks(now, outbox);
        self.flush_paths(outbox);
        let first = outbox.trains().len();
        let mut source = Source {
            now,
            peers: &mut self.peers,
            by_connection: &self.by_connection,
            arena: &mut self.arena,
            touched: &mut self.touched,
            last: None,
        };
        let more = self.quic.flush(now, &mut source, outbox);
        self.direct_trains(now, first, outbox);
        self.settle(now);
        more
    }

    /// Whether something may be sent, so that [`Self::flush`] is not in vain.
    #[must_use]
    pub fn may_send(&self) -> bool {
        self.quic.may_send() || !self.checking.is_empty()
    }

    /// Whether peers whose connections we have closed have not answered that; they are told again for three probe
    /// timeouts (RFC 9000 section 10.2).
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.quic.closing() > 0
    }

    /// When [`Self::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let quic = self.quic.poll_timeout().map(|(due, _)| due);
        let own = self.timers.first().map(|(due, _)| *due);
        let paths = self.path_timers.first().map(|(due, _)| *due);
        [quic, own, paths, self.checks_due()].into_iter().flatten().min()
    }

    /// Runs every timer that is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.quic.handle_timeout(now);
        self.path_timeouts(now);
        while let Some((due, index)) = self.timers.first().copied()
            && due <= now
        {
            self.timers.remove(&(due, index));
            if let Some(peer) = self.peers[index].as_deref_mut() {
                peer.timer = None;
                if let Stage::Connected(connection) = peer.stage {
                    let round_trip = self.quic.round_trip(connection).unwrap_or_default();
                    if let Some(sender) = peer.sender.get_mut() {
                        sender.handle_timeout(now, round_trip);
                    }
                    self.quic.mark_ready(connection);
                }
                self.give_up_stalled(now, index);
                self.touch(index);
                self.race_is_due(now, index);
            }
        }
        self.settle(now);
    }
}

/// A key of 64 bytes from a seed that other keys come from, too.
fn doubled(seed: [u8; 32], purpose: u8) -> [u8; 64] {
    let mut key = [purpose; 64];
    key[..32].copy_from_slice(&seed);
    key
}
