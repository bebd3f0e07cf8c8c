//! What a program is told of a connection and of its endpoint, as it changes.
//!
//! Nothing queues: of each kind only the latest event waits, so that a reader that is slow has less to read and misses
//! only what is no longer true. Readers are independent of each other.

use std::mem::discriminant;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};

use peer_proto::Congestion;

use crate::endpoint::Owner;
use crate::handle::Handle;
use crate::shared::State;
use crate::wakers::{Wakers, until, wakers_of};

/// Something changed about a connection; [`crate::Peer::path_stats`] has the whole state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerEvent {
    /// Packets for the peer go to another address from here on: a better path was found, a path was lost, the peer
    /// moved to another network, or a router on the way gave it another address. Nothing is lost by that.
    PathChanged {
        /// The peer's address.
        remote: SocketAddr,
        /// Whether a rendezvous relays for it; it is direct otherwise.
        is_relayed: bool,
    },
    /// The path carries packets of this many bytes of UDP payload. Messages that fit one packet are the cheapest
    /// ([`crate::PathStats::packet_body_max`]).
    PathMtuChanged(u16),
    /// The path begins or ceases to limit what the program sends, or carries twice or half of what was told. A program
    /// that can choose how much it sends, video for instance, stays below
    /// [`bytes_per_second`](Congestion::bytes_per_second) while the path limits it.
    Congestion(Congestion),
}

/// Something changed about an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndpointEvent {
    /// The endpoint is registered at its rendezvous, which sees it at this address; told again when that changes.
    Registered {
        /// Our address as others see it.
        observed: SocketAddr,
    },
    /// The registration is lost: peers cannot find us until it is there again. Connections live on.
    /// [`crate::Endpoint::rendezvous_problem`] says why, as far as it is known.
    Unregistered,
    /// The rendezvous relays for the endpoint, which peers reach by that where no direct path leads.
    Relayed,
    /// The rendezvous relays nothing for the endpoint, which is registered there, or not any more. It is asked again,
    /// where it does not relay at all with the next registration. [`crate::Endpoint::relay_problem`] says why.
    NotRelayed,
    /// The router leads this address to the endpoint ([`crate::Builder::map_port`]); told again when that changes.
    Mapped {
        /// Where others reach us by it.
        address: SocketAddr,
    },
    /// The router leads no port to the endpoint, or not any more. It is asked again later.
    /// [`crate::Endpoint::mapping_problem`] says why.
    NotMapped,
    /// The firewall of the router of IPv6 lets others in at this address ([`crate::Builder::map_port`]); told again
    /// when that changes.
    LetIn {
        /// Where others reach us by it.
        address: SocketAddr,
    },
    /// The router of IPv6 was not told to let others in, or does not do so any more. It is asked again later.
    /// [`crate::Endpoint::pinhole_problem`] says why.
    NotLetIn,
    /// The endpoint is announced on the local network ([`crate::Builder::announce_on_lan`]).
    Announced,
    /// The endpoint is not announced on the local network, or not any more. It is tried again later.
    /// [`crate::Endpoint::lan_problem`] says why.
    NotAnnounced,
}

/// The latest event of each kind, and who waits for more.
#[derive(Debug)]
pub(crate) struct News<E> {
    /// In the order in which they happened, each with its number.
    latest: Vec<(u64, E)>,
    /// How many happened.
    count: u64,
    pub(crate) readers: Wakers,
}

impl<E> Default for News<E> {
    fn default() -> Self {
        Self {
            latest: Vec::new(),
            count: 0,
            readers: Wakers::default(),
        }
    }
}

impl<E: Copy> News<E> {
    /// Takes an event in the place of the one of its kind.
    pub(crate) fn tell(&mut self, event: E, woken: &mut Vec<Waker>) {
        self.latest
            .retain(|(_, other)| discriminant(other) != discriminant(&event));
        self.count += 1;
        self.latest.push((self.count, event));
        self.readers.take(woken);
    }

    /// The first event after the one that a reader has seen.
    fn after(&self, seen: &mut u64) -> Option<E> {
        let (number, event) = self.latest.iter().find(|(number, _)| number > seen)?;
        *seen = *number;
        Some(*event)
    }
}

/// Events of a connection, from [`crate::Peer::events`]. It does not keep the connection open.
#[derive(Debug)]
pub struct PeerEvents {
    peer: Weak<Handle>,
    seen: u64,
}

impl PeerEvents {
    pub(crate) fn new(peer: &Arc<Handle>) -> Self {
        Self {
            peer: Arc::downgrade(peer),
            seen: 0,
        }
    }

    /// The next event, at first the latest ones of what has changed since the connection began; `None` once the
    /// connection has ended.
    ///
    /// # Cancellation
    /// Dropped while it waits, it has taken no event.
    pub async fn next_event(&mut self) -> Option<PeerEvent> {
        let handle = self.peer.upgrade()?;
        let (shared, key) = (Arc::clone(&handle.owner.0), handle.key);
        drop(handle);
        let wakers = wakers_of(key, |face| &mut face.news.readers);
        until(shared, wakers, |state| {
            let Some(face) = state.faces.get(&key) else {
                return Poll::Ready(None);
            };
            match face.news.after(&mut self.seen) {
                Some(event) => Poll::Ready(Some(event)),
                None if face.closed.is_some() => Poll::Ready(None),
                None => Poll::Pending,
            }
        })
        .await
    }
}

/// Events of an endpoint, from [`crate::Endpoint::events`]. It does not keep the endpoint open.
#[derive(Debug)]
pub struct EndpointEvents {
    owner: Weak<Owner>,
    seen: u64,
}

impl EndpointEvents {
    pub(crate) fn new(owner: &Arc<Owner>) -> Self {
        Self {
            owner: Arc::downgrade(owner),
            seen: 0,
        }
    }

    /// The next event, at first the latest ones of what has changed since the endpoint was bound; `None` once it is
    /// closed.
    ///
    /// # Cancellation
    /// Dropped while it waits, it has taken no event.
    pub async fn next_event(&mut self) -> Option<EndpointEvent> {
        let owner = self.owner.upgrade()?;
        let shared = Arc::clone(&owner.0);
        drop(owner);
        until(shared, readers, |state| {
            if state.is_closed {
                return Poll::Ready(None);
            }
            match state.news.after(&mut self.seen) {
                Some(event) => Poll::Ready(Some(event)),
                None => Poll::Pending,
            }
        })
        .await
    }
}

fn readers(state: &mut State) -> Option<&mut Wakers> {
    Some(&mut state.news.readers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_reader_has_one_event_of_each_kind_and_readers_do_not_take_from_each_other() {
        let mut news = News::default();
        let mut woken = Vec::new();
        for mtu in 1_200..1_400 {
            news.tell(PeerEvent::PathMtuChanged(mtu), &mut woken);
        }
        let moved = PeerEvent::PathChanged {
            remote: "192.0.2.1:9".parse().unwrap(),
            is_relayed: false,
        };
        news.tell(moved, &mut woken);
        let read = |seen: &mut u64| std::iter::from_fn(|| news.after(seen)).collect::<Vec<_>>();
        let (mut one, mut other) = (0, 0);
        let both = [PeerEvent::PathMtuChanged(1_399), moved];
        assert_eq!((read(&mut one), read(&mut one)), (both.to_vec(), Vec::new()));
        assert_eq!(read(&mut other), both);
        news.tell(PeerEvent::PathMtuChanged(1_452), &mut woken);
        assert_eq!(news.after(&mut one), Some(PeerEvent::PathMtuChanged(1_452)));
    }
}
