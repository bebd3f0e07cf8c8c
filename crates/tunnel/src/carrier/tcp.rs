//! A carrier in TCP's shape (specs/fake-tcp.md): a client's connection, or a server's connections at one port. Its
//! peers' addresses are marked as such ([`CarrierKind`]).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use fake_tcp_socket::{FakeTcpSocket, Options};
use packet::CarrierKind;
use packet_io::{Outgoing, ReceiveBatch, SendOutcome, SocketOptions};

use super::{Carrier, Refusal};
use crate::snapshot::IoCounters;

pub(super) struct TcpCarrier {
    socket: FakeTcpSocket,
    /// The only address that it listens at, where it is no wildcard.
    listen: Option<IpAddr>,
}

impl TcpCarrier {
    /// One for each of a server's `count` shards, which takes what comes to the TCP port of `listen`.
    pub(super) fn listen(listen: SocketAddr, count: usize, options: &SocketOptions) -> io::Result<Vec<Self>> {
        let sockets = FakeTcpSocket::listen(listen, count, &socket_options(options))?;
        let ip = listen.ip();
        let listen = (!ip.is_unspecified()).then_some(ip);
        Ok(sockets
            .into_iter()
            .map(|socket| Self { socket, listen })
            .collect())
    }

    /// One with a connection to `server`, which is opened again when it ends.
    pub(super) fn connect(
        local: Option<SocketAddr>,
        server: SocketAddr,
        options: &SocketOptions,
    ) -> io::Result<Self> {
        let server = CarrierKind::unmark(server);
        let socket = FakeTcpSocket::connect(local, server, &socket_options(options))?;
        Ok(Self { socket, listen: None })
    }

    /// QUIC finds out by itself who comes and goes.
    fn forget_events(&mut self) {
        while self.socket.poll_event().is_some() {}
    }
}

impl Drop for TcpCarrier {
    /// What is between need not keep the connections in mind.
    fn drop(&mut self) {
        self.socket.close_all(Instant::now());
    }
}

fn socket_options(options: &SocketOptions) -> Options {
    Options {
        socket: *options,
        ..Options::default()
    }
}

impl AsFd for TcpCarrier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Carrier for TcpCarrier {
    fn receive(&mut self, batch: &mut ReceiveBatch) -> Result<usize, Refusal> {
        let received = self.socket.receive(Instant::now(), batch);
        self.forget_events();
        let count = received.map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => Refusal::PortClosed,
            _ => Refusal::Passing,
        })?;
        for source in batch.sources_mut() {
            *source = CarrierKind::Tcp.mark(*source);
        }
        Ok(count)
    }

    fn send(&mut self, messages: &[Outgoing<'_>]) -> SendOutcome {
        let unmarked = messages.iter().map(|message| Outgoing {
            destination: message.destination.map(CarrierKind::unmark),
            source: message.source.or(self.listen),
            ..*message
        });
        let unmarked: Vec<_> = unmarked.collect();
        self.socket.send(Instant::now(), &unmarked)
    }

    fn takes_more(&mut self) -> bool {
        self.socket.takes_more()
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        Some(self.socket.local_addr())
    }

    fn remote_addr(&self) -> Option<SocketAddr> {
        let remote = self.socket.remote_addr()?;
        Some(CarrierKind::Tcp.mark(remote))
    }

    fn counters(&mut self) -> IoCounters {
        IoCounters::of_stats(&self.socket.stats(), self.socket.grants())
    }

    fn path_mtu(&self) -> Option<u32> {
        self.socket.path_mtu()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.socket.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.socket.handle_timeout(now);
        self.forget_events();
    }

    fn warning(&self) -> Option<String> {
        self.socket.warning()
    }
}
