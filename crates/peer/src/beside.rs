//! Sockets beside the endpoint's own, by which the rendezvous is reached: in TCP's shape (specs/fake-tcp.md) where UDP
//! is blocked, and over UDP from another port for attempts at a server with a cover. The endpoint's thread owns them;
//! what they lose, QUIC repeats.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use fake_tcp_socket::{FakeTcpSocket, Options};
use packet::CarrierKind;
use packet_io::{DatagramSocket, Interest, Outgoing, Poller, ReceiveBatch, UdpSocket, payload_max};
use peer_proto::Outbox;

use crate::driver::FIRST_BESIDE;
use crate::limits::RENDEZVOUS_PAYLOAD_MAX;
use crate::transmit::socket_options;

/// One of them.
struct BesideSocket {
    /// Where it leads, by an address that is no packet's ([`CarrierKind`]): others may lead there, too.
    remote: SocketAddr,
    token: u64,
    socket: Socket,
}

enum Socket {
    Udp(Box<UdpSocket>),
    Tcp(Box<FakeTcpSocket>),
}

impl Socket {
    /// Opens one; the largest datagram that it carries, in bytes.
    fn open(remote: SocketAddr, token: u64, poller: &Poller) -> io::Result<(Self, u16)> {
        let address = CarrierKind::unmark(remote);
        Ok(match CarrierKind::of(remote) {
            CarrierKind::Udp => {
                let socket = UdpSocket::connect(None, address, &socket_options())?;
                poller.add(&socket, token, Interest::READABLE)?;
                (Self::Udp(Box::new(socket)), RENDEZVOUS_PAYLOAD_MAX)
            }
            CarrierKind::Tcp => {
                let options = Options {
                    socket: socket_options(),
                    ..Options::default()
                };
                let socket = FakeTcpSocket::connect(None, address, &options)?;
                poller.add(&socket, token, Interest::READABLE)?;
                let carried = socket
                    .path_mtu()
                    .map_or(RENDEZVOUS_PAYLOAD_MAX, |mtu| payload_max(remote, Some(mtu)));
                (Self::Tcp(Box::new(socket)), carried.min(RENDEZVOUS_PAYLOAD_MAX))
            }
        })
    }

    /// Tells what is between that it is closed, which need not keep it in mind.
    fn close(&mut self, now: Instant) {
        if let Self::Tcp(socket) = self {
            socket.close_all(now);
        }
    }

    fn receive(&mut self, now: Instant, batch: &mut ReceiveBatch) -> io::Result<usize> {
        match self {
            Self::Udp(socket) => socket.receive(batch),
            Self::Tcp(socket) => socket.receive(now, batch),
        }
    }

    /// What it does not take at once is lost, as on the way.
    fn send(&mut self, now: Instant, messages: &[Outgoing<'_>]) {
        match self {
            Self::Udp(socket) => {
                let _ = socket.send(messages);
            }
            Self::Tcp(socket) => {
                socket.send(now, messages);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Udp(_) => None,
            Self::Tcp(socket) => socket.poll_timeout(),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Self::Tcp(socket) = self {
            socket.handle_timeout(now);
        }
    }
}

/// All of an endpoint: in TCP's shape one for each address of the rendezvous that is in use, over UDP one for each
/// attempt.
#[derive(Default)]
pub(crate) struct BesideSockets {
    sockets: Vec<BesideSocket>,
    /// Those that were ever opened.
    count: u64,
}

impl BesideSockets {
    /// Opens one; the largest datagram that it carries, in bytes.
    ///
    /// # Errors
    /// Why it cannot be opened, for people.
    pub(crate) fn open(&mut self, remote: SocketAddr, poller: &Poller) -> Result<u16, String> {
        let token = FIRST_BESIDE + self.count;
        let (socket, carried) =
            Socket::open(remote, token, poller).map_err(|error| why_not(remote, &error))?;
        self.count += 1;
        self.sockets.push(BesideSocket {
            remote,
            token,
            socket,
        });
        Ok(carried)
    }

    pub(crate) fn close(&mut self, now: Instant, remote: SocketAddr, poller: &Poller) {
        for mut closed in self.sockets.extract_if(.., |socket| socket.remote == remote) {
            // It is watched since it was opened.
            let _ = match &closed.socket {
                Socket::Udp(socket) => poller.remove(socket),
                Socket::Tcp(socket) => poller.remove(socket),
            };
            closed.socket.close(now);
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

    /// Takes out of `outbox` what goes by one of them, and sends it.
    pub(crate) fn send(&mut self, now: Instant, outbox: &mut Outbox) {
        let goes_beside = |destination| CarrierKind::is_marked(destination);
        if !outbox.trains().iter().any(|train| goes_beside(train.destination)) {
            return;
        }
        for BesideSocket { remote, socket, .. } in &mut self.sockets {
            let own = outbox.trains().iter();
            let own = own.filter(|train| train.destination == *remote);
            let messages: Vec<Outgoing<'_>> = own
                .map(|train| Outgoing {
                    ecn: train.ecn,
                    ..Outgoing::connected(&train.bytes, train.segment_size)
                })
                .collect();
            if !messages.is_empty() {
                socket.send(now, &messages);
            }
        }
        outbox.discard(|train| goes_beside(train.destination));
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let due = self.sockets.iter().map(|socket| socket.socket.poll_timeout());
        due.flatten().min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        for BesideSocket { socket, .. } in &mut self.sockets {
            if socket.poll_timeout().is_some_and(|due| due <= now) {
                socket.handle_timeout(now);
            }
        }
    }
}

impl Drop for BesideSockets {
    fn drop(&mut self) {
        for BesideSocket { socket, .. } in &mut self.sockets {
            socket.close(Instant::now());
        }
    }
}

/// Nothing listens on the server's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortClosed;

/// Why one cannot be opened.
fn why_not(remote: SocketAddr, error: &io::Error) -> String {
    if CarrierKind::of(remote) == CarrierKind::Tcp && error.kind() == io::ErrorKind::PermissionDenied {
        return "UDP may be blocked, and packets that look like TCP need the capability CAP_NET_RAW: run this as root, or \
                give it that capability"
            .to_owned();
    }
    error.to_string()
}
