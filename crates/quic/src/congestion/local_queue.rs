//! Whether a queue stands on a local path.
//!
//! Round trips there are long where processes wait for a processor, and that is no queue: who answered it would lose the
//! rate that a path of many gigabits has. What stays, however, stands in the receiver's socket, in front of everything else
//! that the path carries.

use std::time::{Duration, Instant};

/// A round whose shortest round trip is so much longer than the base has a queue.
const QUEUE: Duration = Duration::from_millis(5);

/// One with less has none.
const NO_QUEUE: Duration = Duration::from_millis(1);

/// A queue for so long stands: longer than a process that waits for a processor delays.
const STANDS: Duration = Duration::from_millis(50);

/// Without one for so long, it is gone: whoever caused it may have paused for a moment.
const GONE: Duration = Duration::from_secs(1);

/// Rounds with queues.
#[derive(Clone, Debug, Default)]
pub(super) struct LocalQueue {
    /// Since when no round was without one.
    since: Option<Instant>,
    /// The last round that had one, where it stands.
    stood_at: Option<Instant>,
}

impl LocalQueue {
    /// A round has ended; its shortest round trip was so much longer than the base.
    pub(super) fn end_round(&mut self, now: Instant, queue: Duration) {
        // What is answered is shorter, and there all the same.
        let is_one = queue > if self.stands() { NO_QUEUE } else { QUEUE };
        if is_one {
            let since = *self.since.get_or_insert(now);
            if self.stands() || now.saturating_duration_since(since) >= STANDS {
                self.stood_at = Some(now);
            }
            return;
        }
        if queue < NO_QUEUE {
            self.since = None;
        }
        self.stood_at = self
            .stood_at
            .filter(|at| now.saturating_duration_since(*at) < GONE);
    }

    pub(super) fn stands(&self) -> bool {
        self.stood_at.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_millis(8);

    /// Rounds of `length` milliseconds with such queues, one after the other.
    fn stands_after(rounds: &[(u64, Duration)]) -> bool {
        // tidy-allow(pure): first instant of virtual time
        let mut now = Instant::now();
        let mut queue = LocalQueue::default();
        for (length, of_round) in rounds {
            now += Duration::from_millis(*length);
            queue.end_round(now, *of_round);
        }
        queue.stands()
    }

    #[test]
    fn what_a_process_that_waited_delays_is_no_queue() {
        assert!(!stands_after(&[(30, LONG), (30, LONG)]));
        assert!(!stands_after(&[
            (30, LONG),
            (30, LONG),
            (1, Duration::ZERO),
            (30, LONG),
            (30, LONG)
        ]));
    }

    #[test]
    fn what_stays_is_one_until_it_was_away_for_long() {
        let standing = [(8, LONG); 10];
        assert!(stands_after(&standing));
        let paused = [(1, Duration::ZERO); 900];
        assert!(stands_after(&[&standing[..], &paused].concat()));
        assert!(stands_after(
            &[&standing[..], &paused, &[(8, LONG)], &paused].concat()
        ));
        assert!(!stands_after(&[&standing[..], &paused, &paused].concat()));
        let answered = [(3, Duration::from_millis(3)); 900];
        assert!(stands_after(&[&standing[..], &answered].concat()));
        assert!(!stands_after(&answered));
    }
}
