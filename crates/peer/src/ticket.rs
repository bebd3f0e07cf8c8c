//! What became of one message, as a future.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use peer_proto::Outcome;

/// Ends once: [`Outcome::Acked`], [`Outcome::Expired`] or [`Outcome::Dropped`]. Dropping it changes nothing about the
/// message.
#[derive(Debug)]
#[must_use = "a ticket tells what became of a message; drop it explicitly where that does not matter"]
pub struct Ticket(pub(crate) Arc<TicketState>);

#[derive(Debug, Default)]
pub(crate) struct TicketState(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    outcome: Option<Outcome>,
    waker: Option<Waker>,
}

impl TicketState {
    /// The ticket has ended; who waits for it.
    pub(crate) fn end(&self, outcome: Outcome) -> Option<Waker> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.outcome = Some(outcome);
        inner.waker.take()
    }
}

impl Ticket {
    /// The outcome, where the ticket has ended.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).outcome
    }
}

impl Future for Ticket {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let mut inner = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(outcome) = inner.outcome {
            return Poll::Ready(outcome);
        }
        inner.waker = Some(context.waker().clone());
        Poll::Pending
    }
}
