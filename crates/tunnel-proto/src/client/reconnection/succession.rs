//! A connection whose server is about to end: attempts go on beside it, at all addresses, until another one is up in its
//! place. It stays up meanwhile, and also where nobody takes its place, until it is lost.

use std::time::Instant;

use super::race::Attempt;
use super::{NO_HANDSHAKE, Phase, Reconnection};
use crate::client::reconnection::ConnectAction;
use crate::limits;

impl Reconnection {
    /// The server takes no new requests on the connection.
    pub fn handle_going_away(&mut self, now: Instant) {
        match self.phase {
            Phase::Up => {
                self.give_up_scout(now);
                self.begin_succession(now);
            }
            // The server's address is known to answer, so what it says next is waited for.
            Phase::Doubt => {
                self.handle_answered();
                self.begin_succession(now);
            }
            // It is not up yet, and is replaced as soon as it is.
            Phase::Chosen { .. } | Phase::Succeeding { .. } => self.goes_away = Some(self.next_begins(now)),
            Phase::Race | Phase::Pause { .. } | Phase::Leaving { .. } | Phase::Replacing { .. } => {}
        }
    }

    fn begin_succession(&mut self, now: Instant) {
        let next = self.next_begins(now);
        self.phase = Phase::Leaving {
            pause: (next > now).then_some(next),
        };
        if next <= now {
            self.begin_round(now);
        }
    }

    /// An attempt is to take the place of the connection.
    pub(super) fn succeed(&mut self, now: Instant, by: Attempt) {
        self.announce_choice(now, by);
        let until = now + limits::CONNECT_ATTEMPT;
        self.phase = Phase::Succeeding { by, until };
    }

    /// The server has taken the token where the connection goes on.
    pub(super) fn complete_succession(&mut self) {
        if let Phase::Succeeding { by, .. } = self.phase {
            self.present = Some(by);
        }
    }

    /// What was to take the place of the connection took too long.
    pub(super) fn successor_is_late(&mut self, now: Instant) {
        if let Phase::Succeeding { by, .. } = self.phase {
            self.failed(NO_HANDSHAKE);
            self.actions
                .push_back(ConnectAction::Disconnect { attempt: by.id });
            self.go_on_leaving(now);
        }
    }

    /// What was to take the place of the connection is lost. Whether this attempt was it.
    pub(super) fn successor_lost(
        &mut self,
        now: Instant,
        lost: super::AttemptId,
        reason: Option<&str>,
    ) -> bool {
        let is_lost = matches!(self.phase, Phase::Succeeding { by, .. } if by.id == lost);
        if is_lost {
            if let Some(reason) = reason {
                self.failed(reason);
            }
            self.go_on_leaving(now);
        }
        is_lost
    }

    fn go_on_leaving(&mut self, now: Instant) {
        self.goes_away = None;
        self.phase = Phase::Leaving { pause: None };
        self.race.hurry(now);
        self.go_on(now);
    }
}
