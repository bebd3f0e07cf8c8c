//! What a stop of the process would make of a peer's estimates: packets that left before it were acknowledged meanwhile, and
//! the acknowledgements waited in the socket, so that the stop counts as their round trip. A timer that is overdue by much
//! shows one, because packets are read before timers run. Where such an acknowledgement has raised the round trip, the
//! estimates begin anew, as of a new path: all that is known of the old ones is older than the stop.

use std::time::Instant;

use crate::limits::{RESUMED_TIME, STOPPED_TIME};

/// The last stop of the process, as far as a connection has noticed one.
#[derive(Debug, Default)]
pub(crate) struct Stopped {
    /// When it was over.
    resumed_at: Option<Instant>,
}

impl Stopped {
    /// Whether what is read at `now`, while the timer that is due at `due` has not run, may have waited since before a stop.
    pub(super) fn may_have_waited(&mut self, now: Instant, due: Option<Instant>) -> bool {
        if due.is_some_and(|due| due + STOPPED_TIME < now) {
            self.resumed_at = Some(now);
        }
        // The first packets move the timer.
        self.resumed_at.is_some_and(|at| now < at + RESUMED_TIME)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_timer_that_is_overdue_by_much_shows_a_stop_of_which_the_next_packets_are_as_well() {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let mut stopped = Stopped::default();
        assert!(!stopped.may_have_waited(now, None));
        assert!(!stopped.may_have_waited(now, Some(now)));
        let over = now + STOPPED_TIME + Duration::from_millis(1);
        assert!(!stopped.may_have_waited(over, Some(over)));
        assert!(stopped.may_have_waited(over, Some(now)));
        let soon = over + RESUMED_TIME - Duration::from_millis(1);
        assert!(stopped.may_have_waited(soon, Some(soon)));
        assert!(!stopped.may_have_waited(over + RESUMED_TIME, None));
    }
}
