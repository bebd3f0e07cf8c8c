//! What became of one message, as a future.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use peer_proto::Outcome;

/// Ends once: [`Outcome::Acked`], [`Outcome::Expired`] or [`Outcome::Dropped`].
///
/// # Cancellation
/// Dropping it changes nothing about the message. Who would wait again later waits for `&mut ticket`.
#[derive(Debug)]
#[must_use = "a ticket tells what became of a message; drop it explicitly where that does not matter"]
pub struct Ticket {
    state: Arc<TicketState>,
    /// It left a waker in the state.
    has_waited: bool,
}

#[derive(Debug, Default)]
pub(crate) struct TicketState(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    outcome: Option<Outcome>,
    waker: Option<Waker>,
}

impl TicketState {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ticket has ended; who waits for it.
    pub(crate) fn end(&self, outcome: Outcome) -> Option<Waker> {
        let mut inner = self.lock();
        inner.outcome = Some(outcome);
        inner.waker.take()
    }
}

impl Ticket {
    pub(crate) fn new(state: Arc<TicketState>) -> Self {
        Self {
            state,
            has_waited: false,
        }
    }

    /// The outcome, where the ticket has ended.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        self.state.lock().outcome
    }
}

impl Future for Ticket {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let mut inner = self.state.lock();
        if let Some(outcome) = inner.outcome {
            return Poll::Ready(outcome);
        }
        inner.waker = Some(context.waker().clone());
        drop(inner);
        self.has_waited = true;
        Poll::Pending
    }
}

/// What becomes of the message may show late: nobody's waker waits for it.
impl Drop for Ticket {
    fn drop(&mut self) {
        if self.has_waited {
            let waker = self.state.lock().waker.take();
            drop(waker);
        }
    }
}
