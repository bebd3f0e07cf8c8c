//! Answers to marks and losses on a filled path; and for any order of events, the model's window and rate are above zero,
//! bounded and possible.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::Model;
use crate::congestion::estimate::Phase;
use crate::congestion::gate::Gate;
use crate::congestion::tuning::{self, Tuning};

const MTU: u64 = 1_452;
const ROUND_TRIP: Duration = Duration::from_millis(100);

/// A model that has filled a path, and what is under way.
struct Filled {
    model: Model,
    gate: Gate,
    now: Instant,
    under_way: VecDeque<(Instant, u64)>,
    round_trip: Duration,
    /// What the path delivers in a millisecond, and what its sender offers.
    delivered: u64,
    offered: u64,
}

impl Filled {
    /// A path of 100 Mbit/s, whose sender always has more.
    fn new() -> Self {
        let filled = Self::path(ROUND_TRIP, 8, u64::MAX);
        assert_ne!(filled.gate.estimate().phase, Phase::Startup);
        filled
    }

    fn path(round_trip: Duration, delivered: u64, offered: u64) -> Self {
        Self::path_through(Gate::default(), round_trip, delivered, offered)
    }

    fn path_through(gate: Gate, round_trip: Duration, delivered: u64, offered: u64) -> Self {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let mut filled = Self {
            model: Model::new(Tuning::Throughput, gate.clone(), now, MTU as u16),
            gate,
            now,
            under_way: VecDeque::new(),
            round_trip,
            delivered,
            offered,
        };
        for _ in 0..4_000 {
            filled.millisecond();
        }
        filled
    }

    /// The path delivers what it can; as many packets leave as may.
    fn millisecond(&mut self) {
        self.now += Duration::from_millis(1);
        let mut arrived = 0;
        while arrived < self.delivered
            && let Some((sent, bytes)) = self.under_way.front().copied()
            && sent + self.round_trip <= self.now
        {
            self.under_way.pop_front();
            self.model.on_ack(self.now, sent, bytes);
            arrived += 1;
        }
        if arrived > 0 {
            self.model
                .on_end_acks(self.now, self.under_way.len() as u64 * MTU);
        }
        let allowance = self.gate.allowance();
        let room = allowance.window.saturating_sub(allowance.in_flight) / MTU;
        let allowed = room.min(allowance.bytes_per_second / 1_000 / MTU);
        if self.offered < allowed {
            self.gate.set_idle();
        }
        for _ in 0..allowed.min(self.offered) {
            self.gate.ask();
            self.model.on_sent(self.now, MTU);
            self.gate.take_asked();
            self.under_way.push_back((self.now, MTU));
        }
    }

    /// How long the path takes for what is under way.
    fn queued(&self) -> Duration {
        Duration::from_millis(self.under_way.len() as u64 / self.delivered)
    }
}

#[test]
fn on_a_local_path_a_flood_leaves_no_long_queue_in_front_of_others() {
    let mut filled = Filled::path(Duration::from_millis(1), 300, u64::MAX);
    for _ in 0..1_000 {
        filled.millisecond();
        assert!(
            filled.queued() <= Duration::from_millis(12),
            "{:?}",
            filled.queued()
        );
    }
}

#[test]
fn on_a_local_path_a_bounded_window_is_as_long_as_its_bound_or_as_the_path_needs() {
    let most = crate::limits::PEER_LOCAL_WINDOW_BYTES;
    let window = |gate, delivered| {
        let filled = Filled::path_through(gate, Duration::from_millis(1), delivered, u64::MAX);
        filled.gate.allowance().window
    };
    assert_eq!(window(Gate::bounded(most), 300), most);
    assert!(window(Gate::default(), 300) > most);
    let needed = 2 * 2_000 * MTU;
    assert!(window(Gate::bounded(most), 2_000) >= needed * 9 / 10);
}

#[test]
fn on_a_local_path_a_receiver_that_pauses_stops_no_sender_that_it_can_follow() {
    let mut filled = Filled::path(Duration::from_millis(1), 300, 100);
    for _ in 0..10 {
        filled.delivered = 0;
        for _ in 0..40 {
            filled.millisecond();
        }
        assert_eq!(filled.under_way.len(), 40 * 100 + 100, "all of it left");
        filled.delivered = 300;
        for _ in 0..60 {
            filled.millisecond();
        }
    }
}

#[test]
fn a_mark_is_answered_once_for_what_was_under_way() {
    let mut filled = Filled::new();
    let (before, cuts) = (
        filled.gate.estimate().bandwidth_bytes_per_second,
        filled.gate.cuts(),
    );
    let (now, sent) = (filled.now, filled.now - ROUND_TRIP);
    filled.model.on_congestion(now, sent, false, 0);
    filled.model.on_congestion(now, sent, false, 0);
    assert_eq!(filled.gate.cuts(), cuts + 1);
    assert!(filled.gate.estimate().bandwidth_bytes_per_second < before);
}

#[test]
fn a_mark_does_not_end_the_search_for_the_base() {
    let mut filled = Filled::new();
    filled.model.search_base(filled.now);
    let sent = filled.now - ROUND_TRIP;
    filled.model.on_congestion(filled.now, sent, false, 0);
    assert_eq!(filled.gate.estimate().phase, Phase::ProbeRoundTrip);
}

#[test]
fn a_few_lost_packets_change_nothing() {
    let mut filled = Filled::new();
    let (before, cuts) = (filled.gate.allowance(), filled.gate.cuts());
    let (sent, _) = filled.under_way.pop_front().unwrap();
    filled.model.on_congestion(filled.now, sent, false, MTU);
    assert_eq!(filled.gate.cuts(), cuts);
    assert_eq!(filled.gate.allowance().window, before.window);
}

#[test]
fn the_path_is_known_after_it_was_filled() {
    let filled = Filled::new();
    let estimate = filled.gate.estimate();
    let line = 8 * MTU * 1_000;
    let error = estimate.bandwidth_bytes_per_second as f64 / line as f64;
    assert!((0.95..1.1).contains(&error), "{estimate:?}");
    assert!(estimate.base_round_trip <= ROUND_TRIP + Duration::from_millis(2));
}

#[derive(Clone, Debug)]
enum Step {
    Send(u64),
    Acknowledge(usize),
    Lose(usize),
    LosePersistently(usize),
    Mark,
    Pass(u64),
    Idle,
    Carry(bool),
    Mtu(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1_u64..60).prop_map(Step::Send),
        6 => (1_usize..80).prop_map(Step::Acknowledge),
        2 => (1_usize..40).prop_map(Step::Lose),
        1 => (1_usize..40).prop_map(Step::LosePersistently),
        1 => Just(Step::Mark),
        8 => (0_u64..300_000).prop_map(Step::Pass),
        1 => Just(Step::Idle),
        1 => any::<bool>().prop_map(Step::Carry),
        1 => (1_200_u16..9_000).prop_map(Step::Mtu),
    ];
    prop::collection::vec(step, 1..400)
}

proptest! {
    #[test]
    fn the_allowance_stays_sane(steps in steps(), latency in any::<bool>()) {
        // tidy-allow(pure): first instant of virtual time
        let mut now = Instant::now();
        let gate = Gate::default();
        let tuning = if latency { Tuning::Latency } else { Tuning::Throughput };
        let mut mtu = MTU;
        let mut model = Model::new(tuning, gate.clone(), now, mtu as u16);
        let mut under_way: VecDeque<(Instant, u64)> = VecDeque::new();
        let bytes = |under_way: &VecDeque<(Instant, u64)>| under_way.iter().map(|(_, bytes)| bytes).sum::<u64>();
        for step in steps {
            match step {
                Step::Send(packets) => {
                    gate.ask();
                    model.on_sent(now, packets * mtu);
                    gate.take_asked();
                    under_way.extend((0..packets).map(|_| (now, mtu)));
                }
                Step::Acknowledge(count) => {
                    for (sent, bytes) in under_way.drain(..count.min(under_way.len())) {
                        model.on_ack(now, sent, bytes);
                    }
                    model.on_end_acks(now, bytes(&under_way));
                }
                Step::Lose(count) | Step::LosePersistently(count) => {
                    let lost: Vec<(Instant, u64)> = under_way.drain(..count.min(under_way.len())).collect();
                    if let Some((newest, _)) = lost.last() {
                        let is_persistent = matches!(step, Step::LosePersistently(_));
                        let bytes = lost.iter().map(|(_, bytes)| bytes).sum();
                        model.on_congestion(now, *newest, is_persistent, bytes);
                    }
                }
                Step::Mark => model.on_congestion(now, now, false, 0),
                Step::Pass(micros) => now += Duration::from_micros(micros),
                Step::Idle => gate.set_idle(),
                Step::Carry(datagrams) => gate.set_carries_datagrams(datagrams),
                Step::Mtu(new) => {
                    mtu = new.into();
                    model.on_mtu_update(new);
                }
            }
            let allowance = gate.allowance();
            prop_assert_eq!(allowance.in_flight, bytes(&under_way));
            prop_assert!(allowance.window >= tuning::WINDOW_PACKETS_MIN * mtu, "{:?}", allowance);
            prop_assert!(allowance.bytes_per_second >= 1);
            prop_assert!(gate.estimate().random_loss_per_million <= 300_000);
        }
    }
}
