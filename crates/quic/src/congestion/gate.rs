//! Shared state of the congestion controller inside quinn-proto and the connection around it.
//!
//! quinn-proto owns the controller and asks it only how many bytes may be in flight. Its own pacer derives the rate from the
//! answer in a way that does not suit a model of the path. So the controller answers "none" or "any number", as the
//! [`Gate`] stands; the connection opens and closes it for each transmit, by the window and the rate that the controller
//! publishes here. Acknowledgements and probes pass a closed gate: quinn-proto does not ask for those.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::estimate::{PathEstimate, Phase};
use super::variation::RoundTrips;

/// The state that both share. One thread uses it; it is atomic because controllers have to be `Sync`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_open: AtomicBool,
    was_asked: AtomicBool,
    is_idle: AtomicBool,
    carries_datagrams: AtomicBool,
    /// 0: no bound.
    local_window_max: AtomicU64,
    in_flight: AtomicU64,
    window: AtomicU64,
    bytes_per_second: AtomicU64,
    acknowledgements: AtomicU64,
    cuts: AtomicU64,
    marks: AtomicU64,
    latest_nanoseconds: AtomicU64,
    variation_nanoseconds: AtomicU64,
    bandwidth: AtomicU64,
    base_nanoseconds: AtomicU64,
    queue_nanoseconds: AtomicU64,
    loss_per_million: AtomicU64,
    phase: AtomicU64,
}

/// What the controller allows: see [`Gate::publish`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    /// Bytes in flight.
    pub(crate) in_flight: u64,
    /// Bytes that may be in flight.
    pub(crate) window: u64,
    /// Pacing rate, or `u64::MAX` where trains follow each other at once.
    pub(crate) bytes_per_second: u64,
}

impl Gate {
    /// A gate through which no more than so many bytes are in flight on a local path, unless the path needs more.
    pub(crate) fn bounded(local_window_max: u64) -> Self {
        let gate = Self::default();
        gate.0.local_window_max.store(local_window_max, Ordering::Relaxed);
        gate
    }

    /// The bound of [`Gate::bounded`].
    pub(crate) fn local_window_max(&self) -> Option<u64> {
        let most = self.0.local_window_max.load(Ordering::Relaxed);
        (most > 0).then_some(most)
    }

    /// Lets packets that count as congestion go, or not, until the next call.
    pub(crate) fn set_open(&self, is_open: bool) {
        self.0.is_open.store(is_open, Ordering::Relaxed);
    }

    /// The window as quinn-proto sees it.
    pub(crate) fn ask(&self) -> u64 {
        self.0.was_asked.store(true, Ordering::Relaxed);
        // Above 2^32 quinn-proto does not pace; a window of 0 it calls nonsense.
        if self.0.is_open.load(Ordering::Relaxed) {
            u64::MAX
        } else {
            1
        }
    }

    /// Whether quinn-proto asked for the window since the last question, which it does exactly where it has something
    /// ack-eliciting to send.
    pub(crate) fn take_asked(&self) -> bool {
        self.0.was_asked.swap(false, Ordering::Relaxed)
    }

    /// Whether quinn-proto asked for the window since [`Gate::take_asked`].
    pub(crate) fn was_asked(&self) -> bool {
        self.0.was_asked.load(Ordering::Relaxed)
    }

    /// There was nothing to send although there was room: what is in flight now says nothing about the path's capacity.
    pub(crate) fn set_idle(&self) {
        self.0.is_idle.store(true, Ordering::Relaxed);
    }

    /// Whether there was nothing to send since the last question.
    pub(crate) fn take_idle(&self) -> bool {
        self.0.is_idle.swap(false, Ordering::Relaxed)
    }

    /// Whether the load is datagrams, whose senders decide on their rate, rather than streams.
    pub(crate) fn set_carries_datagrams(&self, carries: bool) {
        self.0.carries_datagrams.store(carries, Ordering::Relaxed);
    }

    pub(crate) fn carries_datagrams(&self) -> bool {
        self.0.carries_datagrams.load(Ordering::Relaxed)
    }

    /// What the controller allows at present.
    pub(crate) fn allowance(&self) -> Allowance {
        Allowance {
            in_flight: self.0.in_flight.load(Ordering::Relaxed),
            window: self.0.window.load(Ordering::Relaxed),
            bytes_per_second: self.0.bytes_per_second.load(Ordering::Relaxed),
        }
    }

    /// Publishes what the controller allows from here on.
    pub(crate) fn publish(&self, allowance: Allowance) {
        self.0.in_flight.store(allowance.in_flight, Ordering::Relaxed);
        self.0.window.store(allowance.window, Ordering::Relaxed);
        self.0
            .bytes_per_second
            .store(allowance.bytes_per_second, Ordering::Relaxed);
    }

    /// Publishes the controller's estimates of the path.
    pub(crate) fn publish_estimate(&self, estimate: &PathEstimate) {
        self.0
            .bandwidth
            .store(estimate.bandwidth_bytes_per_second, Ordering::Relaxed);
        self.0
            .base_nanoseconds
            .store(nanoseconds(estimate.base_round_trip), Ordering::Relaxed);
        self.0
            .queue_nanoseconds
            .store(nanoseconds(estimate.queueing_delay), Ordering::Relaxed);
        self.0
            .loss_per_million
            .store(estimate.random_loss_per_million.into(), Ordering::Relaxed);
        self.0.phase.store(estimate.phase as u64, Ordering::Relaxed);
    }

    /// What the controller believes of the path.
    pub(crate) fn estimate(&self) -> PathEstimate {
        PathEstimate {
            phase: Phase::ALL[self.0.phase.load(Ordering::Relaxed) as usize % Phase::ALL.len()],
            bandwidth_bytes_per_second: self.0.bandwidth.load(Ordering::Relaxed),
            base_round_trip: Duration::from_nanos(self.0.base_nanoseconds.load(Ordering::Relaxed)),
            queueing_delay: Duration::from_nanos(self.0.queue_nanoseconds.load(Ordering::Relaxed)),
            random_loss_per_million: self.0.loss_per_million.load(Ordering::Relaxed) as u32,
        }
    }

    /// Publishes samples of the round trip.
    pub(crate) fn publish_round_trips(&self, round_trips: &RoundTrips) {
        self.0
            .latest_nanoseconds
            .store(nanoseconds(round_trips.latest), Ordering::Relaxed);
        self.0
            .variation_nanoseconds
            .store(nanoseconds(round_trips.variation), Ordering::Relaxed);
    }

    /// The latest sample of the round trip, and how much samples vary.
    pub(crate) fn round_trips(&self) -> RoundTrips {
        RoundTrips {
            latest: Duration::from_nanos(self.0.latest_nanoseconds.load(Ordering::Relaxed)),
            variation: Duration::from_nanos(self.0.variation_nanoseconds.load(Ordering::Relaxed)),
        }
    }

    /// A router marked packets as congested.
    pub(crate) fn count_mark(&self) {
        self.0.marks.fetch_add(1, Ordering::Relaxed);
    }

    /// Acknowledgements that reported marks.
    pub(crate) fn marks(&self) -> u64 {
        self.0.marks.load(Ordering::Relaxed)
    }

    /// Something that was in flight is acknowledged.
    pub(crate) fn count_acknowledgement(&self) {
        self.0.acknowledgements.fetch_add(1, Ordering::Relaxed);
    }

    /// How often something was acknowledged.
    pub(crate) fn acknowledgements(&self) -> u64 {
        self.0.acknowledgements.load(Ordering::Relaxed)
    }

    /// The controller reduced what it allows, for loss, a mark or delay.
    pub(crate) fn count_cut(&self) {
        self.0.cuts.fetch_add(1, Ordering::Relaxed);
    }

    /// How often the controller reduced what it allows.
    pub(crate) fn cuts(&self) -> u64 {
        self.0.cuts.load(Ordering::Relaxed)
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_for_the_window_is_noted_once() {
        let gate = Gate::default();
        assert!(!gate.take_asked());
        gate.ask();
        assert!(gate.was_asked() && gate.take_asked() && !gate.take_asked());
    }

    #[test]
    fn an_open_gate_is_above_what_quinn_proto_paces_and_a_closed_one_is_not_zero() {
        let gate = Gate::default();
        assert_eq!(gate.ask(), 1);
        gate.set_open(true);
        assert!(gate.ask() > u64::from(u32::MAX));
    }

    #[test]
    fn an_estimate_is_read_as_it_was_published() {
        let gate = Gate::default();
        let estimate = PathEstimate {
            phase: Phase::ProbeUp,
            bandwidth_bytes_per_second: 12_500_000,
            base_round_trip: Duration::from_millis(100),
            queueing_delay: Duration::from_micros(7_300),
            random_loss_per_million: 50_000,
        };
        gate.publish_estimate(&estimate);
        assert_eq!(gate.estimate(), estimate);
    }
}
