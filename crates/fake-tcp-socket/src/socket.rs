//! The socket: packets to the stack, trains behind its headers, segments and events from it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fake_tcp::limits::WAITING_EVENTS_MAX;
use fake_tcp::{CloseReason, ConnectionId, Counters, Event, Key, Profile, Stack};
use packet::Train;
use packet_io::{
    BufferGrants, IoStats, Link, Outgoing, PortGuard, RawHead, RawSocket, ReceiveBatch, ReceiveMeta,
    SendOutcome, SocketOptions,
};

use crate::client::Client;
use crate::heads::{Heads, raw_head};
use crate::held::Held;
use crate::hop::Hop;
use crate::limits::{RECEIVES_MAX, TAKEN_OUT_KEPT};
use crate::locals::Locals;
use crate::packets::{Mtus, destination, is_intact};
use crate::peers::{Peer, Peers};

/// How a socket behaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Buffers, offloads and interface.
    pub socket: SocketOptions,
    /// Whom connections look like.
    pub profile: Profile,
    /// What both ends have in common, if anything.
    pub key: Option<Key>,
    /// How long a connection may carry nothing before it ends; `None`: for ever.
    pub idle: Option<Duration>,
}

/// Datagrams in packets that look like TCP, for one thread.
pub struct FakeTcpSocket {
    pub(crate) raw: RawSocket,
    pub(crate) stack: Stack,
    pub(crate) peers: Peers,
    /// Connections that ended, and of which the stack still answers for the addresses.
    pub(crate) ended: Vec<ConnectionId>,
    pub(crate) role: Role,
    /// By message of the last receive.
    pub(crate) connections: Vec<ConnectionId>,
    pub(crate) events: VecDeque<Event>,
    /// Segments that leave after a batch, and what it led to.
    pub(crate) answers: Vec<RawHead>,
    pub(crate) fresh: Vec<Event>,
    /// Datagrams of the last receive that had to be taken out of frames.
    pub(crate) taken_out: Vec<(ConnectionId, ReceiveMeta, Train)>,
    pub(crate) mtus: Mtus,
}

pub(crate) enum Role {
    /// Accepts connections.
    Listener {
        guard: Arc<PortGuard>,
        /// Where the port is at a wildcard.
        locals: Option<Locals>,
    },
    /// Has one.
    Client { client: Box<Client>, _guard: PortGuard },
    /// Opens many to one peer.
    Towards {
        remote: SocketAddr,
        hop: Box<Hop>,
        /// This worker's number, and how many there are.
        place: (usize, usize),
        guards: HashMap<ConnectionId, PortGuard>,
    },
}

impl Role {
    /// The way to the only peer.
    fn hop(&mut self) -> Option<&mut Hop> {
        match self {
            Self::Listener { .. } => None,
            Self::Client { client, .. } => Some(&mut client.hop),
            Self::Towards { hop, .. } => Some(hop),
        }
    }
}

impl FakeTcpSocket {
    /// The address of this machine, or the wildcard.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        match &self.role {
            Role::Listener { guard, .. } => guard.local_addr(),
            Role::Client { client, .. } => client.local,
            Role::Towards { hop, .. } => SocketAddr::new(hop.source, 0),
        }
    }

    /// The only peer, where there is one.
    #[must_use]
    pub fn remote_addr(&self) -> Option<SocketAddr> {
        match &self.role {
            Role::Listener { .. } => None,
            Role::Client { client, .. } => Some(client.remote),
            Role::Towards { remote, .. } => Some(*remote),
        }
    }

    /// Most bytes of an IP packet to the only peer, as far as this machine knows.
    #[must_use]
    pub fn path_mtu(&self) -> Option<u32> {
        match &self.role {
            Role::Listener { .. } => None,
            Role::Client { client, .. } => Some(client.hop.mtu.into()),
            Role::Towards { hop, .. } => Some(hop.mtu.into()),
        }
    }

    /// By what packets are exchanged with the network, for people.
    #[must_use]
    pub fn backend(&self) -> &'static str {
        "packet socket"
    }

    /// Buffers asked for and obtained.
    #[must_use]
    pub fn grants(&self) -> BufferGrants {
        self.raw.grants()
    }

    /// One sentence if a buffer is smaller than requested, with the command that allows more.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        self.raw.grants().warning()
    }

    /// What the raw socket has done.
    pub fn stats(&mut self) -> IoStats {
        // It fails on no open socket.
        let _ = self.raw.refresh_kernel_drops();
        *self.raw.stats()
    }

    /// What the protocol has done.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.stack.counters()
    }

    /// Connections, those included that are being opened or closed.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.stack.connections()
    }

    /// What happened to connections but a client's; to be asked after everything else until there is nothing.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether it takes more after a send that it blocked. The descriptor becomes readable or writable then.
    pub fn takes_more(&mut self) -> bool {
        self.raw.takes_more()
    }

    /// Whether it has the connection between two addresses.
    #[must_use]
    pub fn has_connection(&self, remote: SocketAddr, local: IpAddr) -> bool {
        self.peers.find(remote, local).is_some()
    }

    /// The connection by which message `index` of the last receive came.
    ///
    /// # Panics
    /// When there was no such message.
    #[must_use]
    pub fn connection_of(&self, index: usize) -> ConnectionId {
        self.connections[index]
    }

    /// Replaces what `batch` holds by what has arrived; `Ok(0)` means that no datagrams are there.
    ///
    /// # Errors
    /// `ConnectionRefused` once where the peer of a client does not want it; anything else is a defect of the socket.
    pub fn receive(&mut self, now: Instant, batch: &mut ReceiveBatch) -> io::Result<usize> {
        for _ in 0..RECEIVES_MAX {
            let packets = self.receive_once(now, batch)?;
            for head in self.answers.drain(..) {
                // What is lost here is lost as on the way.
                let _ = self.raw.send_head(&head);
            }
            for event in std::mem::take(&mut self.fresh) {
                self.take_event(now, event);
            }
            if packets == 0 || !batch.is_empty() {
                break;
            }
        }
        self.flush(now);
        if let Role::Client { client, .. } = &mut self.role
            && std::mem::take(&mut client.is_refused)
        {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        Ok(batch.len())
    }

    fn receive_once(&mut self, now: Instant, batch: &mut ReceiveBatch) -> io::Result<usize> {
        let Self {
            raw,
            stack,
            peers,
            role,
            connections,
            answers,
            fresh,
            taken_out,
            mtus,
            ..
        } = self;
        connections.clear();
        let packets = raw.receive(batch, |packet| {
            let local = destination(packet.bytes)?;
            if let Role::Listener { locals, .. } = role {
                if locals.as_mut().is_some_and(|locals| !locals.is_own(now, local)) {
                    return None;
                }
                if let Some(mtu) = mtus.of(now, &packet) {
                    stack.set_mtu(mtu);
                }
            }
            if packet.is_unverified && !is_intact(packet.bytes) {
                return None;
            }
            let data = stack.receive(now, packet.bytes, packet.segment_size);
            while let Some(segment) = stack.poll_segment() {
                let link = match (&*role, segment.connection) {
                    (Role::Listener { .. }, _) => packet.link,
                    _ => peers
                        .link(segment.connection, segment.remote)
                        .unwrap_or(packet.link),
                };
                if segment.connection.is_none() {
                    peers.answered(segment.remote, link);
                }
                answers.push(raw_head(&segment.headers, link));
            }
            while let Some(event) = stack.poll_event() {
                if let Event::Accepted {
                    connection,
                    local,
                    remote,
                } = event
                {
                    let link = packet.link;
                    peers.insert(connection, Peer { local, remote, link });
                }
                fresh.push(event);
            }
            let data = data?;
            if matches!(role, Role::Listener { .. }) {
                peers.follow(data.connection, packet.link);
            }
            let meta = |len, segment_size| ReceiveMeta {
                source: data.remote,
                local: Some(local),
                target: None,
                ecn: data.ecn,
                segment_size,
                len,
                truncated: false,
            };
            for train in data.trains {
                let meta = meta(train.bytes().len(), train.segment_size());
                taken_out.push((data.connection, meta, train));
            }
            if data.payload.is_empty() {
                return None;
            }
            connections.push(data.connection);
            Some((meta(data.payload.len(), data.segment_size), data.payload))
        })?;
        for (connection, meta, train) in taken_out.drain(..) {
            connections.push(connection);
            batch.append(meta, train.bytes());
        }
        // What one hostile batch was cut into is not kept.
        taken_out.shrink_to(TAKEN_OUT_KEPT);
        Ok(packets)
    }

    /// Sends `messages` in order, as many as the socket takes: to the connection between a message's destination and
    /// source, or to the only one. What is sent while that is being opened waits.
    pub fn send(&mut self, now: Instant, messages: &[Outgoing<'_>]) -> SendOutcome {
        let connections: Vec<_> = match &mut self.role {
            Role::Client { client, .. } if !client.is_open => {
                messages.iter().for_each(|message| client.hold(message));
                return SendOutcome {
                    messages: messages.len(),
                    ..SendOutcome::default()
                };
            }
            Role::Client { client, .. } => vec![client.connection; messages.len()],
            _ => messages
                .iter()
                .map(|message| find(&self.peers, message))
                .collect(),
        };
        self.send_by(now, messages, &connections)
    }

    /// Sends each of `messages` by the connection of the same place in `connections`.
    pub fn send_by(
        &mut self,
        now: Instant,
        messages: &[Outgoing<'_>],
        connections: &[Option<ConnectionId>],
    ) -> SendOutcome {
        self.follow_route(now);
        let named = messages.iter().zip(connections);
        let named: Vec<_> = named
            .map(|(message, connection)| (*connection, message.ecn))
            .collect();
        let mut heads = Heads {
            now,
            stack: &mut self.stack,
            peers: &self.peers,
            messages: &named,
        };
        self.raw.reserve(heads.stack.frame_bytes_max());
        let outcome = self.raw.send(&messages[..named.len()], &mut heads);
        self.flush(now);
        outcome
    }

    /// When [`FakeTcpSocket::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let own = match &self.role {
            Role::Listener { .. } => None,
            Role::Client { client, .. } => client.poll_timeout(),
            Role::Towards { hop, .. } => hop.poll_timeout(),
        };
        [own, self.stack.poll_timeout()].into_iter().flatten().min()
    }

    /// Does what is due: handshakes, acknowledgements, keep-alives, the search for the first hop.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(hop) = self.role.hop() {
            hop.handle_timeout(now);
        }
        self.follow_link();
        self.stack.handle_timeout(now);
        self.open_client(now);
        self.flush(now);
        for connection in std::mem::take(&mut self.ended) {
            self.forget(connection);
        }
    }

    /// Whether every connection that was closed is over for the peer, too, and no other is there.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.stack.is_quiet()
    }

    /// Opens the connection of a client where that is due.
    pub(crate) fn open_client(&mut self, now: Instant) {
        let Role::Client { client, .. } = &mut self.role else {
            return;
        };
        let Some(link) = client.hop.link.filter(|_| client.is_due(now)) else {
            return;
        };
        let (local, remote) = (client.local, client.remote);
        match self.stack.connect(now, local, remote) {
            Ok(connection) => {
                client.connection = Some(connection);
                self.peers.insert(connection, Peer { local, remote, link });
            }
            // The last one is not forgotten yet.
            Err(_) => client.ended(now, None),
        }
        self.flush(now);
    }

    /// Sends the segments of the stack, and heeds what happened.
    pub(crate) fn flush(&mut self, now: Instant) {
        while let Some(segment) = self.stack.poll_segment() {
            if let Some(link) = self
                .peers
                .link(segment.connection, segment.remote)
                .or(self.hop_link())
            {
                let _ = self.raw.send_head(&raw_head(&segment.headers, link));
            }
        }
        while let Some(event) = self.stack.poll_event() {
            self.take_event(now, event);
        }
    }

    /// Packets leave another way where the route has changed. Connections stay, except those from an address that this
    /// machine does not send from any more: nobody would find the way back, and the user may open others.
    pub(crate) fn follow_route(&mut self, now: Instant) {
        let Some(hop) = self.role.hop() else { return };
        if !hop.look_again(now) {
            return;
        }
        let (source, mtu) = (hop.source, hop.mtu);
        self.stack.set_mtu(mtu);
        self.follow_link();
        for connection in self.peers.at_other_addresses(source) {
            let reason = CloseReason::TimedOut;
            self.stack.close(now, connection);
            self.take_event(now, Event::Closed { connection, reason });
        }
    }

    /// All connections leave by the first hop, once it is known.
    fn follow_link(&mut self) {
        if let Some(link) = self.hop_link() {
            self.peers.redirect(link);
        }
    }

    fn hop_link(&self) -> Option<Link> {
        match &self.role {
            Role::Listener { .. } => None,
            Role::Client { client, .. } => client.hop.link,
            Role::Towards { hop, .. } => hop.link,
        }
    }

    /// What happened to a client's connection is carried out here; other events are the caller's.
    fn take_event(&mut self, now: Instant, event: Event) {
        if let Event::Closed { connection, .. } = event {
            self.forget(connection);
        }
        if let Event::Closed {
            reason: CloseReason::TimedOut,
            ..
        } = event
            && let Some(hop) = self.role.hop()
        {
            hop.doubt();
        }
        match (&mut self.role, event) {
            (Role::Client { .. }, Event::Connected { .. }) => self.send_held(now),
            (Role::Client { client, .. }, Event::Closed { reason, .. }) => client.ended(now, Some(reason)),
            (Role::Client { .. }, _) => {}
            _ if self.events.len() < WAITING_EVENTS_MAX => self.events.push_back(event),
            _ => {}
        }
    }

    fn send_held(&mut self, now: Instant) {
        let Role::Client { client, .. } = &mut self.role else {
            return;
        };
        let held = client.opened();
        let connections = vec![client.connection; held.len()];
        let messages: Vec<_> = held.iter().map(Held::message).collect();
        self.send_by(now, &messages, &connections);
    }

    /// The connection has ended. Its way and its port are kept as long as the stack answers for it: without them the
    /// kernel would.
    pub(crate) fn forget(&mut self, connection: ConnectionId) {
        if self.stack.addresses(connection).is_some() {
            self.ended.push(connection);
            return;
        }
        self.peers.remove(connection);
        if let Role::Towards { guards, .. } = &mut self.role {
            guards.remove(&connection);
        }
    }
}

impl AsFd for FakeTcpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.raw.as_fd()
    }
}

fn find(peers: &Peers, message: &Outgoing<'_>) -> Option<ConnectionId> {
    peers.find(message.destination?, message.source?)
}
