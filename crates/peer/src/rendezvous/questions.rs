//! What the program has asked the rendezvous, a number for a guest or whose a number is: each waits for its answer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// One of them, for whoever asked.
pub(crate) struct Asked<T, E>(Arc<Mutex<Slot<T, E>>>);

struct Slot<T, E> {
    answer: Option<Result<T, E>>,
    waker: Option<Waker>,
}

impl<T: Copy, E: Copy> Asked<T, E> {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Slot {
            answer: None,
            waker: None,
        })))
    }

    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Result<T, E>> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match slot.answer {
            Some(answer) => Poll::Ready(answer),
            None => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    fn answer(&self, answer: Result<T, E>) -> Option<Waker> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.answer = Some(answer);
        slot.waker.take()
    }
}

/// All questions of one kind that the rendezvous has not answered, in their order.
pub(super) struct Questions<T, E> {
    asked: VecDeque<Asked<T, E>>,
    woken: Vec<Waker>,
}

impl<T, E> Default for Questions<T, E> {
    fn default() -> Self {
        Self {
            asked: VecDeque::new(),
            woken: Vec::new(),
        }
    }
}

impl<T: Copy, E: Copy> Questions<T, E> {
    pub(super) fn len(&self) -> usize {
        self.asked.len()
    }

    /// The rendezvous was asked.
    pub(super) fn add(&mut self) -> Asked<T, E> {
        let asked = Asked::new();
        self.asked.push_back(Asked(Arc::clone(&asked.0)));
        asked
    }

    /// It has answered the earliest.
    pub(super) fn answered(&mut self, answer: Result<T, E>) {
        if let Some(asked) = self.asked.pop_front() {
            self.woken.extend(asked.answer(answer));
        }
    }

    /// It answers no more.
    pub(super) fn fail(&mut self, error: E) {
        while !self.asked.is_empty() {
            self.answered(Err(error));
        }
    }

    /// Who has an answer.
    pub(super) fn take_woken(&mut self, woken: &mut Vec<Waker>) {
        woken.append(&mut self.woken);
    }
}
