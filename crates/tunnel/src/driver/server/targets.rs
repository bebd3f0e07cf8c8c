//! A server's side of requests: resolving targets, holding them against the rules, opening their sockets.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use packet_io::{Interest, Poller};
use socket2::Socket;
use tunnel_proto::{End, Protocol, ProxyError, Reach, RequestId, Target};

use super::cover::COVER_PURPOSE;
use super::own_addresses::OWN_PURPOSES;
use super::{Server, ServerInner};
use crate::driver::connecting;
use crate::driver::relay::keep_alive;
use crate::driver::resolver::{Answer, Unresolved};
use crate::driver::{Inner, PollToken, Relay, Shard};
use crate::limits;

/// A target on its way: resolving, then its addresses. Those of TCP race: the next one begins when one has failed, or
/// has been silent for a while (RFC 8305 section 5), and the first that answers wins.
pub(in crate::driver) struct Opening {
    pub(super) protocol: Protocol,
    /// What its user may reach.
    reach: Reach,
    resolution: u64,
    pub(super) addresses: std::vec::IntoIter<SocketAddr>,
    /// TCP sockets that connect.
    connecting: Vec<Socket>,
    /// When the next address is due although no attempt has failed.
    next_due: Option<Instant>,
    /// Until when the name has to be resolved, then until when the connection has to be open.
    deadline: Instant,
    /// What to tell the client if no further address works.
    error: ProxyError,
}

impl Opening {
    pub(in crate::driver) fn close(self, poller: &Poller) {
        for socket in self.connecting {
            // Closing it does the same.
            let _ = poller.remove(&socket);
        }
    }
}

impl Shard<Server> {
    /// An authorized request wants a target.
    pub(in crate::driver) fn open_target(
        &mut self,
        now: Instant,
        id: RequestId,
        protocol: Protocol,
        target: &Target,
        reach: Reach,
    ) {
        if protocol == Protocol::Tcp && !self.take_tcp_place(now, id) {
            self.io.tcp.failed += 1;
            return self
                .engine
                .end(id, End::Refused(ProxyError::ConnectionLimitReached));
        }
        let server = &mut self.role;
        server.resolutions += 1;
        let resolution = server.resolutions;
        let literal = target
            .address()
            .map(|address| SocketAddr::new(address, target.port()));
        let is_literal = literal.is_some();
        let opening = Opening {
            protocol,
            reach,
            resolution,
            addresses: literal.into_iter().collect::<Vec<_>>().into_iter(),
            connecting: Vec::new(),
            next_due: None,
            deadline: now + limits::RESOLUTION_WAIT,
            error: ProxyError::DnsError,
        };
        self.insert_inner(id, Inner::Role(ServerInner::Opening(opening)));
        if is_literal {
            self.try_next_address(now, id);
        } else {
            self.io
                .resolver
                .ask(purpose(id, resolution), target.host(), target.port());
        }
    }

    /// A TCP connection takes its place, or that of another; false where it gets none.
    pub(super) fn take_tcp_place(&mut self, now: Instant, id: RequestId) -> bool {
        if self.io.tcp_opened() {
            return true;
        }
        let Some(yielding) = self.engine.yielding_tcp(now, id) else {
            return false;
        };
        match self.inner.get(yielding.index()) {
            Some(Some(Inner::Tcp(_))) => {
                self.close_inner(yielding, true);
                self.engine.end(yielding, End::Failed);
            }
            _ => self.give_up(yielding, ProxyError::ConnectionLimitReached),
        }
        self.io.tcp_opened()
    }

    pub(in crate::driver) fn target_resolved(&mut self, now: Instant, answer: Answer) {
        if answer.purpose >= OWN_PURPOSES {
            return self.own_name_resolved(now, answer);
        }
        if answer.purpose == COVER_PURPOSE {
            return self.cover_resolved(now, answer);
        }
        let id = RequestId::from_index((answer.purpose >> PURPOSE_SHIFT) as usize);
        let Some(Some(Inner::Role(ServerInner::Opening(opening)))) = self.inner.get_mut(id.index()) else {
            return;
        };
        if opening.resolution & PURPOSE_MASK != answer.purpose & PURPOSE_MASK {
            return;
        }
        match answer.found {
            Ok(addresses) => opening.addresses = addresses.into_iter(),
            Err(Unresolved::Absent) => opening.error = ProxyError::DnsError,
            Err(Unresolved::Late | Unresolved::Unasked) => opening.error = ProxyError::DnsTimeout,
        }
        self.try_next_address(now, id);
    }

    /// Tries further addresses until one opens or begins to connect. Without any, those that connect are waited for.
    fn try_next_address(&mut self, now: Instant, id: RequestId) {
        loop {
            let Some(Some(Inner::Role(ServerInner::Opening(opening)))) = self.inner.get_mut(id.index())
            else {
                return;
            };
            let (protocol, error) = (opening.protocol, opening.error);
            let Some(address) = opening.addresses.next() else {
                if opening.connecting.is_empty() {
                    self.give_up(id, error);
                }
                return;
            };
            let address = SocketAddr::new(address.ip().to_canonical(), address.port());
            if !opening.reach.covers(address) || !self.is_allowed(now, address) {
                self.set_error(id, ProxyError::DestinationIpProhibited);
                continue;
            }
            let opened = match protocol {
                Protocol::Udp => self.open_udp(now, id, address),
                Protocol::Tcp => self.begin_tcp(now, id, address),
            };
            match opened {
                Ok(()) => return,
                Err(error) => self.set_error(id, proxy_error(&error)),
            }
        }
    }

    fn set_error(&mut self, id: RequestId, error: ProxyError) {
        if let Some(Some(Inner::Role(ServerInner::Opening(opening)))) = self.inner.get_mut(id.index()) {
            opening.error = error;
        }
    }

    pub(super) fn is_allowed(&mut self, now: Instant, address: SocketAddr) -> bool {
        self.refresh_own_addresses(now);
        let server = &self.role;
        server
            .rules
            .check(address, server.own_addresses.present())
            .is_ok()
    }

    fn begin_tcp(&mut self, now: Instant, id: RequestId, address: SocketAddr) -> io::Result<()> {
        let socket = connecting::begin(address)?;
        keep_alive(&socket)?;
        self.io.watch(&socket, PollToken::of(id), Interest::WRITABLE)?;
        if let Some(Some(Inner::Role(ServerInner::Opening(opening)))) = self.inner.get_mut(id.index()) {
            opening.connecting.push(socket);
            opening.deadline = now + limits::TCP_CONNECT_TIMEOUT;
            let due = now + limits::CONNECTION_ATTEMPT_DELAY;
            let attempts = &mut self.role.attempts_due;
            let has_more = !opening.addresses.as_slice().is_empty();
            opening.next_due = (has_more && attempts.len() < limits::ATTEMPTS_DUE_MAX).then_some(due);
            attempts.extend(opening.next_due.map(|due| (due, id)));
        }
        Ok(())
    }

    /// Tries the next address of targets whose present ones have been silent for a while.
    fn try_due_addresses(&mut self, now: Instant) {
        while let Some((due, id)) = self.role.attempts_due.pop_front_if(|(due, _)| *due <= now) {
            if let Some(Some(Inner::Role(ServerInner::Opening(opening)))) = self.inner.get(id.index())
                && opening.next_due == Some(due)
            {
                self.try_next_address(now, id);
            }
        }
    }

    /// A connecting TCP socket has a result: the first that is connected is the target's, and what failed makes room.
    pub(in crate::driver) fn target_ready(&mut self, now: Instant, id: RequestId) {
        let Some(Some(Inner::Role(ServerInner::Opening(opening)))) = self.inner.get_mut(id.index()) else {
            return;
        };
        let mut has_failed = false;
        for socket in std::mem::take(&mut opening.connecting) {
            match connecting::outcome(&socket) {
                Ok(true) => return self.target_connected(now, id, socket),
                Ok(false) => opening.connecting.push(socket),
                Err(error) => {
                    let _ = self.io.poller.remove(&socket);
                    opening.error = proxy_error(&error);
                    has_failed = true;
                }
            }
        }
        if has_failed {
            self.try_next_address(now, id);
        }
    }

    /// The others that connect are closed with the opening.
    fn target_connected(&mut self, now: Instant, id: RequestId, socket: Socket) {
        let relay = Relay::new(TcpStream::from(socket), Interest::WRITABLE);
        self.insert_inner(id, Inner::Tcp(relay));
        self.engine.accept(now, id, &mut self.delivery);
        self.step_relay(id);
    }

    /// Tells the engine which TCP connections have moved bytes.
    fn tell_moved(&mut self, now: Instant) {
        for (index, inner) in self.inner.iter_mut().enumerate() {
            if let Some(Inner::Tcp(relay)) = inner
                && relay.take_moved()
            {
                self.engine.tcp_moved(now, RequestId::from_index(index));
            }
        }
    }

    fn give_up(&mut self, id: RequestId, error: ProxyError) {
        let Some(Inner::Role(ServerInner::Opening(opening))) = self.take_inner(id) else {
            return;
        };
        if opening.protocol == Protocol::Tcp {
            self.io.tcp_closed();
            self.io.tcp.failed += 1;
        }
        opening.close(&self.io.poller);
        self.engine.end(id, End::Refused(error));
    }

    /// Gives up addresses that take too long.
    pub(in crate::driver) fn server_turn(&mut self, now: Instant) {
        let server = &mut self.role;
        if server.ip.is_some() && server.next_ip_turn <= now {
            server.next_ip_turn = now + limits::MTU_INTERVAL;
            self.refresh_own_addresses(now);
            self.server_ip_turn(now);
        }
        self.strangers_turn(now);
        self.try_due_addresses(now);
        self.judge_upstreams(now);
        let server = &mut self.role;
        if now < server.next_sweep {
            return;
        }
        server.next_sweep = now + tunnel_proto::limits::SWEEP_INTERVAL;
        self.refresh_cover(now);
        self.renew_identity(now);
        self.tell_moved(now);
        self.ask_own_names(now);
        let overdue: Vec<usize> = self
            .inner
            .iter()
            .enumerate()
            .filter(|(_, inner)| matches!(inner, Some(Inner::Role(ServerInner::Opening(opening))) if opening.deadline <= now))
            .map(|(index, _)| index)
            .collect();
        for index in overdue {
            let id = RequestId::from_index(index);
            let Some(Inner::Role(ServerInner::Opening(opening))) = &mut self.inner[index] else {
                continue;
            };
            let late = std::mem::take(&mut opening.connecting);
            opening.error = if late.is_empty() {
                ProxyError::DnsTimeout
            } else {
                ProxyError::ConnectionTimeout
            };
            for socket in late {
                let _ = self.io.poller.remove(&socket);
            }
            self.try_next_address(now, id);
        }
    }
}

const PURPOSE_SHIFT: u32 = 32;
const PURPOSE_MASK: u64 = (1 << PURPOSE_SHIFT) - 1;

fn purpose(id: RequestId, resolution: u64) -> u64 {
    (id.index() as u64) << PURPOSE_SHIFT | resolution & PURPOSE_MASK
}

/// What a failed connect means to the client (RFC 9209 section 2.3).
fn proxy_error(error: &io::Error) -> ProxyError {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => ProxyError::ConnectionRefused,
        io::ErrorKind::TimedOut => ProxyError::ConnectionTimeout,
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
            ProxyError::DestinationIpUnroutable
        }
        io::ErrorKind::ConnectionReset => ProxyError::ConnectionTerminated,
        _ => ProxyError::ProxyInternalError,
    }
}
