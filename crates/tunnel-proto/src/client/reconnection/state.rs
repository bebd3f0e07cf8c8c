//! Where a stripe's search for its server stands.

use std::net::SocketAddr;
use std::time::Instant;

use packet::CarrierKind;

use super::action::AttemptId;
use super::{Phase, Reconnection};

impl Reconnection {
    /// Whether the server has taken the token, and the connection has not been told to be lost.
    #[must_use]
    pub fn is_up(&self) -> bool {
        matches!(
            self.phase,
            Phase::Up
                | Phase::Doubt
                | Phase::Replacing { .. }
                | Phase::Leaving { .. }
                | Phase::Succeeding { .. }
        )
    }

    /// Whether attempts go on beside a connection that is up.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        self.phase == Phase::Doubt
    }

    /// Whether this attempt became the connection that is up.
    #[must_use]
    pub fn is_connection(&self, attempt: AttemptId) -> bool {
        self.is_up() && self.is_present(attempt)
    }

    /// The connection that is up, where another one is about to take its place.
    #[must_use]
    pub fn predecessor(&self) -> Option<AttemptId> {
        let present = self.present?;
        matches!(self.phase, Phase::Succeeding { .. }).then_some(present.id)
    }

    /// The server's address that was chosen, while that goes on, with its carrier ([`CarrierKind::of`]).
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        let is_chosen = self.is_up() || matches!(self.phase, Phase::Chosen { .. });
        let chosen = self.chosen().filter(|_| is_chosen)?;
        Some(chosen.candidate.address)
    }

    /// What carries the connection that was chosen, while that goes on, and why.
    #[must_use]
    pub fn carrier(&self) -> Option<(CarrierKind, &'static str)> {
        let address = self.address()?;
        Some((CarrierKind::of(address), self.carrier_reason))
    }

    /// Where an attempt leads that goes on, or the connection.
    #[must_use]
    pub fn address_of(&self, attempt: AttemptId) -> Option<SocketAddr> {
        let present = self.present.filter(|present| present.id == attempt);
        let scout = self.scout.filter(|scout| scout.id == attempt);
        let successor = self.chosen().filter(|chosen| chosen.id == attempt);
        let known = self.race.find(attempt).or(scout).or(present).or(successor)?;
        Some(known.candidate.address)
    }

    /// `connecting`, `connected`, `redirected` or `reconnecting`.
    #[must_use]
    pub fn state_name(&self) -> &'static str {
        if self.is_up() {
            "connected"
        } else if self.redirected_rounds > 0 {
            "redirected"
        } else if self.has_been_up {
            "reconnecting"
        } else {
            "connecting"
        }
    }

    /// How often it was up again.
    #[must_use]
    pub fn rejoins(&self) -> u64 {
        self.rejoins
    }

    /// What went wrong last, for people.
    #[must_use]
    pub fn last_reason(&self) -> &str {
        &self.last_reason
    }

    /// Why the connection is about to be given up by us, for people.
    pub fn set_reason(&mut self, reason: &str) {
        reason.clone_into(&mut self.last_reason);
    }

    /// Whether a sibling should take this stripe's local traffic: it is down, and what it would take away from this
    /// stripe has been here before, or has waited long enough.
    #[must_use]
    pub fn wants_stand_in(&self, now: Instant) -> bool {
        !self.is_up() && (self.has_been_up || self.grace_until <= now)
    }
}
