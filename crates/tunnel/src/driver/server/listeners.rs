//! Ports of the server whose connections lead to a client (`specs/listen.md`).
//!
//! A client's requests wait here, each for one connection. A connection goes to the oldest one; while none waits, it
//! stays in the kernel's queue. A port is closed when no request has waited for a while, so that a client that has lost
//! its connection finds it again, and at once when its user may do nothing any more.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use packet_io::Interest;
use quic::ConnectionKey;
use tunnel_proto::{End, ListenPath, ProxyError, RequestId, UserId};

use super::{Server, ServerInner, ServerSource};
use crate::driver::relay::{keep_alive, reset_on_close};
use crate::driver::sources::SourceId;
use crate::driver::{Inner, PollToken, Relay, Shard};
use crate::limits;
use crate::snapshot::ListenerSnapshot;

/// The socket of a port.
pub(in crate::driver) struct Listener {
    pub(super) socket: Arc<TcpListener>,
    address: SocketAddr,
}

/// A port that this shard has.
pub(super) struct Port {
    source: SourceId,
    user: UserId,
    /// The connection whose requests wait.
    connection: ConnectionKey,
    waiting: VecDeque<RequestId>,
    /// The last request that waited has ended without a connection.
    is_abandoned: bool,
    /// Connections that came.
    total: u64,
}

impl Port {
    fn snapshot(&self, address: SocketAddr) -> ListenerSnapshot {
        ListenerSnapshot {
            address,
            user: Some(self.user),
            is_open: true,
            waiting: self.waiting.len() as u64,
            total: self.total,
            ..ListenerSnapshot::default()
        }
    }
}

pub(super) type Ports = HashMap<SocketAddr, Port>;

impl Shard<Server> {
    /// A user's client asks for the next connection that comes there.
    pub(super) fn listen(
        &mut self,
        now: Instant,
        id: RequestId,
        user: UserId,
        connection: ConnectionKey,
        path: ListenPath,
    ) {
        if let Err(error) = self.take_listening_request(id, user, connection, path) {
            return self.engine.end(id, End::Refused(error));
        }
        self.insert_inner(id, Inner::Role(ServerInner::Listening(path.address)));
        self.engine.accept(now, id, &mut self.delivery);
    }

    fn take_listening_request(
        &mut self,
        id: RequestId,
        user: UserId,
        connection: ConnectionKey,
        path: ListenPath,
    ) -> Result<(), ProxyError> {
        let socket = self.role.held_ports.hold(user, path, self.neighbours.own())?;
        // The connection that had it before is lost, or another one is preferred.
        if self
            .role
            .ports
            .get(&path.address)
            .is_some_and(|port| port.connection != connection)
        {
            self.dismiss_waiting(path.address);
        }
        // Another shard had it meanwhile, and released it.
        if !self.has_socket(path.address, &socket) {
            self.drop_port(path.address);
        }
        let poller = &self.io.poller;
        if let Some(port) = self.role.ports.get_mut(&path.address) {
            if port.waiting.len() >= limits::LISTENER_REQUESTS_MAX {
                return Err(ProxyError::ConnectionLimitReached);
            }
            // A request that is refused is not among those that wait.
            let watched = self.sources.set_interest(poller, port.source, Interest::READABLE);
            watched.map_err(|_| ProxyError::ProxyInternalError)?;
            self.sources.set_deadline(port.source, None);
            (port.connection, port.is_abandoned) = (connection, false);
            port.waiting.push_back(id);
            return Ok(());
        }
        let listener = Listener {
            socket,
            address: path.address,
        };
        let source = ServerSource::Listener(listener);
        let inserted = self.sources.insert(poller, source, Interest::READABLE, None);
        let source = inserted.map_err(|_| {
            self.role.held_ports.release(path.address, self.neighbours.own());
            ProxyError::ProxyInternalError
        })?;
        let port = Port {
            source,
            user,
            connection,
            waiting: VecDeque::from([id]),
            is_abandoned: false,
            total: 0,
        };
        self.role.ports.insert(path.address, port);
        Ok(())
    }

    /// Connections have come.
    pub(super) fn accept_at_listener(&mut self, now: Instant, id: SourceId) {
        for _ in 0..limits::ACCEPTS_PER_TURN {
            let Some(ServerSource::Listener(listener)) = self.sources.get(id) else {
                return;
            };
            let address = listener.address;
            if !self.role.held_ports.is_of(address, self.neighbours.own()) {
                return self.close_port(address);
            }
            if self
                .role
                .ports
                .get(&address)
                .is_none_or(|port| port.waiting.is_empty())
            {
                let _ = self.sources.set_interest(&self.io.poller, id, Interest::NONE);
                return;
            }
            match listener.socket.accept() {
                Ok((stream, _)) => self.hand_to_client(now, address, stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    // Watched on, a listener without descriptors to give would be ready at once.
                    let _ = self.sources.set_interest(&self.io.poller, id, Interest::NONE);
                    return self.sources.set_deadline(id, Some(now + limits::ACCEPT_PAUSE));
                }
            }
        }
    }

    /// A connection goes to the request that has waited longest.
    fn hand_to_client(&mut self, now: Instant, address: SocketAddr, stream: TcpStream) {
        let Some(port) = self.role.ports.get_mut(&address) else {
            return;
        };
        let Some(id) = port.waiting.pop_front() else {
            return;
        };
        port.total += 1;
        self.take_inner(id);
        let is_admitted = self.engine.connection_came(now, id);
        let is_ready = stream.set_nonblocking(true).is_ok() && keep_alive(&stream).is_ok();
        let watched = |shard: &Self| {
            shard
                .io
                .watch(&stream, PollToken::of(id), Interest::READABLE)
                .is_ok()
        };
        if !is_admitted || !self.take_tcp_place(now, id) {
            self.io.tcp.failed += 1;
            reset_on_close(&stream);
            self.engine.end(id, End::Failed);
        } else if is_ready && watched(self) {
            let mut relay = Relay::new(stream, Interest::READABLE);
            if !self.engine.announce_connection(id) {
                relay.body_is_full();
            }
            relay.body_is_readable();
            self.insert_inner(id, Inner::Tcp(relay));
            self.step_relay(id);
        } else {
            self.io.tcp.failed += 1;
            self.io.tcp_closed();
            self.engine.end(id, End::Failed);
        }
        self.let_port_rest(now, address);
    }

    /// A waiting request has ended.
    pub(super) fn stop_listening(&mut self, now: Instant, address: SocketAddr, id: RequestId) {
        if let Some(port) = self.role.ports.get_mut(&address) {
            port.waiting.retain(|waiting| *waiting != id);
            port.is_abandoned = port.waiting.is_empty();
        }
        self.let_port_rest(now, address);
    }

    /// A port for which no request waits is closed after a while.
    fn let_port_rest(&mut self, now: Instant, address: SocketAddr) {
        if let Some(port) = self.role.ports.get(&address)
            && port.waiting.is_empty()
        {
            let _ = self
                .sources
                .set_interest(&self.io.poller, port.source, Interest::NONE);
            self.sources
                .set_deadline(port.source, Some(now + limits::LISTENER_REST));
        }
    }

    /// A port has had its pause, or its rest.
    pub(super) fn listener_due(&mut self, now: Instant, id: SourceId) {
        let Some(ServerSource::Listener(listener)) = self.sources.get(id) else {
            return;
        };
        let address = listener.address;
        if self
            .role
            .ports
            .get(&address)
            .is_none_or(|port| port.waiting.is_empty())
        {
            self.close_port(address);
        } else if self
            .sources
            .set_interest(&self.io.poller, id, Interest::READABLE)
            .is_err()
        {
            self.sources.set_deadline(id, Some(now + limits::ACCEPT_PAUSE));
        }
    }

    /// The user may do nothing any more: closes its ports, whose requests have ended.
    pub(super) fn close_ports_of(&mut self, user: UserId) {
        self.close_ports(|port| port.user == user && port.waiting.is_empty());
    }

    /// A client of the user has ended, and does not come back for its ports.
    pub(super) fn close_abandoned_ports_of(&mut self, user: UserId) {
        self.close_ports(|port| port.user == user && port.is_abandoned);
    }

    /// The server takes nothing new; connections that are there go on.
    pub(super) fn close_all_ports(&mut self) {
        self.close_ports(|_| true);
    }

    fn close_ports(&mut self, is_over: impl Fn(&Port) -> bool) {
        let ports = self.role.ports.iter();
        let over: Vec<_> = ports
            .filter(|(_, port)| is_over(port))
            .map(|(address, _)| *address)
            .collect();
        for address in over {
            self.close_port(address);
        }
    }

    fn close_port(&mut self, address: SocketAddr) {
        if self.drop_port(address) {
            self.role.held_ports.release(address, self.neighbours.own());
        }
    }

    /// This shard serves a port no longer, which may be another shard's. Whether it did.
    fn drop_port(&mut self, address: SocketAddr) -> bool {
        self.dismiss_waiting(address);
        let port = self.role.ports.remove(&address);
        if let Some(port) = &port {
            drop(self.sources.remove(&self.io.poller, port.source));
        }
        port.is_some()
    }

    /// Whether the socket of a port that this shard serves is this one.
    fn has_socket(&self, address: SocketAddr, socket: &Arc<TcpListener>) -> bool {
        let port = self.role.ports.get(&address);
        let source = port.and_then(|port| self.sources.get(port.source));
        matches!(source, Some(ServerSource::Listener(listener)) if Arc::ptr_eq(&listener.socket, socket))
    }

    /// Requests that wait end without a connection.
    fn dismiss_waiting(&mut self, address: SocketAddr) {
        let Some(port) = self.role.ports.get_mut(&address) else {
            return;
        };
        for id in std::mem::take(&mut port.waiting) {
            self.take_inner(id);
            self.engine.finish_body(id);
            self.engine.end(id, End::Done);
        }
    }

    pub(super) fn listener_snapshots(&self) -> Vec<ListenerSnapshot> {
        let ports = self.role.ports.iter();
        ports.map(|(address, port)| port.snapshot(*address)).collect()
    }
}
