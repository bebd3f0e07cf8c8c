//! How much the peers of a socket keep of what came and is not read, together.
//!
//! Each peer may keep as much as all of them leave free, up to its own bound (the dynamic threshold of shared switch
//! buffers): a few peers whose messages nobody reads leave room for others, and many share it evenly. A reserve is
//! everybody's own.
//!
//! Where no room is left, messages that wait for one on a stream could fill it for ever. So one peer at a time may read
//! on, until one more of its messages is whole: then it is the next one's turn.

use std::time::Instant;

use super::{PeerKey, Peers};
use crate::lazy::Lazy;
use crate::limits::{RECEIVE_BYTES_MAX, RECEIVE_BYTES_RESERVED};
use crate::receiver::Receiver;

#[derive(Debug)]
pub(super) struct Bound {
    bytes_max: usize,
    /// Bytes that all peers keep.
    bytes: usize,
    /// The room when it last kept a peer from reading on.
    squeezed_at: Option<usize>,
    /// Who may read on without room, and how many of its messages were whole before.
    favoured: Option<(usize, u64)>,
}

impl Bound {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            bytes: 0,
            squeezed_at: None,
            favoured: None,
        }
    }

    fn favours(&self, index: usize) -> bool {
        self.favoured.is_some_and(|(favoured, _)| favoured == index)
    }

    /// What one peer may keep at present.
    fn of_peer(&self) -> usize {
        let free = self.bytes_max.saturating_sub(self.bytes);
        free.clamp(RECEIVE_BYTES_RESERVED, RECEIVE_BYTES_MAX)
    }

    fn has_room(&self) -> bool {
        self.bytes < self.bytes_max
    }

    /// Bytes that are kept beyond what leaves enough room for all.
    fn excess(&self) -> usize {
        self.bytes.saturating_sub(self.bytes_max / 2)
    }

    /// Whether peers that were kept from reading on have much more room; told once.
    fn take_relief(&mut self) -> bool {
        let room = self.of_peer();
        let has_more = |at: usize| room >= RECEIVE_BYTES_MAX || room >= 2 * at;
        let is_relieved = self.squeezed_at.is_some_and(has_more);
        if is_relieved {
            self.squeezed_at = None;
        }
        is_relieved
    }

    /// Tells the receiver of the peer at `index` what it may keep at present.
    fn tell(&self, index: usize, is_accepted: bool, receiver: &mut Receiver) {
        match is_accepted {
            true => receiver.set_bound(self.of_peer(), self.has_room() || self.favours(index)),
            false => receiver.set_bound(RECEIVE_BYTES_RESERVED, false),
        }
    }

    /// The receiver of the peer at `index` for what is given to it, which may be its first use; it knows then what it
    /// may keep.
    pub(super) fn use_receiver<'a>(
        &self,
        index: usize,
        is_accepted: bool,
        receiver: &'a mut Lazy<Receiver>,
        make: impl FnOnce() -> Receiver,
    ) -> &'a mut Receiver {
        let receiver = receiver.used(make);
        self.tell(index, is_accepted, receiver);
        receiver
    }
}

impl Peers {
    /// The program wants this peer, which connected to us: until then little is taken from it.
    pub fn accept(&mut self, peer: PeerKey) {
        let Some(entry) = self.peer(peer) else {
            return;
        };
        entry.is_accepted = true;
        self.touch(peer.index());
    }

    /// Whether there are messages of this peer to read, or streams after the end of its connection.
    #[must_use]
    pub fn has_unread(&self, peer: PeerKey) -> bool {
        let entry = self.peers.get(peer.index()).and_then(Option::as_deref);
        entry.is_some_and(|entry| entry.generation == peer.generation && entry.has_unread())
    }

    /// Bytes that all peers keep of what came and is not read.
    #[must_use]
    pub fn unread_bytes(&self) -> usize {
        self.bound.bytes
    }

    /// Tells the peer's receiver what it may keep at present.
    pub(super) fn set_bound(&mut self, index: usize) {
        if let Some(peer) = self.peers[index].as_deref_mut()
            && let Some(receiver) = peer.receiver.get_mut()
        {
            self.bound.tell(index, peer.is_accepted, receiver);
        }
    }

    /// Counts what the peer keeps.
    pub(super) fn recount(&mut self, index: usize) {
        let Some(peer) = self.peers[index].as_deref_mut() else {
            return;
        };
        let bytes = peer.unread_bytes();
        self.bound.bytes = self.bound.bytes - peer.counted + bytes;
        peer.counted = bytes;
        let (holds_back, is_stuck) = (peer.incoming.holds_back(), peer.is_queue_full());
        let completed = peer.incoming.completed();
        if holds_back && self.bound.of_peer() < RECEIVE_BYTES_MAX {
            self.bound.squeezed_at.get_or_insert(self.bound.of_peer());
        }
        let had_its_turn =
            |(favoured, before): (usize, u64)| favoured == index && (completed != before || is_stuck);
        if self.bound.favoured.is_some_and(had_its_turn)
            || (self.bound.favoured.is_none() && holds_back && !self.bound.has_room())
        {
            self.favour_next(index);
        }
        if self.bound.take_relief() {
            for index in 0..self.peers.len() {
                self.touch(index);
            }
        }
    }

    /// Refuses incomplete messages of the peer that stand still, where room is short.
    pub(super) fn give_up_stalled(&mut self, now: Instant, index: usize) {
        let excess = self.bound.excess();
        self.set_bound(index);
        let Some(peer) = self.peers[index].as_deref_mut() else {
            return;
        };
        let Some(connection) = peer.connection() else {
            return;
        };
        let is_spared = peer.inbound.has_unread() && self.quic.may_lack_credit(connection);
        // Without it nothing was read of any message.
        let Some(receiver) = peer.receiver.get_mut() else {
            return;
        };
        let quic = &mut self.quic;
        let given_up = peer
            .incoming
            .give_up_stalled(now, excess, is_spared, quic, connection, receiver);
        self.recount(index);
        if let Err(violation) = given_up {
            self.condemn(now, index, violation);
        }
    }

    /// The peer at `index` is gone, which kept so much.
    pub(super) fn discount(&mut self, index: usize, bytes: usize) {
        self.bound.bytes -= bytes;
        if self.bound.favours(index) {
            self.favour_next(index);
        }
    }

    /// Lets the first peer behind `index` that was kept from reading on do so.
    fn favour_next(&mut self, index: usize) {
        let count = self.peers.len();
        let waits = |index: &usize| {
            self.peers[*index]
                .as_deref()
                .is_some_and(|peer| peer.is_accepted && peer.incoming.holds_back() && !peer.is_queue_full())
        };
        let next = (1..=count).map(|step| (index + step) % count).find(waits);
        self.bound.favoured = next.and_then(|next| {
            let peer = self.peers[next].as_deref()?;
            Some((next, peer.incoming.completed()))
        });
        if let Some(next) = next {
            self.touch(next);
        }
    }
}
