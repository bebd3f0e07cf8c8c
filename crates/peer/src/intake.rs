//! Messages on their way from the program to the endpoint's thread, without the lock on [`crate::shared::State`]: the
//! thread holds that for as long as it seals packets, and a program that waited for it would sleep and be woken for
//! every few messages.
//!
//! A message takes this way where its sender can be told at once that it is taken: it has no order and no deadline, it
//! is not too long, and there is room. Each connection has a [`Lane`], by which the program knows of room. All others
//! take the lock, hand over before them what waits here, and hear what is wrong with them.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use bytes::Bytes;
use peer_proto::limits::MESSAGE_COST_BYTES;
use peer_proto::{Delivery, DropReason, Order, Outcome, PeerKey, Reliability};

use crate::ticket::TicketState;

/// A message that the program was told is taken.
pub(crate) struct Submission {
    pub(crate) peer: PeerKey,
    pub(crate) body: Bytes,
    pub(crate) delivery: Delivery,
    pub(crate) ticket: Arc<TicketState>,
}

/// A panic that ends the endpoint's thread drops what it was handing over.
impl Drop for Submission {
    fn drop(&mut self) {
        if thread::panicking()
            && let Some(waker) = self.ticket.end(Outcome::Dropped(DropReason::ConnectionEnded))
        {
            waker.wake();
        }
    }
}

/// What a message takes of [`peer_proto::Parameters::send_bytes_max`].
pub(crate) fn cost(body: &Bytes) -> usize {
    body.len() + MESSAGE_COST_BYTES
}

/// The room of one connection. What is in use is `queued + held` or less: a message is counted in `held` before it
/// leaves `queued`.
#[derive(Debug)]
pub(crate) struct Lane {
    bytes_max: usize,
    body_bytes_max: usize,
    /// Bytes of messages that are on their way to the thread.
    queued: AtomicUsize,
    /// Bytes of messages that wait or are under way to the peer, and those that are kept for whoever waited.
    held: AtomicUsize,
    /// [`CLOSED`], [`CONTESTED`].
    barred: AtomicU8,
}

/// No message takes this way any more.
const CLOSED: u8 = 1;

/// Somebody waits for room, whom nobody may pass by ([`crate::room`]).
const CONTESTED: u8 = 2;

impl Lane {
    pub(crate) fn new(bytes_max: usize, body_bytes_max: usize) -> Self {
        Self {
            bytes_max,
            body_bytes_max,
            queued: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            barred: AtomicU8::new(0),
        }
    }

    /// Reserves room for a message that may take this way; whether it may.
    pub(crate) fn reserve(&self, body: &Bytes, delivery: Delivery) -> bool {
        if delivery.order != Order::Unordered
            || matches!(delivery.reliability, Reliability::Deadline(_))
            || body.len() > self.body_bytes_max
            || self.barred.load(Ordering::SeqCst) != 0
        {
            return false;
        }
        let cost = cost(body);
        let queued = self.queued.fetch_add(cost, Ordering::SeqCst);
        let fits = queued + cost + self.held.load(Ordering::SeqCst) <= self.bytes_max;
        if !fits {
            self.release(cost);
        }
        fits
    }

    /// A message was handed over, or is not sent.
    pub(crate) fn release(&self, cost: usize) {
        self.queued.fetch_sub(cost, Ordering::SeqCst);
    }

    pub(crate) fn set_held(&self, bytes: usize) {
        self.held.store(bytes, Ordering::SeqCst);
    }

    /// No message takes this way any more.
    pub(crate) fn close(&self) {
        self.barred.fetch_or(CLOSED, Ordering::SeqCst);
    }

    /// While somebody waits for room, no message takes this way.
    pub(crate) fn set_contested(&self, is_contested: bool) {
        match is_contested {
            true => self.barred.fetch_or(CONTESTED, Ordering::SeqCst),
            false => self.barred.fetch_and(!CONTESTED, Ordering::SeqCst),
        };
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Whether a message is longer than any may be.
    pub(crate) fn is_too_long(&self, body: &Bytes) -> bool {
        body.len() > self.body_bytes_max
    }
}

/// What waits for the thread, of all connections; their lanes bound it.
#[derive(Default)]
pub(crate) struct Intake(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    submissions: Vec<Submission>,
    /// Nobody will take anything any more.
    is_over: bool,
}

impl Intake {
    /// Whether it is the first, of which the thread has to hear; given back where nobody will take it.
    pub(crate) fn push(&self, submission: Submission) -> Result<bool, Submission> {
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.is_over {
            return Err(submission);
        }
        queue.submissions.push(submission);
        Ok(queue.submissions.len() == 1)
    }

    /// Exchanges what waits for `emptied`.
    pub(crate) fn swap(&self, emptied: &mut Vec<Submission>) {
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut queue.submissions, emptied);
    }

    /// Takes nothing more.
    pub(crate) fn end(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_over = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_has_room_for_what_is_neither_queued_nor_held() {
        let body = Bytes::from_static(&[0; 72]);
        let lane = Lane::new(1_000, 100);
        let unordered = Delivery::unordered();
        let reserved = (0..9).filter(|_| lane.reserve(&body, unordered)).count();
        assert_eq!(reserved, 5);
        lane.set_held(200);
        lane.release(200);
        assert!(!lane.reserve(&body, unordered));
        lane.set_held(0);
        assert!(lane.reserve(&body, unordered.unreliable()));
    }

    #[test]
    fn what_may_be_refused_for_another_reason_than_room_takes_another_way() {
        let lane = Lane::new(10_000, 100);
        let (short, long) = (Bytes::from_static(b"a"), Bytes::from_static(&[0; 101]));
        let deadline = Delivery::unordered().with_deadline(std::time::Duration::from_secs(1));
        for delivery in [Delivery::ordered(1), Delivery::latest(1), deadline] {
            assert!(!lane.reserve(&short, delivery));
        }
        assert!(!lane.reserve(&long, Delivery::unordered()));
        assert!(lane.reserve(&short, Delivery::unordered()));
        lane.set_contested(true);
        assert!(!lane.reserve(&short, Delivery::unordered()));
        lane.set_contested(false);
        assert!(lane.reserve(&short, Delivery::unordered()));
        lane.close();
        lane.set_contested(false);
        assert!(!lane.reserve(&short, Delivery::unordered()));
    }
}
