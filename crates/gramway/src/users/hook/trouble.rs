//! What the log says of a hook that does not answer, and that it answers again. A stranger's token may be what the hook
//! has no answer to, so both are told once in [`HOOK_TROUBLE_INTERVAL`] at most.

use std::time::Instant;

use crate::limits::HOOK_TROUBLE_INTERVAL;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    told: Option<String>,
    next: Option<Instant>,
}

impl Trouble {
    /// The hook has answered, or why not; the line to tell.
    pub(super) fn line(&mut self, now: Instant, trouble: Option<String>) -> Option<String> {
        let Some(trouble) = trouble else {
            return self
                .told
                .take()
                .map(|_| "the authentication hook answers again".to_owned());
        };
        if self.told.as_ref() == Some(&trouble) || self.next.is_some_and(|next| now < next) {
            return None;
        }
        let line = format!(
            "warning: the authentication hook does not answer: {trouble}; users whom it let in within the last hour are let \
             in, nobody else"
        );
        (self.told, self.next) = (Some(trouble), Some(now + HOOK_TROUBLE_INTERVAL));
        Some(line)
    }

    #[cfg(test)]
    pub(super) fn is_told(&self) -> bool {
        self.told.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_makes_a_hook_fail_now_and_then_fills_no_log() {
        let (start, mut trouble) = (Instant::now(), Trouble::default());
        let why = || Some("it answers with HTTP status 500".to_owned());
        assert_eq!(trouble.line(start, None), None);
        let told = (0..600).filter(|turn| {
            let now = start + HOOK_TROUBLE_INTERVAL * *turn / 300;
            let failed = trouble.line(now, why()).is_some();
            let answers = trouble.line(now, None).is_some();
            assert_eq!(failed, answers);
            failed
        });
        assert_eq!(told.count(), 2);
        let later = start + 3 * HOOK_TROUBLE_INTERVAL;
        assert!(trouble.line(later, why()).is_some());
        assert_eq!(
            trouble.line(later + 2 * HOOK_TROUBLE_INTERVAL, why()),
            None,
            "told once"
        );
    }
}
