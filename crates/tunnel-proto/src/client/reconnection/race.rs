//! The attempts that race, and when the next one may begin: over each carrier a while after the one before, and over the
//! second carrier a while after the first one over the leading carrier.

use std::net::SocketAddr;
use std::time::Instant;

use packet::CarrierKind;

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
    pub(super) fn new(id: AttemptId, candidate: Candidate, now: Instant) -> Self {
        Self {
            id,
            candidate,
            began: now,
            is_answered: false,
        }
    }

    pub(super) fn expires(&self) -> Instant {
        self.began + limits::CONNECT_ATTEMPT
    }

    /// Whether the connection was of use ([`limits::STAY_MIN`]).
    pub(super) fn has_stood(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.began) >= limits::STAY_MIN
    }
}

/// At most [`limits::ATTEMPTS_MAX`] attempts.
pub(super) struct Race {
    /// The oldest first.
    attempts: Vec<Attempt>,
    /// The carrier that begins.
    lead: CarrierKind,
    /// Over UDP and in TCP's shape: before then no attempt begins.
    next: [Instant; 2],
    /// Before then none begins over the other carrier; `None`: nothing was tried over the leading one in this round.
    other_from: Option<Instant>,
    /// Numbers the attempts.
    begun: AttemptId,
}

impl Race {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            attempts: Vec::new(),
            lead: CarrierKind::Udp,
            next: [now; 2],
            other_from: None,
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

    /// When an attempt expires, or where others wait over a carrier the next one may begin.
    pub(super) fn poll_timeout(&self, others_wait: impl Fn(CarrierKind) -> bool) -> Option<Instant> {
        let expiry = self.attempts.first().map(Attempt::expires);
        let lead_waits = others_wait(self.lead);
        let next = [CarrierKind::Udp, CarrierKind::Tcp]
            .into_iter()
            .filter(|kind| self.has_room() && others_wait(*kind))
            .filter_map(|kind| self.begins_at(kind, lead_waits));
        next.chain(expiry).min()
    }

    /// Takes an attempt out that took too long.
    pub(super) fn poll_expired(&mut self, now: Instant) -> Option<Attempt> {
        let is_expired = self.attempts.first()?.expires() <= now;
        is_expired.then(|| self.attempts.remove(0))
    }

    /// One has failed: the next one over its carrier need not wait.
    pub(super) fn hurry(&mut self, now: Instant) {
        self.next = [now; 2];
    }

    /// All are new but those that go on, and `lead` begins.
    pub(super) fn begin_round(&mut self, now: Instant, lead: CarrierKind) {
        self.hurry(now);
        self.lead = lead;
        self.other_from = self.other_from.filter(|_| self.goes_on(lead));
    }

    fn goes_on(&self, kind: CarrierKind) -> bool {
        self.iter().any(|attempt| attempt.candidate.carrier() == kind)
    }

    /// From when on an attempt over this carrier may begin, where none has to come before it.
    fn begins_at(&self, kind: CarrierKind, lead_waits: bool) -> Option<Instant> {
        let next = self.next[kind as usize];
        let waits_for_lead = kind != self.lead && (lead_waits || self.goes_on(self.lead));
        if waits_for_lead {
            self.other_from.map(|from| from.max(next))
        } else {
            Some(next)
        }
    }

    fn has_room(&self) -> bool {
        self.attempts.len() < limits::ATTEMPTS_MAX
    }

    /// Whether an attempt over this carrier may begin; `lead_waits`: others wait over the leading one.
    pub(super) fn may_begin(&self, now: Instant, kind: CarrierKind, lead_waits: bool) -> bool {
        let is_due = || self.begins_at(kind, lead_waits).is_some_and(|from| from <= now);
        self.has_room() && (self.is_empty() && kind == self.lead || is_due())
    }

    /// The order in which carriers are asked.
    pub(super) fn carriers(&self) -> [CarrierKind; 2] {
        match self.lead {
            CarrierKind::Udp => [CarrierKind::Udp, CarrierKind::Tcp],
            CarrierKind::Tcp => [CarrierKind::Tcp, CarrierKind::Udp],
        }
    }

    /// The number of an attempt that begins.
    pub(super) fn next_id(&mut self) -> AttemptId {
        self.begun += 1;
        self.begun
    }

    pub(super) fn begin(&mut self, now: Instant, candidate: Candidate) -> AttemptId {
        let id = self.next_id();
        let kind = candidate.carrier();
        self.next[kind as usize] = now + limits::ATTEMPT_DELAY;
        if kind == self.lead {
            self.other_from.get_or_insert(now + limits::CARRIER_DELAY);
        }
        self.attempts.push(Attempt::new(id, candidate, now));
        id
    }
}
