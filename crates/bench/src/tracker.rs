//! What a sink knows of one flow from its sequence numbers: received, lost, reordered, duplicated.
//!
//! A ring of bits remembers the last [`WINDOW`] numbers. What is older than that counts as reordered, because it
//! can't be told from a duplicate any more.

use serde::{Deserialize, Serialize};

/// Sequence numbers remembered per flow (2 KiB): far more than any queue on the way holds.
const WINDOW: u64 = 16_384;

/// Counts of one flow, or the sum over several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FlowCounts {
    /// Different datagrams received.
    pub(crate) received: u64,
    /// Numbers below the highest that never came.
    pub(crate) lost: u64,
    /// Datagrams that came after a later one.
    pub(crate) reordered: u64,
    /// Datagrams that came again.
    pub(crate) duplicates: u64,
}

impl std::ops::AddAssign for FlowCounts {
    fn add_assign(&mut self, other: Self) {
        self.received += other.received;
        self.lost += other.lost;
        self.reordered += other.reordered;
        self.duplicates += other.duplicates;
    }
}

/// The numbers of one flow.
#[derive(Debug)]
pub(crate) struct Tracker {
    next: u64,
    received: u64,
    reordered: u64,
    duplicates: u64,
    seen: Vec<u64>,
}

impl Default for Tracker {
    fn default() -> Self {
        Self {
            next: 0,
            received: 0,
            reordered: 0,
            duplicates: 0,
            seen: vec![0; (WINDOW / 64) as usize],
        }
    }
}

impl Tracker {
    /// Books one arrival.
    pub(crate) fn record(&mut self, sequence: u64) {
        if sequence >= self.next {
            if sequence - self.next >= WINDOW {
                self.seen.fill(0);
            } else {
                for skipped in self.next..sequence {
                    self.set(skipped, false);
                }
            }
            self.set(sequence, true);
            self.next = sequence.saturating_add(1);
            self.received += 1;
        } else if self.next - sequence <= WINDOW && self.is_set(sequence) {
            self.duplicates += 1;
        } else {
            self.set_if_remembered(sequence);
            self.reordered += 1;
            self.received += 1;
        }
    }

    /// The counts so far.
    pub(crate) fn counts(&self) -> FlowCounts {
        FlowCounts {
            received: self.received,
            lost: self.next.saturating_sub(self.received),
            reordered: self.reordered,
            duplicates: self.duplicates,
        }
    }

    fn set_if_remembered(&mut self, sequence: u64) {
        if self.next - sequence <= WINDOW {
            self.set(sequence, true);
        }
    }

    fn set(&mut self, sequence: u64, value: bool) {
        let (word, bit) = Self::place(sequence);
        self.seen[word] = self.seen[word] & !bit | if value { bit } else { 0 };
    }

    fn is_set(&self, sequence: u64) -> bool {
        let (word, bit) = Self::place(sequence);
        self.seen[word] & bit != 0
    }

    fn place(sequence: u64) -> (usize, u64) {
        (((sequence % WINDOW) / 64) as usize, 1 << (sequence % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(sequences: impl IntoIterator<Item = u64>) -> FlowCounts {
        let mut tracker = Tracker::default();
        sequences
            .into_iter()
            .for_each(|sequence| tracker.record(sequence));
        tracker.counts()
    }

    #[test]
    fn a_gap_is_lost_until_it_is_filled() {
        assert_eq!(
            counted([0, 1, 4]),
            FlowCounts {
                received: 3,
                lost: 2,
                ..FlowCounts::default()
            }
        );
        assert_eq!(
            counted([0, 1, 4, 2]),
            FlowCounts {
                received: 4,
                lost: 1,
                reordered: 1,
                duplicates: 0
            }
        );
    }

    #[test]
    fn a_second_copy_is_a_duplicate_and_no_receipt() {
        assert_eq!(
            counted([0, 1, 1, 0, 2]),
            FlowCounts {
                received: 3,
                duplicates: 2,
                ..FlowCounts::default()
            }
        );
        assert_eq!(
            counted([0, 2, 1, 1]),
            FlowCounts {
                received: 3,
                reordered: 1,
                duplicates: 1,
                lost: 0
            }
        );
    }

    #[test]
    fn the_ring_forgets_what_it_skips() {
        let far = WINDOW * 3 + 5;
        assert_eq!(counted([5, far, far - WINDOW + 1]).reordered, 1);
        let all = counted(0..WINDOW * 3);
        assert_eq!(
            all,
            FlowCounts {
                received: WINDOW * 3,
                ..FlowCounts::default()
            }
        );
        let every_other = counted((0..WINDOW * 2).step_by(2));
        assert_eq!((every_other.received, every_other.lost), (WINDOW, WINDOW - 1));
    }

    #[test]
    fn a_lost_head_and_the_last_number_are_counted() {
        assert_eq!(counted([10]).lost, 10);
        assert_eq!(counted([u64::MAX - 1, u64::MAX - 1]).duplicates, 1);
    }
}
