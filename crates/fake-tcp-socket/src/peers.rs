//! The peers of a socket: which connection leads to whom, and by which link.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use fake_tcp::ConnectionId;
use packet_io::Link;

use crate::limits::HALF_OPEN_LINKS_MAX;

/// One connection's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) link: Link,
}

/// All of a socket. There are no more than connections of its stack.
#[derive(Default)]
pub(crate) struct Peers {
    by_connection: HashMap<ConnectionId, Peer>,
    by_address: HashMap<(SocketAddr, IpAddr), ConnectionId>,
    /// Of handshakes that are not complete, the oldest first.
    half_open: VecDeque<(SocketAddr, Link)>,
}

impl Peers {
    pub(crate) fn insert(&mut self, connection: ConnectionId, peer: Peer) {
        self.by_address.insert((peer.remote, peer.local.ip()), connection);
        self.by_connection.insert(connection, peer);
    }

    pub(crate) fn remove(&mut self, connection: ConnectionId) -> Option<Peer> {
        let peer = self.by_connection.remove(&connection)?;
        let key = (peer.remote, peer.local.ip());
        // A later one between the same addresses stays.
        if self.by_address.get(&key) == Some(&connection) {
            self.by_address.remove(&key);
        }
        Some(peer)
    }

    pub(crate) fn get(&self, connection: ConnectionId) -> Option<&Peer> {
        self.by_connection.get(&connection)
    }

    pub(crate) fn connections(&self) -> Vec<ConnectionId> {
        self.by_connection.keys().copied().collect()
    }

    /// The connection between two addresses.
    pub(crate) fn find(&self, remote: SocketAddr, local: IpAddr) -> Option<ConnectionId> {
        self.by_address.get(&(remote, local)).copied()
    }

    /// Packets of a connection came by this link.
    pub(crate) fn follow(&mut self, connection: ConnectionId, link: Link) {
        if let Some(peer) = self.by_connection.get_mut(&connection) {
            peer.link = link;
        }
    }

    /// All packets leave by this link from here on.
    pub(crate) fn redirect(&mut self, link: Link) {
        self.by_connection.values_mut().for_each(|peer| peer.link = link);
    }

    /// Connections of this machine from another address than `local`.
    pub(crate) fn at_other_addresses(&self, local: IpAddr) -> Vec<ConnectionId> {
        let elsewhere =
            |(connection, peer): (&ConnectionId, &Peer)| (peer.local.ip() != local).then_some(*connection);
        self.by_connection.iter().filter_map(elsewhere).collect()
    }

    /// Somebody without a connection is answered by this link, perhaps once more later.
    pub(crate) fn answered(&mut self, remote: SocketAddr, link: Link) {
        if self.half_open.back() == Some(&(remote, link)) {
            return;
        }
        if self.half_open.len() == HALF_OPEN_LINKS_MAX {
            self.half_open.pop_front();
        }
        self.half_open.push_back((remote, link));
    }

    /// The way to whom a segment is for.
    pub(crate) fn link(&self, connection: Option<ConnectionId>, remote: SocketAddr) -> Option<Link> {
        let known = connection.and_then(|connection| self.get(connection));
        let half_open = || self.half_open.iter().rev().find(|(other, _)| *other == remote);
        known
            .map(|peer| peer.link)
            .or_else(|| half_open().map(|(_, link)| *link))
    }
}
