//! Datagrams that are ahead of what they belong to, bounded in bytes and time: at a server those that overtook their
//! request or whose target is still being opened, at a client those that came before the tunnel was up.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::limits::HELD_ENTRY_BYTES;

#[derive(Debug)]
struct Waiting {
    payload: Vec<u8>,
    since: Instant,
}

/// A queue of what waits for something else; `K` names what a datagram waits for.
#[derive(Debug)]
pub(crate) struct HoldQueue<K> {
    /// By key, then by arrival.
    entries: BTreeMap<(K, u64), Waiting>,
    /// Number of the next one.
    next: u64,
    bytes: usize,
    bytes_max: usize,
}

impl<K: Copy + Ord> HoldQueue<K> {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            next: 0,
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
        let waiting = Waiting {
            payload: payload.to_vec(),
            since: now,
        };
        self.entries.insert((key, self.next), waiting);
        self.next += 1;
        true
    }

    /// Takes out, in order, everything that waits for `key`.
    pub(crate) fn take(&mut self, key: K) -> Vec<Vec<u8>> {
        let of_key = self.entries.range((key, 0)..=(key, u64::MAX));
        let places: Vec<(K, u64)> = of_key.map(|(place, _)| *place).collect();
        let taken = places.iter().filter_map(|place| self.entries.remove(place));
        let taken: Vec<Vec<u8>> = taken.map(|waiting| waiting.payload).collect();
        let bytes = taken.iter().map(|payload| payload.len() + HELD_ENTRY_BYTES);
        self.bytes -= bytes.sum::<usize>();
        taken
    }

    /// Forgets what has waited longer than `limit` says for its key. How many those were.
    pub(crate) fn expire(&mut self, now: Instant, limit: impl Fn(K) -> Duration) -> u64 {
        let before = self.entries.len();
        self.entries.retain(|(key, _), waiting| {
            let stays = now.duration_since(waiting.since) <= limit(*key);
            if !stays {
                self.bytes -= waiting.payload.len() + HELD_ENTRY_BYTES;
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
