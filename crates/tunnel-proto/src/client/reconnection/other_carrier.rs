//! The way of a connection that is up to the other carrier and back, as its [`CarrierWatch`](super::CarrierWatch)
//! advises: an attempt beside it shows whether the server is reached there, and then the connection itself moves
//! (specs/path.md).

use std::net::SocketAddr;
use std::time::Instant;

use packet::CarrierKind;

use super::action::{AttemptId, ConnectAction};
use super::candidates::Candidate;
use super::race::Attempt;
use super::{Phase, Reconnection, UDP_SILENT};
use crate::client::carrier_watch::{Carried, CarrierAdvice};

/// Why a carrier is used, for people.
const ON_TRIAL: &str = "it is tried whether it carries more";
const TCP_CARRIES_MORE: &str = "it carries more than UDP, which held traffic back";
const UDP_CARRIES: &str = "UDP carries what is wanted";
const TCP_SILENT: &str = "nothing answered in TCP's shape";

/// What a look at the carrier in use came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarrierNews {
    /// It was on trial and is kept: [`Reconnection::carrier`] says why.
    Kept,
    /// It was on trial, and the connection is to go back to where the server is over the other one.
    Return(SocketAddr),
}

impl Reconnection {
    /// Looks whether the carrier in use carries what is wanted, to be done every
    /// [`crate::limits::CARRIER_WATCH_INTERVAL`].
    pub fn look_at_carrier(&mut self, now: Instant, carried: Carried) -> Option<CarrierNews> {
        let (kind, _) = self.carrier().filter(|_| self.is_up() && !self.is_in_doubt())?;
        match self.carrier_watch.look(now, kind, carried)? {
            CarrierAdvice::TryOther => {
                self.try_other_carrier(now);
                None
            }
            CarrierAdvice::Keep => {
                self.keep_carrier();
                Some(CarrierNews::Kept)
            }
            CarrierAdvice::Return => self.return_to_other_carrier().map(CarrierNews::Return),
        }
    }

    /// Nothing is acknowledged over the carrier in use: the server is asked over the other one before the connection is
    /// given up (PATH-8).
    pub fn carrier_is_silent(&mut self, now: Instant) {
        if let Some((kind, _)) = self.carrier()
            && self.carrier_watch.is_silent(now, kind)
        {
            self.try_other_carrier(now);
        }
    }

    /// ICMP says that nothing listens where the carrier in use leads. Whether the connection waits for the answer over
    /// the other one.
    pub fn carrier_is_refused(&mut self, now: Instant) -> bool {
        self.carrier_is_silent(now);
        self.carrier_watch.refused()
    }

    /// Something was acknowledged over the carrier in use: an attempt out of silence ends.
    pub fn carrier_answered(&mut self) {
        if self.carrier_watch.answered() {
            self.forget_other_carrier();
        }
    }

    /// Nothing comes through over the carrier that is on trial. Where the server is over the other one, to which the
    /// connection is to go back.
    pub fn leave_silent_carrier(&mut self, now: Instant) -> Option<SocketAddr> {
        if let Some((kind, _)) = self.carrier() {
            self.carrier_watch.fell_silent(now, kind);
        }
        self.return_to_other_carrier()
    }

    /// Whether the carrier in use is on trial.
    #[must_use]
    pub fn is_carrier_on_trial(&self) -> bool {
        self.carrier_watch.is_on_trial()
    }

    /// Whether the carrier in use would be left for another one if it were silent.
    #[must_use]
    pub fn would_leave_carrier(&self, now: Instant) -> bool {
        let leaves = |(kind, _)| self.carrier_watch.would_leave(now, kind);
        self.has_other_carrier() && self.carrier().is_some_and(leaves)
    }

    /// Packets leave this machine in another way, where everything may be different: an attempt beside the connection
    /// ends, which says nothing about its carrier, and the carrier in use is not on trial any more.
    pub fn forget_carriers(&mut self) {
        self.forget_other_carrier();
        self.carrier_watch.network_changed();
    }

    /// Whether the server can be tried over another carrier.
    #[must_use]
    pub fn has_other_carrier(&self) -> bool {
        let other = self
            .present
            .and_then(|present| self.candidates.over_other(present.candidate));
        other.is_some()
    }

    /// Reaches the server over the other carrier, beside the connection: [`ConnectAction::Move`] follows where it is
    /// there.
    fn try_other_carrier(&mut self, now: Instant) {
        let candidate = self.present.filter(|_| self.phase == Phase::Up);
        let candidate = candidate.and_then(|present| self.candidates.over_other(present.candidate));
        let Some(candidate) = candidate.filter(|_| self.scout.is_none()) else {
            if let Some((kind, _)) = self.carrier() {
                self.carrier_watch.not_moved(now, kind.other());
            }
            return;
        };
        let scout = Attempt::new(self.race.next_id(), candidate, now);
        self.scout = Some(scout);
        self.actions.push_back(ConnectAction::Connect {
            attempt: scout.id,
            address: candidate.address,
            server_name: self.candidates.host(candidate.server).to_owned(),
        });
    }

    /// The connection moves to the attempt's carrier: on trial, or to stay because the other one was silent. Whether it
    /// is on trial.
    pub fn handle_moved(&mut self, now: Instant, attempt: AttemptId) -> bool {
        let Some((kind, _)) = self.carrier() else {
            return false;
        };
        let is_on_trial = self.carrier_watch.moved(now, kind);
        if let Some(scout) = self.scout.take_if(|scout| scout.id == attempt) {
            let reason = match scout.candidate.carrier() {
                _ if is_on_trial => ON_TRIAL,
                CarrierKind::Tcp => UDP_SILENT,
                CarrierKind::Udp => TCP_SILENT,
            };
            self.goes_over(scout.candidate, reason);
        }
        is_on_trial
    }

    /// The connection stays on the carrier that it moved to.
    fn keep_carrier(&mut self) {
        let on_trial = self.present.filter(|_| self.carrier_reason == ON_TRIAL);
        if let Some(present) = on_trial {
            self.carrier_reason = reason_to_stay(present.candidate.carrier());
        }
    }

    /// The connection goes back to the other carrier: where the server is there.
    pub fn return_to_other_carrier(&mut self) -> Option<SocketAddr> {
        let candidate = self.candidates.over_other(self.present?.candidate)?;
        self.goes_over(candidate, reason_to_stay(candidate.carrier()));
        Some(candidate.address)
    }

    fn forget_other_carrier(&mut self) {
        if let Some(scout) = self.scout.take() {
            self.disconnect(scout.id);
        }
        self.keep_carrier();
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
    pub(super) fn scout_failed(&mut self, now: Instant, attempt: AttemptId) -> bool {
        let scout = self.scout.take_if(|scout| scout.id == attempt);
        if let Some(scout) = scout {
            self.carrier_watch.not_moved(now, scout.candidate.carrier());
        }
        scout.is_some()
    }

    /// Ends the attempt beside a connection that is doubted or lost.
    pub(super) fn give_up_scout(&mut self, now: Instant) {
        if let Some(scout) = self.scout {
            self.scout_failed(now, scout.id);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::CarrierChoice;
    use crate::limits;

    /// What is asked, after a start over UDP.
    struct Bed {
        reconnection: Reconnection,
        now: Instant,
        connection: AttemptId,
    }

    impl Bed {
        /// Connected over UDP.
        fn up() -> Self {
            // tidy-allow(pure): first instant of virtual time
            let now = Instant::now();
            let carriers = CarrierChoice {
                udp: true,
                tcp_port: Some(8_443),
            };
            let servers = vec![("192.0.2.1".to_owned(), 443)];
            let mut reconnection = Reconnection::new(servers, carriers, 7, now);
            reconnection.handle_timeout(now);
            let Some(ConnectAction::Connect { attempt, .. }) = reconnection.poll_action() else {
                panic!("an attempt begins");
            };
            reconnection.handle_connected(now, attempt);
            reconnection.poll_action();
            reconnection.handle_up();
            assert_eq!(reconnection.poll_action(), None);
            Self {
                reconnection,
                now,
                connection: attempt,
            }
        }

        /// The server is tried over the other carrier, by which it is expected to be better.
        fn begins(&mut self) -> (AttemptId, SocketAddr) {
            self.reconnection.try_other_carrier(self.now);
            self.begun()
        }

        /// The same because nothing is acknowledged.
        fn begins_in_silence(&mut self) -> (AttemptId, SocketAddr) {
            self.now += limits::CARRIER_RETRY_MAX;
            self.reconnection.carrier_is_silent(self.now);
            self.reconnection.carrier_is_silent(self.now);
            self.begun()
        }

        /// One at a time.
        fn begun(&mut self) -> (AttemptId, SocketAddr) {
            let begun = match self.reconnection.poll_action() {
                Some(ConnectAction::Connect { attempt, address, .. }) => (attempt, address),
                other => panic!("an attempt begins: {other:?}"),
            };
            assert_eq!(self.reconnection.poll_action(), None);
            begun
        }

        /// Whether the other carrier is left alone for a while.
        fn has_failed(&self) -> bool {
            !self.reconnection.would_leave_carrier(self.now)
        }

        fn kind(&self) -> (CarrierKind, &'static str) {
            self.reconnection.carrier().unwrap()
        }
    }

    fn udp() -> SocketAddr {
        "192.0.2.1:443".parse().unwrap()
    }

    fn tcp() -> SocketAddr {
        CarrierKind::Tcp.mark("192.0.2.1:8443".parse().unwrap())
    }

    /// PATH-5, PATH-6.
    #[test]
    fn a_connection_goes_over_where_the_server_answers_and_back() {
        let mut bed = Bed::up();
        assert!(bed.reconnection.has_other_carrier());
        let (scout, address) = bed.begins();
        assert_eq!(address, tcp());
        bed.reconnection.handle_connected(bed.now, scout);
        let wanted = ConnectAction::Move { attempt: scout };
        assert_eq!(bed.reconnection.poll_action(), Some(wanted));
        assert!(bed.reconnection.handle_moved(bed.now, scout));
        assert!(bed.reconnection.is_carrier_on_trial());
        // The attempt has ended; the connection is still the one that was chosen.
        bed.reconnection.handle_lost(bed.now, scout, None);
        assert!(bed.reconnection.is_connection(bed.connection));
        assert_eq!(bed.reconnection.address(), Some(tcp()));
        assert_eq!(bed.kind(), (CarrierKind::Tcp, ON_TRIAL));
        bed.reconnection.keep_carrier();
        assert_eq!(bed.kind(), (CarrierKind::Tcp, TCP_CARRIES_MORE));
        let (again, address) = bed.begins();
        assert_eq!(address, udp());
        bed.reconnection.handle_connected(bed.now, again);
        bed.reconnection.poll_action();
        assert!(bed.reconnection.handle_moved(bed.now, again));
        assert_eq!(bed.reconnection.leave_silent_carrier(bed.now), Some(tcp()));
        assert!(!bed.reconnection.is_carrier_on_trial());
        assert_eq!(bed.kind(), (CarrierKind::Tcp, TCP_CARRIES_MORE));
        assert_eq!(bed.reconnection.poll_action(), None);
        // Where it is lost, the carrier that it used leads.
        let lost = Some("no answer".to_owned());
        bed.reconnection.handle_lost(bed.now, bed.connection, lost);
        let next = bed.reconnection.poll_action();
        assert!(
            matches!(next, Some(ConnectAction::Connect { address, .. }) if address == tcp()),
            "{next:?}"
        );
    }

    /// PATH-8.
    #[test]
    fn a_connection_that_left_a_silent_carrier_stays_and_says_so() {
        let mut bed = Bed::up();
        for wanted in [(CarrierKind::Tcp, UDP_SILENT), (CarrierKind::Udp, TCP_SILENT)] {
            let (scout, _) = bed.begins_in_silence();
            bed.reconnection.handle_connected(bed.now, scout);
            assert_eq!(
                bed.reconnection.poll_action(),
                Some(ConnectAction::Move { attempt: scout })
            );
            assert!(!bed.reconnection.handle_moved(bed.now, scout));
            assert_eq!(bed.kind(), wanted);
            bed.reconnection.keep_carrier();
            assert_eq!(bed.kind(), wanted);
        }
        assert!(bed.reconnection.is_connection(bed.connection));
    }

    #[test]
    fn in_another_network_the_attempt_ends_without_a_word_about_its_carrier() {
        let mut bed = Bed::up();
        let (scout, _) = bed.begins();
        bed.reconnection.forget_carriers();
        let closed = ConnectAction::Disconnect { attempt: scout };
        assert_eq!(bed.reconnection.poll_action(), Some(closed));
        assert_eq!(bed.reconnection.poll_action(), None);
        bed.reconnection.handle_lost(bed.now, scout, None);
        assert_eq!(bed.reconnection.poll_action(), None);
        assert!(!bed.has_failed());
        assert!(bed.reconnection.is_connection(bed.connection));
        // And one that has moved is not on trial any more.
        let (scout, _) = bed.begins();
        bed.reconnection.handle_connected(bed.now, scout);
        bed.reconnection.poll_action();
        assert!(bed.reconnection.handle_moved(bed.now, scout));
        bed.reconnection.forget_carriers();
        assert_eq!(bed.reconnection.poll_action(), None);
        assert!(!bed.reconnection.is_carrier_on_trial());
        assert_eq!(bed.kind(), (CarrierKind::Tcp, TCP_CARRIES_MORE));
    }

    #[test]
    fn where_the_server_is_not_reached_the_connection_stays_and_does_not_ask_again_soon() {
        let mut bed = Bed::up();
        let (scout, _) = bed.begins_in_silence();
        bed.reconnection
            .handle_lost(bed.now, scout, Some("refused".to_owned()));
        assert!(bed.has_failed());
        let (scout, _) = bed.begins_in_silence();
        bed.reconnection.handle_redirected(bed.now, scout);
        assert!(bed.has_failed());
        let (scout, _) = bed.begins_in_silence();
        let late = bed.now + limits::CONNECT_ATTEMPT;
        assert_eq!(bed.reconnection.poll_timeout(), Some(late));
        bed.reconnection.handle_timeout(late);
        assert!(bed.has_failed());
        let closed = ConnectAction::Disconnect { attempt: scout };
        assert_eq!(bed.reconnection.poll_action(), Some(closed));
        assert_eq!(bed.reconnection.poll_timeout(), None);
        assert_eq!(bed.kind().0, CarrierKind::Udp);
        assert!(bed.reconnection.is_connection(bed.connection));
    }

    #[test]
    fn an_attempt_ends_with_the_connection_that_is_doubted_or_lost_beside_it() {
        let ends: [fn(&mut Bed); 2] = [
            |bed| bed.reconnection.handle_silence(bed.now),
            |bed| bed.reconnection.handle_lost(bed.now, bed.connection, None),
        ];
        for end in ends {
            let mut bed = Bed::up();
            let (scout, _) = bed.begins();
            end(&mut bed);
            let closed = ConnectAction::Disconnect { attempt: scout };
            assert_eq!(bed.reconnection.poll_action(), Some(closed));
            assert!(bed.has_failed());
            bed.reconnection.try_other_carrier(bed.now);
            assert!(bed.reconnection.scout.is_none());
            bed.reconnection.handle_connected(bed.now, scout);
            assert_ne!(
                bed.reconnection.poll_action(),
                Some(ConnectAction::Move { attempt: scout })
            );
        }
    }
}
