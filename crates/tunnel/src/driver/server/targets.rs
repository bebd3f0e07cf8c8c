//! A server's side of requests: resolving targets, holding them against the rules, opening their sockets.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Instant;

use packet_io::{Interest, Poller, UdpSocket};
use socket2::{Domain, Protocol as SocketProtocol, SockAddr, Socket, Type};
use tunnel_proto::{End, Protocol, ProxyError, RequestId, Target};

use super::{Server, ServerInner};
use crate::driver::resolver::{Answer, Unresolved};
use crate::driver::{Inner, PollToken, Relay, Shard, outer};
use crate::limits;

/// A target on its way: resolving, then its addresses tried one after the other.
pub(in crate::driver) struct Opening {
    pub(super) protocol: Protocol,
    resolution: u64,
    addresses: std::vec::IntoIter<SocketAddr>,
    /// A TCP socket that connects.
    connecting: Option<Socket>,
    /// Until when the name has to be resolved, then until when the connection has to be open.
    deadline: Instant,
    /// What to tell the client if no further address works.
    error: ProxyError,
}

impl Opening {
    pub(in crate::driver) fn close(self, poller: &Poller) {
        if let Some(socket) = self.connecting {
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
    ) {
        if protocol == Protocol::Tcp && !self.io.tcp_opened() {
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
            resolution,
            addresses: literal.into_iter().collect::<Vec<_>>().into_iter(),
            connecting: None,
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

    pub(in crate::driver) fn target_resolved(&mut self, now: Instant, answer: Answer) {
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

    /// Tries addresses until one opens or begins to connect.
    fn try_next_address(&mut self, now: Instant, id: RequestId) {
        loop {
            let Some(Some(Inner::Role(ServerInner::Opening(opening)))) = self.inner.get_mut(id.index())
            else {
                return;
            };
            if let Some(socket) = opening.connecting.take() {
                let _ = self.io.poller.remove(&socket);
            }
            let (protocol, error) = (opening.protocol, opening.error);
            let Some(address) = opening.addresses.next() else {
                return self.give_up(id, error);
            };
            let address = SocketAddr::new(address.ip().to_canonical(), address.port());
            if !self.is_allowed(now, address) {
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

    fn is_allowed(&mut self, now: Instant, address: SocketAddr) -> bool {
        self.refresh_own_addresses(now);
        let server = &self.role;
        let own = server.own_addresses.as_ref().map_or(&[][..], |(_, own)| own);
        server.rules.check(address, own).is_ok()
    }

    /// Sees to it that the addresses of this machine that the rules go by are not old.
    fn refresh_own_addresses(&mut self, now: Instant) {
        let server = &mut self.role;
        let is_fresh = |since: &Instant| now.duration_since(*since) < limits::OWN_ADDRESSES_AGE;
        if !server
            .own_addresses
            .as_ref()
            .is_some_and(|(since, _)| is_fresh(since))
        {
            let found = if_addrs::get_if_addrs().unwrap_or_default();
            let found: Vec<IpAddr> = found.into_iter().map(|interface| interface.ip()).collect();
            if server.ip.is_some() {
                self.engine.set_host_addresses(found.clone());
            }
            server.own_addresses = Some((now, found));
        }
    }

    fn open_udp(&mut self, now: Instant, id: RequestId, address: SocketAddr) -> io::Result<()> {
        let options = packet_io::SocketOptions {
            receive_ecn: false,
            ..outer::options(&self.io.common)
        };
        let socket = UdpSocket::connect(None, address, &options)?;
        self.io.watch(&socket, PollToken::of(id), Interest::READABLE)?;
        self.insert_inner(id, Inner::Role(ServerInner::Upstream(Box::new(socket))));
        self.engine.accept(now, id, &mut self.delivery);
        Ok(())
    }

    fn begin_tcp(&mut self, now: Instant, id: RequestId, address: SocketAddr) -> io::Result<()> {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM.nonblocking(),
            Some(SocketProtocol::TCP),
        )?;
        match socket.connect(&SockAddr::from(address)) {
            Err(error) if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {
                return Err(error);
            }
            _ => {}
        }
        self.io.watch(&socket, PollToken::of(id), Interest::WRITABLE)?;
        if let Some(Some(Inner::Role(ServerInner::Opening(opening)))) = self.inner.get_mut(id.index()) {
            opening.connecting = Some(socket);
            opening.deadline = now + limits::TCP_CONNECT_TIMEOUT;
        }
        Ok(())
    }

    /// A connecting TCP socket has a result.
    pub(in crate::driver) fn target_ready(&mut self, now: Instant, id: RequestId) {
        let Some(Some(Inner::Role(ServerInner::Opening(opening)))) = self.inner.get_mut(id.index()) else {
            return;
        };
        let Some(socket) = opening.connecting.take() else {
            return;
        };
        let failure = match socket.take_error() {
            Ok(None) => socket.peer_addr().err(),
            Ok(Some(error)) | Err(error) => Some(error),
        };
        if let Some(error) = failure {
            let _ = self.io.poller.remove(&socket);
            opening.error = proxy_error(&error);
            return self.try_next_address(now, id);
        }
        let relay = Relay::new(TcpStream::from(socket), Interest::WRITABLE);
        self.insert_inner(id, Inner::Tcp(relay));
        self.engine.accept(now, id, &mut self.delivery);
        self.step_relay(id);
    }

    fn give_up(&mut self, id: RequestId, error: ProxyError) {
        let Some(Inner::Role(ServerInner::Opening(opening))) =
            self.inner.get_mut(id.index()).and_then(Option::take)
        else {
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
        let server = &mut self.role;
        if now < server.next_sweep {
            return;
        }
        server.next_sweep = now + tunnel_proto::limits::SWEEP_INTERVAL;
        let overdue: Vec<usize> = self
            .inner
            .iter()
            .enumerate()
            .filter(|(_, inner)| matches!(inner, Some(Inner::Role(ServerInner::Opening(opening))) if opening.deadline <= now))
            .map(|(index, _)| index)
            .collect();
        for index in overdue {
            let id = RequestId::from_index(index);
            let is_connecting = matches!(&self.inner[index], Some(Inner::Role(ServerInner::Opening(opening))) if opening.connecting.is_some());
            self.set_error(
                id,
                if is_connecting {
                    ProxyError::ConnectionTimeout
                } else {
                    ProxyError::DnsTimeout
                },
            );
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
