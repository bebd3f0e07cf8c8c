//! Datagrams that are ahead of what they belong to, bounded in bytes and time: at a server those that overtook their
//! request or whose target is still being opened, at a client those that came before the tunnel was up.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::limits::HELD_ENTRY_BYTES;

#[derive(Debug)]
struct Waiting<K> {
    key: K,
    payload: Vec<u8>,
    since: Instant,
}

/// A queue of what waits for something else; `K` names what a datagram waits for.
#[derive(Debug)]
pub(crate) struct HoldQueue<K> {
    entries: VecDeque<Waiting<K>>,
    bytes: usize,
    bytes_max: usize,
}

impl<K: Copy + PartialEq> HoldQueue<K> {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            bytes: 0,
            bytes_max,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Lets a datagram wait. Whether there was room.
    #[must_use]
    pub(crate) fn push(&mut self, key: K, payload: &[u8], now: Instant) -> bool {
        let bytes = payload.len() + HELD_ENTRY_BYTES;
        if self.bytes + bytes > self.bytes_max {
            return false;
        }
        self.bytes += bytes;
        self.entries.push_back(Waiting {
            key,
            payload: payload.to_vec(),
            since: now,
        });
        true
    }

    /// Takes out, in order, everything that waits for `key`.
    pub(crate) fn take(&mut self, key: K) -> Vec<Vec<u8>> {
        let mut taken = Vec::new();
        self.entries.retain_mut(|entry| {
            if entry.key != key {
                return true;
            }
            self.bytes -= entry.payload.len() + HELD_ENTRY_BYTES;
            taken.push(std::mem::take(&mut entry.payload));
            false
        });
        taken
    }

    /// Forgets what has waited longer than `limit` says for its key. How many those were.
    pub(crate) fn expire(&mut self, now: Instant, limit: impl Fn(K) -> Duration) -> u64 {
        let before = self.entries.len();
        self.entries.retain(|entry| {
            let stays = now.duration_since(entry.since) <= limit(entry.key);
            if !stays {
                self.bytes -= entry.payload.len() + HELD_ENTRY_BYTES;
            }
            stays
        });
        (before - self.entries.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_bounded_and_comes_out_in_order_by_key() {
        let mut queue = HoldQueue::new(3 * (10 + HELD_ENTRY_BYTES));
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        assert!(queue.push(1, &[1; 10], now));
        assert!(queue.push(2, &[2; 10], now));
        assert!(queue.push(1, &[3; 10], now));
        assert!(!queue.push(1, &[], now));
        assert_eq!(queue.take(1), [vec![1; 10], vec![3; 10]]);
        assert_eq!(queue.len(), 1);
        assert!(queue.push(1, &[], now));
    }

    #[test]
    fn what_waited_too_long_is_forgotten_and_its_room_is_free_again() {
        let mut queue = HoldQueue::new(10 + HELD_ENTRY_BYTES);
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        assert!(queue.push(1, &[1; 10], now));
        assert_eq!(
            queue.expire(now + Duration::from_secs(1), |_| Duration::from_secs(1)),
            0
        );
        assert_eq!(
            queue.expire(now + Duration::from_secs(2), |_| Duration::from_secs(1)),
            1
        );
        assert!(queue.push(1, &[1; 10], now));
    }
}
