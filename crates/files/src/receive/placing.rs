//! Complete files on the way to their places: threads put them on disk and name them, while carriers bring others. A
//! file system writes what several threads wait for at once, so that many files cost little more than one.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::file::Incoming;
use crate::limits::PLACING_FILES_MAX;

#[derive(Default)]
pub(super) struct Placing {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Arc<Incoming>>,
    is_over: bool,
}

impl Placing {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file is complete; waits where too many are.
    pub(super) fn push(&self, file: &Arc<Incoming>) {
        let mut state = self
            .changed
            .wait_while(self.state(), |state| {
                state.waiting.len() >= PLACING_FILES_MAX && !state.is_over
            })
            .unwrap_or_else(PoisonError::into_inner);
        state.waiting.push_back(Arc::clone(file));
        drop(state);
        self.changed.notify_all();
    }

    /// One of the threads that put them in their places, until the end. What waits then is complete, and is found so
    /// by the next transfer.
    pub(super) fn run(&self, place: impl Fn(&Arc<Incoming>)) {
        loop {
            let mut state = self
                .changed
                .wait_while(self.state(), |state| state.waiting.is_empty() && !state.is_over)
                .unwrap_or_else(PoisonError::into_inner);
            if state.is_over {
                return;
            }
            let file = state.waiting.pop_front();
            drop(state);
            self.changed.notify_all();
            if let Some(file) = file {
                place(&file);
            }
        }
    }

    /// Lets everybody go.
    pub(super) fn end(&self) {
        self.state().is_over = true;
        self.changed.notify_all();
    }
}
