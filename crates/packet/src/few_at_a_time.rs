//! What people are told at most so often; what is held back is counted, so that the number can be told later.

use std::time::{Duration, Instant};

/// Sentences of one kind: the first ones of a window are told, the others of it are counted.
#[derive(Clone, Copy, Debug)]
pub struct FewAtATime {
    most: u32,
    length: Duration,
    window: Option<Window>,
}

/// It begins with the first sentence after the former one.
#[derive(Clone, Copy, Debug)]
struct Window {
    since: Instant,
    told: u32,
    held_back: u64,
}

impl FewAtATime {
    /// At most `most` in a window of this length.
    #[must_use]
    pub const fn new(most: u32, length: Duration) -> Self {
        Self {
            most,
            length,
            window: None,
        }
    }

    /// Whether one more may be told; it counts as told or as held back.
    pub fn take(&mut self, now: Instant) -> bool {
        let length = self.length;
        let former = self.window.map_or(0, |window| window.held_back);
        let present = self
            .window
            .filter(|window| now.saturating_duration_since(window.since) < length);
        let window = self.window.insert(present.unwrap_or(Window {
            since: now,
            told: 0,
            // Nobody asked for their number in time.
            held_back: former,
        }));
        let has_room = window.told < self.most;
        if has_room {
            window.told += 1;
        } else {
            window.held_back += 1;
        }
        has_room
    }

    /// When the present window ends and [`FewAtATime::take_held_back`] is to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.window.map(|window| window.since + self.length)
    }

    /// How many were held back in the window that has ended, each told once; `None` where there are none, or the window
    /// goes on.
    pub fn take_held_back(&mut self, now: Instant) -> Option<u64> {
        let window = self.window.take_if(|window| window.since + self.length <= now)?;
        (window.held_back > 0).then_some(window.held_back)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_secs(10);

    #[test]
    fn few_are_told_at_a_time_and_more_later() {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let mut few = FewAtATime::new(3, LENGTH);
        assert_eq!((0..10).filter(|_| few.take(now)).count(), 3);
        let later = now + LENGTH;
        assert!(!few.take(later - Duration::from_nanos(1)) && few.take(later));
    }

    #[test]
    fn the_number_of_those_held_back_is_known_at_the_end_of_the_window_and_once() {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let mut few = FewAtATime::new(1, LENGTH);
        assert_eq!((few.poll_timeout(), few.take_held_back(now)), (None, None));
        for _ in 0..5 {
            few.take(now);
        }
        let end = now + LENGTH;
        assert_eq!(few.poll_timeout(), Some(end));
        assert_eq!(few.take_held_back(end - Duration::from_nanos(1)), None);
        assert_eq!(few.take_held_back(end), Some(4));
        assert_eq!((few.poll_timeout(), few.take_held_back(end)), (None, None));
        assert!(few.take(end));
        assert_eq!(few.take_held_back(end + LENGTH), None);
    }

    #[test]
    fn a_number_that_nobody_asked_for_in_time_is_told_with_that_of_the_next_window() {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let mut few = FewAtATime::new(1, LENGTH);
        for _ in 0..3 {
            few.take(now);
        }
        for _ in 0..3 {
            few.take(now + LENGTH);
        }
        assert_eq!(few.take_held_back(now + 2 * LENGTH), Some(4));
    }
}
