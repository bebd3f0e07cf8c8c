//! The `fixed` profile: a window that yields one named rate, whatever is lost.
//!
//! quinn-proto paces a connection at 5/4 of one window per smoothed round trip, so a window of four fifths of
//! rate times smoothed round trip never sends faster than the rate.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory};

/// Windows are not below this many packets, so that acknowledgements keep coming.
const WINDOW_PACKETS_MIN: u64 = 4;

/// Round trip assumed before the first measurement.
const INITIAL_ROUND_TRIP: Duration = Duration::from_millis(100);

/// Builds [`FixedRate`] controllers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FixedRateConfig {
    pub(crate) bits_per_second: u64,
}

impl ControllerFactory for FixedRateConfig {
    fn build(self: Arc<Self>, _now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let mut controller =
            FixedRate { bits_per_second: self.bits_per_second, mtu: u64::from(current_mtu), window: 0 };
        controller.follow(INITIAL_ROUND_TRIP);
        Box::new(controller)
    }
}

/// A controller that follows the round trip and nothing else.
#[derive(Clone, Copy, Debug)]
struct FixedRate {
    bits_per_second: u64,
    mtu: u64,
    window: u64,
}

impl FixedRate {
    fn follow(&mut self, round_trip: Duration) {
        let bytes = u128::from(self.bits_per_second) * round_trip.as_nanos() / 8_000_000_000 * 4 / 5;
        self.window = u64::try_from(bytes).unwrap_or(u64::MAX).max(WINDOW_PACKETS_MIN * self.mtu);
    }
}

impl Controller for FixedRate {
    fn on_ack(&mut self, _now: Instant, _sent: Instant, _bytes: u64, _app_limited: bool, rtt: &RttEstimator) {
        self.follow(rtt.get());
    }

    fn on_congestion_event(
        &mut self,
        _now: Instant,
        _sent: Instant,
        _is_persistent_congestion: bool,
        _lost_bytes: u64,
    ) {
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.mtu = u64::from(new_mtu);
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(*self)
    }

    fn initial_window(&self) -> u64 {
        self.window
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_yields_the_rate_after_the_pacer_has_added_its_quarter() {
        let mut controller = FixedRate { bits_per_second: 100_000_000, mtu: 1_200, window: 0 };
        controller.follow(Duration::from_millis(20));
        let paced_bits_per_second = controller.window() * 8 * 5 / 4 * 50;
        assert_eq!(paced_bits_per_second, 100_000_000);
    }

    #[test]
    fn a_tiny_round_trip_still_leaves_a_few_packets() {
        let mut controller = FixedRate { bits_per_second: 1_000_000, mtu: 1_200, window: 0 };
        controller.follow(Duration::from_micros(50));
        assert_eq!(controller.window(), 4_800);
    }
}
