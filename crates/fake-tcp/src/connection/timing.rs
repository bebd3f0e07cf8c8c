//! When a connection does something by itself.

use std::time::{Duration, Instant};

use super::{Change, Connection, Outcome, Reply, State};
use crate::limits::{
    CHALLENGE_INTERVAL, KEEP_ALIVE_ANSWER_INTERVAL, PROBE_INTERVAL, PROBES_MAX, QUARANTINE_TIME,
    RETRANSMISSION_TIME, TRANSMISSIONS_MAX, WINDOW_PROBE_INTERVAL,
};
use crate::stack::CloseReason;

/// Deadlines, and when things happened last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// Transmissions of the present SYN, SYN-ACK or FIN.
    pub(super) attempts: u8,
    /// When it is due again.
    repeat: Option<Instant>,
    /// When received data is acknowledged at the latest.
    pub(super) acknowledge: Option<Instant>,
    /// The last acceptable segment came.
    heard: Instant,
    /// The last datagram passed, in either direction.
    used: Instant,
    /// From when on sent data is not acknowledged.
    pub(super) unacknowledged_since: Option<Instant>,
    /// Keep-alives without an answer, and the last of them.
    probes: u8,
    probed: Instant,
    challenged: Option<Instant>,
    answered: Option<Instant>,
    window_probed: Option<Instant>,
    forgotten: Option<Instant>,
}

impl Timing {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            attempts: 0,
            repeat: None,
            acknowledge: None,
            heard: now,
            used: now,
            unacknowledged_since: None,
            probes: 0,
            probed: now,
            challenged: None,
            answered: None,
            window_probed: None,
            forgotten: None,
        }
    }

    /// A SYN, SYN-ACK or FIN leaves; each repetition waits twice as long as the one before.
    pub(super) fn transmit(&mut self, now: Instant) {
        self.repeat = Some(now + RETRANSMISSION_TIME * (1 << self.attempts.min(TRANSMISSIONS_MAX)));
        self.attempts += 1;
    }

    /// What was transmitted is acknowledged.
    pub(super) fn transmitted(&mut self) {
        self.repeat = None;
    }

    pub(super) fn heard(&mut self, now: Instant) {
        self.heard = now;
        self.probes = 0;
    }

    pub(super) fn used(&mut self, now: Instant) {
        self.used = now;
    }

    pub(super) fn quarantine(&mut self, now: Instant) {
        self.repeat = None;
        self.acknowledge = None;
        self.forgotten = Some(now + QUARANTINE_TIME);
    }

    /// Whether a segment outside of the window is answered (FTCP-15).
    pub(super) fn may_challenge(&mut self, now: Instant) -> bool {
        passes(&mut self.challenged, now, CHALLENGE_INTERVAL)
    }

    /// Whether a keep-alive is answered (FTCP-13).
    pub(super) fn may_answer(&mut self, now: Instant) -> bool {
        passes(&mut self.answered, now, KEEP_ALIVE_ANSWER_INTERVAL)
    }

    /// Whether a window that fills is probed (FTCP-11).
    pub(super) fn may_probe_window(&mut self, now: Instant) -> bool {
        passes(&mut self.window_probed, now, WINDOW_PROBE_INTERVAL)
    }
}

/// Whether `interval` is over since the `last` time; then it begins anew.
fn passes(last: &mut Option<Instant>, now: Instant, interval: Duration) -> bool {
    let is_over = last.is_none_or(|last| now.saturating_duration_since(last) >= interval);
    if is_over {
        *last = Some(now);
    }
    is_over
}

impl Connection {
    /// When [`Connection::handle_timeout`] is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let timing = &self.timing;
        let in_use = [timing.acknowledge, self.probe_due(), self.idle_due()];
        let is_open = self.state == State::Established;
        [timing.repeat, timing.forgotten]
            .into_iter()
            .chain(in_use.into_iter().filter(|_| is_open))
            .flatten()
            .min()
    }

    /// Does one thing that is due by `now`.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Outcome {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.timing.forgotten) {
            return Outcome::change(Change::Forgotten);
        }
        if is_due(self.timing.repeat) {
            return self.repeat(now);
        }
        if self.state != State::Established {
            return Outcome::default();
        }
        if is_due(self.idle_due()) {
            let mut outcome = self.close(now);
            outcome.change = Some(Change::Ended(CloseReason::Idle));
            return outcome;
        }
        if is_due(self.timing.acknowledge) {
            return Outcome::reply(Reply::Ack);
        }
        if is_due(self.probe_due()) {
            return self.probe(now);
        }
        Outcome::default()
    }

    fn repeat(&mut self, now: Instant) -> Outcome {
        if self.timing.attempts >= TRANSMISSIONS_MAX {
            return match self.state {
                State::Closing => {
                    self.quarantine(now, false);
                    Outcome::default()
                }
                _ => Outcome::change(Change::Ended(CloseReason::TimedOut)),
            };
        }
        self.timing.transmit(now);
        Outcome::reply(match self.state {
            State::SynSent => Reply::Syn,
            State::SynReceived => Reply::SynAck,
            State::Keying => Reply::Hello,
            _ => Reply::Fin,
        })
    }

    fn probe(&mut self, now: Instant) -> Outcome {
        if self.timing.probes >= PROBES_MAX {
            let reset = Reply::Reset(self.send.next);
            return self.end(now, CloseReason::TimedOut, Some(reset));
        }
        self.timing.probes += 1;
        self.timing.probed = now;
        Outcome::reply(Reply::Probe)
    }

    /// When silence is probed: long after the last segment, sooner where data waits for its acknowledgement.
    fn probe_due(&self) -> Option<Instant> {
        let keep_alive = self.settings.keep_alive?;
        let timing = &self.timing;
        if timing.probes > 0 {
            return Some(timing.probed + PROBE_INTERVAL);
        }
        let waits = timing
            .unacknowledged_since
            .map(|since| since.max(timing.heard) + PROBE_INTERVAL);
        let silent = timing.heard + keep_alive;
        Some(waits.map_or(silent, |waits| waits.min(silent)))
    }

    fn idle_due(&self) -> Option<Instant> {
        Some(self.timing.used + self.settings.idle?)
    }
}
