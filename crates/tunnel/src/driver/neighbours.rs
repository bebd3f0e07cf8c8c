//! What the shards of one process hand to each other: bounded queues, counted at both ends.
//!
//! It is the exception on every path: a shard that gets what belongs to another gives it away here, and drops it where
//! the other one does not keep up. With one shard there is nobody, and nothing costs anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};

use bytes::BytesMut;
use packet::Ecn;
use packet_io::Waker;
use quic::Path;

use crate::limits;
use crate::snapshot::HandoverCounters;

/// What it holds in the queue, in bytes.
pub(super) trait Cost {
    fn bytes(&self) -> usize;
}

/// A received segment whose connection ID names another shard.
pub(super) struct Segment {
    pub(super) path: Path,
    pub(super) ecn: Ecn,
    pub(super) bytes: BytesMut,
}

/// One thing that is handed over; `M` is what only shards of one role do.
pub(super) enum Message<M> {
    Segment(Segment),
    Role(M),
}

impl<M: Cost> Cost for Message<M> {
    fn bytes(&self) -> usize {
        match self {
            Self::Segment(segment) => segment.bytes.len(),
            Self::Role(message) => message.bytes(),
        }
    }
}

/// The way to one shard.
struct Inbox<M> {
    messages: SyncSender<Message<M>>,
    waiting_bytes: Arc<AtomicUsize>,
    waker: Waker,
}

impl<M> Clone for Inbox<M> {
    fn clone(&self) -> Self {
        Self {
            messages: self.messages.clone(),
            waiting_bytes: Arc::clone(&self.waiting_bytes),
            waker: self.waker.clone(),
        }
    }
}

/// One shard's queue, and the ways to all.
pub(super) struct Neighbours<M> {
    own: usize,
    messages: Receiver<Message<M>>,
    inboxes: Vec<Inbox<M>>,
    /// Shards that have been given something and not been woken, one bit each.
    unwoken: u32,
    /// Shards that are not ready to end, one bit each, shared by all.
    busy: Arc<AtomicU32>,
    counters: HandoverCounters,
}

impl<M: Cost> Neighbours<M> {
    /// The queues of a process whose shards are woken by these, in their order.
    pub(super) fn new(wakers: &[Waker]) -> Vec<Self> {
        let mut inboxes = Vec::with_capacity(wakers.len());
        let mut receivers = Vec::with_capacity(wakers.len());
        for waker in wakers {
            let (messages, receiver) = mpsc::sync_channel(limits::HANDOVER_MESSAGES_MAX);
            receivers.push(receiver);
            inboxes.push(Inbox {
                messages,
                waiting_bytes: Arc::default(),
                waker: waker.clone(),
            });
        }
        let busy = Arc::new(AtomicU32::new(u32::MAX >> (u32::BITS as usize - wakers.len())));
        let neighbours = receivers.into_iter().enumerate().map(|(own, messages)| Self {
            own,
            messages,
            inboxes: inboxes.clone(),
            unwoken: 0,
            busy: Arc::clone(&busy),
            counters: HandoverCounters::default(),
        });
        neighbours.collect()
    }

    /// This shard's number.
    pub(super) fn own(&self) -> usize {
        self.own
    }

    /// What wakes this shard.
    pub(super) fn own_waker(&self) -> &Waker {
        &self.inboxes[self.own].waker
    }

    /// Gives what only this role knows to a shard, which [`Neighbours::wake_others`] wakes. Whether there was room;
    /// else it is gone.
    pub(super) fn hand_over(&mut self, shard: usize, message: M) -> bool {
        self.give(shard, Message::Role(message))
    }

    /// Gives a received segment to its shard; it is gone where there is no room.
    pub(super) fn hand_over_segment(&mut self, shard: usize, segment: Segment) {
        self.give(shard, Message::Segment(segment));
    }

    fn give(&mut self, shard: usize, message: Message<M>) -> bool {
        let Some(inbox) = self.inboxes.get(shard).filter(|_| shard != self.own) else {
            self.counters.dropped += 1;
            return false;
        };
        let cost = message.bytes();
        let before = inbox.waiting_bytes.fetch_add(cost, Ordering::Relaxed);
        if before + cost <= limits::HANDOVER_BYTES_MAX && inbox.messages.try_send(message).is_ok() {
            self.unwoken |= 1 << shard;
            self.counters.given += 1;
            return true;
        }
        inbox.waiting_bytes.fetch_sub(cost, Ordering::Relaxed);
        self.counters.dropped += 1;
        false
    }

    /// This shard has nothing left to do before its end. Whether all have, so that they end together: users of UDP on
    /// an idle shard keep their sessions as long as transfers on another one go on.
    pub(super) fn all_may_end(&mut self) -> bool {
        let own = 1 << self.own;
        let before = self.busy.fetch_and(!own, Ordering::Relaxed);
        if before == own {
            // It was the last one, for which the others wait.
            self.wake_all();
            self.wake_others();
        }
        before & !own == 0
    }

    /// Gives every other shard a message.
    pub(super) fn tell_all(&mut self, message: impl Fn() -> M) {
        let own = self.own;
        for shard in (0..self.inboxes.len()).filter(|shard| *shard != own) {
            self.hand_over(shard, message());
        }
    }

    /// Has [`Neighbours::wake_others`] wake every other shard.
    pub(super) fn wake_all(&mut self) {
        self.unwoken = (u32::MAX >> (u32::BITS as usize - self.inboxes.len())) & !(1 << self.own);
    }

    /// Wakes the shards that were given something.
    pub(super) fn wake_others(&mut self) {
        while self.unwoken != 0 {
            let shard = self.unwoken.trailing_zeros() as usize;
            self.unwoken &= self.unwoken - 1;
            self.inboxes[shard].waker.wake();
        }
    }

    /// The next message from others.
    pub(super) fn take(&mut self) -> Option<Message<M>> {
        let message = self.messages.try_recv().ok()?;
        self.inboxes[self.own]
            .waiting_bytes
            .fetch_sub(message.bytes(), Ordering::Relaxed);
        self.counters.taken += 1;
        Some(message)
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

    /// Bytes that somebody else may use.
    struct Blob(usize);

    impl Cost for Blob {
        fn bytes(&self) -> usize {
            self.0
        }
    }

    fn neighbours(count: usize) -> Vec<Neighbours<Blob>> {
        let poller = Poller::new().unwrap();
        let wakers: Vec<_> = (0..count).map(|_| Waker::new(&poller, 0).unwrap()).collect();
        Neighbours::new(&wakers)
    }

    #[test]
    fn what_one_shard_gives_another_one_takes_once() {
        let mut shards = neighbours(2);
        assert!(shards[0].hand_over(1, Blob(10)));
        shards[0].wake_others();
        assert!(shards[0].take().is_none());
        assert!(shards[1].take().is_some());
        assert!(shards[1].take().is_none());
        assert_eq!((shards[0].counters().given, shards[1].counters().taken), (1, 1));
    }

    #[test]
    fn a_shard_that_does_not_keep_up_is_given_no_more_than_its_bounds() {
        let mut shards = neighbours(2);
        let half = limits::HANDOVER_BYTES_MAX / 2;
        assert!(shards[0].hand_over(1, Blob(half)));
        assert!(shards[0].hand_over(1, Blob(half)));
        assert!(!shards[0].hand_over(1, Blob(1)));
        assert!(shards[1].take().is_some());
        for _ in 1..limits::HANDOVER_MESSAGES_MAX {
            assert!(shards[0].hand_over(1, Blob(0)));
        }
        assert!(!shards[0].hand_over(1, Blob(0)));
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
        assert!(!shards[0].hand_over(0, Blob(1)));
        assert!(!shards[0].hand_over(1, Blob(1)));
        assert_eq!(shards[0].counters().dropped, 2);
    }
}
