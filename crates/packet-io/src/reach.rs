//! Whether packets reach an address at all, as far as the network says so: a route is missing, a router or the machine
//! reports by ICMP that they go no further, or that nobody listens at the port.
//!
//! An unconnected socket learns nothing of that. So this one is connected, and sends a datagram that no protocol takes
//! for one of its own. Silence says nothing.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;

use crate::sys::options;

/// Begins as nothing does: no version of IP, no packet of QUIC (RFC 9000 section 17.2), no message of STUN.
const PROBE: [u8; 1] = [0];

/// A datagram is on its way to an address.
#[derive(Debug)]
pub struct ReachProbe {
    socket: UdpSocket,
    refused: Option<io::ErrorKind>,
}

impl ReachProbe {
    /// Sends it.
    ///
    /// # Errors
    /// There can be no socket; that there is no route is no error here.
    pub fn begin(remote: SocketAddr) -> io::Result<Self> {
        let any: SocketAddr = match remote {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any)?;
        socket.set_nonblocking(true)?;
        let (level, option) = match remote {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_RECVERR),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
        };
        options::set(socket.as_fd(), level, option, 1)?;
        let sent = socket.connect(remote).and_then(|()| socket.send(&PROBE));
        let refused = sent.err().map(|error| error.kind());
        Ok(Self { socket, refused })
    }

    /// What has been said of the address by now: `ConnectionRefused`: nobody listens at the port; `NetworkUnreachable`,
    /// `HostUnreachable` and others: packets do not get there.
    pub fn poll(&mut self) -> Option<io::ErrorKind> {
        if self.refused.is_none() {
            let received = self.socket.recv(&mut [0; 1]);
            let kind = received.err().map(|error| error.kind());
            self.refused = kind.filter(|kind| *kind != io::ErrorKind::WouldBlock);
        }
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// What is said of the address, within a time that is long enough for this machine.
    fn said_of(remote: SocketAddr) -> Option<io::ErrorKind> {
        let mut probe = ReachProbe::begin(remote).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while probe.poll().is_none() && Instant::now() < deadline {
            std::thread::yield_now();
        }
        probe.poll()
    }

    #[test]
    fn a_port_where_nobody_listens_is_told_and_stays_so() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let mut probe = ReachProbe::begin(address).unwrap();
        socket.recv(&mut [0; 8]).unwrap();
        assert_eq!(probe.poll(), None, "it was taken");
        drop(socket);
        assert_eq!(said_of(address), Some(io::ErrorKind::ConnectionRefused));
    }
}
