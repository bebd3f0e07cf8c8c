//! The queues as QUIC sees them while it flushes: what has waited too long is given up, and datagrams that repair each other
//! are kept in packets of their own.

use std::cell::Cell;
use std::time::Instant;

use bytes::Bytes;
use packet::varint;
use quic::{ConnectionKey, DatagramSource};

use super::pacing::{Paced, Pacing};
use super::peer::Peer;
use super::{Role, State};
use crate::access::Way;
use crate::drops::DropReason;

/// Bytes of a DATAGRAM frame besides its payload, as QUIC bounds them when it plans a packet.
const FRAME_BOUND: usize = 9;

/// Groups in one packet that are told apart; with more of them it takes no further one.
const GROUPS_MAX: usize = 16;

pub(super) struct Source<'a, R: Role> {
    now: Instant,
    state: &'a mut State<R>,
    /// QUIC asked whether something waits: it begins a packet.
    begins: Cell<bool>,
    packet: Packet,
}

/// The packet that the next datagram would join: QUIC fills packets in order.
#[derive(Default)]
struct Packet {
    room: usize,
    /// Groups of which it has a datagram.
    groups: [u64; GROUPS_MAX],
    used: usize,
}

impl Packet {
    /// Whether a datagram of `frame` bytes would join one of the same group (REPAIR-11).
    fn is_shared(&self, frame: usize, group: u64) -> bool {
        let known = &self.groups[..self.used];
        frame <= self.room && (known.contains(&group) || self.used == GROUPS_MAX)
    }

    fn add(&mut self, frame: usize, size_max: usize, group: Option<u64>) {
        if self.room <= FRAME_BOUND || frame > self.room {
            self.room = size_max + FRAME_BOUND;
            self.used = 0;
        }
        self.room = self.room.saturating_sub(frame);
        if let Some(group) = group
            && self.used < GROUPS_MAX
        {
            self.groups[self.used] = group;
            self.used += 1;
        }
    }
}

impl<'a, R: Role> Source<'a, R> {
    pub(super) fn new(now: Instant, state: &'a mut State<R>) -> Self {
        Self {
            now,
            state,
            begins: Cell::new(true),
            packet: Packet::default(),
        }
    }
}

/// Whether the peer's user may have nothing at present.
fn is_paced(pacing: &Pacing, now: Instant, peer: &Peer) -> bool {
    let paced = Paced::Datagrams(peer.connection);
    let waits = |user| pacing.waits(now, user, Way::ToClient, paced);
    peer.user.as_ref().is_some_and(waits)
}

impl<R: Role> DatagramSource for Source<'_, R> {
    fn waits(&self, connection: ConnectionKey) -> bool {
        self.begins.set(true);
        self.state
            .peers
            .get(connection.index())
            .and_then(Option::as_ref)
            .is_some_and(|peer| !peer.queue.is_empty() && !is_paced(&self.state.pacing, self.now, peer))
    }

    fn next_datagram(&mut self, connection: ConnectionKey, size_max: usize, room: usize) -> Option<Bytes> {
        if self.begins.take() {
            self.packet = Packet::default();
        }
        let state = &mut *self.state;
        let peer = state.peers.get_mut(connection.index()).and_then(Option::as_mut)?;
        loop {
            if is_paced(&state.pacing, self.now, peer) {
                return None;
            }
            let front = peer.queue.front()?;
            let is_overdue = front.is_overdue(self.now);
            let front = front.entry;
            let frame = 1 + varint::len(front.bytes.len() as u64) + front.bytes.len();
            let reason = if is_overdue {
                Some(DropReason::QueueExpired)
            } else if front.bytes.len() > size_max {
                Some(DropReason::PathChanged)
            } else if front.bytes.len() > room {
                return None;
            } else if front
                .apart
                .is_some_and(|group| self.packet.is_shared(frame, group))
            {
                // QUIC sends the packet, and comes back for the next one.
                return None;
            } else if peer.queue.front_delays_its_flow(self.now) {
                Some(DropReason::StandingDelay)
            } else {
                None
            };
            let entry = peer.queue.pop()?;
            match reason {
                Some(reason) => state.ledger.ingress.drop(reason, 1),
                None => {
                    if let Some(user) = &peer.user {
                        user.charge(Way::ToClient, self.now, entry.bytes.len());
                    }
                    self.packet.add(frame, size_max, entry.apart);
                    return Some(entry.bytes);
                }
            }
        }
    }
}
