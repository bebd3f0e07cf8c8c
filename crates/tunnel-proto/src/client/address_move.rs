//! Whether a connection that moved to another local address (RFC 9000 section 9) still reaches its server.

use std::time::{Duration, Instant};

use crate::limits;

/// What came of a move so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveOutcome {
    /// No move, or one that was answered.
    Reached,
    /// An answer may still come.
    Waiting,
    /// Nothing was heard in time: the connection is to be made anew.
    Silent,
}

/// The last move of a connection that has not been answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct AddressMove(Option<Instant>);

impl AddressMove {
    /// The connection goes on from another local address.
    pub fn begin(&mut self, now: Instant) {
        self.0 = Some(now);
    }

    /// The connection is another one.
    pub fn forget(&mut self) {
        self.0 = None;
    }

    /// Decides by when something was `heard` last, and the path's round trip where it is known. A move that was
    /// answered or given up is forgotten.
    pub fn judge(
        &mut self,
        now: Instant,
        heard: Option<Instant>,
        round_trip: Option<Duration>,
    ) -> MoveOutcome {
        let Some(moved) = self.0 else {
            return MoveOutcome::Reached;
        };
        let patience = round_trip.map_or(limits::MOVED_SILENCE, |round_trip| {
            (limits::MOVED_ROUND_TRIPS * round_trip).max(limits::MOVED_SILENCE)
        });
        let outcome = if heard.is_some_and(|heard| heard > moved) {
            MoveOutcome::Reached
        } else if now.saturating_duration_since(moved) >= patience {
            MoveOutcome::Silent
        } else {
            return MoveOutcome::Waiting;
        };
        self.0 = None;
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(1);

    #[test]
    fn what_is_heard_after_the_move_ends_the_wait_and_silence_does_so_once() {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let mut moved = AddressMove::default();
        assert_eq!(moved.judge(now, None, None), MoveOutcome::Reached);
        moved.begin(now);
        assert_eq!(moved.judge(now + STEP, Some(now), None), MoveOutcome::Waiting);
        assert_eq!(
            moved.judge(now + STEP, Some(now + STEP), None),
            MoveOutcome::Reached
        );
        moved.begin(now);
        let late = now + limits::MOVED_SILENCE;
        assert_eq!(moved.judge(late - STEP, None, None), MoveOutcome::Waiting);
        assert_eq!(moved.judge(late, None, None), MoveOutcome::Silent);
        assert_eq!(moved.judge(late, None, None), MoveOutcome::Reached);
    }

    #[test]
    fn a_long_path_is_given_more_time() {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let round_trip = limits::MOVED_SILENCE;
        let mut moved = AddressMove::default();
        moved.begin(now);
        let last = now + limits::MOVED_ROUND_TRIPS * round_trip;
        assert_eq!(
            moved.judge(last - STEP, None, Some(round_trip)),
            MoveOutcome::Waiting
        );
        assert_eq!(moved.judge(last, None, Some(round_trip)), MoveOutcome::Silent);
    }
}
