//! Which refusals people hear of: each once, and not many at a time.

use std::collections::VecDeque;
use std::time::Instant;

use crate::few_at_a_time::FewAtATime;
use crate::limits;

/// What was told.
pub(super) struct Refusals {
    /// Oldest first.
    told: VecDeque<String>,
    recent: FewAtATime,
}

impl Default for Refusals {
    fn default() -> Self {
        Self {
            told: VecDeque::new(),
            recent: FewAtATime::new(limits::REFUSALS_TOLD_AT_A_TIME),
        }
    }
}

impl Refusals {
    /// Whether this sentence is to be told: it was not yet, or so long ago that it is forgotten, and few were of late.
    /// One that is held back for their number is told when it comes again.
    pub(super) fn is_news(&mut self, now: Instant, sentence: &str) -> bool {
        if self.told.iter().any(|told| told == sentence) || !self.recent.take(now) {
            return false;
        }
        if self.told.len() >= limits::SENTENCES_MAX {
            self.told.pop_front();
        }
        self.told.push_back(sentence.to_owned());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_is_told_once_and_many_are_held_back() {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let mut refusals = Refusals::default();
        let told = (0..100)
            .filter(|number| refusals.is_news(now, &format!("{number}")))
            .count();
        assert_eq!(told, limits::REFUSALS_TOLD_AT_A_TIME);
        let later = now + limits::REFUSED_HOLD;
        assert!(!refusals.is_news(later, "0"));
        assert!(refusals.is_news(later, "99"));
        assert!(!refusals.is_news(later, "99"));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        // tidy-allow(pure): first instant of virtual time
        let mut now = Instant::now();
        let mut refusals = Refusals::default();
        for number in 0..2 * limits::SENTENCES_MAX {
            now += limits::REFUSED_HOLD;
            assert!(refusals.is_news(now, &format!("{number}")));
        }
        assert_eq!(refusals.told.len(), limits::SENTENCES_MAX);
        assert!(refusals.is_news(now, "0"));
    }
}
