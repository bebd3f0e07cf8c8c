//! Which refusals people have heard of: each is told once.

use std::collections::VecDeque;

use crate::limits;

/// What was told, the oldest first.
#[derive(Default)]
pub(super) struct Refusals(VecDeque<String>);

impl Refusals {
    /// Has a sentence told that was not yet, or so long ago that it is forgotten. `tell` says whether it could be: one
    /// that is held back is tried again when it comes again.
    pub(super) fn tell_once(&mut self, sentence: &str, tell: impl FnOnce() -> bool) {
        if self.0.iter().any(|told| told == sentence) || !tell() {
            return;
        }
        if self.0.len() >= limits::SENTENCES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(sentence.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether this sentence is tried.
    fn is_tried(refusals: &mut Refusals, sentence: &str, can_be_told: bool) -> bool {
        let mut is_tried = false;
        refusals.tell_once(sentence, || {
            is_tried = true;
            can_be_told
        });
        is_tried
    }

    #[test]
    fn each_refusal_is_told_once_and_one_that_was_held_back_is_tried_again() {
        let mut refusals = Refusals::default();
        assert!(is_tried(&mut refusals, "first", true));
        assert!(!is_tried(&mut refusals, "first", true));
        assert!(is_tried(&mut refusals, "second", false));
        assert!(is_tried(&mut refusals, "second", true));
        assert!(!is_tried(&mut refusals, "second", true));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut refusals = Refusals::default();
        for number in 0..2 * limits::SENTENCES_MAX {
            assert!(is_tried(&mut refusals, &number.to_string(), true));
        }
        assert_eq!(refusals.0.len(), limits::SENTENCES_MAX);
        assert!(is_tried(&mut refusals, "0", true));
    }
}
