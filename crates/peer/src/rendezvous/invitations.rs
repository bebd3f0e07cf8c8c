//! Numbers for guests that the program has asked for: each waits until the rendezvous answers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::error::InviteError;

/// One of them, for whoever asked.
#[derive(Clone, Default)]
pub(crate) struct Asked(Arc<Mutex<Slot>>);

#[derive(Default)]
struct Slot {
    answer: Option<Result<u32, InviteError>>,
    waker: Option<Waker>,
}

impl Asked {
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Result<u32, InviteError>> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match slot.answer {
            Some(answer) => Poll::Ready(answer),
            None => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    fn answer(&self, answer: Result<u32, InviteError>) -> Option<Waker> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.answer = Some(answer);
        slot.waker.take()
    }
}

/// All that the rendezvous has not answered, in their order.
#[derive(Default)]
pub(super) struct Invitations {
    asked: VecDeque<Asked>,
    woken: Vec<Waker>,
}

impl Invitations {
    pub(super) fn len(&self) -> usize {
        self.asked.len()
    }

    /// The rendezvous was asked.
    pub(super) fn add(&mut self) -> Asked {
        let asked = Asked::default();
        self.asked.push_back(asked.clone());
        asked
    }

    /// It has answered the earliest.
    pub(super) fn answered(&mut self, number: Option<u32>) {
        if let Some(asked) = self.asked.pop_front() {
            self.woken
                .extend(asked.answer(number.ok_or(InviteError::Refused)));
        }
    }

    /// It answers no more.
    pub(super) fn fail(&mut self) {
        while let Some(asked) = self.asked.pop_front() {
            self.woken.extend(asked.answer(Err(InviteError::NotRegistered)));
        }
    }

    /// Who has an answer.
    pub(super) fn take_woken(&mut self, woken: &mut Vec<Waker>) {
        woken.append(&mut self.woken);
    }
}
