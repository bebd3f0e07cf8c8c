//! The model's response to loss and marks: none if they are random, a lower rate if they are congestion.

use std::time::Instant;

use super::{Model, scale};
use crate::congestion::delivery::Pressure;
use crate::congestion::estimate::Phase;
use crate::congestion::tuning;

impl Model {
    pub(super) fn count_loss(&mut self, now: Instant, sent: Instant, lost_bytes: u64) {
        let packets = lost_bytes as f64 / self.mtu as f64;
        let departure = self.delivery.departure(sent).copied();
        let pressure = departure.map_or(Pressure::Steady, |departure| departure.pressure);
        let tally = match pressure {
            Pressure::Probing => &mut self.probing,
            Pressure::Steady => &mut self.steady,
            Pressure::Calm => {
                self.calm.lost += packets;
                return;
            }
        };
        tally.lost += packets;
        let tally = *tally;
        // What is less clear waits for the end of the round.
        if self.phase != Phase::Startup && self.floor.is_far_exceeded(tally.lost, tally.sent()) {
            let in_flight = departure.map(|departure| departure.in_flight);
            self.answer_congestion(now, pressure, in_flight);
        }
    }

    /// Answers a round that lost more than is random.
    pub(super) fn judge_round(&mut self, now: Instant, in_flight: u64) {
        if self.phase == Phase::Startup {
            return;
        }
        for (tally, pressure) in [(self.steady, Pressure::Steady), (self.probing, Pressure::Probing)] {
            if self.floor.is_exceeded(tally.lost, tally.sent()) {
                self.answer_congestion(now, pressure, Some(in_flight));
                return;
            }
        }
    }

    /// A router marked a packet instead of dropping it (RFC 3168): never random, and answered once for what was under way.
    pub(super) fn answer_mark(&mut self, now: Instant) {
        self.answered_until = Some(now);
        self.gate.count_cut();
        if self.phase == Phase::Startup {
            self.end_start(now);
            return;
        }
        let pipe = self.pipe();
        self.inflight_high = Some(self.inflight_high.map_or(pipe, |high| high.min(pipe)));
        self.bandwidth.bound(scale(self.bandwidth.get(), tuning::CUT));
        self.postpone_probe(now, true);
        self.send_less(now);
    }

    /// The path lost more than is random of what was sent with `pressure`.
    pub(super) fn answer_congestion(&mut self, now: Instant, pressure: Pressure, in_flight: Option<u64>) {
        self.answered_until = Some(now);
        let pipe = self.pipe();
        let in_flight = in_flight.unwrap_or(pipe);
        let mut high = in_flight.max(scale(pipe, tuning::CUT));
        // Nothing of ours overflows a queue without a probe: others share it, and each probe makes them lose.
        let overflows = match pressure {
            Pressure::Steady => self.round_trip.had_queue(),
            Pressure::Probing => self.probe_displaces(),
            Pressure::Calm => false,
        };
        match pressure {
            Pressure::Probing if overflows => self.sharing.displaced(now),
            _ if overflows => self.sharing.overflowed(now, self.base()),
            _ => {}
        }
        if self.sharing.others_do_not_yield(now) {
            self.floor.learn(self.steady.acknowledged, self.steady.lost);
            self.inflight_high = None;
            self.costly_until = now;
            return;
        }
        if overflows {
            high = scale(in_flight, tuning::CUT_SHARED);
            self.bandwidth
                .restart(scale(self.bandwidth.get(), tuning::CUT_SHARED));
        } else if pressure == Pressure::Steady {
            let recent = self.round_rate.max(self.last_round_rate);
            let cut = scale(self.bandwidth.get(), tuning::CUT);
            self.bandwidth.bound(recent.min(self.bandwidth.get()).max(cut));
        }
        self.gate.count_cut();
        self.inflight_high = Some(self.inflight_high.map_or(high, |old| old.min(high)));
        self.postpone_probe(now, overflows || pressure == Pressure::Probing);
        self.send_less(now);
    }

    /// Phases that send less already, or look for the base, go on.
    fn send_less(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Cruise | Phase::ProbeUp) {
            self.enter(now, Phase::ProbeDown);
        }
    }

    /// Whether a probe that overflowed the queue took what others had: they kept it filled, and it is so short that they
    /// leave more of the path idle by answering than the probe asked for. On a path that loses packets at random nothing
    /// is certain enough.
    fn probe_displaces(&self) -> bool {
        self.probes_beside_queue
            && self.round_trip.is_queue_shallow()
            && self.floor.highest() < tuning::FLOOR_DOUBTFUL
    }
}
