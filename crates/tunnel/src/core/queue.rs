//! Datagrams that wait for one peer: first in, first out, bounded in bytes and time, with a share for every flow.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;

use super::RequestId;
use crate::config::QueuePolicy;
use crate::limits;

/// One DATAGRAM frame's payload that waits.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) bytes: Bytes,
    pub(crate) request: RequestId,
    /// When it is worth nothing any more.
    pub(crate) expires: Instant,
}

/// What became of a push.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Push {
    /// It waits.
    Queued,
    /// There is no room; nothing was queued.
    Full,
}

#[derive(Debug, Default)]
pub(crate) struct DatagramQueue {
    entries: VecDeque<Queued>,
    bytes: usize,
}

impl DatagramQueue {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes room for `bytes` by the policy: the entries that have to go for it are given to `evict`.
    pub(crate) fn make_room(
        &mut self,
        bytes: usize,
        policy: QueuePolicy,
        mut evict: impl FnMut(Queued),
    ) -> Push {
        if bytes > limits::QUEUE_BYTES_MAX {
            return Push::Full;
        }
        while self.bytes + bytes > limits::QUEUE_BYTES_MAX {
            match policy {
                QueuePolicy::DropNewest => return Push::Full,
                QueuePolicy::DropOldest => match self.pop() {
                    Some(oldest) => evict(oldest),
                    None => return Push::Full,
                },
            }
        }
        Push::Queued
    }

    /// Appends an entry for which [`DatagramQueue::make_room`] found room.
    pub(crate) fn push(&mut self, entry: Queued) {
        self.bytes += entry.bytes.len();
        debug_assert!(
            self.bytes <= limits::QUEUE_BYTES_MAX,
            "room is made before a push"
        );
        self.entries.push_back(entry);
    }

    pub(crate) fn front(&self) -> Option<&Queued> {
        self.entries.front()
    }

    pub(crate) fn pop(&mut self) -> Option<Queued> {
        let entry = self.entries.pop_front()?;
        self.bytes -= entry.bytes.len();
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(bytes: usize, request: usize) -> Queued {
        Queued {
            bytes: Bytes::from(vec![0; bytes]),
            request: RequestId(request),
            expires: Instant::now(),
        }
    }

    #[test]
    fn a_full_queue_refuses_the_newest_or_gives_up_the_oldest_by_its_policy() {
        let mut queue = DatagramQueue::default();
        let half = limits::QUEUE_BYTES_MAX / 2;
        for request in 0..2 {
            assert_eq!(
                queue.make_room(half, QueuePolicy::DropNewest, |_| unreachable!()),
                Push::Queued
            );
            queue.push(entry(half, request));
        }
        assert_eq!(
            queue.make_room(1, QueuePolicy::DropNewest, |_| unreachable!()),
            Push::Full
        );
        let mut evicted = Vec::new();
        assert_eq!(
            queue.make_room(1, QueuePolicy::DropOldest, |entry| evicted.push(entry.request.0)),
            Push::Queued
        );
        assert_eq!((evicted, queue.bytes(), queue.len()), (vec![0], half, 1));
        let never = queue.make_room(
            limits::QUEUE_BYTES_MAX + 1,
            QueuePolicy::DropOldest,
            |_| unreachable!(),
        );
        assert_eq!(never, Push::Full);
    }

    #[test]
    fn what_is_pushed_first_is_popped_first() {
        let mut queue = DatagramQueue::default();
        (0..3).for_each(|request| queue.push(entry(10, request)));
        assert_eq!(
            std::iter::from_fn(|| queue.pop())
                .map(|entry| entry.request.0)
                .collect::<Vec<_>>(),
            [0, 1, 2]
        );
        assert!(queue.is_empty());
        assert_eq!(queue.bytes(), 0);
    }
}
