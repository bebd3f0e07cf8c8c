//! What the program has asked the rendezvous, a number for a guest or whose a number is: each waits for its answer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// One of them, for whoever asked.
pub(crate) struct Asked<T, E>(Arc<Mutex<Slot<T, E>>>);

/// The rendezvous may never answer: nobody's waker waits for it.
impl<T, E> Drop for Asked<T, E> {
    fn drop(&mut self) {
        let waker = self.0.lock().unwrap_or_else(PoisonError::into_inner).waker.take();
        drop(waker);
    }
}

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
}

/// All questions of one kind that the rendezvous has not answered, in their order.
pub(super) struct Questions<T, E> {
    asked: VecDeque<Arc<Mutex<Slot<T, E>>>>,
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
        self.asked.push_back(Arc::clone(&asked.0));
        asked
    }

    /// It has answered the earliest.
    pub(super) fn answered(&mut self, answer: Result<T, E>) {
        if let Some(asked) = self.asked.pop_front() {
            let mut slot = asked.lock().unwrap_or_else(PoisonError::into_inner);
            slot.answer = Some(answer);
            self.woken.extend(slot.waker.take());
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

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use super::*;

    struct Task;

    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn who_does_not_wait_for_an_answer_leaves_its_place_in_the_order_alone() {
        let (mut questions, task) = (Questions::<u32, ()>::default(), Arc::new(Task));
        let [first, second] = [questions.add(), questions.add()];
        let waker = Waker::from(Arc::clone(&task));
        let context = Context::from_waker(&waker);
        assert!(first.poll(&context).is_pending());
        assert_eq!(Arc::strong_count(&task), 3);
        drop(first);
        assert_eq!(Arc::strong_count(&task), 2);
        for answer in [1, 2] {
            questions.answered(Ok(answer));
        }
        assert_eq!(second.poll(&context), Poll::Ready(Ok(2)));
    }
}
