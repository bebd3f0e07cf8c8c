//! How one stripe finds its server: a race between its addresses (RFC 8305 section 5), and the pauses between races.
//!
//! Attempts begin a quarter of a second apart, or as soon as one has failed, in the order of [`candidates`], and go on
//! beside each other. The first one whose handshake completes, with the pinned certificate, is chosen: the others are
//! closed, and wait again until the server has taken the token. Where all addresses have failed, a pause follows that
//! doubles from round to round and is random in its second half. A connection that is lost after it was up begins again
//! at once, and so does one whose server is about to end it, unless the server does so with one after the other: then
//! such pauses come between them as well.
//!
//! Where the genuine site of a cover answered (specs/qr1.md, QR1-19), the pauses are longer from the first one on: whoever
//! looks sees a browser that comes back now and then.
//!
//! Where servers are reached in TCP's shape as well, attempts over both carriers race: over UDP first, in TCP's shape from
//! 300 ms later on, or at once where UDP has failed. The carrier that worked last leads the next race, until the network
//! changes.
//!
//! A connection that is up moves to the other carrier where its own carries too little: see [`other_carrier`].
//!
//! A connection that is up but whose server stays silent is doubted: a race begins beside it, with its own address
//! first. Whichever answers first lives, the connection or an attempt.
//!
//! A connection whose server is about to end is replaced while it goes on: see [`succession`].

mod action;
mod candidates;
mod other_carrier;
mod race;
mod state;
mod succession;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use packet::CarrierKind;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::carrier_watch::CarrierWatch;
use crate::limits;
use candidates::Candidates;
use race::{Attempt, Race};

pub use action::{AttemptId, ConnectAction};
pub use candidates::CarrierChoice;
pub use other_carrier::CarrierNews;

/// Why an attempt without any answer failed, in the words of [`quic::CloseReason::TimedOut`].
const NO_ANSWER: &str = "no answer";

/// Why an attempt failed that was answered.
const NO_HANDSHAKE: &str = "it answers, but the connection did not come about in time";

/// Why an attempt failed that met the genuine site, the likeliest cause first.
const REDIRECTED: &str = "the genuine site answered: this machine's clock is wrong by more than two minutes, the server's key \
                          has changed, its owner has taken the link back, or somebody is between";

/// Why a carrier is used, for people.
const SOLE_CARRIER: &str = "nothing else may be used";
const FIRST_CARRIER: &str = "it answered first";
const UDP_SILENT: &str = "nothing answered over UDP";
const UDP_SLOW: &str = "UDP answered, but more slowly";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Every address has failed, or nothing has been tried.
    Pause { until: Instant },
    /// Attempts go on, or names are being resolved.
    Race,
    /// The handshake with the server is complete, and it looks at the token.
    Chosen { until: Instant },
    /// The server has taken the token.
    Up,
    /// It had, and stays silent: attempts go on beside the connection.
    Doubt,
    /// This attempt is chosen as soon as the doubted connection has been told to be lost.
    Replacing { by: Attempt },
    /// The server is about to end the connection: attempts go on beside it, or pause until then.
    Leaving { pause: Option<Instant> },
    /// Beside the connection that is to be left this attempt is chosen, and the server looks at the token.
    Succeeding { by: Attempt, until: Instant },
}

/// One stripe's connection to a server, which is made again whenever it is lost.
pub struct Reconnection {
    candidates: Candidates,
    phase: Phase,
    race: Race,
    /// Beside a connection that is up, over the other carrier.
    scout: Option<Attempt>,
    /// What becomes of the carrier in use.
    carrier_watch: CarrierWatch,
    /// What was chosen last; while another one is about to take its place, the connection that is up.
    present: Option<Attempt>,
    /// The server was about to end the connection before it was up.
    goes_away: Option<Instant>,
    /// Why its carrier is used.
    carrier_reason: &'static str,
    /// The carrier that worked last.
    lead: CarrierKind,
    /// Rounds over all servers that failed one after the other.
    failed_rounds: u32,
    /// Connections that ended soon after they were up, one after the other.
    short_lived: u32,
    /// The genuine site answered in this round.
    is_redirected: bool,
    /// Rounds in which it did, one after the other.
    redirected_rounds: u32,
    has_been_up: bool,
    /// How often it was up again.
    rejoins: u64,
    last_reason: String,
    /// `last_reason` is of this round, and more than silence.
    is_reason_definite: bool,
    /// Until when a stripe that has not been up keeps its local traffic.
    grace_until: Instant,
    random: StdRng,
    actions: VecDeque<ConnectAction>,
}

impl Reconnection {
    /// Begins with the next [`Reconnection::handle_timeout`]. The pauses follow from `seed`.
    ///
    /// # Panics
    /// Where there is no server.
    #[must_use]
    pub fn new(servers: Vec<(String, u16)>, carriers: CarrierChoice, seed: u64, now: Instant) -> Self {
        Self {
            candidates: Candidates::new(servers, carriers),
            phase: Phase::Pause { until: now },
            race: Race::new(now),
            scout: None,
            carrier_watch: CarrierWatch::default(),
            present: None,
            goes_away: None,
            carrier_reason: SOLE_CARRIER,
            lead: CarrierKind::Udp,
            failed_rounds: 0,
            short_lived: 0,
            is_redirected: false,
            redirected_rounds: 0,
            has_been_up: false,
            rejoins: 0,
            last_reason: String::new(),
            is_reason_definite: false,
            grace_until: now + limits::STRIPE_GRACE,
            random: StdRng::seed_from_u64(seed),
            actions: VecDeque::new(),
        }
    }

    /// When [`Reconnection::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.phase {
            Phase::Pause { until } | Phase::Chosen { until } | Phase::Succeeding { until, .. } => Some(until),
            Phase::Leaving { pause: Some(until) } => Some(until),
            Phase::Race | Phase::Doubt | Phase::Leaving { pause: None } => {
                self.race.poll_timeout(|kind| self.candidates.waits(kind))
            }
            Phase::Up => self.scout.map(|scout| scout.expires()),
            Phase::Replacing { .. } => None,
        }
    }

    /// What is to be done; to be asked after every other call until there is nothing.
    pub fn poll_action(&mut self) -> Option<ConnectAction> {
        self.actions.pop_front()
    }

    /// Attempts that took too long end, the next one begins, a pause that is over ends.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_none_or(|due| now < due) {
            return;
        }
        match self.phase {
            Phase::Pause { .. } => self.begin_round(now),
            Phase::Leaving { pause: Some(_) } => {
                self.phase = Phase::Leaving { pause: None };
                self.begin_round(now);
            }
            Phase::Race | Phase::Doubt | Phase::Leaving { pause: None } => {
                while let Some(expired) = self.race.poll_expired(now) {
                    self.disconnect(expired.id);
                    self.failed(if expired.is_answered {
                        NO_HANDSHAKE
                    } else {
                        NO_ANSWER
                    });
                }
                self.go_on(now);
            }
            Phase::Chosen { .. } => {
                self.failed(NO_HANDSHAKE);
                self.disconnect_present();
                self.go_on_without_chosen(now);
            }
            Phase::Up => self.give_up_scout(now),
            Phase::Succeeding { .. } => self.successor_is_late(now),
            Phase::Replacing { .. } => {}
        }
    }

    /// Something was received for an attempt.
    pub fn handle_heard(&mut self, attempt: AttemptId) {
        self.race.handle_heard(attempt);
    }

    /// The addresses of a name, in the order of preference; none where it cannot be resolved.
    pub fn handle_resolved(&mut self, now: Instant, resolution: u64, addresses: &[SocketAddr]) {
        self.resolved(now, resolution, addresses, "cannot be resolved");
    }

    /// Nobody has said in time whether a name has addresses.
    pub fn handle_unanswered(&mut self, now: Instant, resolution: u64) {
        self.resolved(
            now,
            resolution,
            &[],
            "is not known: no name server has answered in time",
        );
    }

    /// `otherwise`: what a name without an address is or does, for people.
    fn resolved(&mut self, now: Instant, resolution: u64, addresses: &[SocketAddr], otherwise: &str) {
        let Some(server) = self.candidates.handle_resolved(resolution, addresses) else {
            return;
        };
        if matches!(
            self.phase,
            Phase::Up | Phase::Replacing { .. } | Phase::Succeeding { .. }
        ) {
            return;
        }
        if addresses.is_empty() {
            let host = self.candidates.host(server);
            let reason = format!("the name {host} {otherwise}");
            self.failed(&reason);
        } else {
            self.candidates.add_resolved(server);
        }
        match self.phase {
            Phase::Race | Phase::Doubt | Phase::Leaving { pause: None } => self.go_on(now),
            Phase::Pause { .. } if self.candidates.any_waits() => {
                self.phase = Phase::Race;
                self.go_on(now);
            }
            Phase::Leaving { .. } if self.candidates.any_waits() => {
                self.phase = Phase::Leaving { pause: None };
                self.go_on(now);
            }
            _ => {}
        }
    }

    /// The handshake of an attempt is complete, and its certificate is the pinned one.
    pub fn handle_connected(&mut self, now: Instant, attempt: AttemptId) {
        if self.scout.is_some_and(|scout| scout.id == attempt) {
            return self.actions.push_back(ConnectAction::Move { attempt });
        }
        // Otherwise it has been closed.
        let Some(winner) = self.race.remove(attempt) else {
            return;
        };
        if self.phase == Phase::Doubt {
            self.close_attempts();
            self.set_reason(NO_ANSWER);
            self.phase = Phase::Replacing { by: winner };
            self.disconnect_present();
        } else if matches!(self.phase, Phase::Leaving { .. }) {
            self.succeed(now, winner);
        } else {
            self.choose(now, winner);
        }
    }

    /// The server has taken the token, and the stripe stays. Whether it had been up before.
    pub fn handle_up(&mut self) -> bool {
        self.complete_succession();
        self.phase = match self.goes_away.take() {
            Some(since) => Phase::Leaving { pause: Some(since) },
            None => Phase::Up,
        };
        (self.failed_rounds, self.redirected_rounds) = (0, 0);
        if let Some(present) = self.present {
            self.candidates.found(present.candidate);
            self.lead = present.candidate.carrier();
        }
        let is_again = std::mem::replace(&mut self.has_been_up, true);
        self.rejoins += u64::from(is_again);
        is_again
    }

    /// The present address is to be tried once more as soon as this connection has ended, from another port.
    pub fn retry_address(&mut self) {
        if let Some(chosen) = self.chosen() {
            self.candidates.put_back(chosen.candidate);
        }
    }

    /// What is to be up, or is.
    fn chosen(&self) -> Option<Attempt> {
        match self.phase {
            Phase::Succeeding { by, .. } => Some(by),
            _ => self.present,
        }
    }

    /// The server stays silent, at a new local port, too.
    pub fn handle_silence(&mut self, now: Instant) {
        if self.phase == Phase::Up {
            self.give_up_scout(now);
            self.phase = Phase::Doubt;
            self.begin_round(now);
        }
    }

    /// The connection is alive after all.
    pub fn handle_answered(&mut self) {
        if self.phase == Phase::Doubt {
            self.close_attempts();
            self.candidates.end_round();
            self.phase = Phase::Up;
        }
    }

    /// Packets leave this machine in another way: what has been tried may be answered there.
    pub fn handle_network_changed(&mut self, now: Instant) {
        self.lead = CarrierKind::Udp;
        match self.phase {
            Phase::Race => {
                self.close_attempts();
                self.begin_round(now);
            }
            Phase::Doubt => self.handle_answered(),
            Phase::Leaving { .. } => {
                self.close_attempts();
                self.phase = Phase::Leaving { pause: None };
                self.begin_round(now);
            }
            Phase::Pause { .. }
            | Phase::Chosen { .. }
            | Phase::Up
            | Phase::Replacing { .. }
            | Phase::Succeeding { .. } => {}
        }
    }

    /// An attempt met the genuine site: it has failed, and the caller closes it after a rest.
    pub fn handle_redirected(&mut self, now: Instant, attempt: AttemptId) {
        if self.scout_failed(now, attempt) {
            return;
        }
        if self.race.remove(attempt).is_some() {
            self.is_redirected = true;
            self.failed(REDIRECTED);
            self.race.hurry(now);
            self.go_on(now);
        }
    }

    /// The connection is over, or an attempt, or it could not begin: why, unless we ended it ourselves.
    pub fn handle_lost(&mut self, now: Instant, attempt: AttemptId, reason: Option<String>) {
        if self.scout_failed(now, attempt) {
            return;
        }
        if self.race.remove(attempt).is_some() {
            if let Some(reason) = &reason {
                self.failed(reason);
            }
            self.race.hurry(now);
            return self.go_on(now);
        }
        if self.successor_lost(now, attempt, reason.as_deref()) {
            return;
        }
        if matches!(self.phase, Phase::Replacing { by } if by.id == attempt) {
            self.phase = Phase::Up;
        }
        if !self.is_present(attempt) {
            return;
        }
        match self.phase {
            Phase::Chosen { .. } => {
                if let Some(reason) = &reason {
                    self.failed(reason);
                }
                self.go_on_without_chosen(now);
            }
            Phase::Up
            | Phase::Doubt
            | Phase::Replacing { .. }
            | Phase::Leaving { .. }
            | Phase::Succeeding { .. } => {
                if let Some(reason) = reason {
                    self.last_reason = reason;
                }
                self.connection_lost(now);
            }
            Phase::Race | Phase::Pause { .. } => {}
        }
    }

    /// What was up is over; what was tried beside it goes on.
    fn connection_lost(&mut self, now: Instant) {
        self.give_up_scout(now);
        match std::mem::replace(&mut self.phase, Phase::Race) {
            Phase::Replacing { by } => self.choose(now, by),
            // It has been chosen, and is up when the server has taken the token.
            Phase::Succeeding { by, until } => {
                self.present = Some(by);
                self.phase = Phase::Chosen { until };
            }
            _ if self.race.is_empty() => match self.next_begins(now) {
                until if until > now => self.phase = Phase::Pause { until },
                _ => self.begin_round(now),
            },
            _ => self.begin_round(now),
        }
    }

    /// When the next connection may begin, where the server ends the one that was chosen.
    fn next_begins(&mut self, now: Instant) -> Instant {
        if self.chosen().is_some_and(|chosen| chosen.has_stood(now)) {
            self.short_lived = 0;
            return now;
        }
        let earlier = self.short_lived;
        self.short_lived = earlier.saturating_add(1);
        match earlier.checked_sub(1) {
            None => now,
            Some(rounds) => now + self.backoff(rounds, [limits::BACKOFF_MIN, limits::BACKOFF_MAX]),
        }
    }

    fn is_present(&self, attempt: AttemptId) -> bool {
        self.present.is_some_and(|present| present.id == attempt)
    }

    /// A reason for people: silence at one address does not hide what another one said.
    fn failed(&mut self, reason: &str) {
        let is_definite = reason != NO_ANSWER;
        if is_definite || !self.is_reason_definite {
            self.set_reason(reason);
        }
        self.is_reason_definite |= is_definite;
    }

    /// All addresses but those that are being tried.
    fn begin_round(&mut self, now: Instant) {
        if !matches!(self.phase, Phase::Doubt | Phase::Leaving { .. }) {
            self.phase = Phase::Race;
        }
        (self.is_reason_definite, self.is_redirected) = (false, false);
        self.candidates
            .begin_round(&self.race.addresses(), &mut self.actions);
        self.race.begin_round(now, self.lead);
        self.go_on(now);
    }

    /// What was chosen came to nothing, and the race goes on.
    fn go_on_without_chosen(&mut self, now: Instant) {
        self.phase = Phase::Race;
        self.race.hurry(now);
        self.go_on(now);
    }

    /// Begins the attempts that are due; where none is left, the round is over.
    fn go_on(&mut self, now: Instant) {
        let [lead, _] = self.race.carriers();
        for kind in self.race.carriers() {
            while self.race.may_begin(now, kind, self.candidates.waits(lead))
                && let Some(candidate) = self.candidates.take_next(kind)
            {
                let attempt = self.race.begin(now, candidate);
                self.actions.push_back(ConnectAction::Connect {
                    attempt,
                    address: candidate.address,
                    server_name: self.candidates.host(candidate.server).to_owned(),
                });
            }
        }
        if !self.race.is_empty() || self.candidates.any_waits() {
            return;
        }
        match self.phase {
            // Nothing better is known: it may come back.
            Phase::Doubt => self.phase = Phase::Up,
            _ if self.candidates.awaits_names() => {}
            _ => self.pause(now),
        }
    }

    /// This attempt has won; what the others tried waits again until it is up.
    fn choose(&mut self, now: Instant, winner: Attempt) {
        self.announce_choice(now, winner);
        self.present = Some(winner);
        let until = now + limits::CONNECT_ATTEMPT;
        self.phase = Phase::Chosen { until };
    }

    fn announce_choice(&mut self, now: Instant, winner: Attempt) {
        self.carrier_reason = self.reason_for(winner.candidate.carrier());
        self.carrier_watch.connected(now, winner.candidate.carrier());
        for loser in self.race.iter().rev() {
            self.candidates.put_back(loser.candidate);
        }
        self.close_attempts();
        let attempt = winner.id;
        // What the server said on a connection that was lost before it was up is not said of this one.
        self.goes_away = None;
        self.actions.push_back(ConnectAction::Choose { attempt });
    }

    /// Why this carrier has won.
    fn reason_for(&self, winner: CarrierKind) -> &'static str {
        let is_udp = |attempt: &&Attempt| attempt.candidate.carrier() == CarrierKind::Udp;
        match winner {
            _ if self.candidates.carriers().is_sole() => SOLE_CARRIER,
            CarrierKind::Udp => FIRST_CARRIER,
            // UDP has had no time to answer.
            CarrierKind::Tcp if self.lead == CarrierKind::Tcp => self.carrier_reason,
            CarrierKind::Tcp if self.race.iter().filter(is_udp).any(|udp| udp.is_answered) => UDP_SLOW,
            CarrierKind::Tcp => UDP_SILENT,
        }
    }

    fn close_attempts(&mut self) {
        while let Some(closed) = self.race.pop() {
            self.disconnect(closed.id);
        }
    }

    fn disconnect(&mut self, attempt: AttemptId) {
        self.actions.push_back(ConnectAction::Disconnect { attempt });
    }

    fn disconnect_present(&mut self) {
        if let Some(present) = self.present {
            self.disconnect(present.id);
        }
    }

    /// The pause after so many others, from the first to the longest one, random in its second half.
    fn backoff(&mut self, before: u32, [first, longest]: [Duration; 2]) -> Duration {
        let pause = first.saturating_mul(1 << before.min(16)).min(longest);
        pause.mul_f64(self.random.random_range(0.5..=1.0))
    }

    /// Pauses after a failed round.
    fn pause(&mut self, now: Instant) {
        let (rounds, [first, longest]) = if self.is_redirected {
            let bounds = [limits::REDIRECTED_BACKOFF_MIN, limits::REDIRECTED_BACKOFF_MAX];
            (&mut self.redirected_rounds, bounds)
        } else {
            self.redirected_rounds = 0;
            (
                &mut self.failed_rounds,
                [limits::BACKOFF_MIN, limits::BACKOFF_MAX],
            )
        };
        let before = *rounds;
        *rounds = before.saturating_add(1);
        let until = now + self.backoff(before, [first, longest]);
        if matches!(self.phase, Phase::Leaving { .. }) {
            self.phase = Phase::Leaving { pause: Some(until) };
            return;
        }
        self.phase = Phase::Pause { until };
        let (host, port) = self.candidates.last_server();
        let ports = self.candidates.carriers().ports(*port);
        let is_silence = self.last_reason == NO_ANSWER;
        let hint = if is_silence { "; a firewall?" } else { "" };
        let last = &self.last_reason;
        self.actions.push_back(ConnectAction::Unreachable {
            reason: format!("cannot reach {host} ({ports}, {last}{hint}), retrying"),
            is_silence,
        });
    }
}
