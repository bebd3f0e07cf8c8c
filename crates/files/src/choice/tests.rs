//! Choices by virtual time and counters.

use super::*;
use crate::rate_limit::{RateLimit, RateShare};

/// Runs with these rates (bytes a second) and costs (processor seconds for a gigabyte) of QUIC and TCP until
/// something is chosen.
fn decide(
    choice: &mut Choice,
    clock: &mut Instant,
    totals: &mut Totals,
    rates: [f64; 2],
    costs: [f64; 2],
) -> Option<Decision> {
    for _ in 0..400 {
        let decision = step(choice, clock, totals, rates, costs);
        if matches!(decision, Some(Decision::Choose(..))) {
            return decision;
        }
    }
    None
}

fn step(
    choice: &mut Choice,
    clock: &mut Instant,
    totals: &mut Totals,
    rates: [f64; 2],
    costs: [f64; 2],
) -> Option<Decision> {
    *clock += Duration::from_millis(50);
    let carrier = choice.present();
    let bytes = rates[carrier as usize] * 0.05;
    match carrier {
        Carrier::Quic => totals.quic += bytes as u64,
        Carrier::Tcp => totals.tcp += bytes as u64,
    }
    totals.cpu += Duration::from_secs_f64(bytes / 1e9 * costs[carrier as usize]);
    choice.look(*clock, *totals)
}

fn chosen(rates: [f64; 2], costs: [f64; 2]) -> Carrier {
    let (mut clock, mut totals) = (Instant::now(), Totals::default());
    let mut choice = Choice::new(Carrier::Quic, None);
    assert_eq!(
        step(&mut choice, &mut clock, &mut totals, rates, costs),
        None,
        "there is nothing to choose"
    );
    assert_eq!(choice.offer_tcp(clock, totals, None), None, "QUIC is tried first");
    match decide(&mut choice, &mut clock, &mut totals, rates, costs) {
        Some(Decision::Choose(carrier, reason)) => {
            assert!(reason.contains("Mbit/s"));
            assert_eq!(choice.present(), carrier);
            carrier
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_faster_carrier_wins_whatever_it_costs() {
    assert_eq!(chosen([1e8, 5e8], [1.0, 9.0]), Carrier::Tcp);
    assert_eq!(chosen([5e6, 1e6], [9.0, 1.0]), Carrier::Quic);
}

#[test]
fn of_two_as_fast_the_cheaper_one_wins() {
    assert_eq!(chosen([1.05e8, 1e8], [3.0, 1.0]), Carrier::Tcp);
    assert_eq!(chosen([1e8, 1.05e8], [1.0, 3.0]), Carrier::Quic);
}

#[test]
fn a_rate_that_halves_is_measured_again_and_not_too_often() {
    let (mut clock, mut totals) = (Instant::now(), Totals::default());
    let mut choice = Choice::new(Carrier::Quic, None);
    choice.offer_tcp(clock, totals, None);
    let costs = [3.0, 1.0];
    decide(&mut choice, &mut clock, &mut totals, [1e8, 2e8], costs).unwrap();
    assert_eq!(choice.present(), Carrier::Tcp);
    let began = clock;
    // TCP meets loss; QUIC bears it.
    let decision = decide(&mut choice, &mut clock, &mut totals, [1e8, 1e6], costs);
    assert!(
        matches!(decision, Some(Decision::Choose(Carrier::Quic, _))),
        "{decision:?}"
    );
    assert!(clock - began >= CHOICE_HYSTERESIS - Duration::from_secs(2));
    // A steady rate is left alone.
    assert_eq!(
        decide(&mut choice, &mut clock, &mut totals, [1e8, 1e6], costs),
        None
    );
}

#[test]
fn without_tcp_connections_quic_carries_everything() {
    let (mut clock, mut totals) = (Instant::now(), Totals::default());
    let mut choice = Choice::new(Carrier::Quic, None);
    choice.offer_tcp(clock, totals, None);
    decide(&mut choice, &mut clock, &mut totals, [1e8, 2e8], [1.0, 1.0]).unwrap();
    assert!(matches!(
        choice.lose_tcp(),
        Some(Decision::Choose(Carrier::Quic, _))
    ));
    assert_eq!(
        decide(&mut choice, &mut clock, &mut totals, [1e6, 2e8], [1.0, 1.0]),
        None
    );
    assert_eq!(choice.present(), Carrier::Quic);
}

#[test]
fn what_is_remembered_is_used_at_once_and_measured_again_where_its_rate_has_halved() {
    for (rates, expected) in [([1e7, 2e8], None), ([1e8, 1e7], Some(Carrier::Quic))] {
        let (mut clock, mut totals) = (Instant::now(), Totals::default());
        let mut choice = Choice::new(Carrier::Quic, None);
        let remembered = Some((Carrier::Tcp, 2e8));
        let decision = choice.offer_tcp(clock, totals, remembered);
        assert_eq!(
            decision,
            Some(Decision::Use(&BOTH)),
            "QUIC goes on until TCP is seen to carry"
        );
        assert!(choice.recalls(), "nothing is measured");
        let decision = step(&mut choice, &mut clock, &mut totals, rates, [1.0, 1.0]);
        assert!(!choice.recalls());
        assert!(
            matches!(decision, Some(Decision::Choose(Carrier::Tcp, _))),
            "{decision:?}"
        );
        assert_eq!(choice.chosen(), remembered);
        let again = match decide(&mut choice, &mut clock, &mut totals, rates, [1.0, 1.0]) {
            Some(Decision::Choose(carrier, _)) => Some(carrier),
            _ => None,
        };
        assert_eq!(again, expected);
    }
}

#[test]
fn where_nothing_arrives_by_tcp_quic_goes_on() {
    for remembered in [None, Some((Carrier::Tcp, 2e8))] {
        let (mut clock, mut totals) = (Instant::now(), Totals::default());
        let mut choice = Choice::new(Carrier::Quic, None);
        let mut allowed: &[Carrier] = &[Carrier::Quic];
        let mut decision = choice.offer_tcp(clock, totals, remembered);
        for _ in 0..400 {
            match decision {
                Some(Decision::Use(carriers)) => allowed = carriers,
                None => {}
                chosen => panic!("{chosen:?}"),
            }
            assert!(allowed.contains(&Carrier::Quic));
            clock += Duration::from_millis(50);
            // Nothing of TCP's comes.
            totals.quic += 5_000_000;
            decision = choice.look(clock, totals);
        }
        assert_eq!(allowed, BOTH, "TCP has been tried");
        assert_eq!(choice.chosen(), None);
    }
}

#[test]
fn where_little_is_left_the_other_carrier_is_not_tried() {
    for (left, expected) in [
        (None, true),
        (Some(TRIAL_BYTES_LEFT_MIN), true),
        (Some(TRIAL_BYTES_LEFT_MIN - 1), false),
    ] {
        let (mut clock, mut totals) = (Instant::now(), Totals::default());
        totals.left = left;
        let mut choice = Choice::new(Carrier::Quic, None);
        choice.offer_tcp(clock, totals, None);
        let decision = decide(&mut choice, &mut clock, &mut totals, [1e8, 2e8], [1.0, 1.0]);
        assert_eq!(decision.is_some(), expected, "{left:?}");
    }
}

#[test]
fn a_trial_begins_once_nothing_of_the_other_carrier_is_under_way() {
    let (mut clock, mut totals) = (Instant::now(), Totals::default());
    let mut choice = Choice::new(Carrier::Quic, None);
    choice.offer_tcp(clock, totals, None);
    while choice.present() == Carrier::Quic {
        step(&mut choice, &mut clock, &mut totals, [2e8, 2e8], [1.0, 1.0]);
    }
    // What QUIC has taken arrives for three seconds more, and TCP gets a tenth of the path.
    totals.under_way = [2, 4];
    for _ in 0..60 {
        let decision = step(&mut choice, &mut clock, &mut totals, [2e8, 4e7], [1.0, 1.0]);
        assert!(!matches!(decision, Some(Decision::Choose(..))), "{decision:?}");
    }
    totals.under_way = [0, 4];
    let decision = decide(&mut choice, &mut clock, &mut totals, [2e8, 4e8], [1.0, 1.0]);
    assert!(
        matches!(decision, Some(Decision::Choose(Carrier::Tcp, _))),
        "{decision:?}"
    );
}

/// A choice in which TCP was remembered and chosen, by this rate.
fn chosen_tcp(rate: f64) -> (Choice, Instant, Totals) {
    let (clock, mut totals) = (Instant::now(), Totals::default());
    let mut choice = Choice::new(Carrier::Quic, None);
    choice.offer_tcp(clock, totals, Some((Carrier::Tcp, rate)));
    totals.tcp = CHUNK as u64;
    totals.under_way = [0, 4];
    totals.is_heard = true;
    let chosen = choice.look(clock, totals);
    assert!(matches!(chosen, Some(Decision::Choose(Carrier::Tcp, _))));
    (choice, clock, totals)
}

/// How long nothing comes of TCP before it is silent.
fn silence(choice: &mut Choice, clock: &mut Instant, totals: &Totals) -> Option<Duration> {
    let since = *clock;
    for _ in 0..1_000 {
        *clock += Duration::from_millis(50);
        let decision = choice.look(*clock, *totals);
        if choice.is_tcp_silent() {
            assert_eq!(decision, Some(Decision::Use(&BOTH)));
            return Some(*clock - since);
        }
        assert_eq!(decision, None);
    }
    None
}

#[test]
fn where_tcp_falls_silent_quic_takes_work_until_it_carries_again() {
    let (mut choice, mut clock, mut totals) = chosen_tcp(2e8);
    let told = silence(&mut choice, &mut clock, &totals).expect("it is silent");
    assert!(told >= SILENCE_MIN && told < 2 * SILENCE_MIN, "{told:?}");
    totals.quic += 1;
    totals.tcp += 1;
    let decision = choice.look(clock, totals);
    assert_eq!(
        decision,
        Some(Decision::Choose(
            Carrier::Tcp,
            "TCP carries again after a silence".to_owned()
        ))
    );
    assert!(!choice.is_tcp_silent());
}

#[test]
fn what_lost_everything_to_the_other_carrier_proves_itself_after_a_while() {
    let (mut choice, mut clock, mut totals) = chosen_tcp(2e8);
    silence(&mut choice, &mut clock, &totals).expect("it is silent");
    totals.under_way = [6, 0];
    let since = clock;
    while choice.is_tcp_silent() {
        clock += Duration::from_millis(50);
        assert_eq!(choice.look(clock, totals), None);
    }
    assert!(clock - since >= SILENCE_REST);
    totals.under_way = [6, 4];
    totals.tcp += 1;
    let decision = choice.look(clock, totals);
    assert!(matches!(decision, Some(Decision::Choose(Carrier::Tcp, _))));
}

#[test]
fn slow_paths_are_waited_for_and_so_are_receivers_that_say_nothing_and_carriers_that_have_nothing() {
    // Four chunks of a path of 1 MiB a second.
    let (mut choice, mut clock, totals) = chosen_tcp((1 << 20) as f64);
    let told = silence(&mut choice, &mut clock, &totals).expect("it is silent");
    assert!(told >= Duration::from_secs(16), "{told:?}");
    let quiet = |change: fn(&mut Totals)| {
        let (mut choice, mut clock, mut totals) = chosen_tcp(2e8);
        change(&mut totals);
        silence(&mut choice, &mut clock, &totals)
    };
    assert_eq!(quiet(|totals| totals.is_heard = false), None);
    assert_eq!(quiet(|totals| totals.under_way = [0, 0]), None);
}

/// QUIC was measured, and TCP is, of which so much is under way.
fn measuring_tcp() -> (Choice, Instant, Totals) {
    let (mut clock, mut totals) = (Instant::now(), Totals::default());
    totals.is_heard = true;
    let mut choice = Choice::new(Carrier::Quic, None);
    choice.offer_tcp(clock, totals, None);
    while choice.present() == Carrier::Quic {
        step(&mut choice, &mut clock, &mut totals, [1e8, 0.0], [1.0, 1.0]);
    }
    for _ in 0..4 {
        let decision = step(&mut choice, &mut clock, &mut totals, [0.0, 1e8], [1.0, 1.0]);
        assert!(!matches!(decision, Some(Decision::Choose(..))), "{decision:?}");
    }
    totals.under_way = [0, 4];
    (choice, clock, totals)
}

/// Looks until something is decided.
fn wait_for_decision(choice: &mut Choice, clock: &mut Instant, totals: &Totals) -> Option<Decision> {
    (0..400).find_map(|_| {
        *clock += Duration::from_millis(50);
        choice.look(*clock, *totals)
    })
}

#[test]
fn where_tcp_falls_silent_while_it_is_measured_quic_is_chosen_and_that_is_not_remembered() {
    let (mut choice, mut clock, mut totals) = measuring_tcp();
    let since = clock;
    let decision = wait_for_decision(&mut choice, &mut clock, &totals);
    let told = "TCP brought nothing more while it was measured".to_owned();
    assert_eq!(decision, Some(Decision::Choose(Carrier::Quic, told)));
    assert!(clock - since >= SILENCE_MIN && clock - since < 2 * SILENCE_MIN);
    assert!(choice.is_tcp_silent(), "QUIC sends what it had");
    assert_eq!(choice.chosen(), None);
    // A dead path is left alone until the system gives it up.
    for _ in 0..400 {
        let decision = step(&mut choice, &mut clock, &mut totals, [1e8, 0.0], [1.0, 1.0]);
        assert_eq!(decision, None);
    }
    // It was the receiver's disk that stood still: TCP is measured again.
    totals.tcp += CHUNK as u64;
    totals.under_way = [0, 0];
    let decision = decide(&mut choice, &mut clock, &mut totals, [1e8, 2e8], [1.0, 1.0]);
    assert!(
        matches!(decision, Some(Decision::Choose(Carrier::Tcp, _))),
        "{decision:?}"
    );
}

#[test]
fn where_tcp_falls_silent_while_it_is_measured_once_more_quic_is_tried() {
    let (mut choice, mut clock, mut totals) = chosen_tcp(2e8);
    totals.under_way = [0, 0];
    // Its rate falls to a quarter, so that it is measured again, and then it dies.
    while matches!(choice.phase, Phase::Chosen { .. }) {
        step(&mut choice, &mut clock, &mut totals, [0.0, 5e7], [1.0, 1.0]);
    }
    assert_eq!(choice.present(), Carrier::Tcp);
    totals.under_way = [0, 4];
    let since = clock;
    let decision = wait_for_decision(&mut choice, &mut clock, &totals);
    assert_eq!(decision, Some(Decision::Use(&BOTH)));
    assert!(clock - since >= SILENCE_MIN && clock - since < 2 * SILENCE_MIN);
    assert!(choice.is_tcp_silent());
    totals.quic += CHUNK as u64;
    assert_eq!(
        choice.look(clock, totals),
        Some(Decision::Use(alone(Carrier::Quic)))
    );
}

#[test]
fn where_tcp_was_asked_for_it_is_waited_for() {
    let (mut clock, totals) = (
        Instant::now(),
        Totals {
            under_way: [0, 4],
            is_heard: true,
            ..Totals::default()
        },
    );
    let mut choice = Choice::new(Carrier::Quic, None);
    choice.prefer_tcp();
    assert_eq!(wait_for_decision(&mut choice, &mut clock, &totals), None);
    assert!(!choice.is_tcp_silent());
    assert!(matches!(
        choice.lose_tcp(),
        Some(Decision::Choose(Carrier::Quic, _))
    ));
}

/// Chunks that threads send under a limit, as `send/lane.rs` does, in steps of virtual time.
struct Limited {
    limit: RateShare,
    choice: Choice,
    start: Instant,
    now: Instant,
    totals: Totals,
    lanes: Vec<(Carrier, Instant)>,
    allowed: &'static [Carrier],
    /// Until when each carrier's path is busy.
    paths: [Instant; 2],
    /// Chunks that arrive then.
    arrivals: Vec<(Instant, Carrier)>,
}

const CHUNK: usize = 1 << 20;

impl Limited {
    fn new(limit: u64) -> Self {
        let now = Instant::now() + Duration::from_secs(1);
        let lanes = [[Carrier::Quic; 2].as_slice(), &[Carrier::Tcp; 4]].concat();
        Self {
            limit: RateLimit::new(limit).share(),
            choice: Choice::new(Carrier::Quic, Some(limit)),
            start: now,
            now,
            totals: Totals {
                is_heard: true,
                ..Totals::default()
            },
            lanes: lanes.into_iter().map(|carrier| (carrier, now)).collect(),
            allowed: alone(Carrier::Quic),
            paths: [now; 2],
            arrivals: Vec::new(),
        }
    }

    fn step(&mut self, rates: [f64; 2], costs: [f64; 2]) -> Option<Decision> {
        self.now += Duration::from_millis(5);
        let now = self.now;
        for (carrier, free) in &mut self.lanes {
            if !self.allowed.contains(carrier) || *free > now {
                continue;
            }
            let pause = self.limit.grant(now, CHUNK);
            self.totals.limited += pause;
            let path = &mut self.paths[*carrier as usize];
            let sending = Duration::from_secs_f64(CHUNK as f64 / rates[*carrier as usize]);
            *path = (now + pause).max(*path) + sending;
            *free = *path;
            self.arrivals.push((*path + Duration::from_millis(20), *carrier));
        }
        let (arrived, under_way): (Vec<_>, Vec<_>) =
            self.arrivals.drain(..).partition(|(when, _)| *when <= now);
        self.arrivals = under_way;
        for (_, carrier) in arrived {
            match carrier {
                Carrier::Quic => self.totals.quic += CHUNK as u64,
                Carrier::Tcp => self.totals.tcp += CHUNK as u64,
            }
            self.totals.cpu += Duration::from_secs_f64(CHUNK as f64 / 1e9 * costs[carrier as usize]);
        }
        for carrier in BOTH {
            let under_way = self.arrivals.iter();
            self.totals.under_way[carrier as usize] = under_way.filter(|(_, of)| *of == carrier).count();
        }
        let is_look = (now - self.start).as_millis().is_multiple_of(50);
        let decision = is_look.then(|| self.choice.look(now, self.totals)).flatten();
        self.take(decision.as_ref());
        decision
    }

    fn take(&mut self, decision: Option<&Decision>) {
        match decision {
            Some(Decision::Use(carriers)) => self.allowed = carriers,
            Some(Decision::Choose(carrier, _)) => self.allowed = alone(*carrier),
            None => {}
        }
    }

    fn offer_tcp(&mut self, remembered: Option<(Carrier, f64)>) {
        let decision = self.choice.offer_tcp(self.now, self.totals, remembered);
        self.take(decision.as_ref());
    }

    /// What is chosen after TCP connections came so many steps after the beginning.
    fn chosen(mut self, steps: usize, rates: [f64; 2], costs: [f64; 2]) -> (Carrier, bool) {
        for _ in 0..steps {
            self.step(rates, costs);
        }
        self.offer_tcp(None);
        for _ in 0..40_000 {
            if let Some(Decision::Choose(carrier, reason)) = self.step(rates, costs) {
                assert_eq!(
                    reason.contains("limit"),
                    self.choice.chosen().is_none(),
                    "{reason}"
                );
                return (carrier, self.choice.chosen().is_some());
            }
        }
        panic!("nothing is chosen in 200 s");
    }
}

#[test]
fn where_the_limit_holds_both_the_cheaper_one_wins_at_any_limit_and_it_is_not_remembered() {
    for limit in [
        100_000, 700_000, 1_300_000, 3_000_000, 4_700_000, 11_000_000, 40_000_000,
    ] {
        for steps in [0, 17, 101, 263] {
            for cheap in BOTH {
                let costs = BOTH.map(|carrier| if carrier == cheap { 1.0 } else { 3.0 });
                let chosen = Limited::new(limit).chosen(steps, [2e8, 4e8], costs);
                assert_eq!(chosen, (cheap, false), "{limit} bytes a second, {steps} steps");
            }
        }
    }
}

#[test]
fn a_carrier_that_stays_below_the_limit_loses_whatever_it_costs() {
    for limit in [3_000_000, 11_000_000, 40_000_000] {
        for slow in BOTH {
            let rates = BOTH.map(|carrier| if carrier == slow { limit as f64 / 3.0 } else { 2e8 });
            let costs = BOTH.map(|carrier| if carrier == slow { 1.0 } else { 9.0 });
            let (chosen, _) = Limited::new(limit).chosen(17, rates, costs);
            assert_ne!(chosen, slow, "{limit} bytes a second");
        }
    }
}

#[test]
fn what_the_limit_holds_is_not_measured_again_and_what_falls_below_it_is() {
    let mut limited = Limited::new(3_000_000);
    // From a transfer without a limit.
    limited.offer_tcp(Some((Carrier::Tcp, 1e9)));
    let costs = [1.0, 1.0];
    while limited.allowed != alone(Carrier::Tcp) {
        limited.step([2e8, 2e8], costs);
    }
    for _ in 0..6_000 {
        assert_eq!(limited.step([2e8, 2e8], costs), None);
    }
    let decision = (0..6_000).find_map(|_| {
        let decision = limited.step([2e8, 5e5], costs);
        decision.filter(|decision| matches!(decision, Decision::Choose(..)))
    });
    assert!(
        matches!(decision, Some(Decision::Choose(Carrier::Quic, _))),
        "{decision:?}"
    );
}

#[test]
fn a_carrier_that_is_much_worse_is_left_soon() {
    let mut limited = Limited::new(1_000_000_000);
    limited.offer_tcp(None);
    let rates = [2e7, 1e6];
    while limited.allowed != alone(Carrier::Tcp) {
        limited.step(rates, [1.0, 1.0]);
    }
    let began = limited.now;
    while limited.choice.present() == Carrier::Tcp {
        limited.step(rates, [1.0, 1.0]);
    }
    let took = limited.now - began;
    assert!(took < TRIAL_TIME_MAX, "{took:?}");
}
