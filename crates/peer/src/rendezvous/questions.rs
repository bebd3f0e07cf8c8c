//! What the program has asked the rendezvous, a number for a guest or whose a number is: each waits for its answer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::error::InviteError;

/// One of them, for whoever asked.
pub(crate) struct Asked<T>(Arc<Mutex<Slot<T>>>);

struct Slot<T> {
    answer: Option<Result<T, InviteError>>,
    waker: Option<Waker>,
}

impl<T: Copy> Asked<T> {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Slot {
            answer: None,
            waker: None,
        })))
    }

    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Result<T, InviteError>> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match slot.answer {
            Some(answer) => Poll::Ready(answer),
            None => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    fn answer(&self, answer: Result<T, InviteError>) -> Option<Waker> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.answer = Some(answer);
        slot.waker.take()
    }
}

/// All questions of one kind that the rendezvous has not answered, in their order.
pub(super) struct Questions<T> {
    asked: VecDeque<Asked<T>>,
    woken: Vec<Waker>,
}

impl<T> Default for Questions<T> {
    fn default() -> Self {
        Self {
            asked: VecDeque::new(),
            woken: Vec::new(),
        }
    }
}

impl<T: Copy> Questions<T> {
    pub(super) fn len(&self) -> usize {
        self.asked.len()
    }

    /// The rendezvous was asked.
    pub(super) fn add(&mut self) -> Asked<T> {
        let asked = Asked::new();
        self.asked.push_back(Asked(Arc::clone(&asked.0)));
        asked
    }

    /// It has answered the earliest.
    pub(super) fn answered(&mut self, answer: Result<T, InviteError>) {
        if let Some(asked) = self.asked.pop_front() {
            self.woken.extend(asked.answer(answer));
        }
    }

    /// It answers no more.
    pub(super) fn fail(&mut self) {
        while !self.asked.is_empty() {
            self.answered(Err(InviteError::NotRegistered));
        }
    }

    /// Who has an answer.
    pub(super) fn take_woken(&mut self, woken: &mut Vec<Waker>) {
        woken.append(&mut self.woken);
    }
}
