//! Keeps a TCP port for ourselves, and the kernel silent about it.
//!
//! A listener reserves the port and drops whatever comes, before the kernel answers (`tcp_v4_rcv` and `tcp_v6_rcv`):
//! neither RST, as without a listener, nor SYN-ACK. Raw sockets see the packets all the same. Nothing remains when the
//! process ends.
//!
//! A filter drops everything, but since Linux 6.18 it needs CAP_NET_ADMIN on a socket of TCP. Without it the listener
//! takes only packets with the highest hop limit: hosts send 64 or 128, and each router on the way lowers it. Only a
//! neighbour who sends 255 is then answered by the kernel, which is nobody who speaks to us (specs/fake-tcp.md,
//! FTCP-1).

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;

use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};

use super::filter;
use crate::sys::options;

/// The highest hop limit of an IP packet.
const HOP_LIMIT_MAX: libc::c_int = 255;

/// A TCP port that is ours as long as this lives.
#[derive(Debug)]
pub struct PortGuard {
    /// Only held.
    _socket: Socket,
    local: SocketAddr,
}

impl PortGuard {
    /// Takes the TCP port of `local`, or any free one where it says 0. The IPv6 wildcard takes IPv4 as well, and means
    /// IPv4's on a machine without IPv6.
    ///
    /// # Errors
    /// The kernel's refusal, with the address: it is in use, is not of this machine, or needs privilege.
    pub fn take(local: SocketAddr) -> io::Result<Self> {
        match Self::open(local) {
            Err(error) if local.ip().is_unspecified() && local.is_ipv6() && is_without_family(&error) => {
                Self::open((Ipv4Addr::UNSPECIFIED, local.port()).into())
            }
            other => other,
        }
        .map_err(|error| io::Error::new(error.kind(), format!("cannot take TCP {local}: {error}")))
    }

    fn open(local: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(local), Type::STREAM, Some(Protocol::TCP))?;
        if local.is_ipv6() {
            socket.set_only_v6(!local.ip().is_unspecified())?;
        }
        // As the standard library does: connections of an earlier process do not keep the port.
        socket.set_reuse_address(true)?;
        silence(&socket, local.is_ipv6())?;
        socket.bind(&local.into())?;
        socket.listen(1)?;
        let local = socket.local_addr()?.as_socket().unwrap_or(local);
        Ok(Self {
            _socket: socket,
            local,
        })
    }

    /// The address that is guarded.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }
}

/// Has the socket drop what comes.
fn silence(socket: &Socket, is_ipv6: bool) -> io::Result<()> {
    let (socket, nothing) = (socket.as_fd(), filter::nothing());
    match options::attach_program(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &nothing) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        other => return other,
    }
    options::set(socket, libc::IPPROTO_IP, libc::IP_MINTTL, HOP_LIMIT_MAX)?;
    if is_ipv6 {
        options::set(socket, libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT, HOP_LIMIT_MAX)?;
    }
    Ok(())
}

fn is_without_family(error: &io::Error) -> bool {
    let without = [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL];
    Errno::from_io_error(error).is_some_and(|number| without.contains(&number))
}
