//! Congestion control behind quinn-proto's interface.
//!
//! quinn-proto calls a [`Controller`] for what is sent, acknowledged and lost. [`Model`] is the one of the profiles
//! `throughput` and `latency`, [`FixedWindow`] that of `fixed`. Both say through the [`Gate`] what may be sent.
//!
//! Beside the model's phases, `delivery` samples the delivery rate, `round_trip` knows the base and the queue, `loss` which
//! loss is random, `sharing` who else uses the path, `bandwidth` and `tuning` the bounds; `sustained` leaves out rates that
//! last no longer than late acknowledgements, and `local_queue` knows the queues of local paths. `variation` is for
//! reports only.

mod bandwidth;
mod delivery;
mod estimate;
mod fixed;
mod gate;
mod local_queue;
mod loss;
mod model;
mod recent;
mod round_trip;
mod sharing;
mod sustained;
mod tuning;
mod variation;

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};

pub(crate) use delivery::bytes_in;
pub use estimate::{PathEstimate, Phase};
pub(crate) use gate::Gate;
pub(crate) use tuning::Tuning;

use fixed::FixedWindow;
use model::Model;
use variation::Variation;

/// Which controller a connection has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A model of the path.
    Model(Tuning),
    /// A rate that the operator named, in bits per second.
    Fixed(u64),
}

/// Builds controllers of one connection, which all publish to `gate`.
pub(crate) struct Factory {
    pub(crate) kind: Kind,
    pub(crate) gate: Gate,
}

impl ControllerFactory for Factory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let gate = self.gate.clone();
        let algorithm = match self.kind {
            Kind::Model(tuning) => {
                Algorithm::Model(Box::new(Model::new(tuning, gate.clone(), now, current_mtu)))
            }
            Kind::Fixed(bits_per_second) => {
                Algorithm::Fixed(FixedWindow::new(bits_per_second, gate.clone(), current_mtu))
            }
        };
        Box::new(Gated {
            algorithm,
            gate,
            variation: Variation::default(),
        })
    }
}

#[derive(Clone)]
enum Algorithm {
    Model(Box<Model>),
    Fixed(FixedWindow),
}

/// An algorithm as quinn-proto sees it: a window of everything or nothing.
#[derive(Clone)]
struct Gated {
    algorithm: Algorithm,
    gate: Gate,
    variation: Variation,
}

impl Controller for Gated {
    fn on_sent(&mut self, now: Instant, bytes: u64, _last_packet_number: u64) {
        match &mut self.algorithm {
            Algorithm::Model(model) => model.on_sent(now, bytes),
            Algorithm::Fixed(fixed) => fixed.on_sent(bytes),
        }
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, _app_limited: bool, rtt: &RttEstimator) {
        self.variation.on_ack(sent);
        match &mut self.algorithm {
            Algorithm::Model(model) => model.on_ack(now, sent, bytes),
            Algorithm::Fixed(fixed) => fixed.on_ack(rtt.get()),
        }
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, _app_limited: bool, _largest: Option<u64>) {
        self.gate.count_acknowledgement();
        if let Some(round_trips) = self.variation.end_acks(now) {
            self.gate.publish_round_trips(&round_trips);
        }
        match &mut self.algorithm {
            Algorithm::Model(model) => model.on_end_acks(now, in_flight),
            Algorithm::Fixed(fixed) => fixed.on_end_acks(in_flight),
        }
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent: bool, lost_bytes: u64) {
        if lost_bytes == 0 && !is_persistent {
            self.gate.count_mark();
        }
        match &mut self.algorithm {
            Algorithm::Model(model) => model.on_congestion(now, sent, is_persistent, lost_bytes),
            Algorithm::Fixed(fixed) => fixed.on_lost(lost_bytes),
        }
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        match &mut self.algorithm {
            Algorithm::Model(model) => model.on_mtu_update(new_mtu),
            Algorithm::Fixed(fixed) => fixed.on_mtu_update(new_mtu),
        }
    }

    fn window(&self) -> u64 {
        self.gate.ask()
    }

    fn metrics(&self) -> ControllerMetrics {
        let allowance = self.gate.allowance();
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = allowance.window;
        metrics.pacing_rate =
            (allowance.bytes_per_second < u64::MAX).then(|| allowance.bytes_per_second.saturating_mul(8));
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        // Only quinn-proto's pacer, which is not used, asks for it.
        u64::MAX
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
