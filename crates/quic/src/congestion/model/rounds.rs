//! Updates of the model at the end of each round, and from the queue within a round.

use std::time::Instant;

use super::Model;
use crate::congestion::delivery::{Sample, rate};
use crate::congestion::estimate::Phase;
use crate::congestion::loss::Tally;
use crate::congestion::sharing::Sharing;
use crate::congestion::tuning;

impl Model {
    pub(super) fn end_round(&mut self, now: Instant, sample: &Sample) {
        self.round_trip.end_round();
        self.rounds_in_phase += 1;
        self.limited_rounds = if sample.is_limited {
            self.limited_rounds + 1
        } else {
            0
        };
        self.local_queue.end_round(now, self.round_trip.queue());
        let calm = self.calm.take();
        self.floor.learn(calm.acknowledged, calm.lost);
        match self.phase {
            Phase::Startup => self.end_round_of_start(now, sample),
            Phase::Cruise | Phase::ProbeDown
                if self.round_trip.queue() > self.tuning.queue_max(self.base())
                    && !self.delivery.is_limited() =>
            {
                // A queue that a round of sending less has not shortened is not ours, or the path is longer.
                if self.phase == Phase::ProbeDown && self.rounds_in_phase >= 2 {
                    self.search_base(now);
                } else if self.phase == Phase::Cruise {
                    self.enter(now, Phase::ProbeDown);
                }
            }
            _ => {}
        }
        self.judge_round(now, sample.departure.in_flight);
        self.probing = Tally::default();
        self.steady = Tally::default();
        self.last_round_rate = std::mem::take(&mut self.round_rate);
    }

    pub(super) fn end_round_of_start(&mut self, now: Instant, sample: &Sample) {
        let bandwidth = self.bandwidth.get();
        if bandwidth as f64 >= self.grown as f64 * tuning::GROWTH {
            self.grown = bandwidth;
            self.stalled_rounds = 0;
            return;
        }
        let (lost, sent) = (self.probing.lost, self.probing.sent());
        let mut is_lossy = self.floor.is_far_exceeded(lost, sent);
        if !sample.is_limited {
            self.stalled_rounds += 1;
            is_lossy |= self.stalled_rounds >= 2 && self.floor.is_exceeded(lost, sent);
        }
        if self.stalled_rounds >= tuning::STALLED_ROUNDS || is_lossy {
            if is_lossy {
                self.gate.count_cut();
            }
            self.end_start(now);
        }
    }

    /// A start ends with its first queue.
    pub(super) fn watch_queue(&mut self, now: Instant) {
        if self.phase != Phase::Startup {
            return;
        }
        if self.round_trip.queue_now() <= self.tuning.queue_at_start(self.base()) {
            self.queued_samples = 0;
            return;
        }
        self.queued_samples += 1;
        if self.queued_samples >= tuning::QUEUED_SAMPLES && !self.delivery.is_limited() {
            self.end_start(now);
        }
    }

    /// Notices a path that delivers far less than it did: a queue grows, and acknowledgements come slowly, for two round
    /// trips in a row.
    pub(super) fn watch_slowdown(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.slowdown.since);
        if elapsed < self.base().max(tuning::SLOWDOWN_WINDOW_MIN) {
            return;
        }
        let delivered = rate(self.delivery.delivered() - self.slowdown.delivered, elapsed);
        self.slowdown.since = now;
        self.slowdown.delivered = self.delivery.delivered();
        // What stood still for a moment goes on as fast as before.
        if let Some(before) = self.slowdown.before {
            self.bandwidth.update(delivered.min(before));
        }
        let is_slow = self.is_full
            && !self.tuning.is_local(self.base())
            && self.phase != Phase::ProbeRoundTrip
            && !self.delivery.is_limited()
            && self.round_trip.queue_now() > self.tuning.queue_max(self.base())
            && (delivered as f64) < self.bandwidth.get() as f64 * tuning::SLOWDOWN;
        if !is_slow {
            self.slowdown.windows = 0;
        } else {
            self.slowdown.windows += 1;
            if self.slowdown.windows >= tuning::SLOWDOWN_WINDOWS {
                self.slowdown.windows = 0;
                self.slowdown.answered = now;
                self.slowdown.before = Some(self.bandwidth.get());
                self.bandwidth.restart(delivered.max(1));
                self.inflight_high = None;
                self.sharing = Sharing::default();
                self.answered_until = Some(now);
                self.gate.count_cut();
                self.enter(now, Phase::ProbeDown);
            }
        }
    }
}
