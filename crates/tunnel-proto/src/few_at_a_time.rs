//! What people hear of at most so often.

use std::time::Instant;

use crate::limits;

/// Sentences that come in numbers: so many are told within [`limits::REFUSED_HOLD`], the others are held back.
#[derive(Clone, Copy, Debug)]
pub struct FewAtATime {
    most: usize,
    /// Since when, and how many.
    recent: Option<(Instant, usize)>,
}

impl FewAtATime {
    /// At most `most` at a time.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, recent: None }
    }

    /// Whether one more may be told now; it counts as told.
    pub fn take(&mut self, now: Instant) -> bool {
        let recent = self
            .recent
            .filter(|(since, _)| now.saturating_duration_since(*since) < limits::REFUSED_HOLD);
        let (since, count) = recent.unwrap_or((now, 0));
        let has_room = count < self.most;
        self.recent = Some((since, count + usize::from(has_room)));
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_told_at_a_time_and_more_later() {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let mut few = FewAtATime::new(3);
        assert_eq!((0..10).filter(|_| few.take(now)).count(), 3);
        let later = now + limits::REFUSED_HOLD;
        assert!(!few.take(later - std::time::Duration::from_nanos(1)) && few.take(later));
    }
}
