//! A carrier in TCP's shape (specs/fake-tcp.md): a client's connection, or a server's connections at one port. Its
//! peers' addresses are marked as such ([`CarrierKind`]).

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use fake_tcp_socket::{ConnectionId, Event, FakeTcpSocket, Options};
use packet::CarrierKind;
use packet_io::{Outgoing, ReceiveBatch, SendOutcome, SocketOptions};

use super::siblings::{Ends, HandedTrain, Siblings};
use super::{Carrier, Refusal};
use crate::snapshot::IoCounters;

pub(super) struct TcpCarrier {
    socket: FakeTcpSocket,
    /// Of a server's shard.
    listener: Option<Listener>,
}

struct Listener {
    /// Where peers are answered from that came at an address that was not told, by UDP before: the only one that it
    /// listens at, or that UDP does.
    ip: Option<IpAddr>,
    connections: HashMap<ConnectionId, Ends>,
    siblings: Siblings,
}

impl TcpCarrier {
    /// One for each of a server's `count` shards, which takes what comes to the TCP port of `listen`, beside sockets
    /// that are bound to `udp`.
    pub(super) fn listen(
        listen: SocketAddr,
        udp: SocketAddr,
        count: usize,
        options: &SocketOptions,
    ) -> io::Result<Vec<Self>> {
        let sockets = FakeTcpSocket::listen(listen, count, &socket_options(options))?;
        let bound = [listen.ip(), udp.ip()];
        let ip = bound.into_iter().find(|ip| !ip.is_unspecified());
        let of_shard = |(socket, siblings)| Self {
            socket,
            listener: Some(Listener {
                ip,
                connections: HashMap::new(),
                siblings,
            }),
        };
        Ok(sockets
            .into_iter()
            .zip(Siblings::group(count)?)
            .map(of_shard)
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
        Ok(Self {
            socket,
            listener: None,
        })
    }

    /// Becomes readable when a sibling has something for this shard; [`Carrier::receive`] takes it.
    pub(super) fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(|listener| listener.siblings.bell())
    }

    /// The siblings are to know which connections are here; QUIC finds out by itself who comes and goes.
    fn handle_events(&mut self) {
        while let Some(event) = self.socket.poll_event() {
            let Some(listener) = &mut self.listener else {
                continue;
            };
            match event {
                Event::Accepted {
                    connection,
                    local,
                    remote,
                } => {
                    let ends = (remote, local.ip());
                    listener.connections.insert(connection, ends);
                    listener.siblings.opened(ends);
                }
                Event::Closed { connection, .. } => {
                    let ends = listener.connections.remove(&connection);
                    ends.into_iter().for_each(|ends| listener.siblings.closed(ends));
                }
                _ => {}
            }
        }
    }

    /// Sends what siblings have for connections of this shard; what is not taken at once is lost, as on the way.
    fn send_for_siblings(&mut self) {
        let handed = self.listener.as_ref().map(|listener| listener.siblings.take());
        let handed = handed.unwrap_or_default();
        if !handed.is_empty() {
            let messages: Vec<_> = handed.iter().map(HandedTrain::outgoing).collect();
            self.socket.send(Instant::now(), &messages);
        }
    }

    /// Where a sibling has the connection of a message.
    fn elsewhere(&self, message: &Outgoing<'_>) -> Option<(&Siblings, Ends)> {
        let listener = self.listener.as_ref()?;
        let ends = message.destination.zip(message.source)?;
        let is_own = self.socket.has_connection(ends.0, ends.1);
        (!is_own).then_some((&listener.siblings, ends))
    }

    /// Sends messages one by one, those of siblings' connections by them.
    fn send_apart(&mut self, messages: &[Outgoing<'_>]) -> SendOutcome {
        let mut sum = SendOutcome::default();
        for message in messages {
            if let Some((siblings, ends)) = self.elsewhere(message) {
                siblings.hand_over(ends, message);
            } else {
                let outcome = self.socket.send(Instant::now(), std::slice::from_ref(message));
                sum.segments += outcome.segments;
                sum.dropped += outcome.dropped;
                if outcome.blocked && outcome.messages == 0 {
                    (sum.blocked, sum.partial_segments) = (true, outcome.partial_segments);
                    break;
                }
            }
            sum.messages += 1;
        }
        sum
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
        self.send_for_siblings();
        let received = self.socket.receive(Instant::now(), batch);
        self.handle_events();
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
        let listen = self.listener.as_ref().and_then(|listener| listener.ip);
        let unmarked = messages.iter().map(|message| Outgoing {
            destination: message.destination.map(CarrierKind::unmark),
            source: message.source.or(listen),
            ..*message
        });
        let unmarked: Vec<_> = unmarked.collect();
        if unmarked.iter().any(|message| self.elsewhere(message).is_some()) {
            return self.send_apart(&unmarked);
        }
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
        self.handle_events();
    }

    fn warning(&self) -> Option<String> {
        self.socket.warning()
    }
}
