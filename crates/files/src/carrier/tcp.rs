//! TCP connections between the ends of a session: who listens, who connects, and to where.
//!
//! A connection goes to the address at which the peer is reached by QUIC, because that one is known to work, and to the
//! port that the peer told. Through a router that leads nowhere mostly; QUIC carries everything then.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::Shutdown;
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_user_timeout};

use super::Sockets;
use crate::limits::{TCP_KEEPALIVE, TCP_SETUP_TIME_MAX, TCP_SILENCE_MAX, TCP_STRANGERS_MAX};

/// How often a listener looks whether it is still needed.
const LISTENER_TURN: Duration = Duration::from_millis(50);

/// The listener of one end, from when it is offered until the transfer is over.
#[derive(Default)]
pub(crate) struct Listening(Mutex<Option<Arc<Listener>>>);

impl Listening {
    /// Opens the listener: its port.
    pub(crate) fn open(&self) -> io::Result<u16> {
        let listener = Listener::bind()?;
        let port = listener.port()?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(listener));
        Ok(port)
    }

    /// The listener, once it is open.
    pub(crate) fn get(&self) -> Option<Arc<Listener>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// No more connections are taken.
    pub(crate) fn close(&self) {
        if let Some(listener) = self.get() {
            listener.close();
        }
    }
}

/// Takes TCP connections of one session.
pub(crate) struct Listener(TcpListener);

impl Listener {
    /// At a port that the system chooses, for IPv6 and IPv4.
    fn bind() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0))
            .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
        listener.set_nonblocking(true)?;
        Ok(Self(listener))
    }

    fn port(&self) -> io::Result<u16> {
        Ok(self.0.local_addr()?.port())
    }

    /// Takes no more connections: who waits for one is told.
    fn close(&self) {
        // It may have failed by itself, which is told as well.
        let _ = rustix::net::shutdown(&self.0, Shutdown::Both);
    }

    /// Takes connections until `is_over` says so, or too many strangers have come, and closes then. Each has a thread,
    /// which completes the handshake and works on what became of it; returns when all have ended. `sockets` cuts them,
    /// also in their handshake.
    pub(crate) fn serve<T>(
        &self,
        sockets: &Sockets,
        is_over: impl Fn() -> bool,
        handshake: impl Fn(Arc<TcpStream>) -> Option<T> + Sync,
        work: impl Fn(T) + Sync,
    ) {
        let (strangers, handshake, work) = (&AtomicUsize::new(0), &handshake, &work);
        thread::scope(|scope| {
            let is_over = || is_over() || strangers.load(Ordering::SeqCst) > TCP_STRANGERS_MAX;
            while let Some(socket) = self.accept(is_over).map(Arc::new) {
                strangers.fetch_add(1, Ordering::SeqCst);
                if !sockets.keep(&socket) {
                    break;
                }
                scope.spawn(move || {
                    if let Some(carrier) = handshake(socket) {
                        strangers.fetch_sub(1, Ordering::SeqCst);
                        work(carrier);
                    }
                });
            }
            self.close();
        });
    }

    /// The next connection; `None` once `is_over` says so, or the listener is closed or fails.
    fn accept(&self, is_over: impl Fn() -> bool) -> Option<TcpStream> {
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
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;

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

    #[test]
    fn a_listener_closes_after_too_many_strangers_and_its_own_are_none() {
        let own = TCP_STRANGERS_MAX + 2;
        let listening = Listening::default();
        let port = listening.open().unwrap();
        let listener = listening.get().unwrap();
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let handshakes = AtomicUsize::new(0);
        let (taken, took) = mpsc::channel();
        thread::scope(|scope| {
            let handshakes = &handshakes;
            let serving = scope.spawn(move || {
                let handshake = |_| (handshakes.fetch_add(1, Ordering::SeqCst) < own).then_some(());
                let work = |()| taken.send(()).unwrap();
                listener.serve(&Sockets::default(), || false, handshake, work);
            });
            for _ in 0..own {
                connect(loopback, port).unwrap();
                took.recv().unwrap();
            }
            while connect(loopback, port).is_ok() {}
            serving.join().unwrap();
        });
        assert_eq!(handshakes.into_inner(), own + TCP_STRANGERS_MAX + 1);
    }

    #[test]
    fn what_is_closed_ends_who_serves_it_and_what_was_never_opened_is_closed_as_well() {
        let listening = Listening::default();
        listening.close();
        listening.open().unwrap();
        let listener = listening.get().unwrap();
        thread::scope(|scope| {
            let serving =
                scope.spawn(|| listener.serve(&Sockets::default(), || false, |_| Some(()), |()| {}));
            listening.close();
            serving.join().unwrap();
        });
    }
}
