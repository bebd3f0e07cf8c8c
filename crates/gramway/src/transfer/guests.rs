//! Who is served at a time. Peers that have proved who they are have places of their own, of which none takes more than
//! a few; of those that have not, whoever came first makes room for whoever comes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use peer::{Peer, PeerId};

use crate::close_code::BUSY;
use crate::limits::{TRANSFER_GUESTS_MAX, TRANSFER_OF_PEER_MAX, TRANSFER_STRANGERS_MAX};

/// All of a command.
#[derive(Default)]
pub(super) struct Guests(Mutex<State>);

#[derive(Default)]
struct State {
    /// Those that have proved nothing so far, the latest at the end.
    strangers: VecDeque<(u64, Peer)>,
    /// Those that had to make room, and whose threads have not ended.
    leaving: usize,
    /// Transfers to each peer.
    of_peers: BTreeMap<PeerId, usize>,
    /// Connections so far.
    count: u64,
}

/// That of a connection, as long as its thread lives, however it ends.
pub(super) struct Place {
    guests: Arc<Guests>,
    number: u64,
    peer: PeerId,
    has_begun: AtomicBool,
}

impl Guests {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody is here.
    pub(super) fn is_empty(&self) -> bool {
        let state = self.state();
        state.strangers.is_empty() && state.leaving == 0 && state.of_peers.is_empty()
    }

    /// A place for a peer that has connected; `None` where too many are leaving.
    pub(super) fn come(self: &Arc<Self>, peer: &Peer) -> Option<Place> {
        let mut state = self.state();
        if state.leaving >= TRANSFER_STRANGERS_MAX {
            return None;
        }
        let oldest = match state.strangers.len() < TRANSFER_STRANGERS_MAX {
            true => None,
            false => state.strangers.pop_front(),
        };
        state.leaving += usize::from(oldest.is_some());
        state.count += 1;
        let number = state.count;
        state.strangers.push_back((number, peer.clone()));
        drop(state);
        if let Some((_, oldest)) = oldest {
            oldest.close(BUSY, "others came meanwhile");
        }
        Some(Place {
            guests: Arc::clone(self),
            number,
            peer: peer.id(),
            has_begun: AtomicBool::new(false),
        })
    }
}

impl Place {
    /// The peer has proved who it is, and gets what is sent; `false` where it had to make room, or too much is sent
    /// already, to it or to all.
    pub(super) fn begin(&self) -> bool {
        let mut state = self.guests.state();
        let running = state.of_peers.values().sum::<usize>();
        let to_this = state.of_peers.get(&self.peer).copied().unwrap_or(0);
        let has_room = running < TRANSFER_GUESTS_MAX && to_this < TRANSFER_OF_PEER_MAX;
        let is_there = has_room && state.leave(self.number);
        if is_there {
            state.of_peers.insert(self.peer, to_this + 1);
            self.has_begun.store(true, Ordering::Relaxed);
        }
        is_there
    }
}

impl State {
    /// Takes one out of the strangers; `false` where it had to make room.
    fn leave(&mut self, number: u64) -> bool {
        let place = self.strangers.iter().position(|(other, _)| *other == number);
        place.is_some_and(|place| self.strangers.remove(place).is_some())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.guests.state();
        if !self.has_begun.load(Ordering::Relaxed) {
            if !state.leave(self.number) {
                state.leaving -= 1;
            }
            return;
        }
        let left = state.of_peers.get(&self.peer).map_or(0, |running| running - 1);
        match left {
            0 => state.of_peers.remove(&self.peer),
            left => state.of_peers.insert(self.peer, left),
        };
    }
}

#[cfg(test)]
mod tests {
    use peer::blocking::wait;
    use peer::{CloseReason, Endpoint, SecretKey};

    use super::*;

    /// A host, and two guests of it, each with its end and the host's.
    fn connected() -> (Endpoint, [(Endpoint, Peer, Peer); 2]) {
        let bind = || {
            let key = SecretKey::generate().unwrap();
            Endpoint::bind(key, "127.0.0.1:0".parse().unwrap()).unwrap()
        };
        let host = bind();
        let come = || {
            let guest = bind();
            let to_host = wait(guest.connect(host.id(), &[host.local_addr()])).unwrap();
            (guest, to_host, wait(host.accept()).unwrap())
        };
        let guests = [come(), come()];
        (host, guests)
    }

    #[test]
    fn a_peer_that_connects_as_often_as_all_may_leaves_turns_to_others() {
        let (_host, [(_, _, greedy), (_, _, other)]) = connected();
        let guests = Arc::new(Guests::default());
        let places: Vec<Place> = (0..TRANSFER_GUESTS_MAX)
            .filter_map(|_| guests.come(&greedy))
            .filter(Place::begin)
            .collect();
        assert_eq!(places.len(), TRANSFER_OF_PEER_MAX);
        let place = guests.come(&other).unwrap();
        assert!(place.begin());
        drop(places);
        assert!(guests.come(&greedy).unwrap().begin());
        assert!(!guests.is_empty());
        drop(place);
        assert!(guests.is_empty());
    }

    #[test]
    fn strangers_make_room_for_who_comes_and_are_none_of_those_that_are_served() {
        let (_host, [(_, to_host, first), (_, _, later)]) = connected();
        let guests = Arc::new(Guests::default());
        let served = guests.come(&later).unwrap();
        assert!(served.begin());
        let oldest = guests.come(&first).unwrap();
        let mut places: Vec<Place> = (0..TRANSFER_STRANGERS_MAX)
            .map(|_| guests.come(&later).unwrap())
            .collect();
        let closed = wait(to_host.closed());
        assert!(
            matches!(closed, CloseReason::ApplicationClosed { code: BUSY, .. }),
            "{closed:?}"
        );
        assert!(!oldest.begin());
        assert!(places.pop().unwrap().begin());
        drop((oldest, places, served));
        assert!(guests.is_empty());
    }
}
