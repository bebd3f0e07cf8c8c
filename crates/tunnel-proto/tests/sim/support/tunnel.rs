//! One tunnel end: an engine, and scripted inner ends in place of its sockets, the same for both roles.
//!
//! It does what a driver does: carries out the actions, enters deliveries in the ledger. A target's
//! host name says what the target does (`echo-7`: sends back what it gets; `sink-7`: takes it; `slow-7`: like `echo`,
//! but opens only after [`SLOW_OPENING`]; `refused-7`: nobody listens; `tcp-7`: follows its script, and refuses where there is none) and names the
//! session, so that a payload in the wrong place is seen.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use bytes::BytesMut;
use packet::Ecn;
use packet::checksum::ChecksumState;
use packet::vnet::VnetHeader;
use quic::{Outbox, Path};
use tunnel_proto::{
    Action, Deliver, DropReason, End as EndOf, Ending, Engine, Ledger, RequestId, Role, limits,
};

use super::book::{Book, Way};
use super::front_door::GivenAway;
use super::tcp::TcpEnd;

pub(super) enum Inner {
    Udp { session: u32, echoes: bool },
    Tcp(TcpEnd),
}

pub(super) struct Recorder {
    pub(super) ceiling: u16,
    taken: Vec<(RequestId, Vec<u8>)>,
    /// Payloads from other peers, by their addresses.
    relayed: Vec<(SocketAddr, Vec<u8>)>,
    /// Packets for the TUN.
    packets: Vec<(Vec<u8>, ChecksumState)>,
    /// Segments for other shards, with their sources.
    pub(super) foreign: Vec<(u8, SocketAddr, Ecn, Vec<u8>)>,
    /// Datagrams of which QUIC reads nothing.
    pub(super) given_away: Vec<GivenAway>,
}

impl Deliver for Recorder {
    fn deliver(&mut self, request: RequestId, payload: &[u8]) {
        self.taken.push((request, payload.to_vec()));
    }

    fn udp_payload_ceiling(&mut self, _: SocketAddr) -> u16 {
        self.ceiling
    }

    fn deliver_relayed(&mut self, _: RequestId, from: SocketAddr, payload: &[u8]) {
        self.relayed.push((from, payload.to_vec()));
    }

    fn deliver_packet(&mut self, packet: &[u8], checksum: ChecksumState) {
        self.packets.push((packet.to_vec(), checksum));
    }

    fn given_away(&mut self, path: Path, ecn: Ecn, datagrams: BytesMut, segment_size: usize) {
        self.given_away.push(GivenAway {
            path,
            ecn,
            datagrams,
            segment_size,
        });
    }

    fn foreign_segment(&mut self, shard: u8, path: Path, ecn: Ecn, segment: &[u8]) {
        self.foreign.push((shard, path.remote, ecn, segment.to_vec()));
    }
}

/// What the two roles do each in its own way.
pub(crate) trait Side: Role {
    /// What an end of this role keeps besides.
    type Data;

    /// The way of payloads that arrive here.
    const ARRIVES: Way;

    /// What is due.
    fn turn(tunnel: &mut Tunnel<Self>, now: Instant);

    /// When that is.
    fn poll_timeout(data: &Self::Data) -> Option<Instant>;

    /// The local port that a new attempt to connect leaves from.
    fn take_new_port(_: &mut Self::Data) -> Option<u16> {
        None
    }

    fn carry_out(tunnel: &mut Tunnel<Self>, now: Instant, action: &Self::Action);

    /// What to do with datagrams of which QUIC reads nothing.
    fn take_given_away(tunnel: &mut Tunnel<Self>, _: Instant) {
        tunnel.recorder.given_away.clear();
    }

    /// Packets are about to leave.
    fn note_sent(_: &mut Self::Data, _: &Outbox) {}

    /// A request is over.
    fn ended(data: &mut Self::Data, id: RequestId);

    /// The request for payloads of a session, which is made where it can be.
    fn session(tunnel: &mut Tunnel<Self>, now: Instant, kind: &str, session: u32) -> RequestId;

    /// The TUN gives a packet or super-packet that has to be for a session here.
    fn send_packet(tunnel: &mut Tunnel<Self>, now: Instant, header: &VnetHeader, packet: &[u8]);
}

pub(crate) struct Tunnel<R: Side> {
    pub(crate) engine: Engine<R>,
    pub(crate) data: R::Data,
    pub(super) outbox: Outbox,
    pub(super) recorder: Recorder,
    pub(super) ends: BTreeMap<RequestId, Inner>,
    /// Everything that the engine asked for but moves of bytes, and when.
    pub(crate) log: Vec<(Instant, Action<R::Action>)>,
    /// TCP ends that are done.
    past: BTreeMap<u32, TcpEnd>,
    /// What the TUN got, and what its checksums are.
    pub(crate) packets: Vec<(Vec<u8>, ChecksumState)>,
    /// What came from other peers, by their addresses.
    pub(crate) relayed: Vec<(SocketAddr, Vec<u8>)>,
}

/// An end of either role.
pub(crate) trait End {
    /// Takes a packet from the network.
    fn receive(&mut self, now: Instant, remote: SocketAddr, ecn: Ecn, bytes: &[u8]);
    /// Timers, actions and inner ends.
    fn work(&mut self, now: Instant, book: &mut Book);
    /// Fills the outbox. Whether there is more.
    fn flush(&mut self, now: Instant) -> bool;
    fn outbox(&mut self) -> &mut Outbox;
    fn poll_timeout(&self) -> Option<Instant>;
    /// The local port that it sends from now on, where that changed.
    fn take_new_port(&mut self) -> Option<u16>;
    /// The laws that hold between any two turns.
    fn check(&mut self);
    /// Client: sends payloads of a session, whose request is made where there is none. Server: the target sends.
    fn send(&mut self, now: Instant, kind: &str, session: u32, payloads: &[Vec<u8>]);
    /// The TUN gives a packet or super-packet that has to be for a session here.
    fn send_packet(&mut self, now: Instant, header: &VnetHeader, packet: &[u8]);
    /// The request of a session.
    fn request_of(&self, session: u32) -> Option<RequestId>;
    /// The TCP end of a session, also when it is done.
    fn tcp(&mut self, session: u32) -> &mut TcpEnd;
    /// A slow TCP end reads on.
    fn resume(&mut self, session: u32);
    /// The local connection of a TCP forward breaks.
    fn abort(&mut self, session: u32);
    /// Endings of requests so far.
    fn endings(&self) -> Vec<&Ending>;
    fn ledger(&mut self) -> Ledger;
    /// Datagrams that wait on their way into QUIC, and out of it.
    fn waiting(&self) -> (u64, u64);
    /// UDP sessions that are open.
    fn sessions_open(&self) -> u64;
}

impl<R: Side> Tunnel<R> {
    pub(super) fn with(engine: Engine<R>, ceiling: u16, data: R::Data) -> Self {
        Self {
            engine,
            data,
            outbox: Outbox::default(),
            recorder: Recorder {
                ceiling,
                taken: Vec::new(),
                relayed: Vec::new(),
                packets: Vec::new(),
                foreign: Vec::new(),
                given_away: Vec::new(),
            },
            packets: Vec::new(),
            relayed: Vec::new(),
            ends: BTreeMap::new(),
            log: Vec::new(),
            past: BTreeMap::new(),
        }
    }

    pub(super) fn settle(&mut self, now: Instant) {
        loop {
            self.engine.settle(now, &mut self.recorder);
            let Some(action) = self.engine.poll_action() else {
                return;
            };
            self.carry_out(now, &action);
            if !matches!(action, Action::BodyReadable { .. } | Action::BodyWritable { .. }) {
                self.log.push((now, action));
            }
        }
    }

    fn carry_out(&mut self, now: Instant, action: &Action<R::Action>) {
        match action {
            Action::BodyReadable { request } => self.with_tcp(*request, |end| end.readable = true),
            Action::BodyWritable { request } => self.with_tcp(*request, |end| end.writable = true),
            Action::Ended { request, .. } => {
                self.remove_end(*request);
            }
            Action::Role(action) => R::carry_out(self, now, action),
        }
    }

    pub(super) fn with_tcp(&mut self, id: RequestId, change: impl FnOnce(&mut TcpEnd)) {
        if let Some(Inner::Tcp(end)) = self.ends.get_mut(&id) {
            change(end);
        }
        self.step_tcp(id);
    }

    /// Lets a TCP end move its bytes.
    pub(super) fn step_tcp(&mut self, id: RequestId) {
        if let Some(Inner::Tcp(end)) = self.ends.get_mut(&id)
            && end.step(&mut self.engine, id)
        {
            self.remove_end(id);
            self.engine.end(id, EndOf::Done);
        }
    }

    fn remove_end(&mut self, id: RequestId) {
        R::ended(&mut self.data, id);
        if let Some(Inner::Tcp(end)) = self.ends.remove(&id) {
            self.past.insert(end.session, end);
        }
    }

    /// Gives what arrived to the inner ends.
    fn hand_out(&mut self, now: Instant, book: &mut Book) {
        for packet in std::mem::take(&mut self.recorder.packets) {
            self.engine.egress().sent += 1;
            self.packets.push(packet);
        }
        for relayed in std::mem::take(&mut self.recorder.relayed) {
            self.engine.egress().sent += 1;
            self.relayed.push(relayed);
        }
        for (id, payload) in std::mem::take(&mut self.recorder.taken) {
            let account = self.engine.egress();
            let Some(Inner::Udp { session, echoes }) = self.ends.get(&id) else {
                account.drop(DropReason::SessionClosed, 1);
                continue;
            };
            account.sent += 1;
            book.arrived(*session, R::ARRIVES, &payload);
            if *echoes {
                self.engine.send_datagrams(now, id, std::iter::once(&payload[..]));
            }
        }
    }

    /// The owner of a service has something for it.
    pub(crate) fn wake_service(&mut self, now: Instant, id: RequestId) {
        self.engine.wake_service(now, id, &mut self.recorder);
    }

    /// Datagrams dropped on the way into QUIC.
    pub(crate) fn ingress_drops(&mut self, reason: DropReason) -> u64 {
        self.engine.ledger().ingress.dropped(reason)
    }

    /// Datagrams dropped on the way out of QUIC.
    pub(crate) fn egress_drops(&mut self, reason: DropReason) -> u64 {
        self.engine.ledger().egress.dropped(reason)
    }

    /// What only this role asks for, and when.
    pub(crate) fn actions(&self) -> impl Iterator<Item = (Instant, &R::Action)> {
        self.log.iter().filter_map(|(at, action)| match action {
            Action::Role(action) => Some((*at, action)),
            _ => None,
        })
    }

    /// How often an action was asked for.
    pub(crate) fn count(&self, is: impl Fn(&R::Action) -> bool) -> usize {
        self.actions().filter(|(_, action)| is(action)).count()
    }
}

impl<R: Side> End for Tunnel<R> {
    fn receive(&mut self, now: Instant, remote: SocketAddr, ecn: Ecn, bytes: &[u8]) {
        let path = Path { remote, local: None };
        self.engine.handle_outer(
            now,
            path,
            ecn,
            BytesMut::from(bytes),
            bytes.len(),
            &mut self.recorder,
            &mut self.outbox,
        );
        R::take_given_away(self, now);
    }

    fn work(&mut self, now: Instant, book: &mut Book) {
        if self.engine.poll_timeout().is_some_and(|due| due <= now) {
            self.engine.handle_timeout(now);
        }
        R::turn(self, now);
        self.settle(now);
        self.hand_out(now, book);
        self.settle(now);
    }

    fn flush(&mut self, now: Instant) -> bool {
        let more = self.engine.flush(now, &mut self.outbox);
        R::note_sent(&mut self.data, &self.outbox);
        more
    }

    fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let due = [self.engine.poll_timeout(), R::poll_timeout(&self.data)];
        due.into_iter().flatten().min()
    }

    fn take_new_port(&mut self) -> Option<u16> {
        R::take_new_port(&mut self.data)
    }

    fn check(&mut self) {
        let (ingress, egress) = (self.engine.ingress_waiting(), self.engine.egress_waiting());
        let ledger = *self.engine.ledger();
        assert!(
            ledger.ingress.is_balanced(ingress),
            "{:?}, {ingress} wait",
            ledger.ingress
        );
        assert!(
            ledger.egress.is_balanced(egress),
            "{:?}, {egress} wait",
            ledger.egress
        );
        for peer in self.engine.peers() {
            assert!(peer.queue_bytes <= limits::QUEUE_BYTES_MAX, "{peer:?}");
        }
        assert!(self.engine.gauges()[0].0 <= limits::UDP_SESSIONS_MAX as u64);
    }

    fn send(&mut self, now: Instant, kind: &str, session: u32, payloads: &[Vec<u8>]) {
        let id = R::session(self, now, kind, session);
        self.engine
            .send_datagrams(now, id, payloads.iter().map(Vec::as_slice));
    }

    fn send_packet(&mut self, now: Instant, header: &VnetHeader, packet: &[u8]) {
        R::send_packet(self, now, header, packet);
    }

    fn request_of(&self, session: u32) -> Option<RequestId> {
        let found = self.ends.iter().find(|(_, end)| match end {
            Inner::Udp { session: number, .. } => *number == session,
            Inner::Tcp(end) => end.session == session,
        });
        found.map(|(id, _)| *id)
    }

    fn tcp(&mut self, session: u32) -> &mut TcpEnd {
        let living = self.ends.values_mut().find_map(|end| match end {
            Inner::Tcp(end) if end.session == session => Some(end),
            _ => None,
        });
        living
            .or_else(|| self.past.get_mut(&session))
            .expect("the connection was opened")
    }

    fn resume(&mut self, session: u32) {
        self.tcp(session).script.reads = true;
        let id = self.request_of(session).expect("the connection is open");
        self.step_tcp(id);
    }

    fn abort(&mut self, session: u32) {
        let id = self.request_of(session).expect("the connection is open");
        self.remove_end(id);
        self.engine.end(id, EndOf::Failed);
    }

    fn endings(&self) -> Vec<&Ending> {
        let endings = self.log.iter().filter_map(|(_, action)| match action {
            Action::Ended { ending, .. } => Some(ending),
            _ => None,
        });
        endings.collect()
    }

    fn ledger(&mut self) -> Ledger {
        *self.engine.ledger()
    }

    fn waiting(&self) -> (u64, u64) {
        (self.engine.ingress_waiting(), self.engine.egress_waiting())
    }

    fn sessions_open(&self) -> u64 {
        self.engine.gauges()[0].0
    }
}
