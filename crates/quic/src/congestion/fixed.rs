//! The window of the `fixed` profile: it follows the round trip and nothing else. The rate itself is kept by
//! [`crate::cap::Cap`].

use std::time::Duration;

use super::delivery::bytes_in;
use super::estimate::{PathEstimate, Phase};
use super::gate::{Allowance, Gate};

/// Windows are not below this many packets, so that acknowledgements keep coming.
const WINDOW_PACKETS_MIN: u64 = 64;

/// What the peer may delay an acknowledgement and we a loss, beside round trips.
const ACKNOWLEDGEMENT_SLACK: Duration = Duration::from_millis(100);

#[derive(Clone)]
pub(super) struct FixedWindow {
    bytes_per_second: u64,
    mtu: u64,
    round_trip: Duration,
    in_flight: u64,
    gate: Gate,
}

impl FixedWindow {
    pub(super) fn new(bits_per_second: u64, gate: Gate, mtu: u16) -> Self {
        let fixed = Self {
            bytes_per_second: bits_per_second / 8,
            mtu: mtu.into(),
            round_trip: crate::limits::INITIAL_ROUND_TRIP,
            in_flight: 0,
            gate,
        };
        fixed.publish();
        fixed
    }

    pub(super) fn on_sent(&mut self, bytes: u64) {
        if self.gate.was_asked() {
            self.in_flight += bytes;
            self.publish();
        }
    }

    pub(super) fn on_ack(&mut self, round_trip: Duration) {
        self.round_trip = round_trip;
    }

    pub(super) fn on_end_acks(&mut self, in_flight: u64) {
        self.in_flight = in_flight;
        self.publish();
    }

    pub(super) fn on_lost(&mut self, bytes: u64) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.publish();
    }

    pub(super) fn on_mtu_update(&mut self, mtu: u16) {
        self.mtu = mtu.into();
        self.publish();
    }

    /// Wide enough that lost packets, which stay in flight until they are declared lost, do not slow it down.
    fn window(&self) -> u64 {
        let span = 2 * self.round_trip + ACKNOWLEDGEMENT_SLACK;
        bytes_in(self.bytes_per_second, span).max(WINDOW_PACKETS_MIN * self.mtu)
    }

    fn publish(&self) {
        self.gate.publish(Allowance {
            in_flight: self.in_flight,
            window: self.window(),
            bytes_per_second: u64::MAX,
        });
        self.gate.publish_estimate(&PathEstimate {
            phase: Phase::Fixed,
            bandwidth_bytes_per_second: self.bytes_per_second,
            base_round_trip: self.round_trip,
            ..PathEstimate::default()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_holds_two_round_trips_at_the_rate_and_the_slack() {
        let gate = Gate::default();
        let mut fixed = FixedWindow::new(100_000_000, gate.clone(), 1_200);
        fixed.on_ack(Duration::from_millis(20));
        fixed.on_end_acks(0);
        assert_eq!(gate.allowance().window, 100_000_000 / 8 * 140 / 1_000);
    }

    #[test]
    fn a_low_rate_still_leaves_a_train_of_packets() {
        let gate = Gate::default();
        let mut fixed = FixedWindow::new(1_000_000, gate.clone(), 1_200);
        fixed.on_ack(Duration::from_micros(50));
        fixed.on_end_acks(0);
        assert_eq!(gate.allowance().window, 64 * 1_200);
    }
}
