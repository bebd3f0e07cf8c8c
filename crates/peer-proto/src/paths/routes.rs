//! The nominal addresses of all connections, and what stands for them on the wire.
//!
//! An address that is nominal for a connection is no path of another one: its packets could be anybody's. Packets
//! with a long header (RFC 9000 section 17.2), by which connections begin, keep their addresses.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use quic::ConnectionKey;

/// Whose packets take a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Peer(usize),
    /// A connection that is closing.
    Closing(ConnectionKey),
}

impl Owner {
    fn peer(self) -> Option<usize> {
        match self {
            Self::Peer(index) => Some(index),
            Self::Closing(_) => None,
        }
    }
}

/// The path of a connection's packets.
#[derive(Debug)]
struct Route {
    owner: Owner,
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

    /// A connection has this nominal address from here on; which peer loses a path by that. One that is closing there
    /// has said its last words by its path: the rest goes like this one's packets.
    pub(crate) fn connected(&mut self, connection: ConnectionKey, nominal: SocketAddr) -> Option<usize> {
        self.closed(connection);
        let place = connection.index();
        if self.of_connection.len() <= place {
            self.of_connection.resize(place + 1, None);
        }
        self.of_connection[place] = Some(nominal);
        *self.nominals.entry(nominal).or_default() += 1;
        if self.is_closing(nominal) {
            self.drop_route(nominal);
        }
        let other = self.sources.remove(&nominal)?;
        self.routes.get(&other).and_then(|route| route.owner.peer())
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
            owner: Owner::Peer(index),
            present: nominal,
        };
        let former = self.routes.insert(nominal, route)?;
        self.sources.retain(|_, known| *known != nominal);
        former.owner.peer().filter(|former| *former != index)
    }

    /// It has not any more.
    pub(crate) fn untrack(&mut self, index: usize, nominal: SocketAddr, transaction: &[u8; 12]) {
        self.by_transaction.remove(transaction);
        self.remove(nominal, Owner::Peer(index));
    }

    /// The connection of a peer is closing: what is still said to that, and comes of it, goes on by these paths, unless
    /// another connection has the same nominal address.
    pub(crate) fn close(
        &mut self,
        index: usize,
        connection: ConnectionKey,
        nominal: SocketAddr,
        transaction: &[u8; 12],
    ) {
        if self.nominals.contains_key(&nominal) {
            return self.untrack(index, nominal, transaction);
        }
        self.by_transaction.remove(transaction);
        if let Some(route) = self.routes.get_mut(&nominal)
            && route.owner == Owner::Peer(index)
        {
            route.owner = Owner::Closing(connection);
        }
    }

    /// Nothing is said any more to the peer of a connection that was closing.
    pub(crate) fn end(&mut self, connection: ConnectionKey, nominal: SocketAddr) {
        self.remove(nominal, Owner::Closing(connection));
    }

    fn remove(&mut self, nominal: SocketAddr, owner: Owner) {
        if self
            .routes
            .get(&nominal)
            .is_some_and(|route| route.owner == owner)
        {
            self.drop_route(nominal);
        }
    }

    fn drop_route(&mut self, nominal: SocketAddr) {
        self.routes.remove(&nominal);
        self.sources.retain(|_, known| *known != nominal);
    }

    /// Whether the paths of this nominal address are those of a connection that is closing.
    fn is_closing(&self, nominal: SocketAddr) -> bool {
        let route = self.routes.get(&nominal);
        route.is_some_and(|route| matches!(route.owner, Owner::Closing(_)))
    }

    /// The peer whose connection has several paths and this nominal address.
    pub(crate) fn tracked_at(&self, nominal: SocketAddr) -> Option<usize> {
        self.routes.get(&nominal)?.owner.peer()
    }

    /// Its nominal address has changed, at which it is from here on; whose had that one.
    pub(crate) fn rename(&mut self, index: usize, former: SocketAddr, nominal: SocketAddr) -> Option<usize> {
        self.routes.remove(&former);
        let route = Route {
            owner: Owner::Peer(index),
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
            .and_then(|other| other.owner.peer())
            .filter(|other| *other != index)
    }

    pub(crate) fn by_transaction(&self, transaction: &[u8; 12]) -> Option<usize> {
        self.by_transaction.get(transaction).copied()
    }

    /// Whether packets from `source` can be those of the connection with this nominal address. A connection that is
    /// closing leaves its sources to others.
    pub(crate) fn may_belong(&self, source: SocketAddr, nominal: SocketAddr) -> bool {
        let is_free = |known: &SocketAddr| *known == nominal || self.is_closing(*known);
        source == nominal
            || !self.nominals.contains_key(&source) && self.sources.get(&source).is_none_or(is_free)
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
        (nominal, route.and_then(|route| route.owner.peer()))
    }

    /// Where a train of QUIC to `destination` goes, and whose it is, unless that is closing.
    pub(crate) fn outward(
        &self,
        destination: SocketAddr,
        train: &[u8],
    ) -> Option<(SocketAddr, Option<usize>)> {
        let route = self.routes.get(&destination).filter(|_| is_short(train))?;
        Some((route.present, route.owner.peer()))
    }
}

/// Whether a packet of QUIC is one of a connection that is established (RFC 9000 section 17.3).
fn is_short(packet: &[u8]) -> bool {
    packet.first().is_some_and(|byte| byte & 0x80 == 0)
}

#[cfg(test)]
mod tests {
    //! Two connections, of which one is closing.

    use quic::{ClientParameters, Endpoint, EndpointParameters};

    use super::*;

    /// Of a packet with a short header.
    const SHORT: &[u8] = &[0x40];

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 1))
    }

    fn connections() -> [ConnectionKey; 2] {
        let mut endpoint = Endpoint::new(&EndpointParameters::of_client([1; 32]), None).unwrap();
        let now = sim::Clock::default().now();
        [1, 2].map(|last| {
            endpoint
                .connect(now, address(last), "peer", &ClientParameters::AnyKey, 1_452)
                .unwrap()
        })
    }

    /// The connection of peer `index` goes by another path than its nominal one, and is closing.
    fn closing(routes: &mut Routes, index: usize, key: ConnectionKey, nominal: SocketAddr, path: SocketAddr) {
        let transaction = [index as u8; 12];
        routes.connected(key, nominal);
        routes.track(index, nominal, transaction);
        routes.belong(path, nominal);
        routes.set_present(nominal, path);
        routes.closed(key);
        routes.close(index, key, nominal, &transaction);
    }

    #[test]
    fn a_connection_that_is_closing_leaves_its_paths_to_another_one_of_its_peer() {
        let ([first, second], mut routes) = (connections(), Routes::default());
        closing(&mut routes, 0, first, address(1), address(9));
        routes.connected(second, address(2));
        routes.track(1, address(2), [1; 12]);
        assert!(routes.may_belong(address(9), address(2)));
        routes.belong(address(9), address(2));
        assert_eq!(routes.inward(address(9), SHORT), (address(2), Some(1)));
        // What is still said goes by its path, and its end takes nothing from the other one.
        assert_eq!(routes.outward(address(1), SHORT), Some((address(9), None)));
        routes.end(first, address(1));
        assert_eq!(routes.outward(address(1), SHORT), None);
        assert_eq!(routes.inward(address(9), SHORT), (address(2), Some(1)));
    }

    #[test]
    fn the_end_of_one_connection_that_was_closing_leaves_the_paths_of_another_one() {
        let ([first, second], mut routes) = (connections(), Routes::default());
        closing(&mut routes, 0, first, address(1), address(8));
        closing(&mut routes, 1, second, address(1), address(9));
        routes.end(first, address(1));
        assert_eq!(routes.outward(address(1), SHORT), Some((address(9), None)));
        assert_eq!(routes.inward(address(9), SHORT), (address(1), None));
        routes.end(second, address(1));
        assert!(routes.is_empty());
    }

    #[test]
    fn the_paths_of_a_connection_that_is_closing_are_not_those_of_the_next_one_there() {
        for is_before in [false, true] {
            let ([first, second], mut routes) = (connections(), Routes::default());
            if is_before {
                routes.connected(second, address(1));
            }
            closing(&mut routes, 0, first, address(1), address(9));
            if !is_before {
                routes.connected(second, address(1));
            }
            assert_eq!(routes.outward(address(1), SHORT), None);
            assert_eq!(routes.inward(address(9), SHORT), (address(9), None));
        }
    }
}
