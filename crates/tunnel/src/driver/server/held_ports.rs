//! The ports at which the server listens for its clients: who holds which one, for all shards together.
//!
//! A port is held by one client of one user. That client's connections may end at several shards; the shard that was
//! asked last has the port, and takes over the open socket, so that what waits in its queue is not lost. A shard that
//! had it before may still have the socket: it is shut down when the port is released, which also wakes that shard.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::net::{Shutdown, shutdown};
use tunnel_proto::{ListenPath, ProxyError, UserId};

use crate::limits;

/// All of them, shared by the shards of a server.
#[derive(Clone, Default)]
pub(super) struct HeldPorts(Arc<Mutex<BTreeMap<SocketAddr, Held>>>);

struct Held {
    user: UserId,
    client: u64,
    shard: usize,
    socket: Arc<TcpListener>,
}

impl HeldPorts {
    /// The socket of a port that `shard` has from here on: a new one, or the one that the same client has.
    ///
    /// # Errors
    /// What to tell the client.
    pub(super) fn hold(
        &self,
        user: UserId,
        path: ListenPath,
        shard: usize,
    ) -> Result<Arc<TcpListener>, ProxyError> {
        let mut table = self.table();
        if let Some(held) = table.get_mut(&path.address) {
            if (held.user, held.client) != (user, path.client) {
                return Err(ProxyError::DestinationUnavailable);
            }
            held.shard = shard;
            return Ok(Arc::clone(&held.socket));
        }
        let of_user = table.values().filter(|held| held.user == user).count();
        if table.len() >= limits::CLIENT_LISTENERS_MAX || of_user >= limits::CLIENT_LISTENERS_PER_USER {
            return Err(ProxyError::ConnectionLimitReached);
        }
        let socket = Arc::new(bind(path.address).map_err(|error| refusal(&error))?);
        let held = Held {
            user,
            client: path.client,
            shard,
            socket: Arc::clone(&socket),
        };
        table.insert(path.address, held);
        Ok(socket)
    }

    /// Whether the shard still has it.
    pub(super) fn is_of(&self, address: SocketAddr, shard: usize) -> bool {
        self.table().get(&address).is_some_and(|held| held.shard == shard)
    }

    /// The shard no longer needs it: the port is closed. Where another shard has taken it over, it stays open.
    pub(super) fn release(&self, address: SocketAddr, shard: usize) {
        let mut table = self.table();
        if table.get(&address).is_some_and(|held| held.shard == shard)
            && let Some(held) = table.remove(&address)
        {
            // It listens as long as it was not shut down.
            let _ = shutdown(&held.socket, Shutdown::Both);
        }
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, Held>> {
        // Each call leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All addresses are those of IPv4 alone where the system has no IPv6.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let all_v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
    let bound = match TcpListener::bind(address) {
        Err(error) if address.is_ipv6() && address.ip().is_unspecified() && is_without_v6(&error) => {
            TcpListener::bind(all_v4)
        }
        bound => bound,
    }?;
    bound.set_nonblocking(true)?;
    Ok(bound)
}

fn is_without_v6(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable
        || error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
}

/// Why the server cannot listen there, as the client is told (LISTEN-4).
fn refusal(error: &io::Error) -> ProxyError {
    match error.kind() {
        io::ErrorKind::AddrInUse => ProxyError::DestinationUnavailable,
        io::ErrorKind::AddrNotAvailable => ProxyError::DestinationIpUnroutable,
        io::ErrorKind::PermissionDenied => ProxyError::DestinationIpProhibited,
        _ => ProxyError::ProxyInternalError,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    const ALICE: UserId = UserId([1; 16]);
    const BOB: UserId = UserId([2; 16]);

    /// A path whose port nobody has.
    fn path(client: u64) -> ListenPath {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        ListenPath { client, address }
    }

    /// LISTEN-6.
    #[test]
    fn a_port_is_one_clients_and_moves_between_its_shards_alone() {
        let ports = HeldPorts::default();
        let path = path(1);
        let socket = ports.hold(ALICE, path, 0).unwrap();
        let in_use = ProxyError::DestinationUnavailable;
        assert_eq!(ports.hold(BOB, path, 0).unwrap_err(), in_use);
        assert_eq!(
            ports
                .hold(ALICE, ListenPath { client: 2, ..path }, 0)
                .unwrap_err(),
            in_use
        );
        let moved = ports.hold(ALICE, path, 1).unwrap();
        assert!(
            Arc::ptr_eq(&socket, &moved),
            "what waits in its queue moves with it"
        );
        assert!(ports.is_of(path.address, 1) && !ports.is_of(path.address, 0));
        ports.release(path.address, 0);
        assert_eq!(ports.hold(BOB, path, 0).unwrap_err(), in_use);
        ports.release(path.address, 1);
        let refused = TcpStream::connect(path.address).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert!(
            ports.hold(BOB, path, 0).is_ok(),
            "though shard 0 still has the socket"
        );
        assert!(TcpStream::connect(path.address).is_ok());
        drop((socket, moved));
    }

    #[test]
    fn a_port_of_another_program_and_an_address_of_another_machine_are_told_apart() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        for (address, error) in [
            (address, ProxyError::DestinationUnavailable),
            (
                "192.0.2.1:80".parse().unwrap(),
                ProxyError::DestinationIpUnroutable,
            ),
        ] {
            let path = ListenPath { client: 1, address };
            assert_eq!(HeldPorts::default().hold(ALICE, path, 0).unwrap_err(), error);
        }
    }

    #[test]
    fn a_user_has_so_many_and_no_more() {
        let ports = HeldPorts::default();
        for _ in 0..limits::CLIENT_LISTENERS_PER_USER {
            ports.hold(ALICE, path(1), 0).unwrap();
        }
        assert_eq!(
            ports.hold(ALICE, path(1), 0).unwrap_err(),
            ProxyError::ConnectionLimitReached
        );
        assert!(ports.hold(BOB, path(1), 0).is_ok());
    }
}
