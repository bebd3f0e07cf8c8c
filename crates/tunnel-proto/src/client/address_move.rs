//! Whether a connection that moved to another local address (RFC 9000 section 9) still reaches its server.

use std::time::{Duration, Instant};

use crate::limits;

/// The last move of a connection, until it is known whether it was answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct AddressMove(Option<Move>);

#[derive(Clone, Copy, Debug)]
struct Move {
    began: Instant,
    /// An answer may take until then.
    until: Instant,
}

impl AddressMove {
    /// The connection goes on from another local address; the path's round trip, where it is known.
    pub fn begin(&mut self, now: Instant, round_trip: Option<Duration>) {
        let patience = limits::MOVED_ROUND_TRIPS * round_trip.unwrap_or_default();
        self.0 = Some(Move {
            began: now,
            until: now + patience.max(limits::MOVED_SILENCE),
        });
    }

    /// The connection is another one.
    pub fn forget(&mut self) {
        self.0 = None;
    }

    /// When [`AddressMove::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.0.map(|moved| moved.until)
    }

    /// Whether the server stays silent at the new address, by when something was `heard` last. The move is forgotten.
    pub fn handle_timeout(&mut self, now: Instant, heard: Option<Instant>) -> bool {
        let due = self.0.take_if(|moved| moved.until <= now);
        due.is_some_and(|moved| heard.is_none_or(|heard| heard <= moved.began))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(1);

    #[test]
    fn what_is_heard_after_the_move_ends_the_wait_and_silence_is_told_once() {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let late = now + limits::MOVED_SILENCE;
        for (heard, is_silent) in [(None, true), (Some(now), true), (Some(now + STEP), false)] {
            let mut moved = AddressMove::default();
            assert!(!moved.handle_timeout(late, None));
            moved.begin(now, None);
            assert_eq!(moved.poll_timeout(), Some(late));
            assert!(!moved.handle_timeout(late - STEP, heard));
            assert_eq!(moved.handle_timeout(late, heard), is_silent, "{heard:?}");
            assert_eq!(moved.poll_timeout(), None);
            assert!(!moved.handle_timeout(late, heard));
        }
    }

    #[test]
    fn a_long_path_is_given_more_time() {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let round_trip = limits::MOVED_SILENCE;
        let mut moved = AddressMove::default();
        moved.begin(now, Some(round_trip));
        assert_eq!(
            moved.poll_timeout(),
            Some(now + limits::MOVED_ROUND_TRIPS * round_trip)
        );
    }
}
