//! A real UDP socket: opening it, its options, and receiving and sending batches.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use packet::{CarrierKind, Ecn};
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use socket2::{Domain, Protocol, Socket, Type};

use crate::batch::{ReceiveBatch, newer_drops};
use crate::buffers::{BufferGrants, Grant};
use crate::capabilities::{Capabilities, Offloads};
use crate::datagram::{DatagramSocket, IoStats, Outgoing, SendOutcome};
use crate::interface::InterfaceName;
use crate::limits::{
    ETHERNET_MTU, IPV4_HEADER_BYTES, IPV6_HEADER_BYTES, RECEIVE_BUFFER_BYTES_DEFAULT,
    SEND_BUFFER_BYTES_DEFAULT, TRAIN_BYTES_MAX,
};
use crate::privileges::{bind_interface, set_mark};
use crate::send::Sender;
use crate::sys::addr::Family;
use crate::sys::mmsg::SendArrays;
use crate::sys::options;

/// How a socket is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// Receive buffer to ask for, in bytes; 0 leaves the system's default.
    pub receive_buffer_bytes: usize,
    /// Send buffer to ask for, in bytes; 0 leaves the system's default.
    pub send_buffer_bytes: usize,
    /// Offloads to use where the kernel has them.
    pub offloads: Offloads,
    /// Never fragment, and ignore path MTUs that others report (`PMTUDISC_PROBE`), as RFC 8899 requires.
    pub dont_fragment: bool,
    /// Report the ECN codepoint of what is received.
    pub receive_ecn: bool,
    /// Share the port with sockets of this user's processes that do so too ([`UdpSocket::bind_group`]).
    pub reuse_port: bool,
    /// The only interface to send and receive by, whatever the routes say.
    pub interface: Option<InterfaceName>,
    /// Receive what nftables leads here although it is for other machines (TPROXY), with the address that each datagram
    /// is for; or send from another machine's address. Needs CAP_NET_RAW or CAP_NET_ADMIN.
    pub transparent: bool,
    /// Firewall mark of what is sent, by which rules of routing tell it apart; needs CAP_NET_ADMIN.
    pub mark: Option<u32>,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            receive_buffer_bytes: RECEIVE_BUFFER_BYTES_DEFAULT,
            send_buffer_bytes: SEND_BUFFER_BYTES_DEFAULT,
            offloads: Offloads::default(),
            dont_fragment: false,
            receive_ecn: false,
            reuse_port: false,
            interface: None,
            transparent: false,
            mark: None,
        }
    }
}

/// A non-blocking UDP socket.
pub struct UdpSocket {
    socket: Socket,
    family: Family,
    remote: Option<SocketAddr>,
    /// Bound to a wildcard, so that the local address is reported and chosen per datagram.
    wildcard: bool,
    grants: BufferGrants,
    sender: Sender,
    arrays: SendArrays,
    drops_seen: u32,
    stats: IoStats,
}

impl UdpSocket {
    /// A socket that receives at `local` from anybody. The IPv6 wildcard takes IPv4 as well. On a wildcard, the
    /// address that a datagram arrived at is known, and `source` of an answer is heeded.
    ///
    /// # Errors
    /// The kernel's refusal, with what was tried: the address is in use, is not of this machine, or needs privilege.
    pub fn bind(local: SocketAddr, options: &SocketOptions) -> io::Result<Self> {
        let local = canonical(local);
        Self::open(Some(local), None, options).map_err(|error| explain(&error, "listen at", local))
    }

    /// `count` (at least 1) sockets that share the port of `local`, at which nobody else may be receiving already. The
    /// kernel spreads senders over them by addresses and ports, until [`crate::steering`] replaces that rule. Closing
    /// one moves the last into its place; a later one joins with [`SocketOptions::reuse_port`].
    ///
    /// # Errors
    /// As of [`UdpSocket::bind`].
    pub fn bind_group(local: SocketAddr, count: usize, options: &SocketOptions) -> io::Result<Vec<Self>> {
        let alone = SocketOptions {
            reuse_port: false,
            ..*options
        };
        let first = Self::bind(local, &alone)?;
        let shared = first.local_addr()?;
        if count > 1 {
            // Set after binding, it lets others join and did not make this one join others.
            first.socket.set_reuse_port(true)?;
        }
        let joining = SocketOptions {
            reuse_port: true,
            ..*options
        };
        let mut sockets = vec![first];
        for _ in 1..count {
            sockets.push(Self::bind(shared, &joining)?);
        }
        Ok(sockets)
    }

    /// A socket that talks to `remote` only, from `local` or whatever address the kernel chooses.
    ///
    /// # Errors
    /// The kernel's refusal, with what was tried: no route, or as for [`UdpSocket::bind`].
    pub fn connect(
        local: Option<SocketAddr>,
        remote: SocketAddr,
        options: &SocketOptions,
    ) -> io::Result<Self> {
        let remote = canonical(remote);
        Self::open(local.map(canonical), Some(remote), options)
            .map_err(|error| explain(&error, "connect to", remote))
    }

    /// A socket that another process of this program has bound, and perhaps still reads and writes.
    ///
    /// # Errors
    /// The descriptor is of no bound UDP socket, or the kernel refuses an option.
    pub fn adopt(descriptor: OwnedFd, options: &SocketOptions) -> io::Result<Self> {
        let socket = Socket::from(descriptor);
        if socket.r#type()? != Type::DGRAM || socket.protocol()? != Some(Protocol::UDP) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the descriptor is of no UDP socket",
            ));
        }
        let local = socket.local_addr()?.as_socket();
        let local = local
            .filter(|local| local.port() != 0)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the UDP socket is not bound"))?;
        socket.set_nonblocking(true)?;
        let family = if local.is_ipv4() { Family::V4 } else { Family::V6 };
        let wildcard = local.ip().is_unspecified();
        let capabilities = Capabilities::probe();
        let gro = options.offloads.gro && capabilities.gro;
        set_up(&socket, family, wildcard, gro, options)?;
        let grants = BufferGrants::apply(&socket, options.receive_buffer_bytes, options.send_buffer_bytes)?;
        Ok(Self::of(
            socket,
            family,
            None,
            wildcard,
            grants,
            capabilities,
            options,
        ))
    }

    fn open(
        local: Option<SocketAddr>,
        remote: Option<SocketAddr>,
        options: &SocketOptions,
    ) -> io::Result<Self> {
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let family = Family::of(remote.or(local).unwrap_or(any));
        let domain = if family == Family::V4 {
            Domain::IPV4
        } else {
            Domain::IPV6
        };
        let socket = Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
        let wildcard = remote.is_none() && local.is_some_and(|local| local.ip().is_unspecified());
        if family == Family::V6 {
            socket.set_only_v6(local.is_some_and(|local| !local.ip().is_unspecified()))?;
        }
        let capabilities = Capabilities::probe();
        set_up(
            &socket,
            family,
            wildcard,
            options.offloads.gro && capabilities.gro,
            options,
        )?;
        let grants = BufferGrants::apply(&socket, options.receive_buffer_bytes, options.send_buffer_bytes)?;
        if options.reuse_port {
            socket.set_reuse_port(true)?;
        }
        if options.transparent {
            options::set_transparent(socket.as_fd(), family == Family::V6)?;
            if options.reuse_port {
                // A name server of this machine, say, has the port at all addresses.
                socket.set_reuse_address(true)?;
            }
            options::report_targets(socket.as_fd(), family == Family::V6)?;
        }
        if let Some(interface) = options.interface {
            bind_interface(&socket, Some(interface))?;
        }
        if let Some(mark) = options.mark {
            set_mark(&socket, mark)?;
        }
        if let Some(local) = local {
            socket.bind(&local.into())?;
        }
        if let Some(remote) = remote {
            socket.connect(&remote.into())?;
        }
        Ok(Self::of(
            socket,
            family,
            remote,
            wildcard,
            grants,
            capabilities,
            options,
        ))
    }

    fn of(
        socket: Socket,
        family: Family,
        remote: Option<SocketAddr>,
        wildcard: bool,
        grants: BufferGrants,
        capabilities: Capabilities,
        options: &SocketOptions,
    ) -> Self {
        let gso_segments_max = if options.offloads.gso {
            capabilities.gso_segments_max
        } else {
            1
        };
        Self {
            socket,
            family,
            remote,
            wildcard,
            grants,
            sender: Sender::new(gso_segments_max, TRAIN_BYTES_MAX, remote.is_some()),
            arrays: SendArrays::default(),
            drops_seen: 0,
            stats: IoStats::default(),
        }
    }

    /// Buffers asked for and obtained.
    #[must_use]
    pub fn grants(&self) -> BufferGrants {
        self.grants
    }

    /// Asks for another receive buffer, in bytes; what was obtained is in [`UdpSocket::grants`].
    ///
    /// # Errors
    /// None in practice; the kernel's otherwise.
    pub fn set_receive_buffer(&mut self, bytes: usize) -> io::Result<()> {
        self.grants.receive = Grant::of_receive_buffer(&self.socket, bytes)?;
        Ok(())
    }

    /// One sentence if a buffer is smaller than requested, with the command that allows more.
    #[must_use]
    pub fn buffer_warning(&self) -> Option<String> {
        self.grants.warning()
    }

    /// The remote address of a connected socket.
    #[must_use]
    pub fn remote_addr(&self) -> Option<SocketAddr> {
        self.remote
    }

    /// Binds the socket to an interface, or to another one, or to none. What is under way stays where it is. Binding
    /// one that is bound already needs CAP_NET_RAW, here or at the delegate ([`crate::delegate`]).
    ///
    /// # Errors
    /// `NotFound` where there is no such interface, `PermissionDenied` without the capability.
    pub fn set_interface(&self, interface: Option<InterfaceName>) -> io::Result<()> {
        bind_interface(&self.socket, interface)
    }

    /// Brings `kernel_drops` of the counters up to date, which receiving does only with the next datagram.
    ///
    /// # Errors
    /// None in practice; the kernel's otherwise.
    pub fn refresh_kernel_drops(&mut self) -> io::Result<()> {
        let drops = options::drops(self.socket.as_fd())?;
        self.stats.kernel_drops += u64::from(newer_drops(&mut self.drops_seen, drops));
        Ok(())
    }

    /// The path MTU of a connected socket as the kernel knows it, in bytes of IP packet.
    ///
    /// # Errors
    /// `NotConnected` on a socket that is not.
    pub fn path_mtu(&self) -> io::Result<u32> {
        Ok(match self.family {
            Family::V4 => sockopt::ip_mtu(&self.socket)?,
            Family::V6 => sockopt::ipv6_mtu(&self.socket)?,
        })
    }
}

/// The MTU of the route to `remote` of packets with this mark, in bytes of IP packet; nothing is sent.
///
/// # Errors
/// No route, or the kernel's refusal of a socket.
pub fn route_mtu(remote: SocketAddr, mark: Option<u32>) -> io::Result<u32> {
    let options = SocketOptions {
        receive_buffer_bytes: 0,
        send_buffer_bytes: 0,
        mark,
        ..SocketOptions::default()
    };
    UdpSocket::connect(None, remote, &options)?.path_mtu()
}

/// Largest datagram to `remote`, in bytes, where IP packets may have `mtu` bytes, or what the route there carries.
#[must_use]
pub fn payload_max(remote: SocketAddr, mtu: Option<u32>) -> u16 {
    let mtu = mtu.or_else(|| route_mtu(remote, None).ok());
    let ip_header = if remote.ip().to_canonical().is_ipv4() {
        IPV4_HEADER_BYTES
    } else {
        IPV6_HEADER_BYTES
    };
    let headers = ip_header + u32::from(CarrierKind::of(remote).header_bytes());
    let payload = mtu.unwrap_or(ETHERNET_MTU).saturating_sub(headers);
    payload.min(packet::UDP_PAYLOAD_MAX as u32) as u16
}

impl DatagramSocket for UdpSocket {
    fn receive(&mut self, batch: &mut ReceiveBatch) -> io::Result<usize> {
        batch.receive_from(self.socket.as_fd(), &mut self.stats, &mut self.drops_seen)
    }

    fn send(&mut self, messages: &[Outgoing<'_>]) -> io::Result<SendOutcome> {
        let Self {
            socket,
            family,
            remote,
            wildcard,
            sender,
            arrays,
            stats,
            ..
        } = self;
        Ok(sender.send(messages, stats, |units| {
            arrays.send(socket.as_fd(), units.len(), |index, name, control| {
                let unit = &units[index];
                let message = &messages[unit.message];
                // A name on a connected socket would cost a route lookup.
                let named = message
                    .destination
                    .filter(|destination| Some(*destination) != *remote);
                if let Some(destination) = named {
                    name.encode(destination, *family);
                }
                if unit.is_train() {
                    control.push_segment_size(unit.segment_size);
                }
                if message.ecn != Ecn::NotEct {
                    let v4 = named
                        .or(*remote)
                        .is_none_or(|to| to.ip().to_canonical().is_ipv4());
                    control.push_ecn(message.ecn, v4);
                }
                if let Some(source) = message.source.filter(|_| *wildcard) {
                    control.push_source(source);
                }
                [unit.of(messages)]
            })
        }))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        let address = self.socket.local_addr()?.as_socket();
        address
            .map(canonical)
            .ok_or_else(|| io::Error::other("the kernel gave a local address that is not IP"))
    }

    fn stats(&self) -> &IoStats {
        &self.stats
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sets what has to be set before the socket is bound, so that no datagram comes in without it.
fn set_up(
    socket: &Socket,
    family: Family,
    wildcard: bool,
    gro: bool,
    options: &SocketOptions,
) -> io::Result<()> {
    let on = 1;
    let descriptor = socket.as_fd();
    // An IPv6 socket may carry IPv4, so it gets the options of both.
    let v6 = family == Family::V6;
    if gro {
        options::set(descriptor, libc::SOL_UDP, libc::UDP_GRO, on)?;
    }
    options::set(descriptor, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, on)?;
    if options.dont_fragment {
        sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::PROBE)?;
        if v6 {
            sockopt::set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::PROBE)?;
            options::set(descriptor, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, on)?;
        }
    }
    if options.receive_ecn {
        sockopt::set_ip_recvtos(socket, true)?;
        if v6 {
            sockopt::set_ipv6_recvtclass(socket, true)?;
        }
    }
    // The IPv6 form also tells IPv4 addresses, mapped.
    match (wildcard, v6) {
        (false, _) => Ok(()),
        (true, false) => options::set(descriptor, libc::IPPROTO_IP, libc::IP_PKTINFO, on),
        (true, true) => options::set(descriptor, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, on),
    }
}

/// An IPv4 address that came in mapped form, as IPv4; the unspecified IPv6 address stays as it is.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_some() => {
            SocketAddr::new(Ipv6Addr::to_canonical(v6.ip()), v6.port())
        }
        other => other,
    }
}

fn explain(error: &io::Error, verb: &str, address: SocketAddr) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {verb} UDP {address}: {error}"))
}
