//! Cubic that tells loss from congestion, for a connection whose load is datagrams that somebody else controls.
//!
//! A tunnel's sender answers each loss already; a window below it that is cut for the same loss cuts twice. So loss of a
//! few packets in a hundred, on a path whose delay has not grown, changes nothing here (the sender above still sees every
//! loss). What is answered is delay: a queue that stands on the path for a whole round trip, before it overflows, and is
//! longer than what busy ends alone may cause. Where cuts do not shorten it, others fill it, and the window then holds its
//! own against them as plain Cubic does, for a while.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics, CubicConfig};

/// One part in so many may be lost without an answer.
const TOLERATED_PART: u64 = 50;

/// Loss tolerated at once, in packets, or as a part of the window where that is more.
const TOLERATED_PACKETS: u64 = 16;

/// A queue on the path is too long above this, and above half of the round trip without it: after a cut by Cubic's 0.7 the
/// path is still full.
const QUEUE_MIN: Duration = Duration::from_millis(10);

/// Whole round trips up to this are never too long: on a short path, ends that wait for a processor look like a queue, and
/// a window that is cut for them no longer covers their pauses.
const ROUND_TRIP_FREE: Duration = Duration::from_millis(30);

/// Cuts that did not shorten the queue, after which others are taken to fill it.
const FRUITLESS_CUTS: u32 = 3;

/// How long delay is then ignored, and how long the shortest round trip is remembered, at least.
const MEMORY: Duration = Duration::from_secs(10);

/// Builds [`Patient`] controllers.
pub(crate) struct PatientConfig;

impl ControllerFactory for PatientConfig {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let cubic = Arc::new(CubicConfig::default()).build(now, current_mtu);
        Box::new(Patient::around(cubic, now, current_mtu))
    }
}

struct Patient {
    cubic: Box<dyn Controller>,
    mtu: u64,
    /// Bytes that may be lost without an answer.
    tolerance: u64,
    /// A round ends with the acknowledgement of a packet that was sent in it.
    round: Instant,
    /// The shortest round trip of this round, and of the last one.
    round_shortest: Duration,
    last_shortest: Duration,
    /// The shortest round trip since `memory`, and in the [`MEMORY`] before.
    shortest: Duration,
    shortest_before: Duration,
    memory: Instant,
    /// The round after a cut still sees the old queue.
    is_settling: bool,
    fruitless: u32,
    ignores_delay_until: Option<Instant>,
}

impl Patient {
    fn around(cubic: Box<dyn Controller>, now: Instant, mtu: u16) -> Self {
        Self {
            cubic,
            mtu: mtu.into(),
            tolerance: TOLERATED_PACKETS * u64::from(mtu),
            round: now,
            round_shortest: Duration::MAX,
            last_shortest: Duration::ZERO,
            shortest: Duration::MAX,
            shortest_before: Duration::MAX,
            memory: now,
            is_settling: false,
            fruitless: 0,
            ignores_delay_until: None,
        }
    }

    /// The round trip without a queue, as far as is known.
    fn base(&self) -> Duration {
        self.shortest.min(self.shortest_before)
    }

    /// How long the queue on the path was in the last round, at its shortest.
    fn queue(&self) -> Duration {
        self.last_shortest.saturating_sub(self.base())
    }

    fn queue_max(&self) -> Duration {
        let free = ROUND_TRIP_FREE.saturating_sub(self.base());
        QUEUE_MIN.max(self.base() / 2).max(free)
    }

    fn acknowledged(&mut self, now: Instant, sent: Instant, bytes: u64) {
        let most = (TOLERATED_PACKETS * self.mtu).max(self.cubic.window() / TOLERATED_PART);
        self.tolerance = (self.tolerance + bytes / TOLERATED_PART).min(most);
        self.round_shortest = self.round_shortest.min(now.saturating_duration_since(sent));
        if sent >= self.round {
            self.end_round(now);
        }
    }

    fn end_round(&mut self, now: Instant) {
        self.last_shortest = self.round_shortest;
        self.shortest = self.shortest.min(self.round_shortest);
        if now.saturating_duration_since(self.memory) >= MEMORY {
            self.shortest_before = std::mem::replace(&mut self.shortest, self.round_shortest);
            self.memory = now;
        }
        self.round = now;
        self.round_shortest = Duration::MAX;
        if self.ignores_delay_until.is_some_and(|until| now >= until) {
            self.ignores_delay_until = None;
        }
        if std::mem::take(&mut self.is_settling) || self.ignores_delay_until.is_some() {
            return;
        }
        if self.queue() <= self.queue_max() {
            self.fruitless = 0;
        } else if self.fruitless < FRUITLESS_CUTS {
            self.fruitless += 1;
            self.is_settling = true;
            self.cubic.on_congestion_event(now, now, false, 0);
        } else {
            self.fruitless = 0;
            self.ignores_delay_until = Some(now + MEMORY);
        }
    }
}

impl Controller for Patient {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.cubic.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.cubic.on_ack(now, sent, bytes, app_limited, rtt);
        self.acknowledged(now, sent, bytes);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest_acked: Option<u64>) {
        self.cubic.on_end_acks(now, in_flight, app_limited, largest_acked);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, persistent: bool, lost_bytes: u64) {
        // A mark of ECN comes without lost bytes, and is about congestion by definition (RFC 9002 section 7.1).
        let is_marked = lost_bytes == 0;
        let path_is_idle = self.queue() <= self.queue_max() / 2;
        if !persistent && !is_marked && path_is_idle && lost_bytes <= self.tolerance {
            self.tolerance -= lost_bytes;
            return;
        }
        self.tolerance = 0;
        self.cubic.on_congestion_event(now, sent, persistent, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.mtu = new_mtu.into();
        self.cubic.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.cubic.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        self.cubic.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self {
            cubic: self.cubic.clone_box(),
            ..*self
        })
    }

    fn initial_window(&self) -> u64 {
        self.cubic.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const MTU: u64 = 1_200;
    const MILLISECOND: Duration = Duration::from_millis(1);

    /// A window that its test lets grow, and that every congestion event cuts as Cubic does.
    #[derive(Clone, Debug, Default)]
    struct Plain(Arc<AtomicU64>);

    impl Controller for Plain {
        fn on_congestion_event(&mut self, _now: Instant, _sent: Instant, _persistent: bool, _lost: u64) {
            self.0.store(self.window() * 7 / 10, Ordering::Relaxed);
        }

        fn on_mtu_update(&mut self, _new_mtu: u16) {}

        fn window(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }

        fn clone_box(&self) -> Box<dyn Controller> {
            Box::new(self.clone())
        }

        fn initial_window(&self) -> u64 {
            self.window()
        }

        fn into_any(self: Box<Self>) -> Box<dyn Any> {
            self
        }
    }

    struct Path {
        controller: Patient,
        plain: Plain,
        now: Instant,
    }

    impl Path {
        fn new() -> Self {
            // tidy-allow(pure): first instant of virtual time
            let now = Instant::now();
            let plain = Plain::default();
            plain.0.store(400 * MTU, Ordering::Relaxed);
            Self {
                controller: Patient::around(plain.clone_box(), now, MTU as u16),
                plain,
                now,
            }
        }

        /// A window's worth of packets is sent and acknowledged after `round_trip`, but `lost` of them; then the window
        /// grows by a packet.
        fn round(&mut self, round_trip: Duration, lost: u64) {
            let sent = self.now;
            self.now += round_trip;
            for _ in lost..self.window() / MTU {
                self.controller.acknowledged(self.now, sent, MTU);
            }
            if lost > 0 {
                self.controller
                    .on_congestion_event(self.now, sent, false, lost * MTU);
            }
            self.plain.0.fetch_add(MTU, Ordering::Relaxed);
        }

        fn rounds(&mut self, count: u32, round_trip: Duration) {
            (0..count).for_each(|_| self.round(round_trip, 0));
        }

        fn window(&self) -> u64 {
            self.controller.window()
        }
    }

    #[test]
    fn loss_of_one_in_a_hundred_without_delay_cuts_nothing() {
        let mut path = Path::new();
        path.rounds(6, 20 * MILLISECOND);
        for round in 0..200 {
            let before = path.window();
            path.round(20 * MILLISECOND, before / MTU / 100);
            assert!(path.window() > before, "round {round}");
        }
    }

    #[test]
    fn loss_of_one_in_twenty_is_congestion() {
        let mut path = Path::new();
        path.rounds(6, 20 * MILLISECOND);
        let mut cuts = 0;
        for _ in 0..50 {
            let before = path.window();
            path.round(20 * MILLISECOND, (before / MTU / 20).max(1));
            cuts += u32::from(path.window() < before);
        }
        assert!(cuts > 5, "{cuts}");
    }

    #[test]
    fn a_standing_queue_is_cut_once_and_the_next_round_is_waited_for() {
        let mut path = Path::new();
        path.rounds(6, 20 * MILLISECOND);
        path.round(35 * MILLISECOND, 0);
        let full = path.window();
        path.round(35 * MILLISECOND, 0);
        let after = path.window();
        assert!(after < full);
        path.round(35 * MILLISECOND, 0);
        path.rounds(20, 20 * MILLISECOND);
        assert_eq!(path.window(), after + 21 * MTU);
    }

    #[test]
    fn pauses_of_busy_ends_are_no_queue_on_a_short_path_but_a_long_queue_is() {
        let mut path = Path::new();
        path.rounds(6, MILLISECOND);
        let before = path.window();
        path.rounds(20, 25 * MILLISECOND);
        assert_eq!(path.window(), before + 20 * MTU);
        path.round(32 * MILLISECOND, 0);
        let full = path.window();
        path.round(32 * MILLISECOND, 0);
        assert!(path.window() < full);
    }

    #[test]
    fn a_queue_that_others_fill_is_not_answered_for_ever() {
        let mut path = Path::new();
        path.rounds(6, 20 * MILLISECOND);
        let before = path.window();
        path.rounds(20, 60 * MILLISECOND);
        let held = path.window();
        assert!(held > before / 4 && held < before, "{held} of {before}");
        path.rounds(100, 60 * MILLISECOND);
        assert_eq!(path.window(), held + 100 * MTU);
    }

    #[test]
    fn a_longer_path_is_no_queue_once_the_shorter_one_is_forgotten() {
        let mut path = Path::new();
        path.rounds(50, 20 * MILLISECOND);
        path.rounds(500, 60 * MILLISECOND);
        let before = path.window();
        path.rounds(500, 60 * MILLISECOND);
        assert_eq!(path.window(), before + 500 * MTU);
    }

    #[test]
    fn delay_and_loss_together_are_congestion_however_few_are_lost() {
        let mut path = Path::new();
        path.rounds(40, 20 * MILLISECOND);
        path.round(28 * MILLISECOND, 0);
        let before = path.window();
        path.round(28 * MILLISECOND, 1);
        assert!(path.window() < before);
    }

    #[test]
    fn an_ecn_mark_is_always_answered() {
        let mut path = Path::new();
        path.rounds(40, 20 * MILLISECOND);
        let before = path.window();
        path.controller.on_congestion_event(path.now, path.now, false, 0);
        assert!(path.window() < before);
    }
}
