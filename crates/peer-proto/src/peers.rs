//! The peers of one socket: connections by key, and the ways of messages and streams through QUIC.

mod bound;
mod meeting;
mod source;
mod streams;

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use packet::{Ecn, Path};
use quic::{
    AcceptParameters, CloseReason, ConnectionKey, ConnectionReport, Endpoint, EndpointParameters,
    KeyIdentity, Outbox, PeerParameters, Profile,
};

use crate::delivery::{Delivery, Received, Ticket};
use crate::error::SendError;
use crate::event::Event;
use crate::frame::Frame;
use crate::id::PeerId;
use crate::incoming::Incoming;
use crate::limits::{ENDPOINT_RECEIVE_BYTES_MAX, MESSAGE_BYTES_MAX, PROTOCOL, SEND_BYTES_MAX};
use crate::peer::{Peer, Stage};
use crate::receiver::{ReceiveCounters, Receiver, Violation};
use crate::sender::{SendCounters, Sender};
use bound::Bound;
use meeting::Checks;
use source::Source;

/// Error codes of connections and streams (PEER-16); programs use others below 0xff00.
pub mod code {
    /// The peer breaks a rule.
    pub const PROTOCOL: u32 = 0xff01;
    /// The peer's key is not wanted here.
    pub const REFUSED: u32 = 0xff02;
    /// A message's deadline passed.
    pub const EXPIRED: u32 = 0xff03;
    /// A message is longer than this end takes.
    pub const TOO_LARGE: u32 = 0xff04;
}

/// What the peers of a socket need.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// Who we are.
    pub identity: KeyIdentity,
    /// Who may connect; `None`: everybody.
    pub allowed: Option<BTreeSet<PeerId>>,
    /// Throughput against delay.
    pub profile: Profile,
    /// Largest UDP payload that we send and take, in bytes; path MTU discovery finds what passes.
    pub udp_payload_max: u16,
    /// Longest message that is taken from a peer, or for sending, in bytes.
    pub message_bytes_max: usize,
    /// Bytes of messages that wait or are under way to one peer.
    pub send_bytes_max: usize,
    /// Bytes of messages that came and are not read, of all peers together.
    pub receive_bytes_max: usize,
    /// Seed of keys and connection IDs; from the operating system outside tests.
    pub seed: [u8; 32],
}

impl Parameters {
    /// The defaults, for this key pair.
    #[must_use]
    pub fn new(identity: KeyIdentity, seed: [u8; 32]) -> Self {
        Self {
            identity,
            allowed: None,
            profile: Profile::Throughput,
            udp_payload_max: 1_452,
            message_bytes_max: MESSAGE_BYTES_MAX,
            send_bytes_max: SEND_BYTES_MAX,
            receive_bytes_max: ENDPOINT_RECEIVE_BYTES_MAX,
            seed,
        }
    }
}

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

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathStats {
    /// The peer's address.
    pub remote: SocketAddr,
    /// Smoothed round-trip time.
    pub round_trip: Duration,
    /// Bytes that may be under way.
    pub congestion_window: u64,
    /// Bytes under way.
    pub in_flight: u64,
    /// Bytes of UDP payload that the path carries.
    pub path_mtu: u16,
    /// Longest body of an unordered message that fits one packet at present, in bytes.
    pub packet_body_max: usize,
    /// Packets sent, received and lost, and their bytes.
    pub counters: quic::Counters,
    /// What became of messages that were sent.
    pub sent: SendCounters,
    /// What became of messages that came.
    pub received: ReceiveCounters,
}

/// All peers of one socket.
pub struct Peers {
    quic: Endpoint,
    own: PeerId,
    allowed: Option<BTreeSet<PeerId>>,
    udp_payload_max: u16,
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
    events: VecDeque<Event>,
    arena: BytesMut,
    /// What came in DATAGRAM frames of the batch that is being handled.
    arrived: Vec<(ConnectionKey, Bytes)>,
    /// Peers that are being connected and whose checks may come.
    meeting_peers: Vec<usize>,
    /// Checks that go to peers that are about to connect.
    checks: Vec<Checks>,
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
        let peers = PeerParameters {
            identity: parameters.identity,
            protocol: PROTOCOL,
            token_key: doubled(parameters.seed, 0x54),
        };
        Self {
            quic: Endpoint::of_peers(&endpoint, peers),
            own,
            allowed: parameters.allowed,
            udp_payload_max: parameters.udp_payload_max,
            message_bytes_max: parameters.message_bytes_max,
            send_bytes_max: parameters.send_bytes_max,
            peers: Vec::new(),
            free: Vec::new(),
            generations: 0,
            by_connection: Vec::new(),
            touched: Vec::new(),
            timers: BTreeSet::new(),
            bound: Bound::new(parameters.receive_bytes_max),
            events: VecDeque::new(),
            arena: BytesMut::new(),
            arrived: Vec::new(),
            meeting_peers: Vec::new(),
            checks: Vec::new(),
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
            counted: 0,
            stage,
            sender: Sender::new(self.send_bytes_max),
            receiver: Receiver::new(self.message_bytes_max, self.udp_payload_max),
            incoming: Incoming::new(self.message_bytes_max),
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

    fn touch(&mut self, index: usize) {
        if let Some(peer) = self.peers.get_mut(index).and_then(Option::as_mut)
            && !std::mem::replace(&mut peer.is_touched, true)
        {
            self.touched.push(index);
        }
    }

    /// Takes a message for sending; its ticket ends in [`Event::Ended`].
    ///
    /// # Errors
    /// [`SendError`]; the message is the caller's then.
    pub fn send(
        &mut self,
        now: Instant,
        peer: PeerKey,
        body: Bytes,
        delivery: Delivery,
    ) -> Result<Ticket, SendError> {
        let max = self.message_bytes_max;
        if body.len() > max {
            let bytes = body.len();
            return Err(SendError::TooLarge { bytes, max });
        }
        let connection = self.peer(peer).and_then(|peer| peer.connection());
        let connection = connection.ok_or(SendError::NotConnected)?;
        let frame_bytes_max = self.quic.datagram_max(connection).unwrap_or(0);
        let entry = self.peer(peer).ok_or(SendError::NotConnected)?;
        let ticket = entry.sender.send(now, body, delivery, frame_bytes_max)?;
        self.touch(peer.index());
        Ok(ticket)
    }

    /// The next message of a peer.
    pub fn read_message(&mut self, now: Instant, peer: PeerKey) -> Option<Received> {
        let entry = self.peer(peer)?;
        let received = entry.receiver.read(now);
        entry.told &= received.is_some();
        let is_over = matches!(entry.stage, Stage::Ended) && entry.receiver.waiting() == 0;
        self.recount(peer.index());
        if is_over {
            self.remove(peer.index());
        } else {
            self.touch(peer.index());
        }
        received
    }

    /// Ends the connection, or the attempts, with a code below 0xff00 and a reason for the peer's log.
    /// [`Event::Closed`] or [`Event::Failed`] follows. Where the connection has ended already, what is unread goes.
    pub fn close(&mut self, now: Instant, peer: PeerKey, code: u32, reason: &[u8]) {
        let Some(entry) = self.peer(peer) else {
            return;
        };
        if let Stage::Connecting(race) = &mut entry.stage {
            race.give_up();
        }
        if matches!(entry.stage, Stage::Ended) {
            return self.remove(peer.index());
        }
        let connections: Vec<ConnectionKey> = match &entry.stage {
            Stage::Connecting(race) => race.connections().collect(),
            Stage::Accepting(connection) | Stage::Connected(connection) => vec![*connection],
            Stage::Ended => Vec::new(),
        };
        for connection in connections {
            self.quic.close(now, connection, code, reason);
        }
        // A race without an attempt has nothing that would end.
        self.end_lost_race(now, peer.index());
    }

    /// Ends all connections. What is unread can be read still.
    pub fn close_all(&mut self, now: Instant, code: u32, reason: &[u8]) {
        let has_ended = |peer: &Peer| matches!(peer.stage, Stage::Ended);
        for index in 0..self.peers.len() {
            if self.peers[index].as_deref().is_none_or(has_ended) {
                continue;
            }
            self.close(now, self.key(index), code, reason);
        }
    }

    /// State and counters of a connection.
    pub fn path_stats(&mut self, peer: PeerKey) -> Option<PathStats> {
        let connection = self.peer(peer)?.connection()?;
        let report: ConnectionReport = self.quic.report(connection)?;
        let entry = self.peer(peer)?;
        let head = crate::frame::Head::Unordered.frame_bytes(1 << 20);
        Some(PathStats {
            remote: report.remote,
            round_trip: report.rtt,
            congestion_window: report.congestion_window,
            in_flight: report.in_flight,
            path_mtu: report.path_mtu,
            packet_body_max: report.datagram_max.unwrap_or(0).saturating_sub(head),
            counters: report.counters,
            sent: entry.sender.counters,
            received: entry.receiver.counters,
        })
    }

    /// Bytes of messages that wait for a peer or are under way to it, with what each costs besides.
    #[must_use]
    pub fn waiting_bytes(&self, peer: PeerKey) -> usize {
        let entry = self.peers.get(peer.index()).and_then(Option::as_deref);
        let entry = entry.filter(|entry| entry.generation == peer.generation);
        entry.map_or(0, |entry| entry.sender.bytes())
    }

    /// Whether packets are copied out of the buffers that they are received in ([`Endpoint::set_copies_received`]).
    pub fn set_copies_received(&mut self, copies: bool) {
        self.quic.set_copies_received(copies);
    }

    /// Our address changed: paths are validated again.
    pub fn local_address_changed(&mut self) {
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
        if !self.meeting_peers.is_empty() {
            self.take_checks(now, path, &data, segment_size);
        }
        let mut arrivals = source::Arrivals {
            datagrams: &mut self.arrived,
            udp_payload_ceiling: self.udp_payload_max,
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
        self.settle(now);
    }

    fn take_frame(
        &mut self,
        now: Instant,
        index: usize,
        connection: ConnectionKey,
        datagram: Bytes,
    ) -> Result<(), Violation> {
        self.set_bound(index);
        let Some(peer) = self.peers[index].as_deref_mut() else {
            return Ok(());
        };
        match Frame::read(datagram).ok_or("a frame that cannot be read")? {
            Frame::Ack(ack) => {
                let round_trip = self.quic.round_trip(connection).unwrap_or_default();
                peer.sender.handle_ack(now, &ack, round_trip)?;
            }
            Frame::Probe => peer.receiver.handle_probe(now),
            Frame::Skip { number, place } => peer.receiver.handle_skip(now, number, place)?,
            Frame::Message { number, head, body } => peer.receiver.handle_message(now, number, head, body)?,
        }
        self.recount(index);
        self.touch(index);
        Ok(())
    }

    /// The peer broke a rule (PEER-16).
    fn condemn(&mut self, now: Instant, index: usize, violation: Violation) {
        if let Some(peer) = self.peers[index].as_deref_mut()
            && let Stage::Connected(connection) | Stage::Accepting(connection) = peer.stage
        {
            peer.verdict
                .get_or_insert_with(|| CloseReason::Protocol(format!("the peer sent {violation}")));
            self.quic
                .close(now, connection, code::PROTOCOL, violation.as_bytes());
        }
    }

    /// Fills `outbox` with trains of connections that have something to send. Whether some had to wait.
    pub fn flush(&mut self, now: Instant, outbox: &mut Outbox) -> bool {
        self.settle(now);
        self.flush_checks(now, outbox);
        let mut source = Source {
            now,
            peers: &mut self.peers,
            by_connection: &self.by_connection,
            arena: &mut self.arena,
            touched: &mut self.touched,
        };
        let more = self.quic.flush(now, &mut source, outbox);
        self.settle(now);
        more
    }

    /// Whether something may be sent, so that [`Self::flush`] is not in vain.
    #[must_use]
    pub fn may_send(&self) -> bool {
        self.quic.may_send()
    }

    /// When [`Self::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let quic = self.quic.poll_timeout().map(|(due, _)| due);
        let own = self.timers.first().map(|(due, _)| *due);
        [quic, own, self.checks_due()].into_iter().flatten().min()
    }

    /// Runs every timer that is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.quic.handle_timeout(now);
        while let Some((due, index)) = self.timers.first().copied()
            && due <= now
        {
            self.timers.remove(&(due, index));
            if let Some(peer) = self.peers[index].as_deref_mut() {
                peer.timer = None;
                if let Stage::Connected(connection) = peer.stage {
                    let round_trip = self.quic.round_trip(connection).unwrap_or_default();
                    peer.sender.handle_timeout(now, round_trip);
                    self.quic.mark_ready(connection);
                }
                self.touch(index);
                self.race_is_due(now, index);
            }
        }
        self.settle(now);
    }

    /// The next event. To be asked until `None` after every call that takes input.
    pub fn poll_event(&mut self, now: Instant) -> Option<Event> {
        if self.events.is_empty() {
            self.settle(now);
        }
        self.events.pop_front()
    }

    /// Processes what QUIC reports, and what follows for touched peers.
    fn settle(&mut self, now: Instant) {
        loop {
            while let Some(event) = self.quic.poll_event() {
                self.take_event(now, event);
            }
            let Some(index) = self.touched.pop() else {
                return;
            };
            if let Some(peer) = self.peers[index].as_deref_mut() {
                peer.is_touched = false;
                if let Err(violation) = self.settle_peer(now, index) {
                    self.condemn(now, index, violation);
                }
            }
        }
    }

    fn settle_peer(&mut self, now: Instant, index: usize) -> Result<(), Violation> {
        self.resume_incoming(now, index)?;
        self.write_messages(index);
        let key = self.key(index);
        let Some(peer) = self.peers[index].as_deref_mut() else {
            return Ok(());
        };
        while let Some((ticket, outcome)) = peer.sender.poll_ended() {
            self.events.push_back(Event::Ended {
                peer: key,
                ticket,
                outcome,
            });
        }
        if peer.sender.take_room() {
            self.events.push_back(Event::Room { peer: key });
        }
        if peer.receiver.waiting() > 0 && !std::mem::replace(&mut peer.told, true) {
            self.events.push_back(Event::Received { peer: key });
        }
        if let Stage::Connected(connection) = peer.stage {
            let round_trip = self.quic.round_trip(connection).unwrap_or_default();
            let ack = peer.receiver.ack_due();
            if peer.sender.waits() || ack.is_some_and(|due| due <= now) {
                self.quic.mark_ready(connection);
            }
            // An acknowledgement that is due leaves with the next flush that congestion control lets go.
            let ack = ack.filter(|due| *due > now);
            let due = [peer.sender.poll_timeout(now, round_trip), ack];
            self.set_timer(index, due.into_iter().flatten().min());
        }
        Ok(())
    }

    fn take_event(&mut self, now: Instant, event: quic::Event) {
        use quic::Event as Quic;
        match event {
            Quic::Incoming(incoming) => {
                // A first packet that cannot be used is counted by QUIC.
                if let Ok(connection) = self.quic.accept(now, incoming.key, &AcceptParameters::default()) {
                    let key = self.insert(Stage::Accepting(connection), None);
                    self.belongs_to(connection, key.index());
                }
            }
            Quic::Connected { connection } => self.connected(now, connection),
            Quic::Closed {
                connection, reason, ..
            } => self.closed(now, connection, reason),
            Quic::IncomingExpired { .. } | Quic::Redirected { .. } | Quic::DatagramsDropped { .. } => {}
            Quic::StreamOpened { connection, stream } => self.stream_opened(now, connection, stream),
            Quic::StreamReadable { connection, stream } => self.stream_readable(now, connection, stream),
            Quic::StreamWritable { connection, stream } => self.stream_writable(connection, stream),
            Quic::StreamStopped {
                connection,
                stream,
                code,
            } => self.stream_stopped(connection, stream, code),
            Quic::StreamFinished { connection, stream } => self.stream_finished(connection, stream),
            Quic::StreamsAvailable {
                connection,
                direction,
            } => {
                if let Some(index) = self.index_of(connection) {
                    self.touch(index);
                    let peer = self.key(index);
                    self.events.push_back(Event::StreamsAvailable { peer, direction });
                }
            }
        }
    }

    fn connected(&mut self, now: Instant, connection: ConnectionKey) {
        let Some(index) = self.index_of(connection) else {
            return;
        };
        let Some(id) = self.quic.peer_key(connection).map(PeerId::from) else {
            return self.condemn(now, index, "no Ed25519 key");
        };
        let Some(peer) = self.peers[index].as_deref_mut() else {
            return;
        };
        let is_incoming = matches!(peer.stage, Stage::Accepting(_));
        let is_admitted = self.allowed.as_ref().is_none_or(|allowed| allowed.contains(&id));
        if is_incoming && !is_admitted {
            let refused = "this peer ID is not allowed here";
            peer.verdict = Some(CloseReason::Protocol(refused.to_owned()));
            return self
                .quic
                .close(now, connection, code::REFUSED, refused.as_bytes());
        }
        peer.id = Some(id);
        let former = std::mem::replace(&mut peer.stage, Stage::Connected(connection));
        self.quic.authenticate_narrow(now, connection);
        if let Stage::Connecting(race) = former {
            self.set_timer(index, None);
            self.meeting_peers.retain(|meeting| *meeting != index);
            for other in race.connections().filter(|other| *other != connection) {
                self.by_connection[other.index()] = None;
                self.quic.close(now, other, 0, b"another path was faster");
            }
        }
        self.end_checks(id);
        let peer = self.key(index);
        self.events.push_back(Event::Connected {
            peer,
            id,
            is_incoming,
        });
        self.touch(index);
    }

    fn closed(&mut self, now: Instant, connection: ConnectionKey, reason: CloseReason) {
        let Some(index) = self.index_of(connection) else {
            return;
        };
        self.by_connection[connection.index()] = None;
        let key = self.key(index);
        let Some(peer) = self.peers[index].as_deref_mut() else {
            return;
        };
        let reason = peer.verdict.take().unwrap_or(reason);
        match &mut peer.stage {
            Stage::Connecting(race) => {
                race.ended(connection, reason);
                self.advance_race(now, index);
                self.end_lost_race(now, index);
            }
            Stage::Accepting(_) | Stage::Ended => self.remove(index),
            Stage::Connected(_) => {
                peer.sender.end_all();
                peer.receiver.end();
                peer.incoming = Incoming::new(self.message_bytes_max);
                peer.stage = Stage::Ended;
                let has_unread = peer.receiver.waiting() > 0;
                self.set_timer(index, None);
                self.recount(index);
                // It fails only with a connection.
                let _ = self.settle_peer(now, index);
                self.events.push_back(Event::Closed {
                    peer: key,
                    reason,
                    has_unread,
                });
                if !has_unread {
                    self.remove(index);
                }
            }
        }
    }

    fn remove(&mut self, index: usize) {
        if let Some(peer) = self.peers[index].take() {
            self.discount(index, peer.counted);
            if let Some(timer) = peer.timer {
                self.timers.remove(&(timer, index));
            }
            self.touched.retain(|touched| *touched != index);
            self.meeting_peers.retain(|meeting| *meeting != index);
            self.free.push(index);
        }
    }
}

/// A key of 64 bytes from a seed that other keys come from, too.
fn doubled(seed: [u8; 32], purpose: u8) -> [u8; 64] {
    let mut key = [purpose; 64];
    key[..32].copy_from_slice(&seed);
    key
}
