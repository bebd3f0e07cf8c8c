//! Whatever happens, in whatever order, the model allows something, bounded, and says nothing impossible.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::Model;
use crate::congestion::gate::Gate;
use crate::congestion::tuning::{self, Tuning};

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
        let mut mtu = 1_452_u64;
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
