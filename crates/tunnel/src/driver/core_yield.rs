//! When the thread yields its core between two bursts to inner sockets.
//!
//! A receiver that shares the core drains its buffer meanwhile, in less than [`limits::YIELD_SHORT`]. If a yield takes
//! longer, another thread computes without pause. The kernel (Linux 6.18) charges each yield as a whole scheduling
//! slice, so a yield after every burst left a shard 3 % of a core. A long yield is therefore followed by a time
//! without any.

use std::time::{Duration, Instant};

use crate::limits;

#[derive(Debug, Default)]
pub(super) struct CoreYield {
    /// No yield before then.
    rests_until: Option<Instant>,
}

impl CoreYield {
    /// Lets other threads run, unless a recent yield took long.
    pub(super) fn run_others(&mut self) {
        let start = Instant::now();
        if self.is_due(start) {
            std::thread::yield_now();
            self.note(start, start.elapsed());
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.rests_until.is_none_or(|until| until <= now)
    }

    /// A yield at `start` was over after `took`.
    fn note(&mut self, start: Instant, took: Duration) {
        let rest = took * limits::YIELD_REST;
        self.rests_until = (took > limits::YIELD_SHORT).then(|| start + took + rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_yield_is_repeated_at_once_and_a_long_one_after_a_rest() {
        let (mut core, start) = (CoreYield::default(), Instant::now());
        core.note(start, limits::YIELD_SHORT);
        assert!(core.is_due(start + limits::YIELD_SHORT));
        let long = Duration::from_millis(3);
        core.note(start, long);
        let rest = long * limits::YIELD_REST;
        assert!(!core.is_due(start + long + rest / 2));
        assert!(core.is_due(start + long + rest));
    }
}
