//! Window and rate, as they follow from the model's state.

use std::time::Duration;

use super::{Model, scale};
use crate::congestion::delivery::{Pressure, bytes_in, rate};
use crate::congestion::estimate::{PathEstimate, Phase};
use crate::congestion::gate::Allowance;
use crate::congestion::tuning;

impl Model {
    /// The round trip without a queue.
    pub(super) fn base(&self) -> Duration {
        self.round_trip
            .base()
            .unwrap_or(crate::limits::INITIAL_ROUND_TRIP)
    }

    /// What has to be sent for each byte that arrives.
    pub(super) fn overshoot(&self) -> f64 {
        1.0 / (1.0 - self.floor.get())
    }

    /// Bytes in flight that fill the path without a queue.
    pub(super) fn pipe(&self) -> u64 {
        let time = self.base() + self.tuning.free_delay(self.base());
        scale(bytes_in(self.bandwidth.get(), time), self.overshoot()).max(self.window_min())
    }

    pub(super) fn window_min(&self) -> u64 {
        tuning::WINDOW_PACKETS_MIN * self.mtu
    }

    pub(super) fn search_window(&self) -> u64 {
        (self.pipe() / 2).max(self.window_min())
    }

    pub(super) fn pressure(&self) -> Pressure {
        match self.phase {
            Phase::Drain | Phase::ProbeDown | Phase::ProbeRoundTrip => Pressure::Calm,
            // A sender that had nothing more to send for rounds, and decides on its rate itself.
            _ if self.limited_rounds >= 2
                && self.delivery.is_limited()
                && self.gate.carries_datagrams()
                && self.delivery.in_flight() <= scale(self.pipe(), tuning::LIMITED_PIPE) =>
            {
                Pressure::Calm
            }
            Phase::Startup | Phase::ProbeUp => Pressure::Probing,
            Phase::Cruise | Phase::Fixed => Pressure::Steady,
        }
    }

    /// Bytes that may be in flight before the path was ever full.
    pub(super) fn first_window(&self) -> u64 {
        if self.is_full {
            0
        } else if self.gate.carries_datagrams() {
            tuning::FIRST_DATAGRAM_WINDOW
        } else {
            tuning::FIRST_PACKETS * self.mtu
        }
    }

    /// Bytes that may be in flight.
    pub(super) fn window(&self) -> u64 {
        let (window, base) = (self.window_of_phase(), self.base());
        match self.gate.local_window_max() {
            Some(most) if self.tuning.is_local(base) => {
                let needed = 2 * bytes_in(self.bandwidth.get(), base);
                window.min(most.max(needed).max(tuning::LOCAL_WINDOW_PACKETS_MIN * self.mtu))
            }
            _ => window,
        }
    }

    fn window_of_phase(&self) -> u64 {
        let base = self.base();
        let bandwidth = self.bandwidth.get();
        let pipe = self.pipe();
        // Acknowledgements come some packets, or some milliseconds, late.
        let slack = bytes_in(bandwidth, tuning::ACKNOWLEDGEMENT_SLACK) + 3 * self.mtu;
        let carries_datagrams = self.gate.carries_datagrams();
        if self.local_queue.stands() && self.tuning.is_local(base) {
            return bytes_in(bandwidth, base + tuning::BESIDE_LOCAL_QUEUE).max(self.window_min()) + slack;
        }
        let window = match self.phase {
            Phase::Startup => {
                return (scale(pipe, tuning::WINDOW_START) + slack).max(self.first_window());
            }
            Phase::ProbeRoundTrip => return self.search_window(),
            Phase::ProbeDown if self.round_trip.queue_now() > self.tuning.queue_max(base) => pipe,
            _ if carries_datagrams || self.tuning.is_local(base) => {
                pipe + bytes_in(bandwidth, self.tuning.queue_max(base)) + slack
            }
            _ => 2 * pipe + slack,
        };
        self.inflight_high
            .map_or(window, |high| window.min(high.max(pipe + slack)))
    }

    pub(super) fn bytes_per_second(&self) -> u64 {
        let base = self.base();
        if self.round_trip.base().is_some() && self.tuning.is_local(base) {
            // The first train after an acknowledgement, of what is needed most, meets a policer that has just passed one.
            let passes = self.recent.policed();
            let paced = |passes| scale(passes, tuning::GAIN_POLICED).max(tuning::POLICED_RATE_MIN);
            return passes.map_or(u64::MAX, paced);
        }
        let carries_datagrams = self.gate.carries_datagrams();
        let gain = match self.phase {
            Phase::Startup => {
                let paced = scale(self.bandwidth.get(), tuning::GAIN_STARTUP);
                return paced.max(rate(self.first_window(), base)).max(1);
            }
            Phase::Drain => tuning::GAIN_DRAIN,
            Phase::ProbeUp => self.tuning.gain_up(base) * self.overshoot(),
            Phase::ProbeDown if self.checks_floor => tuning::GAIN_CHECK,
            Phase::ProbeDown => (tuning::GAIN_DOWN * self.overshoot()).min(tuning::GAIN_CHECK),
            _ if carries_datagrams => tuning::GAIN_DATAGRAMS * self.overshoot(),
            // The largest of noisy rates is a little too large: what it puts into the queue leaves it at once.
            _ if self.round_trip.has_standing_queue()
                && !self.others_queue
                && !self.sharing.is_shared(self.now) =>
            {
                tuning::GAIN_QUEUED * self.overshoot()
            }
            _ => self.overshoot(),
        };
        let least = rate(self.window_min(), base);
        scale(self.bandwidth.get(), gain).max(least).max(1)
    }

    /// What sending depends on, for each packet sent.
    pub(super) fn publish_allowance(&self) {
        self.gate.publish(Allowance {
            in_flight: self.delivery.in_flight(),
            window: self.window(),
            bytes_per_second: self.bytes_per_second(),
        });
    }

    /// That, and what `status` shows.
    pub(super) fn publish(&self) {
        self.publish_allowance();
        self.gate.publish_estimate(&PathEstimate {
            phase: self.phase,
            bandwidth_bytes_per_second: self.bandwidth.get(),
            base_round_trip: self.round_trip.base().unwrap_or_default(),
            queueing_delay: self.round_trip.queue(),
            random_loss_per_million: (self.floor.get() * 1e6) as u32,
        });
    }
}
