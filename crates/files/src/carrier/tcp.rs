//! TCP connections between the ends of a session: who listens, who connects, and to where.
//!
//! A connection goes to the address at which the peer is reached by QUIC, because that one is known to work, and to the
//! port that the peer told. Through a router that leads nowhere mostly; QUIC carries everything then.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::Shutdown;
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_user_timeout};

use crate::limits::{TCP_KEEPALIVE, TCP_SETUP_TIME_MAX, TCP_SILENCE_MAX};

/// How often a listener looks whether it is still needed.
const LISTENER_TURN: Duration = Duration::from_millis(50);

/// Takes TCP connections of one session.
pub(crate) struct Listener(TcpListener);

impl Listener {
    /// At a port that the system chooses, for IPv6 and IPv4.
    pub(crate) fn bind() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0))
            .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
        listener.set_nonblocking(true)?;
        Ok(Self(listener))
    }

    pub(crate) fn port(&self) -> io::Result<u16> {
        Ok(self.0.local_addr()?.port())
    }

    /// Takes no more connections: who waits for one is told.
    pub(crate) fn close(&self) {
        // It may have failed by itself, which is told as well.
        let _ = rustix::net::shutdown(&self.0, Shutdown::Both);
    }

    /// The next connection; `None` once `is_over` says so, or the listener is closed or fails.
    pub(crate) fn accept(&self, is_over: impl Fn() -> bool) -> Option<TcpStream> {
        let turn = Timespec {
            tv_sec: 0,
            tv_nsec: i64::try_from(LISTENER_TURN.as_nanos()).unwrap_or(0),
        };
        while !is_over() {
            match self.0.accept() {
                Ok((socket, _)) => match socket.set_nonblocking(false).and_then(|()| prepare(&socket)) {
                    Ok(()) => return Some(socket),
                    Err(_) => continue,
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // A signal, or nobody: look again.
                    let _ = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&turn));
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => return None,
            }
        }
        None
    }
}

/// Connects to this port of the machine at `address`.
pub(crate) fn connect(mut address: SocketAddr, port: u16) -> io::Result<TcpStream> {
    // A socket of both versions knows IPv4 addresses by their mapped form.
    if let std::net::IpAddr::V4(canonical) = address.ip().to_canonical() {
        address = SocketAddr::from((canonical, port));
    }
    address.set_port(port);
    let socket = TcpStream::connect_timeout(&address, TCP_SETUP_TIME_MAX)?;
    prepare(&socket)?;
    Ok(socket)
}

/// A path that falls silent ends the connection, and others carry what it had.
fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let milliseconds = u32::try_from(TCP_SILENCE_MAX.as_millis()).unwrap_or(u32::MAX);
    set_tcp_user_timeout(socket, milliseconds)?;
    // The end that only reads asks whether the other one is there.
    set_socket_keepalive(socket, true)?;
    set_tcp_keepidle(socket, TCP_KEEPALIVE)?;
    Ok(set_tcp_keepintvl(socket, TCP_KEEPALIVE)?)
}

/// Whether the other end has closed a connection, or its path has failed.
pub(crate) fn is_lost(socket: &TcpStream) -> bool {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // Errors and the end of both directions are told always.
    let mut asked = [PollFd::new(socket, PollFlags::RDHUP)];
    matches!(poll(&mut asked, Some(&now)), Ok(ready) if ready > 0)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn both_versions_of_ip_reach_a_listener_and_a_mapped_address_does() {
        let listener = Listener::bind().unwrap();
        let port = listener.port().unwrap();
        for address in ["127.0.0.1:9", "[::ffff:127.0.0.1]:9", "[::1]:9"] {
            let Ok(connected) = connect(address.parse().unwrap(), port) else {
                assert_eq!(address, "[::1]:9", "machines without IPv6 have no such address");
                continue;
            };
            let accepted = listener.accept(|| false).unwrap();
            assert_eq!(
                accepted.peer_addr().unwrap().port(),
                connected.local_addr().unwrap().port()
            );
        }
    }

    #[test]
    fn a_listener_that_nobody_needs_ends() {
        let listener = Listener::bind().unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| listener.accept(|| is_over.load(Ordering::SeqCst)).is_none());
            is_over.store(true, Ordering::SeqCst);
            assert!(waiter.join().unwrap());
            let waiter = scope.spawn(|| listener.accept(|| false).is_none());
            listener.close();
            assert!(waiter.join().unwrap());
        });
    }
}
