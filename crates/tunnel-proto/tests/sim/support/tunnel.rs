//! One tunnel end: an engine, and scripted inner ends in place of its sockets.
//!
//! It does what a driver does: carries out the actions, enters deliveries in the ledger, connects anew. A target's
//! host name says what the target does (`echo-7`: sends back what it gets; `sink-7`: takes it; `slow-7`: like `echo`,
//! but opens only after [`SLOW_OPENING`]; `refused-7`: nobody listens; `tcp-7`: follows its script, and refuses where there is none) and names the
//! session, so that a payload in the wrong place is seen.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use packet::Ecn;
use packet::checksum::ChecksumState;
use packet::vnet::VnetHeader;
use quic::{Outbox, Path};
use tunnel_proto::{
    Action, Assignment, Deliver, DropReason, Elsewhere, Ending, Engine, Leases, Owner, Protocol, ProxyError,
    RequestId, Target, limits,
};

use super::book::{Book, Way};
use super::tcp::{Script, TcpEnd};

/// How long a `slow` target takes to open.
pub(crate) const SLOW_OPENING: Duration = Duration::from_millis(300);

/// How long a client waits before it connects anew.
const RECONNECT_AFTER: Duration = Duration::from_millis(100);

/// How long an attempt to connect may take.
const ATTEMPT: Duration = Duration::from_secs(3);

/// Where a client connects to.
#[derive(Clone, Copy)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) pin: [u8; 32],
}

enum End {
    Udp { session: u32, echoes: bool },
    Tcp(TcpEnd),
}

struct Recorder {
    ceiling: u16,
    taken: Vec<(RequestId, Vec<u8>)>,
    /// Packets for the TUN.
    packets: Vec<(Vec<u8>, ChecksumState)>,
}

impl Deliver for Recorder {
    fn deliver(&mut self, request: RequestId, payload: &[u8]) {
        self.taken.push((request, payload.to_vec()));
    }

    fn udp_payload_ceiling(&mut self, _: SocketAddr) -> u16 {
        self.ceiling
    }

    fn deliver_packet(&mut self, packet: &[u8], checksum: ChecksumState) {
        self.packets.push((packet.to_vec(), checksum));
    }
}

pub(crate) struct Tunnel {
    pub(crate) engine: Engine,
    pub(crate) outbox: Outbox,
    recorder: Recorder,
    ends: BTreeMap<RequestId, End>,
    opening: Vec<(Instant, RequestId, u32)>,
    /// Everything that the engine asked for but moves of bytes, and when.
    pub(crate) log: Vec<(Instant, Action)>,
    /// Server: what the targets of TCP forwards do.
    pub(crate) scripts: BTreeMap<u32, Script>,
    /// Client: the server; `None` at a server.
    server: Option<Server>,
    reconnects: bool,
    due: Option<Instant>,
    pub(crate) up: bool,
    /// Client: the request of each session.
    pub(crate) requests: BTreeMap<u32, RequestId>,
    /// TCP ends that are done.
    past: BTreeMap<u32, TcpEnd>,
    /// Server: addresses for IP sessions.
    pub(crate) leases: Option<Leases>,
    /// What the TUN got, and what its checksums are.
    pub(crate) packets: Vec<(Vec<u8>, ChecksumState)>,
}

impl Tunnel {
    pub(crate) fn new(engine: Engine, ceiling: u16, server: Option<Server>) -> Self {
        Self {
            engine,
            outbox: Outbox::default(),
            recorder: Recorder {
                ceiling,
                taken: Vec::new(),
                packets: Vec::new(),
            },
            leases: None,
            packets: Vec::new(),
            ends: BTreeMap::new(),
            opening: Vec::new(),
            log: Vec::new(),
            scripts: BTreeMap::new(),
            server,
            reconnects: true,
            due: None,
            up: false,
            requests: BTreeMap::new(),
            past: BTreeMap::new(),
        }
    }

    /// Client: begins to connect.
    pub(crate) fn connect(&mut self, now: Instant) {
        let server = self.server.expect("only clients connect");
        self.due = Some(now + ATTEMPT);
        self.engine
            .connect(
                now,
                server.address,
                "server.test",
                server.pin,
                self.recorder.ceiling,
            )
            .expect("the name and the address are usable");
    }

    pub(crate) fn receive(&mut self, now: Instant, remote: SocketAddr, ecn: Ecn, bytes: &[u8]) {
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
    }

    /// Timers, actions and inner ends.
    pub(crate) fn work(&mut self, now: Instant, book: &mut Book) {
        if self.engine.poll_timeout().is_some_and(|due| due <= now) {
            self.engine.handle_timeout(now);
        }
        if self.due.take_if(|due| *due <= now).is_some() && !self.up {
            // Without a connection there is nothing to give up, and the next attempt is due.
            self.engine.disconnect(now);
            self.connect_unless_connecting(now);
        }
        while let Some(index) = self.opening.iter().position(|(due, ..)| *due <= now) {
            let (_, id, session) = self.opening.remove(index);
            self.ends.insert(
                id,
                End::Udp {
                    session,
                    echoes: true,
                },
            );
            self.engine.accept(now, id, &mut self.recorder);
        }
        self.settle(now);
        self.hand_out(now, book);
        self.settle(now);
    }

    fn connect_unless_connecting(&mut self, now: Instant) {
        self.settle(now);
        if self.due.is_none() && self.reconnects {
            self.connect(now);
        }
    }

    fn settle(&mut self, now: Instant) {
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

    fn carry_out(&mut self, now: Instant, action: &Action) {
        match action {
            Action::Open {
                request,
                protocol,
                target,
            } => self.open_target(now, *request, *protocol, target),
            Action::Established { request } => self.with_tcp(*request, |end| {
                end.open = true;
                end.readable = true;
            }),
            Action::BodyReadable { request } => self.with_tcp(*request, |end| end.readable = true),
            Action::BodyWritable { request } => self.with_tcp(*request, |end| end.writable = true),
            Action::Ended { request, .. } => {
                self.remove_end(*request);
                self.opening.retain(|(_, id, _)| id != request);
                self.engine.release(*request);
            }
            Action::Up { .. } => self.up = true,
            Action::Lost { .. } => {
                self.up = false;
                self.due = self.reconnects.then_some(now + RECONNECT_AFTER);
            }
            Action::TokenRefused { .. } => self.reconnects = false,
            Action::Lease { request, owner } => self.lease(now, *request, *owner),
            Action::LeaseOver { owner, .. } => {
                let leases = self
                    .leases
                    .as_mut()
                    .expect("only a server with leases gives some");
                leases.release(owner.client);
            }
            Action::Refused { .. }
            | Action::GoingAway
            | Action::Assigned { .. }
            | Action::IpRefused { .. }
            | Action::IpLost => {}
        }
    }

    fn lease(&mut self, now: Instant, id: RequestId, owner: Owner) {
        let leases = self.leases.as_mut().expect("a server that serves IP has leases");
        match leases.acquire(owner.client) {
            Ok(lease) => {
                self.engine.end_older_runs(owner);
                self.engine.accept_ip(now, id, lease, &mut self.recorder);
            }
            Err(_) => self.engine.refuse(id, ProxyError::ConnectionLimitReached),
        }
    }

    /// The TUN gives a packet or super-packet.
    pub(crate) fn send_packet(
        &mut self,
        now: Instant,
        header: &VnetHeader,
        packet: &[u8],
    ) -> Option<Elsewhere> {
        let mut packet = packet.to_vec();
        self.engine
            .send_packet(now, &header.encode(), &mut packet, &mut self.recorder)
    }

    /// What the server told this client last.
    pub(crate) fn assignment(&self) -> Option<&Assignment> {
        self.log.iter().rev().find_map(|(_, action)| match action {
            Action::Assigned { assignment } => Some(assignment),
            _ => None,
        })
    }

    fn open_target(&mut self, now: Instant, id: RequestId, protocol: Protocol, target: &Target) {
        let (kind, number) = target
            .host()
            .split_once('-')
            .expect("targets are named KIND-SESSION");
        let session = number.parse().expect("sessions are numbers");
        match (protocol, kind) {
            (Protocol::Udp, "slow") => return self.opening.push((now + SLOW_OPENING, id, session)),
            (Protocol::Udp, "echo" | "sink") => {
                let echoes = kind == "echo";
                self.ends.insert(id, End::Udp { session, echoes });
            }
            (Protocol::Tcp, "tcp") if self.scripts.contains_key(&session) => {
                let end = TcpEnd::new(session, Way::Down, self.scripts[&session], true);
                self.ends.insert(id, End::Tcp(end));
            }
            _ => return self.engine.refuse(id, ProxyError::ConnectionRefused),
        }
        self.engine.accept(now, id, &mut self.recorder);
        self.step_tcp(id);
    }

    fn with_tcp(&mut self, id: RequestId, change: impl FnOnce(&mut TcpEnd)) {
        if let Some(End::Tcp(end)) = self.ends.get_mut(&id) {
            change(end);
        }
        self.step_tcp(id);
    }

    /// Lets a TCP end move its bytes.
    pub(crate) fn step_tcp(&mut self, id: RequestId) {
        if let Some(End::Tcp(end)) = self.ends.get_mut(&id)
            && end.step(&mut self.engine, id)
        {
            self.remove_end(id);
            self.engine.forget(id);
        }
    }

    fn remove_end(&mut self, id: RequestId) {
        self.requests.retain(|_, known| *known != id);
        if let Some(End::Tcp(end)) = self.ends.remove(&id) {
            self.past.insert(end.session, end);
        }
    }

    /// Gives what arrived to the inner ends.
    fn hand_out(&mut self, now: Instant, book: &mut Book) {
        for packet in std::mem::take(&mut self.recorder.packets) {
            self.engine.egress().sent += 1;
            self.packets.push(packet);
        }
        let way = if self.server.is_some() { Way::Down } else { Way::Up };
        for (id, payload) in std::mem::take(&mut self.recorder.taken) {
            let account = self.engine.egress();
            let Some(End::Udp { session, echoes }) = self.ends.get(&id) else {
                account.drop(DropReason::SessionClosed, 1);
                continue;
            };
            account.sent += 1;
            book.arrived(*session, way, &payload);
            if *echoes {
                self.engine.send_datagrams(now, id, std::iter::once(&payload[..]));
            }
        }
    }

    /// Client: sends payloads of a session, whose request is made where there is none. Server: the target sends.
    pub(crate) fn send(&mut self, now: Instant, kind: &str, session: u32, payloads: &[Vec<u8>]) {
        let id = match self.requests.get(&session) {
            Some(id) => *id,
            None if self.server.is_none() => self.request_of(session).expect("the session is open"),
            None => self.open(now, Protocol::Udp, kind, session),
        };
        self.engine
            .send_datagrams(now, id, payloads.iter().map(Vec::as_slice));
    }

    fn open(&mut self, now: Instant, protocol: Protocol, kind: &str, session: u32) -> RequestId {
        let target = Target::new(&format!("{kind}-{session}"), 7).expect("a well-formed target");
        let id = self.engine.open(now, protocol, target);
        self.requests.insert(session, id);
        if protocol == Protocol::Udp {
            self.ends.insert(
                id,
                End::Udp {
                    session,
                    echoes: false,
                },
            );
        }
        id
    }

    /// Client: a connection that does what `script` says.
    pub(crate) fn open_tcp(&mut self, now: Instant, session: u32, script: Script) {
        let id = self.open(now, Protocol::Tcp, "tcp", session);
        let end = TcpEnd::new(session, Way::Up, script, false);
        self.ends.insert(id, End::Tcp(end));
    }

    /// The request of a session at either end.
    pub(crate) fn request_of(&self, session: u32) -> Option<RequestId> {
        let found = self.ends.iter().find(|(_, end)| match end {
            End::Udp { session: number, .. } => *number == session,
            End::Tcp(end) => end.session == session,
        });
        found.map(|(id, _)| *id)
    }

    /// The TCP end of a session, also when it is done.
    pub(crate) fn tcp(&mut self, session: u32) -> &mut TcpEnd {
        let living = self.ends.values_mut().find_map(|end| match end {
            End::Tcp(end) if end.session == session => Some(end),
            _ => None,
        });
        living
            .or_else(|| self.past.get_mut(&session))
            .expect("the connection was opened")
    }

    /// A slow TCP end reads on.
    pub(crate) fn resume(&mut self, session: u32) {
        self.tcp(session).script.reads = true;
        let id = self.request_of(session).expect("the connection is open");
        self.step_tcp(id);
    }

    /// The local connection of a TCP forward breaks.
    pub(crate) fn abort(&mut self, session: u32) {
        let id = self.request_of(session).expect("the connection is open");
        self.remove_end(id);
        self.engine.abort(id);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let opening = self.opening.iter().map(|(due, ..)| *due);
        opening.chain(self.engine.poll_timeout()).chain(self.due).min()
    }

    /// The laws that hold between any two turns.
    pub(crate) fn check(&mut self) {
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

    /// Datagrams dropped on the way into QUIC.
    pub(crate) fn ingress_drops(&mut self, reason: DropReason) -> u64 {
        self.engine.ledger().ingress.dropped(reason)
    }

    /// Datagrams dropped on the way out of QUIC.
    pub(crate) fn egress_drops(&mut self, reason: DropReason) -> u64 {
        self.engine.ledger().egress.dropped(reason)
    }

    /// Endings of requests so far.
    pub(crate) fn endings(&self) -> Vec<&Ending> {
        let endings = self.log.iter().filter_map(|(_, action)| match action {
            Action::Ended { ending, .. } => Some(ending),
            _ => None,
        });
        endings.collect()
    }

    /// How often an action was asked for.
    pub(crate) fn count(&self, is: impl Fn(&Action) -> bool) -> usize {
        self.log.iter().filter(|(_, action)| is(action)).count()
    }
}
