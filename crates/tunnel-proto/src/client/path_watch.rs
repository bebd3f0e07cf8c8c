//! Whether the path of a connection that is up has died in silence: what was sent is not acknowledged, for longer than a
//! path that works can take.

use std::time::{Duration, Instant};

use crate::limits;

/// What a connection knows of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathActivity {
    /// Counts acknowledgements.
    pub acknowledgements: u64,
    /// Something that was sent waits for its acknowledgement.
    pub is_awaited: bool,
    /// Smoothed round-trip time.
    pub round_trip: Duration,
}

/// The silence of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct PathWatch {
    acknowledgements: u64,
    /// Since when an acknowledgement is awaited and none came.
    since: Option<Instant>,
}

impl PathWatch {
    /// The connection, or its path, is another one.
    pub fn forget(&mut self) {
        self.since = None;
    }

    /// Whether something was acknowledged since the path was last looked at.
    #[must_use]
    pub fn has_answered(&self, activity: PathActivity) -> bool {
        self.acknowledgements != activity.acknowledgements
    }

    /// Whether the path has died. It has another chance afterwards; to be asked every [`limits::PATH_WATCH_INTERVAL`].
    pub fn is_dead(&mut self, now: Instant, activity: PathActivity) -> bool {
        let has_answered = self.has_answered(activity);
        self.acknowledgements = activity.acknowledgements;
        if has_answered || !activity.is_awaited {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        let is_dead = now.saturating_duration_since(since) >= patience(activity.round_trip);
        if is_dead {
            self.since = None;
        }
        is_dead
    }
}

/// Five probe timeouts (RFC 9002 section 6.2.1), each of at most three round trips and an acknowledgement's delay.
fn patience(round_trip: Duration) -> Duration {
    let probe_timeout = 3 * round_trip + limits::ACKNOWLEDGEMENT_DELAY_MAX;
    (limits::PATH_SILENCE_PROBES * probe_timeout).max(limits::PATH_SILENCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(1);

    fn activity(acknowledgements: u64, is_awaited: bool) -> PathActivity {
        PathActivity {
            acknowledgements,
            is_awaited,
            round_trip: 20 * STEP,
        }
    }

    #[test]
    fn a_path_is_dead_that_acknowledges_nothing_for_three_seconds() {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let mut watch = PathWatch::default();
        assert!(!watch.is_dead(now, activity(7, true)));
        assert!(!watch.is_dead(now, activity(7, true)));
        let late = now + limits::PATH_SILENCE;
        assert!(!watch.is_dead(late - STEP, activity(7, true)));
        assert!(watch.is_dead(late, activity(7, true)));
        assert!(!watch.has_answered(activity(7, true)) && watch.has_answered(activity(8, true)));
        // It has another chance.
        assert!(!watch.is_dead(late, activity(7, true)));
        assert!(watch.is_dead(late + limits::PATH_SILENCE, activity(7, true)));
    }

    #[test]
    fn an_acknowledgement_or_rest_ends_the_silence() {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let late = now + limits::PATH_SILENCE;
        for answer in [activity(8, true), activity(7, false)] {
            let mut watch = PathWatch::default();
            watch.is_dead(now, activity(7, true));
            watch.is_dead(now, activity(7, true));
            assert!(!watch.is_dead(late - STEP, answer));
            assert!(!watch.is_dead(late, activity(answer.acknowledgements, true)));
        }
    }

    #[test]
    fn a_long_path_is_given_more_time() {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let mut watch = PathWatch::default();
        let slow = PathActivity {
            round_trip: Duration::from_secs(1),
            ..activity(0, true)
        };
        watch.is_dead(now, slow);
        assert!(!watch.is_dead(now + Duration::from_secs(15), slow));
        assert!(watch.is_dead(now + Duration::from_secs(16), slow));
    }
}
