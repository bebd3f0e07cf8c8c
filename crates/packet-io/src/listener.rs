//! TCP listeners that share one port, so that the kernel spreads connections over the threads which hold them.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;

use socket2::{Domain, Protocol, Socket, Type};

use crate::sys::options;

/// Makes `count` (at least 1) non-blocking listeners at `local` that share its port, by which nobody else may have been
/// listening before.
///
/// # Errors
/// The kernel's refusal, with the address: it is in use, is not of this machine, or needs privilege.
pub fn listen_tcp_group(local: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    open_group(local, count, false)
}

/// The same for connections to other machines that nftables leads here (TPROXY): the local address of an accepted one
/// is its target's. Needs CAP_NET_RAW or CAP_NET_ADMIN.
///
/// # Errors
/// As of [`listen_tcp_group`], and without the capability.
pub fn listen_transparent_tcp_group(local: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    open_group(local, count, true)
}

fn open_group(local: SocketAddr, count: usize, transparent: bool) -> io::Result<Vec<TcpListener>> {
    let first = open(local, false, transparent)?;
    let shared = first.local_addr()?;
    let mut listeners = vec![first];
    for _ in 1..count {
        listeners.push(open(shared, true, transparent)?);
    }
    Ok(listeners)
}

/// Another non-blocking listener at `local`, whose port a group of this user's processes may share already.
///
/// # Errors
/// As of [`listen_tcp_group`].
pub fn join_tcp_group(local: SocketAddr) -> io::Result<TcpListener> {
    open(local, true, false)
}

fn open(local: SocketAddr, join: bool, transparent: bool) -> io::Result<TcpListener> {
    let open = || {
        let socket = Socket::new(
            Domain::for_address(local),
            Type::STREAM.nonblocking(),
            Some(Protocol::TCP),
        )?;
        // As the standard library does: connections of an earlier process do not keep the port.
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(join)?;
        if transparent {
            options::set_transparent(socket.as_fd(), local.is_ipv6())?;
        }
        socket.bind(&local.into())?;
        // Set after binding, it lets later ones join and does not make this one join others.
        socket.set_reuse_port(true)?;
        socket.listen(libc::SOMAXCONN)?;
        Ok(TcpListener::from(socket))
    };
    open().map_err(|error: io::Error| {
        io::Error::new(error.kind(), format!("cannot listen at TCP {local}: {error}"))
    })
}
