//! What a receiver has had over all connections of its command: what one that was lost has brought, the next one finds
//! at the destination.

use std::time::{Duration, Instant};

use files::{Report, Snapshot};

/// Sums of connections that were lost.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// When the sender was met first.
    began: Option<Instant>,
    bytes: u64,
    stored: u64,
}

impl Tally {
    /// The sender is met.
    pub(super) fn begin(&mut self) {
        self.began.get_or_insert_with(Instant::now);
    }

    /// Adds what a connection has brought that is lost. Whether that is anything.
    pub(super) fn add(&mut self, lost: &Snapshot) -> bool {
        let bytes = lost.bytes_done.saturating_sub(lost.bytes_there);
        self.bytes += bytes;
        self.stored += lost.files_stored;
        bytes > 0 || lost.files_stored > 0
    }

    /// How long all has taken since the sender was met.
    pub(super) fn took(&self) -> Duration {
        self.began.map_or(Duration::ZERO, |began| began.elapsed())
    }

    /// The report of the last connection as that of all.
    pub(super) fn of_all(&self, mut last: Report) -> Report {
        last.bytes_sent += self.bytes;
        last.bytes_there = last.bytes_there.saturating_sub(self.bytes);
        last.stored += self.stored;
        last.skipped = last.skipped.saturating_sub(self.stored);
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_lost_connection_has_brought_came_and_was_not_there() {
        let mut tally = Tally::default();
        assert!(!tally.add(&Snapshot::default()));
        let mut lost = Snapshot::default();
        (lost.bytes_done, lost.bytes_there, lost.files_stored) = (900, 100, 3);
        assert!(tally.add(&lost));
        // It finds what was there, and what has come.
        let mut last = Report::default();
        (last.bytes_sent, last.bytes_there) = (50, 900);
        (last.stored, last.skipped, last.failed) = (1, 4, 2);
        let all = tally.of_all(last);
        assert_eq!((all.bytes_sent, all.bytes_there), (850, 100));
        assert_eq!((all.stored, all.skipped, all.failed), (4, 1, 2));
    }
}
