//! Sockets in TCP's shape (specs/fake-tcp.md) beside the endpoint's own: by them the rendezvous is reached where UDP is
//! blocked. The endpoint's thread owns them; what they lose, QUIC repeats.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use fake_tcp_socket::{FakeTcpSocket, Options};
use packet::CarrierKind;
use packet_io::{Interest, Outgoing, Poller, ReceiveBatch, payload_max};
use peer_proto::Outbox;

use crate::limits::RENDEZVOUS_PAYLOAD_MAX;
use crate::transmit::socket_options;

/// What [`TcpSockets`] add to the number of a socket for its events' token.
pub(crate) const FIRST_TOKEN: u64 = 2;

/// One of them.
struct TcpSocket {
    /// Where it leads, marked as such ([`CarrierKind`]).
    remote: SocketAddr,
    token: u64,
    socket: FakeTcpSocket,
}

/// All of an endpoint: one for each address of the rendezvous that is in use.
#[derive(Default)]
pub(crate) struct TcpSockets {
    sockets: Vec<TcpSocket>,
    /// Those that were ever opened.
    count: u64,
}

impl TcpSockets {
    /// Opens one; the largest datagram that it carries, in bytes.
    ///
    /// # Errors
    /// Why it cannot be opened, for people.
    pub(crate) fn open(&mut self, remote: SocketAddr, poller: &Poller) -> Result<u16, String> {
        let options = Options {
            socket: socket_options(),
            ..Options::default()
        };
        let socket = FakeTcpSocket::connect(None, CarrierKind::unmark(remote), &options);
        let socket = socket.map_err(|error| why_not(&error))?;
        let token = FIRST_TOKEN + self.count;
        poller
            .add(&socket, token, Interest::READABLE)
            .map_err(|error| why_not(&error))?;
        self.count += 1;
        let carried = socket
            .path_mtu()
            .map_or(RENDEZVOUS_PAYLOAD_MAX, |mtu| payload_max(remote, Some(mtu)));
        self.sockets.push(TcpSocket {
            remote,
            token,
            socket,
        });
        Ok(carried.min(RENDEZVOUS_PAYLOAD_MAX))
    }

    /// Closes one, and tells what is between, which need not keep it in mind.
    pub(crate) fn close(&mut self, now: Instant, remote: SocketAddr, poller: &Poller) {
        for mut closed in self.sockets.extract_if(.., |socket| socket.remote == remote) {
            // It is watched since it was opened.
            let _ = poller.remove(&closed.socket);
            closed.socket.close_all(now);
        }
    }

    /// Where the socket with this token leads.
    pub(crate) fn remote(&self, token: u64) -> Option<SocketAddr> {
        let mut sockets = self.sockets.iter();
        Some(sockets.find(|socket| socket.token == token)?.remote)
    }

    /// Replaces what `batch` holds by what has come from there.
    ///
    /// # Errors
    /// The server's machine says that nothing listens there.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        batch: &mut ReceiveBatch,
    ) -> Result<usize, PortClosed> {
        let Some(socket) = self.sockets.iter_mut().find(|socket| socket.remote == remote) else {
            return Ok(0);
        };
        let received = socket.socket.receive(now, batch);
        match received {
            Ok(count) => {
                batch.sources_mut().for_each(|source| *source = remote);
                Ok(count)
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Err(PortClosed),
            Err(_) => Ok(0),
        }
    }

    /// Takes out of `outbox` what goes in TCP's shape, and sends it.
    pub(crate) fn send(&mut self, now: Instant, outbox: &mut Outbox) {
        let is_tcp = |destination| CarrierKind::of(destination) == CarrierKind::Tcp;
        if !outbox.trains().iter().any(|train| is_tcp(train.destination)) {
            return;
        }
        for TcpSocket { remote, socket, .. } in &mut self.sockets {
            let own = outbox.trains().iter();
            let own = own.filter(|train| train.destination == *remote);
            let messages: Vec<Outgoing<'_>> = own
                .map(|train| Outgoing {
                    ecn: train.ecn,
                    ..Outgoing::connected(&train.bytes, train.segment_size)
                })
                .collect();
            if !messages.is_empty() {
                // What it does not take at once is lost, as on the way.
                socket.send(now, &messages);
            }
        }
        outbox.discard(|train| is_tcp(train.destination));
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let due = self.sockets.iter().map(|socket| socket.socket.poll_timeout());
        due.flatten().min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        for TcpSocket { socket, .. } in &mut self.sockets {
            if socket.poll_timeout().is_some_and(|due| due <= now) {
                socket.handle_timeout(now);
            }
        }
    }
}

impl Drop for TcpSockets {
    fn drop(&mut self) {
        for TcpSocket { socket, .. } in &mut self.sockets {
            socket.close_all(Instant::now());
        }
    }
}

/// Nothing listens on the server's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortClosed;

/// Why one cannot be opened.
fn why_not(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "UDP may be blocked, and packets that look like TCP need the capability CAP_NET_RAW: run \
                                            this as root, or give it that capability"
                .to_owned()
        }
        _ => error.to_string(),
    }
}
