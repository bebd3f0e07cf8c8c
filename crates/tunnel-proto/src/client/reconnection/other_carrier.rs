//! The way of a connection that is up to the other carrier and back: an attempt beside it shows whether the server is
//! reached there, and then the connection itself moves (specs/path.md).

use std::net::SocketAddr;
use std::time::Instant;

use packet::CarrierKind;

use super::action::{AttemptId, ConnectAction};
use super::candidates::Candidate;
use super::race::Attempt;
use super::{Phase, Reconnection};

/// Why a carrier is used, for people.
const ON_TRIAL: &str = "it is tried whether it carries more";
const TCP_CARRIES_MORE: &str = "it carries more than UDP, which held traffic back";
const UDP_CARRIES: &str = "UDP carries what is wanted";

impl Reconnection {
    /// Reaches the server over the other carrier, beside the connection: [`ConnectAction::Move`] or
    /// [`ConnectAction::NotMoved`] follows. Whether there is another one.
    pub fn try_other_carrier(&mut self, now: Instant) -> bool {
        let candidate = self.present.filter(|_| self.phase == Phase::Up);
        let candidate = candidate.and_then(|present| self.candidates.over_other(present.candidate));
        let Some(candidate) = candidate.filter(|_| self.scout.is_none()) else {
            return false;
        };
        let scout = Attempt::new(self.race.next_id(), candidate, now);
        self.scout = Some(scout);
        self.actions.push_back(ConnectAction::Connect {
            attempt: scout.id,
            address: candidate.address,
            server_name: self.candidates.host(candidate.server).to_owned(),
        });
        true
    }

    /// The connection has moved to the attempt's carrier.
    pub fn handle_moved(&mut self, attempt: AttemptId) {
        if let Some(scout) = self.scout.take_if(|scout| scout.id == attempt) {
            self.goes_over(scout.candidate, ON_TRIAL);
        }
    }

    /// The connection stays on the carrier that it moved to; why, for people.
    pub fn keep_carrier(&mut self) -> &'static str {
        if let Some(present) = self.present {
            self.carrier_reason = reason_to_stay(present.candidate.carrier());
        }
        self.carrier_reason
    }

    /// The connection goes back to the other carrier: where the server is there.
    pub fn return_to_other_carrier(&mut self) -> Option<SocketAddr> {
        let candidate = self.candidates.over_other(self.present?.candidate)?;
        self.goes_over(candidate, reason_to_stay(candidate.carrier()));
        Some(candidate.address)
    }

    fn goes_over(&mut self, candidate: Candidate, reason: &'static str) {
        if let Some(present) = &mut self.present {
            present.candidate = candidate;
            self.carrier_reason = reason;
            self.lead = candidate.carrier();
            self.candidates.found(candidate);
        }
    }

    /// It is over with the attempt beside the connection, where this one is it.
    pub(super) fn scout_failed(&mut self, attempt: AttemptId) -> bool {
        let scout = self.scout.take_if(|scout| scout.id == attempt);
        if let Some(scout) = scout {
            let carrier = scout.candidate.carrier();
            self.actions.push_back(ConnectAction::NotMoved { carrier });
        }
        scout.is_some()
    }

    /// Ends the attempt beside a connection that is doubted or lost.
    pub(super) fn give_up_scout(&mut self) {
        if let Some(scout) = self.scout {
            self.scout_failed(scout.id);
            self.disconnect(scout.id);
        }
    }
}

fn reason_to_stay(carrier: CarrierKind) -> &'static str {
    match carrier {
        CarrierKind::Udp => UDP_CARRIES,
        CarrierKind::Tcp => TCP_CARRIES_MORE,
    }
}
