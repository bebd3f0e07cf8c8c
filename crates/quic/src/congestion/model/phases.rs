//! The phases: when each ends, and which one follows.

use std::time::{Duration, Instant};

use super::{Model, scale};
use crate::congestion::delivery::Sample;
use crate::congestion::estimate::Phase;
use crate::congestion::tuning;

impl Model {
    /// Leaves a phase whose work is done.
    pub(super) fn advance(&mut self, now: Instant, sample: &Sample) {
        if self.has_found_much_more(now) {
            return self.begin_start(now);
        }
        let elapsed = now.saturating_duration_since(self.phase_since);
        let in_flight = self.delivery.in_flight();
        match self.phase {
            Phase::Startup | Phase::Fixed => {}
            Phase::Drain => {
                if in_flight <= self.pipe() {
                    self.postpone_probe(now, false);
                    // Jitter or random loss may have ended the start too early: the next probe tells.
                    self.probe_at = now + self.base();
                    self.enter(now, Phase::Cruise);
                }
            }
            Phase::Cruise => self.leave_cruise(now),
            Phase::ProbeUp => self.end_probe_up(now, elapsed, in_flight),
            Phase::ProbeDown => {
                let is_short = self.round_trip.queue_now() <= self.tuning.queue_max(self.base());
                if in_flight <= self.pipe() && elapsed >= self.base() && is_short {
                    self.others_queue = self.round_trip.is_queued_now();
                    self.enter(now, Phase::Cruise);
                }
            }
            Phase::ProbeRoundTrip => {
                if in_flight <= self.search_window() && self.drained_at.is_none() {
                    self.drained_at = Some(now);
                }
                if self.drained_at.is_some_and(|at| sample.departure.at >= at) {
                    self.round_trip.end_search(now);
                    self.enter(now, Phase::Cruise);
                }
            }
        }
    }

    /// Whether a probe met so much more bandwidth that a start finds the rest sooner.
    fn has_found_much_more(&self, now: Instant) -> bool {
        matches!(self.phase, Phase::ProbeUp | Phase::ProbeDown)
            && self.probed_from > 0
            && self.bandwidth.get() as f64 > self.probed_from as f64 * tuning::FOUND_MORE
            && self.round_trip.queue_now() <= self.tuning.queue_at_start(self.base())
            && !self.sharing.is_shared(now)
            && now >= self.no_start_until
    }

    /// Looks for the base of the round trip, or for bandwidth, where that is due.
    fn leave_cruise(&mut self, now: Instant) {
        if self.round_trip.is_stale(now) && !self.tuning.is_local(self.base()) {
            return self.search_base(now);
        }
        if now < self.probe_at {
            return;
        }
        if self.delivery.is_limited() {
            self.postpone_probe(now, false);
        } else if now >= self.costly_until {
            self.begin_probe(now);
        } else {
            self.postpone_probe(now, false);
            // Whether the loss that is taken for random still is.
            if self.floor.get() > tuning::FLOOR_DOUBTFUL {
                self.enter(now, Phase::ProbeDown);
                self.checks_floor = true;
            }
        }
    }

    /// A probe for bandwidth lasts a round trip at least, and ends once it has filled the path.
    fn end_probe_up(&mut self, now: Instant, elapsed: Duration, in_flight: u64) {
        let is_over = in_flight >= scale(self.pipe(), self.tuning.gain_up(self.base()))
            || self.delivery.is_limited()
            || self.round_trip.queue_now() > self.tuning.queue_at_start(self.base())
            || elapsed >= self.base() + self.base() / 2;
        if elapsed >= self.base() && is_over {
            // What was sent cost nothing yet; what the path holds is at least this.
            self.inflight_high = self
                .inflight_high
                .map(|high| high.max(scale(in_flight, tuning::HIGH_GROWTH)));
            self.postpone_probe(now, false);
            self.enter(now, Phase::ProbeDown);
        }
    }

    pub(super) fn enter(&mut self, now: Instant, phase: Phase) {
        self.phase = phase;
        self.phase_since = now;
        self.rounds_in_phase = 0;
        self.queued_samples = 0;
        self.drained_at = None;
        self.checks_floor = false;
    }

    pub(super) fn begin_start(&mut self, now: Instant) {
        self.grown = self.bandwidth.get();
        self.started_from = self.bandwidth.get();
        self.stalled_rounds = 0;
        self.inflight_high = None;
        self.bandwidth.lift_bound();
        self.enter(now, Phase::Startup);
    }

    pub(super) fn end_start(&mut self, now: Instant) {
        self.is_full = true;
        // A token bucket that has filled up looks like more bandwidth, once.
        if (self.bandwidth.get() as f64) < self.started_from as f64 * tuning::GROWTH {
            self.no_start_until = now + tuning::FRUITLESS_START_MEMORY;
        }
        self.enter(now, Phase::Drain);
    }

    /// The path has changed or was dead: it is measured again, starting at `bandwidth`.
    pub(super) fn restart(&mut self, now: Instant, bandwidth: u64) {
        self.bandwidth.restart(bandwidth);
        self.begin_start(now);
    }

    pub(super) fn begin_probe(&mut self, now: Instant) {
        self.bandwidth.begin_cycle();
        self.probed_from = self.bandwidth.get();
        self.probes_beside_queue = self.round_trip.had_queue();
        self.enter(now, Phase::ProbeUp);
    }

    pub(super) fn search_base(&mut self, now: Instant) {
        self.round_trip.begin_search();
        self.enter(now, Phase::ProbeRoundTrip);
    }

    /// Sets when the next probe is due: soon, or, where the last one made others lose, some seconds later.
    pub(super) fn postpone_probe(&mut self, now: Instant, was_costly: bool) {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let part = (self.random >> 40) as f64 / (1_u64 << 24) as f64;
        let base = self.base();
        self.probe_at = now + base.mul_f64(tuning::PROBE_ROUNDS + tuning::PROBE_ROUNDS_RANDOM * part);
        if was_costly {
            let wait = if self.sharing.is_shared(now) {
                (base * tuning::SHARED_PROBE_ROUNDS)
                    .clamp(tuning::COSTLY_PROBE_WAIT, tuning::SHARED_PROBE_WAIT_MAX)
            } else {
                tuning::COSTLY_PROBE_WAIT
            };
            self.costly_until = now + wait.mul_f64(1.0 + part / 2.0);
        }
    }
}
