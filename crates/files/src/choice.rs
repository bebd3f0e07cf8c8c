//! Which carrier takes the chunks, decided by measurement: first each carries for a while, then the one that is
//! better by more than a tenth, in goodput or, where that is alike, in processor time of both ends. Pure: time and
//! counters are told.
//!
//! What arrives is counted in chunks, of which few come in a trial on a slow path or under the user's limit. So a trial
//! lasts from one arrival to another, and on until enough has come. Where the limit holds both carriers, what was
//! measured is the limit: they are alike, and it is not remembered.
//!
//! A carrier takes over from the other one when its first chunk has arrived, and not before: a path on which nothing
//! arrives has a chunk of each thread, which come again by the other carrier once it is given up, and no more. Its
//! trial begins once nothing of the other one is under way, which would share the path and the processors with it.
//!
//! A carrier whose rate falls to half is measured against the other again, at most every [`CHOICE_HYSTERESIS`]. One
//! that was chosen in an earlier transfer between the same two places is taken at once, and measured again in the same
//! case.

use std::time::{Duration, Instant};

use crate::carrier::Carrier;
use crate::limits::{
    CHOICE_HYSTERESIS, CHOICE_WINDOW, TRIAL_BYTES, TRIAL_BYTES_LEFT_MIN, TRIAL_BYTES_MIN, TRIAL_SETTLING,
    TRIAL_TIME, TRIAL_TIME_MAX, TRIAL_TIME_MIN,
};

/// What a carrier did in its trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) bytes: u64,
    pub(crate) elapsed: Duration,
    /// Processor time of both ends.
    pub(crate) cpu: Duration,
    /// Whether the user's limit held it.
    pub(crate) is_limited: bool,
}

impl Sample {
    fn rate(&self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64().max(1e-6)
    }

    /// Whether it says how fast the carrier is, or that it is much slower than the other one.
    fn is_enough(&self, other: Option<&Self>) -> bool {
        if self.elapsed < TRIAL_TIME {
            return self.elapsed >= TRIAL_TIME_MIN && self.bytes >= TRIAL_BYTES;
        }
        // Chunks of all threads may arrive in the next moment.
        let at_most = (self.bytes + TRIAL_BYTES_MIN / 2) as f64 / self.elapsed.as_secs_f64();
        self.elapsed >= TRIAL_TIME_MAX
            || self.bytes >= TRIAL_BYTES_MIN
            || other.is_some_and(|other| at_most < other.rate() / 2.0)
    }

    fn cpu_per_gigabyte(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e9 / self.bytes.max(1) as f64
    }
}

/// Counters of a transfer so far, which only rise, and what is under way now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// Bytes that the receiver has, by carrier.
    pub(crate) quic: u64,
    pub(crate) tcp: u64,
    /// Processor time of both ends' processes.
    pub(crate) cpu: Duration,
    /// What threads waited for the user's limit, together.
    pub(crate) limited: Duration,
    /// Bytes that are to come, where that is known.
    pub(crate) left: Option<u64>,
    /// Whether chunks are on their way, by carrier.
    pub(crate) under_way: [bool; 2],
}

impl Totals {
    fn bytes(&self, carrier: Carrier) -> u64 {
        match carrier {
            Carrier::Quic => self.quic,
            Carrier::Tcp => self.tcp,
        }
    }
}

/// A carrier that has so much of the user's limit, and waits for it, is as good as that lets it be: looks and chunks
/// are too coarse to tell more.
const LIMITED_SHARE: f64 = 0.8;

const BOTH: [Carrier; 2] = [Carrier::Quic, Carrier::Tcp];

fn alone(carrier: Carrier) -> &'static [Carrier] {
    match carrier {
        Carrier::Quic => &BOTH[..1],
        Carrier::Tcp => &BOTH[1..],
    }
}

fn other_than(carrier: Carrier) -> Carrier {
    match carrier {
        Carrier::Quic => Carrier::Tcp,
        Carrier::Tcp => Carrier::Quic,
    }
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    /// Only these carriers are to take work.
    Use(&'static [Carrier]),
    /// Only this one, for good reason: to be told.
    Choose(Carrier, String),
}

/// Decides.
pub(crate) struct Choice {
    phase: Phase,
    /// The user's, in bytes a second.
    limit: Option<u64>,
}

#[derive(Clone, Copy)]
enum Phase {
    /// There is only this one, or only it is allowed.
    Only(Carrier),
    Trial {
        carrier: Carrier,
        since: Instant,
        /// Whether anything of it has arrived; until then the other one takes work as well.
        is_proven: bool,
        /// At its first arrival after it settled.
        start: Option<(Instant, Totals)>,
        /// Its bytes at the last look.
        seen: u64,
        /// Of the other one, where that had its turn.
        other: Option<Sample>,
        /// When the first of both trials began.
        began: Instant,
    },
    /// It is remembered, and takes work beside the other one until the first of it has arrived.
    Remembered {
        carrier: Carrier,
        rate: f64,
        /// Its bytes at the beginning.
        before: u64,
    },
    Chosen {
        carrier: Carrier,
        /// Bytes a second that it had when it was measured, or more since.
        rate: f64,
        /// Whether it was chosen within the user's limit, which says nothing of the path.
        is_limited: bool,
        /// When its present rate was last looked at, and its bytes then.
        window: (Instant, u64),
        /// When the measurement began.
        began: Instant,
    },
}

impl Choice {
    /// Begins with this carrier; `limit` is the user's, in bytes a second.
    pub(crate) fn new(first: Carrier, limit: Option<u64>) -> Self {
        Self {
            phase: Phase::Only(first),
            limit,
        }
    }

    /// The carrier that takes work at present, or takes it over.
    fn present(&self) -> Carrier {
        match self.phase {
            Phase::Only(carrier)
            | Phase::Trial { carrier, .. }
            | Phase::Remembered { carrier, .. }
            | Phase::Chosen { carrier, .. } => carrier,
        }
    }

    /// The one that was chosen by measurement of the path, and its bytes a second.
    pub(crate) fn chosen(&self) -> Option<(Carrier, f64)> {
        match self.phase {
            Phase::Chosen {
                carrier,
                rate,
                is_limited: false,
                ..
            } => Some((carrier, rate)),
            _ => None,
        }
    }

    /// TCP connections are there: both are measured, QUIC first, unless it is remembered which one is better, and how
    /// many bytes a second it had.
    pub(crate) fn offer_tcp(
        &mut self,
        now: Instant,
        totals: Totals,
        remembered: Option<(Carrier, f64)>,
    ) -> Option<Decision> {
        let Some((carrier, rate)) = remembered else {
            return self.begin(now, totals);
        };
        if carrier == self.present() {
            return Some(self.recall(now, totals, carrier, rate));
        }
        self.phase = Phase::Remembered {
            carrier,
            rate,
            before: totals.bytes(carrier),
        };
        Some(Decision::Use(&BOTH))
    }

    fn recall(&mut self, now: Instant, totals: Totals, carrier: Carrier, rate: f64) -> Decision {
        self.phase = Phase::Chosen {
            carrier,
            rate,
            is_limited: false,
            window: (now, totals.bytes(carrier)),
            began: now,
        };
        let reason = format!("{} was better here in an earlier transfer", carrier.name());
        Decision::Choose(carrier, reason)
    }

    /// TCP connections are there, and the user wants them to be used.
    pub(crate) fn prefer_tcp(&mut self) -> Option<Decision> {
        self.phase = Phase::Only(Carrier::Tcp);
        Some(Decision::Choose(Carrier::Tcp, "it was asked for".to_owned()))
    }

    /// Whether it goes by what is remembered, and has not seen it carry yet.
    pub(crate) fn recalls(&self) -> bool {
        matches!(self.phase, Phase::Remembered { .. })
    }

    /// TCP connections are gone.
    pub(crate) fn lose_tcp(&mut self) -> Option<Decision> {
        let used_it = self.present() == Carrier::Tcp;
        self.phase = Phase::Only(Carrier::Quic);
        let told = "the TCP connections were lost".to_owned();
        used_it.then_some(Decision::Choose(Carrier::Quic, told))
    }

    fn begin(&mut self, now: Instant, totals: Totals) -> Option<Decision> {
        self.try_out(now, totals, self.present(), None, now)
    }

    fn try_out(
        &mut self,
        now: Instant,
        totals: Totals,
        carrier: Carrier,
        other: Option<Sample>,
        began: Instant,
    ) -> Option<Decision> {
        let changes = self.present() != carrier;
        self.phase = Phase::Trial {
            carrier,
            since: now,
            is_proven: !changes,
            start: None,
            seen: totals.bytes(carrier),
            other,
            began,
        };
        changes.then_some(Decision::Use(&BOTH))
    }

    /// Looks at the counters; often.
    pub(crate) fn look(&mut self, now: Instant, totals: Totals) -> Option<Decision> {
        let limit = self.limit;
        match &mut self.phase {
            Phase::Only(_) => None,
            Phase::Remembered {
                carrier,
                rate,
                before,
            } => {
                let (carrier, rate) = (*carrier, *rate);
                let has_come = totals.bytes(carrier) > *before;
                has_come.then(|| self.recall(now, totals, carrier, rate))
            }
            Phase::Trial {
                carrier,
                since,
                is_proven,
                start,
                seen,
                other,
                began,
            } => {
                let (carrier, other, began) = (*carrier, *other, *began);
                // Nothing to send is no measurement.
                let bytes = totals.bytes(carrier);
                if std::mem::replace(seen, bytes) == bytes {
                    return None;
                }
                if !std::mem::replace(is_proven, true) {
                    *since = now;
                    return Some(Decision::Use(alone(carrier)));
                }
                let next = other_than(carrier);
                let Some((from, before)) = *start else {
                    let is_alone = !totals.under_way[next as usize];
                    if is_alone && now.duration_since(*since) >= TRIAL_SETTLING {
                        *start = Some((now, totals));
                    }
                    return None;
                };
                let elapsed = now.duration_since(from);
                let mut sample = Sample {
                    bytes: bytes - before.bytes(carrier),
                    elapsed,
                    cpu: totals.cpu.saturating_sub(before.cpu),
                    is_limited: false,
                };
                if !sample.is_enough(other.as_ref()) {
                    return None;
                }
                // What is compressed passes faster: only who also waits for the limit is held by it.
                let waited = totals.limited.saturating_sub(before.limited);
                sample.is_limited = waited >= elapsed / 2
                    && limit.is_some_and(|limit| sample.rate() >= limit as f64 * LIMITED_SHARE);
                if other.is_none() && totals.left.is_some_and(|left| left < TRIAL_BYTES_LEFT_MIN) {
                    return None;
                }
                let Some(other) = other else {
                    return self.try_out(now, totals, next, Some(sample), began);
                };
                let (quic, tcp) = match carrier {
                    Carrier::Quic => (sample, other),
                    Carrier::Tcp => (other, sample),
                };
                Some(self.choose(now, totals, began, [quic, tcp]))
            }
            Phase::Chosen {
                carrier,
                rate,
                window,
                began,
                ..
            } => {
                let (since, before) = *window;
                let elapsed = now.duration_since(since);
                if elapsed < CHOICE_WINDOW {
                    return None;
                }
                let bytes = totals.bytes(*carrier);
                let present = (bytes - before) as f64 / elapsed.as_secs_f64();
                *window = (now, bytes);
                let may = now.duration_since(*began) >= CHOICE_HYSTERESIS;
                // The limit lets pass no more, or what it lets pass was compressed.
                let expected = limit.map_or(*rate, |limit| rate.min(limit as f64 * LIMITED_SHARE));
                // Nothing at all is an end, or a disk that stands.
                if may && present > 0.0 && present < expected / 2.0 {
                    return self.begin(now, totals);
                }
                *rate = rate.max(present);
                None
            }
        }
    }

    fn choose(&mut self, now: Instant, totals: Totals, began: Instant, samples: [Sample; 2]) -> Decision {
        let carrier = better(&samples);
        self.phase = Phase::Chosen {
            carrier,
            rate: samples[carrier as usize].rate(),
            is_limited: are_limited(&samples),
            window: (now, totals.bytes(carrier)),
            began,
        };
        Decision::Choose(carrier, reason(carrier, &samples))
    }
}

/// The one that is better by more than a tenth in goodput; where neither is, or the user's limit holds both, the one
/// that takes less processor time.
fn better(samples: &[Sample; 2]) -> Carrier {
    let [quic, tcp] = samples;
    let faster = match are_limited(samples) {
        true => 1.0,
        false => quic.rate() / tcp.rate().max(1.0),
    };
    if faster > 1.1 {
        Carrier::Quic
    } else if faster < 1.0 / 1.1 || tcp.cpu_per_gigabyte() < quic.cpu_per_gigabyte() {
        Carrier::Tcp
    } else {
        Carrier::Quic
    }
}

fn are_limited(samples: &[Sample; 2]) -> bool {
    samples.iter().all(|sample| sample.is_limited)
}

fn reason(carrier: Carrier, samples: &[Sample; 2]) -> String {
    let figures = |sample: &Sample| {
        let megabits = sample.rate() * 8.0 / 1e6;
        format!(
            "{megabits:.0} Mbit/s and {:.2} CPU s/GB",
            sample.cpu_per_gigabyte()
        )
    };
    let here = match are_limited(samples) {
        true => "within the limit",
        false => "here",
    };
    let [quic, tcp] = samples.each_ref().map(figures);
    format!(
        "{} is better {here}: measured TCP {tcp}, QUIC {quic}",
        carrier.name()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate_limit::RateLimit;

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
        totals.under_way = [true, true];
        for _ in 0..60 {
            let decision = step(&mut choice, &mut clock, &mut totals, [2e8, 4e7], [1.0, 1.0]);
            assert!(!matches!(decision, Some(Decision::Choose(..))), "{decision:?}");
        }
        totals.under_way = [false, true];
        let decision = decide(&mut choice, &mut clock, &mut totals, [2e8, 4e8], [1.0, 1.0]);
        assert!(
            matches!(decision, Some(Decision::Choose(Carrier::Tcp, _))),
            "{decision:?}"
        );
    }

    /// Chunks that threads send under a limit, as `send/lane.rs` does, in steps of virtual time.
    struct Limited {
        limit: RateLimit,
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
                limit: RateLimit::new(limit),
                choice: Choice::new(Carrier::Quic, Some(limit)),
                start: now,
                now,
                totals: Totals::default(),
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
                let mut under_way = self.arrivals.iter();
                self.totals.under_way[carrier as usize] = under_way.any(|(_, of)| *of == carrier);
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
}
