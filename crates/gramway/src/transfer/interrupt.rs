//! Ctrl-C and SIGTERM: transfers end where they are, and what has come is kept; then the program dies of the signal. A
//! second one ends it at once.

use std::collections::BTreeMap;
use std::future::pending;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use files::Progress;
use peer::blocking;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit::{Problem, sentence};
use crate::limits::TRANSFER_TURN;

/// Whether the user wants an end, and what has to be told so. A clone is the same.
#[derive(Clone, Default)]
pub(super) struct Interrupt(Arc<State>);

#[derive(Default)]
struct State {
    is_over: AtomicBool,
    /// What the user ended it by; 0 is none.
    signal: AtomicI32,
    running: Mutex<BTreeMap<u64, Progress>>,
    /// Transfers so far.
    count: AtomicU64,
}

/// A transfer that ends with the program, until this is dropped.
pub(super) struct Running {
    interrupt: Interrupt,
    number: u64,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.interrupt.running().remove(&self.number);
    }
}

impl Interrupt {
    /// Watches for signals from here on.
    ///
    /// # Errors
    /// The system allows no handler or no thread.
    pub(super) fn watch() -> Result<Self, Problem> {
        let cannot =
            |error: std::io::Error| Problem::bug(format!("cannot watch for signals: {}", sentence(&error)));
        let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(cannot)?;
        let interrupt = Self::default();
        let of_thread = interrupt.clone();
        let watch = move || {
            for signal in signals.forever() {
                if of_thread.is_over() {
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                }
                of_thread.0.signal.store(signal, Ordering::SeqCst);
                of_thread.end();
            }
        };
        let started = thread::Builder::new().name("signals".to_owned()).spawn(watch);
        started.map_err(cannot)?;
        Ok(interrupt)
    }

    pub(super) fn end(&self) {
        self.0.is_over.store(true, Ordering::SeqCst);
        self.running().values().for_each(Progress::cancel);
    }

    /// The user ended it: the program's last words, after which it dies of the signal.
    pub(super) fn problem(&self, words: &str) -> Problem {
        let signal = self.0.signal.load(Ordering::SeqCst);
        Problem::unavailable(words).by_signal((signal != 0).then_some(signal))
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<u64, Progress>> {
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_over(&self) -> bool {
        self.0.is_over.load(Ordering::SeqCst)
    }

    /// Waits for `future` for at most `limit`; `None` where that passed, or the user wants an end.
    pub(super) fn wait_for<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        let until = Instant::now() + limit;
        let mut future = pin!(future);
        while !self.is_over() {
            let left = until.saturating_duration_since(Instant::now());
            let ready = blocking::wait_for(left.min(TRANSFER_TURN), future.as_mut());
            if ready.is_some() || left.is_zero() {
                return ready;
            }
        }
        None
    }

    /// Lets so much time pass, or less where the user wants an end.
    pub(super) fn pause(&self, time: Duration) {
        let _: Option<()> = self.wait_for(time, pending());
    }

    /// A transfer that is to end with the program.
    pub(super) fn add(&self, progress: &Progress) -> Running {
        let number = self.0.count.fetch_add(1, Ordering::Relaxed);
        self.running().insert(number, progress.clone());
        if self.is_over() {
            progress.cancel();
        }
        Running {
            interrupt: self.clone(),
            number,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    /// Longer than any test waits.
    const LONG: Duration = Duration::from_secs(3_600);

    #[test]
    fn a_wait_ends_with_what_is_waited_for_its_time_or_the_users_patience() {
        let interrupt = Interrupt::default();
        assert_eq!(interrupt.wait_for(LONG, ready(7)), Some(7));
        assert_eq!(interrupt.wait_for(Duration::ZERO, pending::<()>()), None);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| interrupt.wait_for(LONG, pending::<()>()));
            interrupt.end();
            assert_eq!(waiting.join().unwrap(), None);
        });
        let progress = Progress::default();
        let _running = interrupt.add(&progress);
        assert_eq!(interrupt.wait_for(LONG, ready(7)), None);
    }
}
