//! What the threads of carriers wait for, as time of threads: also a wait that has not ended counts, so that what
//! stands still says why. Threads that wait for work count as none.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::carrier::Carrier;
use crate::limits::HELD_SHARE;
use crate::progress::LimitedBy;

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A carrier to take bytes, or to bring some.
    Network(Carrier),
    /// Bytes to be read or written at this end.
    Disk,
    /// The user's limit.
    Limit,
}

const KINDS: usize = 4;

impl Wait {
    fn place(self) -> usize {
        match self {
            Self::Network(Carrier::Quic) => 0,
            Self::Network(Carrier::Tcp) => 1,
            Self::Disk => 2,
            Self::Limit => 3,
        }
    }
}

/// Of all threads of a transfer.
#[derive(Debug, Default)]
pub(crate) struct Waits(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Threads that wait at present.
    waiting: [u32; KINDS],
    /// What threads have waited until `counted`.
    waited: [Duration; KINDS],
    counted: Option<Instant>,
}

/// What somebody who looks now and then has seen already.
#[derive(Debug, Default)]
pub(crate) struct Look {
    waited: [Duration; KINDS],
    at: Option<Instant>,
}

impl Waits {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self, wait: Wait, now: Instant) {
        let mut state = self.state();
        state.count(now);
        state.waiting[wait.place()] += 1;
    }

    pub(crate) fn end(&self, wait: Wait, now: Instant) {
        let mut state = self.state();
        state.count(now);
        let waiting = &mut state.waiting[wait.place()];
        *waiting = waiting.saturating_sub(1);
    }

    /// What held threads up longest since the look before, where it was any share of that time worth telling. Only the
    /// carrier counts that is used: threads of the other one wait as well.
    pub(crate) fn look(&self, before: &mut Look, carrier: Option<Carrier>, now: Instant) -> LimitedBy {
        let mut state = self.state();
        state.count(now);
        let waited = state.waited;
        drop(state);
        let elapsed = before.at.map(|at| now.saturating_duration_since(at));
        let since = |wait: Wait| waited[wait.place()].saturating_sub(before.waited[wait.place()]);
        let network = match carrier {
            Some(carrier) => since(Wait::Network(carrier)),
            None => since(Wait::Network(Carrier::Quic)) + since(Wait::Network(Carrier::Tcp)),
        };
        let waits = [
            (network, LimitedBy::Network),
            (since(Wait::Disk), LimitedBy::Disk),
            (since(Wait::Limit), LimitedBy::Limit),
        ];
        let least = elapsed.unwrap_or_default() / HELD_SHARE;
        let longest = waits.into_iter().max_by_key(|(waited, _)| *waited);
        let found = longest.filter(|(waited, _)| *waited > least).map(|(_, by)| by);
        *before = Look {
            waited,
            at: Some(now),
        };
        found.unwrap_or_default()
    }
}

impl State {
    fn count(&mut self, now: Instant) {
        let elapsed = self.counted.map(|counted| now.saturating_duration_since(counted));
        let elapsed = elapsed.unwrap_or_default();
        for (waited, waiting) in self.waited.iter_mut().zip(self.waiting) {
            *waited += elapsed * waiting;
        }
        self.counted = self.counted.max(Some(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const QUIC: Wait = Wait::Network(Carrier::Quic);
    const TCP: Wait = Wait::Network(Carrier::Tcp);

    #[test]
    fn what_threads_waited_for_longest_since_the_last_look_is_the_limit() {
        let (waits, mut look, start) = (Waits::default(), Look::default(), Instant::now());
        assert_eq!(waits.look(&mut look, None, start), LimitedBy::Nothing);
        for thread in 0..3 {
            waits.begin(Wait::Disk, start + SECOND * thread);
        }
        waits.begin(QUIC, start);
        waits.end(QUIC, start + SECOND * 2);
        // Also waits that have not ended.
        assert_eq!(waits.look(&mut look, None, start + SECOND * 3), LimitedBy::Disk);
        for _ in 0..3 {
            waits.end(Wait::Disk, start + SECOND * 3);
        }
        waits.begin(Wait::Limit, start + SECOND * 3);
        assert_eq!(waits.look(&mut look, None, start + SECOND * 4), LimitedBy::Limit);
        assert_eq!(waits.look(&mut look, None, start + SECOND * 5), LimitedBy::Limit);
    }

    #[test]
    fn short_waits_and_threads_of_a_carrier_that_is_not_used_say_nothing() {
        let (waits, mut look, start) = (Waits::default(), Look::default(), Instant::now());
        waits.begin(QUIC, start);
        waits.begin(QUIC, start);
        waits.begin(Wait::Disk, start);
        waits.look(&mut look, None, start);
        waits.end(Wait::Disk, start + SECOND);
        let at = start + SECOND;
        assert_eq!(waits.look(&mut look, Some(Carrier::Tcp), at), LimitedBy::Disk);
        waits.begin(TCP, at);
        waits.end(TCP, at + SECOND / (HELD_SHARE + 1));
        let at = at + SECOND;
        assert_eq!(waits.look(&mut look, Some(Carrier::Tcp), at), LimitedBy::Nothing);
        assert_eq!(
            waits.look(&mut look, Some(Carrier::Quic), at + SECOND),
            LimitedBy::Network
        );
    }
}
