//! Who is at the other end of a connection, as the kernel knows it.
//!
//! noq names peers by IP address, so each socket gets one: `fd`, 56 random bits of this process, 64 bits of a counter.
//! Nothing outside can guess or reach such an address. The registry leads from it to the credentials, for as long as
//! the socket or a connection on it lives.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
#[cfg(target_os = "linux")]
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::sync::{Arc, LazyLock, Mutex};

use noq::PathId;

/// The process at the other end of a socket, at the time it connected (for a client: bound).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct PeerCred {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Process, where the system tells it and it has a number in our PID namespace. It may have ended since, and its
    /// number may be another's.
    pub pid: Option<i32>,
}

impl PeerCred {
    /// What the kernel says of the other end of `socket`.
    pub(crate) fn of(socket: &OwnedFd) -> std::io::Result<Self> {
        #[cfg(target_os = "linux")]
        {
            let cred = packet_io::peer_credentials(socket.as_fd())?;
            Ok(Self {
                uid: cred.user,
                gid: cred.group,
                pid: cred.process,
            })
        }
        #[cfg(not(target_os = "linux"))]
        {
            let stream = std::os::unix::net::UnixStream::from(socket.try_clone()?);
            let cred = tokio::net::UnixStream::from_std(stream)?.peer_cred()?;
            Ok(Self {
                uid: cred.uid(),
                gid: cred.gid(),
                pid: cred.pid(),
            })
        }
    }
}

impl fmt::Display for PeerCred {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "uid {}, gid {}", self.uid, self.gid)?;
        match self.pid {
            Some(pid) => write!(formatter, ", process {pid}"),
            None => Ok(()),
        }
    }
}

/// The process at the other end of `connection`; none if the connection is not one of this crate.
///
/// At a server it is the process that connected. At a client it is the one that bound the socket.
pub fn peer_cred(connection: &noq::Connection) -> Option<PeerCred> {
    let address = connection.path(PathId::ZERO)?.remote_address().ok()?;
    registry().peers.get(&address).copied()
}

/// All sockets of this process.
struct Registry {
    prefix: [u8; 8],
    last: u64,
    peers: HashMap<SocketAddr, PeerCred>,
}

fn registry() -> std::sync::MutexGuard<'static, Registry> {
    static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(|| {
        let mut prefix: [u8; 8] = rand::random();
        prefix[0] = 0xfd;
        Mutex::new(Registry {
            prefix,
            last: 0,
            peers: HashMap::new(),
        })
    });
    REGISTRY.lock().expect("nothing panics while it holds this lock")
}

/// An address that belongs to no peer, for an endpoint itself.
pub(crate) fn local_address() -> SocketAddr {
    SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 1)
}

/// One socket's address and its entry in the registry, which ends with it.
#[derive(Debug)]
pub(crate) struct Identity {
    address: SocketAddr,
}

impl Identity {
    pub(crate) fn register(cred: PeerCred) -> Arc<Self> {
        let mut registry = registry();
        registry.last += 1;
        let mut octets = [0; 16];
        octets[..8].copy_from_slice(&registry.prefix);
        octets[8..].copy_from_slice(&registry.last.to_be_bytes());
        let address = SocketAddr::new(IpAddr::V6(octets.into()), 1);
        registry.peers.insert(address, cred);
        Arc::new(Self { address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        registry().peers.remove(&self.address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_distinct_and_end_with_their_last_holder() {
        let cred = |uid| PeerCred {
            uid,
            gid: 2,
            pid: None,
        };
        let (first, second) = (Identity::register(cred(1)), Identity::register(cred(2)));
        let (one, two) = (first.address(), second.address());
        assert_ne!(one, two);
        let known = |address| registry().peers.get(&address).map(|cred| cred.uid);
        assert_eq!((known(one), known(two)), (Some(1), Some(2)));
        let kept = first.clone();
        drop((first, second));
        assert_eq!((known(one), known(two)), (Some(1), None));
        drop(kept);
        assert_eq!(known(one), None);
    }
}
