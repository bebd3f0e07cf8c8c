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
    /// Bytes that came since the connection exists.
    pub bytes_received: u64,
}

/// What a look at a path found, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathNews {
    /// The path has died.
    Dead,
    /// Something was acknowledged since the look before.
    Answered,
    /// Nothing was acknowledged for so long that the server should be asked over another carrier.
    Silent,
    /// Traffic came until now and nothing is awaited: the server should be asked for a sign of life, because who only receives
    /// would not notice that the path is silent. Once for each pause.
    Paused,
}

/// The silence of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct PathWatch {
    acknowledgements: u64,
    /// Since when an acknowledgement is awaited and none came.
    since: Option<Instant>,
    bytes_received: u64,
    /// Traffic came, and no pause after it was asked about.
    has_flowed: bool,
}

impl PathWatch {
    /// The connection, or its path, is another one.
    pub fn forget(&mut self) {
        self.since = None;
    }

    /// Looks at the path, to be done every [`limits::PATH_WATCH_INTERVAL`]. One that has died has another chance afterwards.
    pub fn look(&mut self, now: Instant, activity: PathActivity) -> Option<PathNews> {
        let has_answered = self.has_answered(activity);
        let has_paused = self.has_paused(activity);
        if self.is_dead(now, activity) {
            Some(PathNews::Dead)
        } else if has_answered {
            Some(PathNews::Answered)
        } else if self.is_silent(now, activity) {
            Some(PathNews::Silent)
        } else {
            has_paused.then_some(PathNews::Paused)
        }
    }

    /// Whether traffic came, and no pause after it was told of: the path is to be looked at although nothing is awaited.
    #[must_use]
    pub fn is_flowing(&self) -> bool {
        self.has_flowed
    }

    /// Whether something was acknowledged since the path was last looked at.
    #[must_use]
    pub fn has_answered(&self, activity: PathActivity) -> bool {
        self.acknowledgements != activity.acknowledgements
    }

    /// Whether the path has died.
    fn is_dead(&mut self, now: Instant, activity: PathActivity) -> bool {
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

    /// Whether traffic came until now and nothing is awaited; once for each pause.
    fn has_paused(&mut self, activity: PathActivity) -> bool {
        let received = activity.bytes_received.saturating_sub(self.bytes_received);
        self.bytes_received = activity.bytes_received;
        self.has_flowed |= received >= limits::FLOWING_BYTES;
        let has_paused = self.has_flowed && received == 0 && !activity.is_awaited;
        self.has_flowed &= !has_paused;
        has_paused
    }

    /// Whether nothing was acknowledged for long, before the path counts as dead. As of the last [`PathWatch::is_dead`].
    fn is_silent(&self, now: Instant, activity: PathActivity) -> bool {
        let patience = probe_timeouts(limits::CARRIER_SILENCE_PROBES, activity.round_trip);
        self.since.is_some_and(|since| {
            now.saturating_duration_since(since) >= patience.max(limits::CARRIER_SILENCE)
        })
    }
}

fn patience(round_trip: Duration) -> Duration {
    probe_timeouts(limits::PATH_SILENCE_PROBES, round_trip).max(limits::PATH_SILENCE)
}

/// Probe timeouts (RFC 9002 section 6.2.1), each of at most three round trips and an acknowledgement's delay.
fn probe_timeouts(count: u32, round_trip: Duration) -> Duration {
    count * (3 * round_trip + limits::ACKNOWLEDGEMENT_DELAY_MAX)
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
            bytes_received: 0,
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
    fn a_path_is_silent_after_a_second_and_until_it_answers() {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let mut watch = PathWatch::default();
        watch.is_dead(now, activity(0, true));
        let late = now + limits::CARRIER_SILENCE;
        assert!(!watch.is_dead(late, activity(0, true)));
        assert!(!watch.is_silent(late - STEP, activity(0, true)));
        assert!(watch.is_silent(late, activity(0, true)));
        // Two probe timeouts take longer here.
        let slow = PathActivity {
            round_trip: Duration::from_secs(1),
            ..activity(0, true)
        };
        assert!(!watch.is_silent(late, slow) && watch.is_silent(now + Duration::from_millis(6_050), slow));
        watch.is_dead(late, activity(1, true));
        assert!(!watch.is_silent(late, activity(1, true)));
    }

    /// PATH-8.
    #[test]
    fn a_pause_behind_traffic_is_asked_about_once() {
        let mut watch = PathWatch::default();
        let mut bytes = 0;
        let mut looks = |received: &[u64], is_awaited| {
            let look = |received: &u64| {
                bytes += received;
                let activity = PathActivity {
                    bytes_received: bytes,
                    ..activity(0, is_awaited)
                };
                watch.has_paused(activity)
            };
            received.iter().map(look).collect::<Vec<_>>()
        };
        let flow = limits::FLOWING_BYTES;
        assert_eq!(
            looks(&[0, flow, flow, 0, 0], false),
            [false, false, false, true, false]
        );
        // The answer, or a little now and then, is no traffic.
        assert_eq!(looks(&[60, 0, 60, 0], false), [false; 4]);
        assert_eq!(looks(&[flow, 60, 0], false), [false, false, true]);
        // What is awaited tells by itself.
        assert_eq!(looks(&[flow, 0, 0], true), [false; 3]);
        assert_eq!(looks(&[0, 0], false), [true, false]);
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
