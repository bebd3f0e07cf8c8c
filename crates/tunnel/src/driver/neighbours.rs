//! What the shards of one process hand to each other: bounded queues, counted at both ends.
//!
//! It is the exception on every path: a shard that gets what belongs to another gives it away here, and drops it where
//! the other one does not keep up. With one shard there is nobody, and nothing costs anything.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};

use bytes::BytesMut;
use packet::Ecn;
use packet_io::{VNET_HEADER_BYTES, Waker};
use quic::Path;
use tunnel_proto::Owner;

use crate::limits;
use crate::snapshot::HandoverCounters;

/// One thing that is handed over.
pub(super) enum Parcel {
    /// A received segment whose connection ID names the other shard.
    Segment { path: Path, ecn: Ecn, bytes: BytesMut },
    /// Datagrams of one source at a client's listener, from a shard whose stripe is down: all of `segment_size` bytes
    /// but the last.
    Datagrams {
        listener: usize,
        source: SocketAddr,
        bytes: BytesMut,
        segment_size: usize,
    },
    /// A packet of the TUN device for a client whose session is on the other shard.
    Packet {
        header: [u8; VNET_HEADER_BYTES],
        bytes: BytesMut,
    },
    /// A client has started anew: sessions of its earlier runs are dead.
    OlderRuns { owner: Owner },
    /// A connection to a client's TCP listener, from a shard whose stripe is down.
    Connection { listener: usize, stream: TcpStream },
    /// A sibling's connection is lost, so perhaps all are.
    Doubt,
}

impl Parcel {
    /// What it holds in the queue, in bytes.
    fn cost(&self) -> usize {
        match self {
            Self::Segment { bytes, .. } | Self::Datagrams { bytes, .. } | Self::Packet { bytes, .. } => {
                bytes.len()
            }
            Self::Connection { .. } | Self::OlderRuns { .. } | Self::Doubt => 0,
        }
    }
}

/// The way to one shard.
#[derive(Clone)]
struct Door {
    parcels: SyncSender<Parcel>,
    waiting_bytes: Arc<AtomicUsize>,
    waker: Waker,
}

/// One shard's queue, and the doors of all.
pub(super) struct Neighbours {
    own: usize,
    parcels: Receiver<Parcel>,
    doors: Vec<Door>,
    /// Shards that have been given something and not been woken, one bit each.
    unrung: u32,
    /// Shards that are not ready to end, one bit each, shared by all.
    busy: Arc<AtomicU32>,
    counters: HandoverCounters,
}

impl Neighbours {
    /// The queues of a process whose shards are woken by these, in their order.
    pub(super) fn new(wakers: &[Waker]) -> Vec<Self> {
        let mut doors = Vec::with_capacity(wakers.len());
        let mut receivers = Vec::with_capacity(wakers.len());
        for waker in wakers {
            let (parcels, receiver) = mpsc::sync_channel(limits::HANDOVER_PARCELS_MAX);
            receivers.push(receiver);
            doors.push(Door {
                parcels,
                waiting_bytes: Arc::default(),
                waker: waker.clone(),
            });
        }
        let busy = Arc::new(AtomicU32::new(u32::MAX >> (u32::BITS as usize - wakers.len())));
        let neighbours = receivers.into_iter().enumerate().map(|(own, parcels)| Self {
            own,
            parcels,
            doors: doors.clone(),
            unrung: 0,
            busy: Arc::clone(&busy),
            counters: HandoverCounters::default(),
        });
        neighbours.collect()
    }

    /// This shard's number.
    pub(super) fn own(&self) -> usize {
        self.own
    }

    /// Gives a parcel to a shard, which [`Neighbours::ring`] wakes. Whether there was room; else it is gone.
    pub(super) fn hand_over(&mut self, shard: usize, parcel: Parcel) -> bool {
        let Some(door) = self.doors.get(shard).filter(|_| shard != self.own) else {
            self.counters.dropped += 1;
            return false;
        };
        let cost = parcel.cost();
        let before = door.waiting_bytes.fetch_add(cost, Ordering::Relaxed);
        if before + cost <= limits::HANDOVER_BYTES_MAX && door.parcels.try_send(parcel).is_ok() {
            self.unrung |= 1 << shard;
            self.counters.given += 1;
            return true;
        }
        door.waiting_bytes.fetch_sub(cost, Ordering::Relaxed);
        self.counters.dropped += 1;
        false
    }

    /// This shard has nothing left to do before its end. Whether all have, so that they end together: users of UDP on an
    /// idle shard keep their sessions as long as transfers on another one go on.
    pub(super) fn all_may_end(&mut self) -> bool {
        let own = 1 << self.own;
        let before = self.busy.fetch_and(!own, Ordering::Relaxed);
        if before == own {
            // It was the last one, for which the others wait.
            self.unrung = (u32::MAX >> (u32::BITS as usize - self.doors.len())) & !own;
            self.ring();
        }
        before & !own == 0
    }

    /// Tells all other shards that their connections may be forgotten.
    pub(super) fn raise_doubt(&mut self) {
        let own = self.own;
        for shard in (0..self.doors.len()).filter(|shard| *shard != own) {
            self.hand_over(shard, Parcel::Doubt);
        }
    }

    /// Gives every other shard a parcel.
    pub(super) fn tell_all(&mut self, parcel: impl Fn() -> Parcel) {
        let own = self.own;
        for shard in (0..self.doors.len()).filter(|shard| *shard != own) {
            self.hand_over(shard, parcel());
        }
    }

    /// Wakes the shards that were given something.
    pub(super) fn ring(&mut self) {
        while self.unrung != 0 {
            let shard = self.unrung.trailing_zeros() as usize;
            self.unrung &= self.unrung - 1;
            self.doors[shard].waker.wake();
        }
    }

    /// The next parcel from others.
    pub(super) fn take(&mut self) -> Option<Parcel> {
        let parcel = self.parcels.try_recv().ok()?;
        self.doors[self.own]
            .waiting_bytes
            .fetch_sub(parcel.cost(), Ordering::Relaxed);
        self.counters.taken += 1;
        Some(parcel)
    }

    pub(super) fn counters(&self) -> HandoverCounters {
        self.counters
    }
}

const _: () = assert!(limits::SHARDS_MAX <= u32::BITS as usize);

#[cfg(test)]
mod tests {
    use packet_io::Poller;

    use super::*;

    fn neighbours(count: usize) -> Vec<Neighbours> {
        let poller = Poller::new().unwrap();
        let wakers: Vec<_> = (0..count).map(|_| Waker::new(&poller, 0).unwrap()).collect();
        Neighbours::new(&wakers)
    }

    fn datagrams(length: usize) -> Parcel {
        Parcel::Datagrams {
            listener: 0,
            source: SocketAddr::from(([127, 0, 0, 1], 1)),
            bytes: BytesMut::zeroed(length),
            segment_size: length,
        }
    }

    #[test]
    fn what_one_shard_gives_another_one_takes_once() {
        let mut shards = neighbours(2);
        assert!(shards[0].hand_over(1, datagrams(10)));
        shards[0].ring();
        assert!(shards[0].take().is_none());
        assert!(shards[1].take().is_some());
        assert!(shards[1].take().is_none());
        assert_eq!((shards[0].counters().given, shards[1].counters().taken), (1, 1));
    }

    #[test]
    fn a_shard_that_does_not_keep_up_is_given_no_more_than_its_bounds() {
        let mut shards = neighbours(2);
        let half = limits::HANDOVER_BYTES_MAX / 2;
        assert!(shards[0].hand_over(1, datagrams(half)));
        assert!(shards[0].hand_over(1, datagrams(half)));
        assert!(!shards[0].hand_over(1, datagrams(1)));
        assert!(shards[1].take().is_some());
        for _ in 1..limits::HANDOVER_PARCELS_MAX {
            assert!(shards[0].hand_over(1, datagrams(0)));
        }
        assert!(!shards[0].hand_over(1, datagrams(0)));
        assert_eq!(shards[0].counters().dropped, 2);
    }

    #[test]
    fn shards_end_together_when_the_last_one_is_ready() {
        let mut shards = neighbours(3);
        assert!(!shards[0].all_may_end());
        assert!(!shards[2].all_may_end());
        assert!(!shards[0].all_may_end());
        assert!(shards[1].all_may_end());
        assert!(shards[0].all_may_end() && shards[2].all_may_end());
        assert!(neighbours(1)[0].all_may_end());
    }

    #[test]
    fn nothing_is_given_to_oneself_or_to_a_shard_that_does_not_exist() {
        let mut shards = neighbours(1);
        assert!(!shards[0].hand_over(0, datagrams(1)));
        assert!(!shards[0].hand_over(1, datagrams(1)));
        assert_eq!(shards[0].counters().dropped, 2);
    }
}
