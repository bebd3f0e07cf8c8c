//! Nodes with addresses, joined by links, and the loop that says what happens next.
//!
//! The network owns the clock. [`Network::next_event`] moves it to the earliest delivery or timer; what falls on the
//! same instant comes in the order in which it was sent or set. A node behind a NAT is rebound at any moment: its
//! datagrams then leave with the new address, and the old address leads nowhere.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use crate::{Clock, Link, LinkConfig, LinkCounts, Packet};

/// A datagram at its destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<T> {
    /// Where it came from, as the receiver sees it (after NAT).
    pub source: SocketAddr,
    /// The node that has it: its own address, before NAT.
    pub node: SocketAddr,
    /// The payload and what travelled along.
    pub packet: Packet<T>,
}

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<T> {
    /// A datagram arrives.
    Delivery(Delivery<T>),
    /// The timer of this node fires, and is unset by that.
    Timer(SocketAddr),
}

/// Nodes, links, timers and the clock.
#[derive(Debug)]
pub struct Network<T> {
    clock: Clock,
    seed: u64,
    links: BTreeMap<(SocketAddr, SocketAddr), Link<Routed<T>>>,
    outside: BTreeMap<SocketAddr, SocketAddr>,
    timers: BTreeMap<SocketAddr, (Instant, u64)>,
    sequence: u64,
    unroutable: u64,
}

#[derive(Clone, Debug)]
struct Routed<T> {
    sequence: u64,
    source: SocketAddr,
    meta: T,
}

impl<T: Clone> Network<T> {
    /// An empty network; each link gets its own dice from `seed`.
    #[must_use]
    pub fn new(clock: Clock, seed: u64) -> Self {
        Self {
            clock,
            seed,
            links: BTreeMap::new(),
            outside: BTreeMap::new(),
            timers: BTreeMap::new(),
            sequence: 0,
            unroutable: 0,
        }
    }

    /// The virtual present.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The clock itself.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Joins two nodes by a link each way.
    pub fn join(&mut self, one: SocketAddr, other: SocketAddr, config: LinkConfig) {
        for ends in [(one, other), (other, one)] {
            let seed = self
                .seed
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .wrapping_add(self.links.len() as u64);
            self.links.insert(ends, Link::new(config, seed));
        }
    }

    /// Changes both directions between two nodes.
    ///
    /// # Panics
    /// When the nodes are not joined.
    pub fn set_config(&mut self, one: SocketAddr, other: SocketAddr, config: LinkConfig) {
        for ends in [(one, other), (other, one)] {
            self.links
                .get_mut(&ends)
                .unwrap_or_else(|| panic!("{one} and {other} are not joined"))
                .set_config(config);
        }
    }

    /// Counts and packets under way of the link from `source` to `destination`, if there is one.
    #[must_use]
    pub fn counts(&self, source: SocketAddr, destination: SocketAddr) -> Option<(LinkCounts, usize)> {
        self.links
            .get(&(source, destination))
            .map(|link| (link.counts(), link.in_flight()))
    }

    /// Datagrams that led nowhere: to an unknown node, or to an address from before a rebinding.
    #[must_use]
    pub fn unroutable(&self) -> u64 {
        self.unroutable
    }

    /// From this instant on `node` is seen as `outside`; the address seen before is dead.
    pub fn rebind(&mut self, node: SocketAddr, outside: SocketAddr) {
        self.outside.insert(node, outside);
    }

    /// Sends a datagram from `node` (its own address) to `destination` (as `node` sees it).
    pub fn send(&mut self, node: SocketAddr, destination: SocketAddr, bytes: Vec<u8>, meta: T) {
        let source = self.outside.get(&node).copied().unwrap_or(node);
        let routed = Routed {
            sequence: self.take_sequence(),
            source,
            meta,
        };
        let now = self.clock.now();
        let inside = self.inside(destination);
        match inside.and_then(|inside| self.links.get_mut(&(node, inside))) {
            Some(link) => link.send(now, Packet { bytes, meta: routed }),
            None => self.unroutable += 1,
        }
    }

    /// Sets or unsets the one timer of a node.
    pub fn set_timer(&mut self, node: SocketAddr, at: Option<Instant>) {
        match at {
            Some(at) => {
                let sequence = self.take_sequence();
                self.timers.insert(node, (at, sequence));
            }
            None => {
                self.timers.remove(&node);
            }
        }
    }

    /// The next event up to and including `until`, to which the clock is moved; without one the clock is moved to
    /// `until`.
    pub fn next_event(&mut self, until: Instant) -> Option<Event<T>> {
        let link = self.links.iter().filter_map(|(ends, link)| {
            let (at, packet) = link.peek()?;
            Some(((at, packet.meta.sequence), Source::Link(*ends)))
        });
        let timers = self.timers.iter().map(|(node, key)| (*key, Source::Timer(*node)));
        let Some(((at, _), source)) = link
            .chain(timers)
            .min_by_key(|(key, _)| *key)
            .filter(|((at, _), _)| *at <= until)
        else {
            self.clock.advance_to(until);
            return None;
        };
        self.clock.advance_to(at);
        match source {
            Source::Timer(node) => {
                self.timers.remove(&node);
                Some(Event::Timer(node))
            }
            Source::Link(ends) => {
                let packet = self.links.get_mut(&ends)?.poll_delivery(at)?;
                let Packet {
                    bytes,
                    meta: Routed { source, meta, .. },
                } = packet;
                Some(Event::Delivery(Delivery {
                    source,
                    node: ends.1,
                    packet: Packet { bytes, meta },
                }))
            }
        }
    }

    /// The node that `address` leads to, or `None` where a rebinding made the address invalid.
    fn inside(&self, address: SocketAddr) -> Option<SocketAddr> {
        let behind = self
            .outside
            .iter()
            .find(|(_, outside)| **outside == address)
            .map(|(node, _)| *node);
        behind.or_else(|| (!self.outside.contains_key(&address)).then_some(address))
    }

    fn take_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }
}

enum Source {
    Link((SocketAddr, SocketAddr)),
    Timer(SocketAddr),
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 443))
    }

    fn network(config: LinkConfig) -> Network<()> {
        let mut network = Network::new(Clock::default(), 3);
        network.join(address(1), address(2), config);
        network
    }

    /// Two nodes that answer each datagram until 200 have arrived; returns what happened and when.
    fn ping_pong(seed: u64) -> Vec<(Duration, SocketAddr, u8)> {
        let mut network = Network::new(Clock::default(), seed);
        let jitter = Duration::from_millis(4);
        network.join(
            address(1),
            address(2),
            LinkConfig {
                jitter,
                reorder: 0.3,
                ..LinkConfig::default()
            },
        );
        for first in 0..3 {
            network.send(address(1), address(2), vec![first], ());
        }
        let mut seen = Vec::new();
        let end = network.now() + Duration::from_secs(10);
        while let (true, Some(event)) = (seen.len() < 200, network.next_event(end)) {
            let Event::Delivery(Delivery { source, node, packet }) = event else {
                panic!("no timer was set")
            };
            seen.push((network.clock().elapsed(), node, packet.bytes[0]));
            network.send(node, source, packet.bytes, ());
        }
        seen
    }

    #[test]
    fn a_run_repeats_with_its_seed() {
        assert_eq!(ping_pong(11), ping_pong(11));
        assert_ne!(ping_pong(11), ping_pong(12));
        assert_eq!(ping_pong(11).len(), 200);
    }

    #[test]
    fn events_of_one_instant_come_in_the_order_of_their_making() {
        let mut network = network(LinkConfig::default());
        let now = network.now();
        network.send(address(1), address(2), vec![1], ());
        network.set_timer(address(1), Some(now));
        network.send(address(2), address(1), vec![2], ());
        let order: Vec<_> = std::iter::from_fn(|| network.next_event(now)).collect();
        assert!(matches!(&order[0], Event::Delivery(first) if first.packet.bytes == [1]));
        assert_eq!(order[1], Event::Timer(address(1)));
        assert!(matches!(&order[2], Event::Delivery(second) if second.packet.bytes == [2]));
        assert_eq!(order.len(), 3);
    }

    #[test]
    fn without_events_the_clock_moves_to_the_end() {
        let mut network = network(LinkConfig::default());
        let later = network.now() + Duration::from_secs(3);
        network.set_timer(address(1), Some(later + Duration::from_secs(1)));
        assert_eq!(network.next_event(later), None);
        assert_eq!(network.now(), later);
    }

    #[test]
    fn after_a_rebinding_the_new_address_is_seen_and_the_old_one_is_dead() {
        let mut network = network(LinkConfig::default());
        let (old, new) = (address(1), address(9));
        network.rebind(old, new);
        network.send(old, address(2), vec![1], ());
        let now = network.now();
        assert!(matches!(network.next_event(now), Some(Event::Delivery(arrived)) if arrived.source == new));
        network.send(address(2), old, vec![2], ());
        assert_eq!((network.next_event(now), network.unroutable()), (None, 1));
        network.send(address(2), new, vec![3], ());
        assert!(matches!(network.next_event(now), Some(Event::Delivery(arrived)) if arrived.node == old));
    }
}
