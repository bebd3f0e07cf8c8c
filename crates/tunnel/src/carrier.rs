//! What a shard sends QUIC's packets through: a UDP socket, or anything else that carries datagrams between addresses.
//!
//! A shard has one carrier, and one more for each of a client's attempts to connect: it watches the carriers'
//! descriptors, takes what came, sends trains, and runs the carriers' timers. Nothing above names a socket.
//! [`Carriers`] makes them, one for each shard of a server and one for each attempt of a client; [`UdpOrTcp`] is what
//! the program uses.

mod both;
pub(crate) mod offered;
mod siblings;
mod tcp;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

pub use packet::CarrierKind;
use packet_io::{
    DatagramSocket, InterfaceName, Outgoing, ReceiveBatch, SendOutcome, SocketOptions, UdpSocket, steering,
};
use quic::{STEER_MARK, SteerKey};

use crate::config::TcpListen;
use crate::snapshot::IoCounters;
use both::BothCarriers;
use offered::Offered;
pub use offered::OfferedSocket;
use tcp::TcpCarrier;

/// Why nothing could be received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The peer's machine says that nothing listens there. Anybody on the way can say so, so it counts only where the
    /// server is silent.
    PortClosed,
    /// Something that passes, or that the next attempt to send will show.
    Passing,
}

/// Carries datagrams for one shard, without blocking. Its descriptor becomes readable when something has come, and
/// writable or readable when it takes more after it was full.
pub trait Carrier: AsFd + Send {
    /// Replaces what `batch` holds by what has arrived; `Ok(0)` means that nothing is there.
    ///
    /// # Errors
    /// The [`Refusal`] that the path reported, once each; the carrier goes on.
    fn receive(&mut self, batch: &mut ReceiveBatch) -> Result<usize, Refusal>;

    /// Sends messages in order, as many as it takes. What is neither disposed of nor blocked can never be sent.
    fn send(&mut self, messages: &[Outgoing<'_>]) -> SendOutcome;

    /// Whether it takes more after it was full, where its descriptor is only readable then.
    fn takes_more(&mut self) -> bool {
        false
    }

    /// The address that packets leave from, where it is known.
    fn local_addr(&self) -> Option<SocketAddr>;

    /// The only peer, with its kind of carrier ([`CarrierKind`]); messages then name no destination.
    fn remote_addr(&self) -> Option<SocketAddr>;

    /// What it has done since it exists.
    fn counters(&mut self) -> IoCounters;

    /// Bytes that it adds to each datagram besides the headers of IP and of its kind; so many fewer remain for QUIC.
    fn overhead_bytes(&self) -> u16 {
        0
    }

    /// Most bytes of an IP packet on the path to its only peer, as far as this machine knows; `None`: as the route
    /// there has it.
    fn path_mtu(&self) -> Option<u32> {
        None
    }

    /// When [`Carrier::handle_timeout`] is due.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Does what is due: keeps a mapping alive, sends what it held back, repeats.
    fn handle_timeout(&mut self, _now: Instant) {}

    /// Lets packets leave by this interface, or by whichever the routes say; what is under way stays where it is. A
    /// carrier that cannot leaves it.
    fn set_interface(&mut self, _interface: Option<InterfaceName>) {}

    /// One sentence where something about it should be better and a person can change it.
    fn warning(&self) -> Option<String> {
        None
    }

    /// Offers its socket to another process that is to take it over, and reads from here on also what that process
    /// hands back. Its descriptor is another one afterwards.
    ///
    /// # Errors
    /// `Unsupported` where it has nothing that another process could use; the kernel's refusal.
    fn offer(&mut self) -> io::Result<OfferedSocket> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// What it offered was taken over: it reads only what is handed back.
    fn hand_over(&mut self) {}

    /// What it offered was not taken over: it is as before, with the descriptor that it had before.
    fn withdraw(&mut self) {}
}

/// Makes carriers. Shared by all shards of a process.
pub trait Carriers: Send + Sync {
    /// One carrier for each of a server's `count` shards, all at `listen`. With several shards, what names one by its
    /// connection ID under `key` should come to that one; what does not is handed over.
    ///
    /// # Errors
    /// The system's refusal, e.g. an occupied port.
    fn listen(
        &self,
        listen: SocketAddr,
        count: usize,
        key: &SteerKey,
        options: &SocketOptions,
    ) -> io::Result<Vec<Box<dyn Carrier>>>;

    /// A carrier from `local`, or from where the system chooses, to a server, whose address says of which kind.
    ///
    /// # Errors
    /// The system's refusal, e.g. where no route leads there.
    fn connect(
        &self,
        local: Option<SocketAddr>,
        server: SocketAddr,
        options: &SocketOptions,
    ) -> io::Result<Box<dyn Carrier>>;
}

/// UDP sockets of the kernel, and sockets in TCP's shape beside its TCP.
#[derive(Clone, Copy, Debug, Default)]
pub struct UdpOrTcp {
    /// Where a server listens in TCP's shape besides.
    pub tcp: Option<TcpListen>,
}

impl Carriers for UdpOrTcp {
    fn listen(
        &self,
        listen: SocketAddr,
        count: usize,
        key: &SteerKey,
        options: &SocketOptions,
    ) -> io::Result<Vec<Box<dyn Carrier>>> {
        let sockets = bind_group(listen, count, options)?;
        if count > 1 {
            let shards = u8::try_from(count).map_err(|_| io::ErrorKind::InvalidInput)?;
            let ids = steering::ConnectionIds {
                round_keys: key.round_keys(),
                mark: STEER_MARK,
                bytes: key.id_length().bytes() as u8,
            };
            steering::attach(&sockets[0], ids, shards)?;
        }
        let local = sockets[0].local_addr()?;
        let sockets = sockets.into_iter().map(UdpCarrier::boxed);
        let Some(tcp) = self.tcp else {
            return Ok(sockets.collect());
        };
        let tcp = TcpCarrier::listen(tcp.address(local), local, count, options)?;
        let both = |(udp, tcp)| Ok(Box::new(BothCarriers::new(udp, tcp)?) as Box<dyn Carrier>);
        sockets.zip(tcp).map(both).collect()
    }

    fn connect(
        &self,
        local: Option<SocketAddr>,
        server: SocketAddr,
        options: &SocketOptions,
    ) -> io::Result<Box<dyn Carrier>> {
        Ok(match CarrierKind::of(server) {
            CarrierKind::Udp => UdpCarrier::boxed(UdpSocket::connect(local, server, options)?),
            CarrierKind::Tcp => Box::new(TcpCarrier::connect(local, server, options)?),
        })
    }
}

/// Binds a group of sockets; where the machine has no IPv6, its wildcard means IPv4's.
fn bind_group(listen: SocketAddr, count: usize, options: &SocketOptions) -> io::Result<Vec<UdpSocket>> {
    match UdpSocket::bind_group(listen, count, options) {
        Err(error) if listen.ip().is_unspecified() && listen.is_ipv6() && has_no_family(&error) => {
            let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, listen.port()));
            UdpSocket::bind_group(v4, count, options)
        }
        other => other,
    }
}

fn has_no_family(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
        || error.kind() == io::ErrorKind::AddrNotAvailable
        || error.kind() == io::ErrorKind::Unsupported
}

struct UdpCarrier {
    socket: UdpSocket,
    /// The socket is offered to another process, or was taken over by it.
    offered: Option<Box<Offered>>,
    /// The last messages found no room.
    waits_for_room: bool,
}

impl UdpCarrier {
    fn boxed(socket: UdpSocket) -> Box<dyn Carrier> {
        Box::new(Self {
            socket,
            offered: None,
            waits_for_room: false,
        })
    }
}

/// A carrier over a socket that another process has handed over.
pub(crate) fn adopted(socket: UdpSocket) -> Box<dyn Carrier> {
    UdpCarrier::boxed(socket)
}

impl AsFd for UdpCarrier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.offered {
            Some(offered) => offered.as_fd(),
            None => self.socket.as_fd(),
        }
    }
}

impl Carrier for UdpCarrier {
    fn receive(&mut self, batch: &mut ReceiveBatch) -> Result<usize, Refusal> {
        if let Some(offered) = &mut self.offered {
            let count = offered.receive(batch);
            if count > 0 || offered.is_taken_over() {
                return Ok(count);
            }
        }
        self.socket.receive(batch).map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => Refusal::PortClosed,
            _ => Refusal::Passing,
        })
    }

    fn send(&mut self, messages: &[Outgoing<'_>]) -> SendOutcome {
        let outcome = self.socket.send(messages).unwrap_or_default();
        self.waits_for_room = outcome.blocked;
        if let Some(offered) = &mut self.offered {
            offered.watch_for_room(&self.socket, outcome.blocked);
        }
        outcome
    }

    fn takes_more(&mut self) -> bool {
        self.offered.is_some()
    }

    fn offer(&mut self) -> io::Result<OfferedSocket> {
        let (mut offered, socket) = Offered::new(&self.socket)?;
        offered.watch_for_room(&self.socket, self.waits_for_room);
        self.offered = Some(Box::new(offered));
        Ok(socket)
    }

    fn hand_over(&mut self) {
        if let Some(offered) = &mut self.offered {
            offered.hand_over(&self.socket);
        }
    }

    fn withdraw(&mut self) {
        self.offered = None;
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()
    }

    fn remote_addr(&self) -> Option<SocketAddr> {
        self.socket.remote_addr()
    }

    fn counters(&mut self) -> IoCounters {
        IoCounters::of_socket(&mut self.socket)
    }

    fn path_mtu(&self) -> Option<u32> {
        self.socket.path_mtu().ok()
    }

    fn set_interface(&mut self, interface: Option<InterfaceName>) {
        // Without the capability the routes decide, as before.
        let _ = self.socket.set_interface(interface);
    }

    fn warning(&self) -> Option<String> {
        self.socket.buffer_warning()
    }
}
