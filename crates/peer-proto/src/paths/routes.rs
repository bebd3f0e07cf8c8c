//! The nominal addresses of all connections, and what stands for them on the wire.
//!
//! An address that is nominal for a connection is no path of another one: its packets could be anybody's. Packets
//! with a long header (RFC 9000 section 17.2), by which connections begin, keep their addresses.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use quic::ConnectionKey;

/// The path of a connection's packets.
#[derive(Debug)]
struct Route {
    /// Whose; `None`: of one that is closing.
    index: Option<usize>,
    present: SocketAddr,
}

#[derive(Debug, Default)]
pub(crate) struct Routes {
    /// How many connections have each nominal address.
    nominals: BTreeMap<SocketAddr, u32>,
    /// Nominal addresses by connection.
    of_connection: Vec<Option<SocketAddr>>,
    /// By nominal address, of connections that have several paths.
    routes: BTreeMap<SocketAddr, Route>,
    /// Nominal addresses by those of checked paths.
    sources: BTreeMap<SocketAddr, SocketAddr>,
    /// Peers by the transactions of their checks.
    by_transaction: BTreeMap<[u8; 12], usize>,
}

impl Routes {
    /// Whether no connection has several paths.
    pub(crate) fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// A connection has this nominal address from here on; which peer loses a path by that.
    pub(crate) fn connected(&mut self, connection: ConnectionKey, nominal: SocketAddr) -> Option<usize> {
        self.closed(connection);
        let place = connection.index();
        if self.of_connection.len() <= place {
            self.of_connection.resize(place + 1, None);
        }
        self.of_connection[place] = Some(nominal);
        *self.nominals.entry(nominal).or_default() += 1;
        let other = self.sources.remove(&nominal)?;
        self.routes.get(&other).and_then(|route| route.index)
    }

    pub(crate) fn closed(&mut self, connection: ConnectionKey) {
        let place = self.of_connection.get_mut(connection.index());
        if let Some(nominal) = place.and_then(Option::take)
            && let Some(count) = self.nominals.get_mut(&nominal)
        {
            *count -= 1;
            if *count == 0 {
                self.nominals.remove(&nominal);
            }
        }
    }

    /// The connection of a peer has several paths from here on; whose had, with the same nominal address.
    pub(crate) fn track(
        &mut self,
        index: usize,
        nominal: SocketAddr,
        transaction: [u8; 12],
    ) -> Option<usize> {
        self.by_transaction.insert(transaction, index);
        let route = Route {
            index: Some(index),
            present: nominal,
        };
        let former = self.routes.insert(nominal, route)?;
        self.sources.retain(|_, known| *known != nominal);
        former.index.filter(|former| *former != index)
    }

    /// It has not any more.
    pub(crate) fn untrack(&mut self, index: usize, nominal: SocketAddr, transaction: &[u8; 12]) {
        self.by_transaction.remove(transaction);
        self.remove(nominal, Some(index));
    }

    /// The connection is closing: what is still said to its peer, and comes of it, goes on by these paths.
    pub(crate) fn close(&mut self, index: usize, nominal: SocketAddr, transaction: &[u8; 12]) {
        self.by_transaction.remove(transaction);
        if let Some(route) = self.routes.get_mut(&nominal)
            && route.index == Some(index)
        {
            route.index = None;
        }
    }

    /// Nothing is said any more to the peer of a connection that was closing.
    pub(crate) fn end(&mut self, nominal: SocketAddr) {
        self.remove(nominal, None);
    }

    fn remove(&mut self, nominal: SocketAddr, index: Option<usize>) {
        if self
            .routes
            .get(&nominal)
            .is_some_and(|route| route.index == index)
        {
            self.routes.remove(&nominal);
            self.sources.retain(|_, known| *known != nominal);
        }
    }

    /// Its nominal address has changed, at which it is from here on; whose had that one.
    pub(crate) fn rename(&mut self, index: usize, former: SocketAddr, nominal: SocketAddr) -> Option<usize> {
        self.routes.remove(&former);
        let route = Route {
            index: Some(index),
            present: nominal,
        };
        let other = self.routes.insert(nominal, route);
        self.sources
            .retain(|source, known| *known != nominal && *source != nominal);
        for known in self.sources.values_mut().filter(|known| **known == former) {
            *known = nominal;
        }
        if self.may_belong(former, nominal) {
            self.sources.insert(former, nominal);
        }
        other
            .and_then(|other| other.index)
            .filter(|other| *other != index)
    }

    pub(crate) fn by_transaction(&self, transaction: &[u8; 12]) -> Option<usize> {
        self.by_transaction.get(transaction).copied()
    }

    /// Whether packets from `source` can be those of the connection with this nominal address.
    pub(crate) fn may_belong(&self, source: SocketAddr, nominal: SocketAddr) -> bool {
        source == nominal
            || !self.nominals.contains_key(&source)
                && self.sources.get(&source).is_none_or(|known| *known == nominal)
    }

    /// Packets from `source` are its.
    pub(crate) fn belong(&mut self, source: SocketAddr, nominal: SocketAddr) {
        if source != nominal {
            self.sources.insert(source, nominal);
        }
    }

    pub(crate) fn forget(&mut self, source: SocketAddr, nominal: SocketAddr) {
        if self.sources.get(&source) == Some(&nominal) {
            self.sources.remove(&source);
        }
    }

    /// Its packets leave by this path from here on.
    pub(crate) fn set_present(&mut self, nominal: SocketAddr, present: SocketAddr) {
        if let Some(route) = self.routes.get_mut(&nominal) {
            route.present = present;
        }
    }

    /// What QUIC is to take for the source of a datagram, and the peer whose path it came by.
    pub(crate) fn inward(&self, source: SocketAddr, datagram: &[u8]) -> (SocketAddr, Option<usize>) {
        let nominal = self.sources.get(&source).copied();
        let route = self.routes.get(&nominal.unwrap_or(source));
        let nominal = nominal.filter(|_| is_short(datagram)).unwrap_or(source);
        (nominal, route.and_then(|route| route.index))
    }

    /// Where a train of QUIC to `destination` goes, and whose it is, unless that is closing.
    pub(crate) fn outward(
        &self,
        destination: SocketAddr,
        train: &[u8],
    ) -> Option<(SocketAddr, Option<usize>)> {
        let route = self.routes.get(&destination).filter(|_| is_short(train))?;
        Some((route.present, route.index))
    }
}

/// Whether a packet of QUIC is one of a connection that is established (RFC 9000 section 17.3).
fn is_short(packet: &[u8]) -> bool {
    packet.first().is_some_and(|byte| byte & 0x80 == 0)
}
