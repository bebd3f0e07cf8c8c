//! The attempts that race, and when the next one may begin.

use std::net::SocketAddr;
use std::time::Instant;

use super::action::AttemptId;
use super::candidates::Candidate;
use crate::limits;

/// An attempt, or the connection that came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) id: AttemptId,
    pub(super) candidate: Candidate,
    began: Instant,
    pub(super) is_answered: bool,
}

impl Attempt {
    fn expires(&self) -> Instant {
        self.began + limits::CONNECT_ATTEMPT
    }
}

/// At most [`limits::ATTEMPTS_MAX`] attempts.
pub(super) struct Race {
    /// The oldest first.
    attempts: Vec<Attempt>,
    /// Before then no attempt begins.
    next: Instant,
    /// Numbers the attempts.
    begun: AttemptId,
}

impl Race {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            attempts: Vec::new(),
            next: now,
            begun: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.attempts.is_empty()
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, Attempt> {
        self.attempts.iter()
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        let tried = self.attempts.iter();
        tried.map(|attempt| attempt.candidate.address).collect()
    }

    pub(super) fn find(&self, id: AttemptId) -> Option<Attempt> {
        self.iter().find(|attempt| attempt.id == id).copied()
    }

    pub(super) fn remove(&mut self, id: AttemptId) -> Option<Attempt> {
        let index = self.attempts.iter().position(|attempt| attempt.id == id)?;
        Some(self.attempts.remove(index))
    }

    pub(super) fn pop(&mut self) -> Option<Attempt> {
        self.attempts.pop()
    }

    pub(super) fn handle_heard(&mut self, id: AttemptId) {
        if let Some(attempt) = self.attempts.iter_mut().find(|attempt| attempt.id == id) {
            attempt.is_answered = true;
        }
    }

    /// When an attempt expires, or where others wait the next one may begin.
    pub(super) fn poll_timeout(&self, others_wait: bool) -> Option<Instant> {
        let expiry = self.attempts.first().map(Attempt::expires);
        let next = (others_wait && self.has_room()).then_some(self.next);
        [expiry, next].into_iter().flatten().min()
    }

    /// Takes an attempt out that took too long.
    pub(super) fn poll_expired(&mut self, now: Instant) -> Option<Attempt> {
        let is_expired = self.attempts.first()?.expires() <= now;
        is_expired.then(|| self.attempts.remove(0))
    }

    /// One has failed, or all are new: the next one need not wait.
    pub(super) fn hurry(&mut self, now: Instant) {
        self.next = now;
    }

    fn has_room(&self) -> bool {
        self.attempts.len() < limits::ATTEMPTS_MAX
    }

    pub(super) fn may_begin(&self, now: Instant) -> bool {
        self.has_room() && (self.is_empty() || self.next <= now)
    }

    pub(super) fn begin(&mut self, now: Instant, candidate: Candidate) -> AttemptId {
        self.begun += 1;
        self.next = now + limits::ATTEMPT_DELAY;
        self.attempts.push(Attempt {
            id: self.begun,
            candidate,
            began: now,
            is_answered: false,
        });
        self.begun
    }
}
