//! Threads beside the endpoint's that keep something up outside of it: an announcement, a port mapping. Each ends with
//! the endpoint, and takes back what it keeps.

use std::convert::Infallible;
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use crate::shared::{Shared, State};
use crate::wakers::Wakers;

/// What is known of such a thread, in the endpoint's state: what it keeps up, or why it does not.
pub(crate) struct Companion<T, P = String> {
    /// The thread runs until this is dropped.
    leash: Option<Sender<Infallible>>,
    kept: Option<T>,
    problem: Option<P>,
    /// Who waits for what the thread tells.
    pub(crate) waiting: Wakers,
    /// What was reported last, where something was: what is kept up, or that nothing is.
    reported: Option<Option<T>>,
}

impl<T, P> Default for Companion<T, P> {
    fn default() -> Self {
        Self {
            leash: None,
            kept: None,
            problem: None,
            waiting: Wakers::default(),
            reported: None,
        }
    }
}

impl<T: Clone + PartialEq, P: Clone> Companion<T, P> {
    /// What is kept up at present, or that nothing is, where that changed since the last report. One problem after
    /// another is no change.
    pub(crate) fn poll_report(&mut self) -> Option<Option<T>> {
        if self.leash.is_none() || (self.kept.is_none() && self.problem.is_none()) {
            return None;
        }
        if self.reported.as_ref() == Some(&self.kept) {
            return None;
        }
        self.reported = Some(self.kept.clone());
        self.reported.clone()
    }

    /// Why nothing is, as far as something went wrong.
    pub(crate) fn problem(&self) -> Option<&P> {
        self.problem.as_ref()
    }

    /// Ready once the thread has told something: what it keeps up at present, or why it does not; nothing where there
    /// is no such thread, or no longer.
    pub(crate) fn told(&self) -> Poll<Option<Result<T, P>>> {
        if self.leash.is_none() {
            return Poll::Ready(None);
        }
        let told = match (&self.kept, &self.problem) {
            (Some(kept), _) => Ok(kept.clone()),
            (None, Some(problem)) => Err(problem.clone()),
            (None, None) => return Poll::Pending,
        };
        Poll::Ready(Some(told))
    }

    /// Ready once something is kept up, or nothing will be.
    pub(crate) fn kept(&self) -> Poll<Option<T>> {
        if self.kept.is_some() || self.leash.is_none() {
            return Poll::Ready(self.kept.clone());
        }
        Poll::Pending
    }

    /// The thread tells what it keeps up, or why it does not; whoever waits is to be woken.
    pub(crate) fn tell(&mut self, kept: Result<T, P>) -> Vec<Waker> {
        if self.leash.is_none() {
            // The endpoint closed meanwhile.
            return Vec::new();
        }
        (self.kept, self.problem) = match kept {
            Ok(kept) => (Some(kept), None),
            Err(problem) => (None, Some(problem)),
        };
        let mut woken = Vec::new();
        self.waiting.take(&mut woken);
        woken
    }

    /// The endpoint closes.
    pub(crate) fn end(&mut self) {
        (self.leash, self.kept) = (None, None);
    }
}

/// The thread's end of it.
pub(crate) struct Leash {
    ended: Receiver<Infallible>,
    _alive: Sender<Infallible>,
}

impl Leash {
    /// Waits so long; whether the endpoint has closed by then.
    pub(crate) fn has_ended_within(&self, time: Duration) -> bool {
        self.ended.recv_timeout(time) == Err(RecvTimeoutError::Disconnected)
    }
}

/// The threads that run.
pub(crate) struct Companions {
    alive: Mutex<Option<Sender<Infallible>>>,
    none_is_left: Mutex<Receiver<Infallible>>,
}

impl Default for Companions {
    fn default() -> Self {
        let (alive, none_is_left) = mpsc::channel();
        Self {
            alive: Mutex::new(Some(alive)),
            none_is_left: Mutex::new(none_is_left),
        }
    }
}

impl Companions {
    /// Waits at most so long until all have taken back what they kept up; no more begin. Whether they have.
    pub(crate) fn wait_for_end(&self, limit: Duration) -> bool {
        drop(self.alive.lock().unwrap_or_else(PoisonError::into_inner).take());
        let none_is_left = self.none_is_left.lock().unwrap_or_else(PoisonError::into_inner);
        none_is_left.recv_timeout(limit) == Err(RecvTimeoutError::Disconnected)
    }
}

/// Begins a thread, before the endpoint's own one; `of` finds what is known of it.
pub(crate) fn spawn<T: Clone + PartialEq, P: Clone>(
    shared: &Arc<Shared>,
    name: &str,
    of: fn(&mut State) -> &mut Companion<T, P>,
    work: impl FnOnce(&Shared, &Leash) + Send + 'static,
) -> io::Result<()> {
    let alive = shared.companions.alive.lock();
    let Some(alive) = alive.unwrap_or_else(PoisonError::into_inner).clone() else {
        return Ok(());
    };
    let (leash, ended) = mpsc::channel();
    of(&mut shared.lock()).leash = Some(leash);
    let of_thread = Arc::clone(shared);
    let end = Leash { ended, _alive: alive };
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || work(&of_thread, &end))?;
    Ok(())
}

/// What a thread tells of itself.
pub(crate) fn tell<T: Clone + PartialEq>(
    shared: &Shared,
    of: fn(&mut State) -> &mut Companion<T>,
    kept: Result<T, String>,
) {
    let woken = shared.change(|state, _| of(state).tell(kept));
    woken.into_iter().for_each(Waker::wake);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wakers::Wait;

    #[test]
    fn who_waits_learns_of_what_is_kept_up_and_of_the_end() {
        let mut companion = Companion::<u8>::default();
        assert_eq!(companion.kept(), Poll::Ready(None), "there is none");
        companion.leash = Some(mpsc::channel().0);
        assert_eq!(companion.kept(), Poll::Pending);
        assert_eq!(companion.told(), Poll::Pending);
        companion.waiting.wait(&mut Wait::default(), Waker::noop());
        let problem = "no router".to_owned();
        assert!(!companion.tell(Err(problem.clone())).is_empty());
        assert_eq!(companion.problem(), Some(&problem));
        assert_eq!(companion.kept(), Poll::Pending);
        assert_eq!(companion.told(), Poll::Ready(Some(Err(problem))));
        companion.waiting.wait(&mut Wait::default(), Waker::noop());
        assert_eq!(companion.tell(Ok(7)).len(), 1);
        assert_eq!((companion.kept, companion.problem()), (Some(7), None));
        assert_eq!(companion.kept(), Poll::Ready(Some(7)));
        assert_eq!(companion.told(), Poll::Ready(Some(Ok(7))));
        companion.end();
        assert_eq!(companion.kept(), Poll::Ready(None));
        assert_eq!(companion.told(), Poll::Ready(None));
    }

    #[test]
    fn what_is_kept_up_is_reported_when_it_comes_changes_and_goes_and_problems_once() {
        let mut companion = Companion::<u8> {
            leash: Some(mpsc::channel().0),
            ..Companion::default()
        };
        assert_eq!(companion.poll_report(), None);
        for (told, reported) in [
            (Err("no router"), Some(None)),
            (Err("refused"), None),
            (Ok(7), Some(Some(7))),
            (Ok(7), None),
            (Ok(8), Some(Some(8))),
            (Err("no answer"), Some(None)),
            (Ok(8), Some(Some(8))),
        ] {
            companion.tell(told.map_err(str::to_owned));
            assert_eq!(companion.poll_report(), reported, "{told:?}");
            assert_eq!(companion.poll_report(), None, "{told:?}");
        }
        companion.end();
        assert_eq!(companion.poll_report(), None, "the endpoint is closed");
    }

    #[test]
    fn a_thread_learns_of_the_end_and_is_waited_for() {
        let companions = Companions::default();
        let alive = companions.alive.lock().unwrap().clone().unwrap();
        let (leash, ended) = mpsc::channel();
        let end = Leash { ended, _alive: alive };
        assert!(!end.has_ended_within(Duration::ZERO));
        drop(leash);
        let thread = thread::spawn(move || end.has_ended_within(Duration::from_secs(60)));
        assert!(companions.wait_for_end(Duration::from_secs(60)));
        assert!(thread.join().unwrap());
    }
}
