//! Congestion control beside quinn-proto's: an observer around its controllers, and the window of the `fixed` profile.
//!
//! [`Observed`] tells "blocked" from "nothing to say", counts cuts, and lets a window grow only while it is used (RFC 9002
//! section 7.8). quinn-proto itself holds a sender for limited by its application only when it has just found nothing to send;
//! under load from a slower source that is seldom the moment at which an acknowledgement comes: windows grew to
//! gigabytes, and the first loss cut nothing.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};

/// What is seen of the window of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observation(Arc<Seen>);

#[derive(Debug, Default)]
struct Seen {
    asked: AtomicBool,
    cuts: AtomicU64,
}

impl Observation {
    /// Whether quinn-proto asked for the window since the last question, which it does exactly where it has something
    /// ack-eliciting to send.
    pub(crate) fn take_asked(&self) -> bool {
        self.0.asked.swap(false, Ordering::Relaxed)
    }

    /// How often the window was cut, for loss, a mark or delay.
    pub(crate) fn cuts(&self) -> u64 {
        self.0.cuts.load(Ordering::Relaxed)
    }
}

/// Builds controllers of `inner` that note every question for the window of one connection, and every cut, in `seen`.
pub(crate) struct ObservedConfig<F> {
    pub(crate) inner: Arc<F>,
    pub(crate) seen: Observation,
}

impl<F: ControllerFactory> ControllerFactory for ObservedConfig<F> {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let inner = Arc::clone(&self.inner).build(now, current_mtu);
        Box::new(Observed {
            window_seen: inner.window(),
            inner,
            seen: self.seen.clone(),
            in_flight: 0,
            mtu: current_mtu.into(),
        })
    }
}

/// A window is used while more than one part in so many of it is in flight.
const USED_PART: u64 = 2;

/// A window is cut where it loses more than one part in so many at once: Cubic takes three in ten, while the window of
/// `fixed` follows the round trip by less.
const CUT_PART: u64 = 5;

struct Observed {
    inner: Box<dyn Controller>,
    seen: Observation,
    /// Bytes in flight after the last acknowledgement, and sent since.
    in_flight: u64,
    /// The window at the last look.
    window_seen: u64,
    mtu: u64,
}

impl Observed {
    /// The window now; counts where it was cut since the last look.
    fn look(&mut self) -> u64 {
        let window = self.inner.window();
        if window < self.window_seen - self.window_seen / CUT_PART {
            self.seen.0.cuts.fetch_add(1, Ordering::Relaxed);
        }
        self.window_seen = window;
        window
    }
}

impl Controller for Observed {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.in_flight += bytes;
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        // A window of two packets never has more than one in flight: room for less than one counts as used.
        let is_used = self.in_flight + self.mtu > self.look() / USED_PART;
        self.inner.on_ack(now, sent, bytes, app_limited || !is_used, rtt);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest_acked: Option<u64>) {
        self.in_flight = in_flight;
        self.inner.on_end_acks(now, in_flight, app_limited, largest_acked);
        self.look();
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, persistent: bool, lost_bytes: u64) {
        self.inner.on_congestion_event(now, sent, persistent, lost_bytes);
        self.look();
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.mtu = new_mtu.into();
        self.inner.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.seen.0.asked.store(true, Ordering::Relaxed);
        self.inner.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        self.inner.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self {
            inner: self.inner.clone_box(),
            seen: self.seen.clone(),
            in_flight: self.in_flight,
            window_seen: self.window_seen,
            mtu: self.mtu,
        })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self.inner.into_any()
    }
}

/// Windows of the `fixed` profile are not below this many packets, so that acknowledgements keep coming.
const WINDOW_PACKETS_MIN: u64 = 64;

/// What the peer may delay an acknowledgement and we a loss, beside round trips.
const ACKNOWLEDGEMENT_SLACK: Duration = Duration::from_millis(100);

/// Round trip assumed before the first measurement.
const INITIAL_ROUND_TRIP: Duration = Duration::from_millis(100);

/// Builds [`FixedRate`] controllers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FixedRateConfig {
    pub(crate) bits_per_second: u64,
}

impl ControllerFactory for FixedRateConfig {
    fn build(self: Arc<Self>, _now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let mut controller = FixedRate {
            bits_per_second: self.bits_per_second,
            mtu: u64::from(current_mtu),
            window: 0,
        };
        controller.follow(INITIAL_ROUND_TRIP);
        Box::new(controller)
    }
}

/// A window that follows the round trip and nothing else.
#[derive(Clone, Copy, Debug)]
struct FixedRate {
    bits_per_second: u64,
    mtu: u64,
    window: u64,
}

impl FixedRate {
    fn follow(&mut self, round_trip: Duration) {
        // Wide enough that lost packets, which stay in flight until they are declared lost, do not slow it down: the
        // rate itself is kept by `crate::pace::Pace`.
        let span = 2 * round_trip + ACKNOWLEDGEMENT_SLACK;
        let bytes = u128::from(self.bits_per_second) * span.as_nanos() / 8_000_000_000;
        self.window = u64::try_from(bytes)
            .unwrap_or(u64::MAX)
            .max(WINDOW_PACKETS_MIN * self.mtu);
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
    fn the_window_holds_two_round_trips_at_the_rate_and_the_slack() {
        let mut controller = FixedRate {
            bits_per_second: 100_000_000,
            mtu: 1_200,
            window: 0,
        };
        controller.follow(Duration::from_millis(20));
        assert_eq!(controller.window(), 100_000_000 / 8 * 140 / 1_000);
    }

    #[test]
    fn a_low_rate_still_leaves_a_train_of_packets() {
        let mut controller = FixedRate {
            bits_per_second: 1_000_000,
            mtu: 1_200,
            window: 0,
        };
        controller.follow(Duration::from_micros(50));
        assert_eq!(controller.window(), 64 * 1_200);
    }

    #[test]
    fn a_question_for_the_window_is_noted_once() {
        let seen = Observation::default();
        let inner = Arc::new(FixedRateConfig {
            bits_per_second: 1_000_000,
        });
        let controller = Arc::new(ObservedConfig {
            inner,
            seen: seen.clone(),
        })
        // tidy-allow(pure): first instant of virtual time
        .build(Instant::now(), 1_200);
        seen.take_asked();
        let copy = controller.clone_box();
        assert!(!seen.take_asked());
        copy.window();
        assert!(seen.take_asked() && !seen.take_asked());
    }

    #[test]
    fn cuts_are_counted_and_small_steps_are_not() {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let seen = Observation::default();
        let inner = Arc::new(quinn_proto::congestion::CubicConfig::default());
        let mut controller = Arc::new(ObservedConfig {
            inner,
            seen: seen.clone(),
        })
        .build(now, 1_200);
        controller.on_mtu_update(1_201);
        controller.on_end_acks(now, 0, false, None);
        assert_eq!(seen.cuts(), 0);
        controller.on_congestion_event(now, now, false, 1_200);
        assert_eq!(seen.cuts(), 1);
    }
}
