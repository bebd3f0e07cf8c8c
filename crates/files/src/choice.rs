//! Which carrier takes the chunks, decided by measurement: first each carries for a while, then the one that is
//! better by more than a tenth, in goodput or, where that is alike, in processor time of both ends. Pure: time and
//! counters are told.
//!
//! A carrier whose rate falls to half is measured against the other again, at most every [`CHOICE_HYSTERESIS`]. One
//! that was chosen in an earlier transfer between the same two places is taken at once, and measured again in the same
//! case.

use std::time::{Duration, Instant};

use crate::carrier::Carrier;
use crate::limits::{CHOICE_HYSTERESIS, CHOICE_WINDOW, TRIAL_BYTES, TRIAL_SETTLING, TRIAL_TIME};

/// What a carrier did in its trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) bytes: u64,
    pub(crate) elapsed: Duration,
    /// Processor time of both ends.
    pub(crate) cpu: Duration,
}

impl Sample {
    fn rate(&self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64().max(1e-6)
    }

    fn cpu_per_gigabyte(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e9 / self.bytes.max(1) as f64
    }
}

/// Counters of a transfer so far: all only rise.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// Bytes that the receiver has, by carrier.
    pub(crate) quic: u64,
    pub(crate) tcp: u64,
    /// Processor time of both ends' processes.
    pub(crate) cpu: Duration,
}

impl Totals {
    fn bytes(&self, carrier: Carrier) -> u64 {
        match carrier {
            Carrier::Quic => self.quic,
            Carrier::Tcp => self.tcp,
        }
    }
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    /// Only this carrier is to take work.
    Use(Carrier),
    /// The same, for good reason: to be told.
    Choose(Carrier, String),
}

/// Decides.
pub(crate) struct Choice(Phase);

#[derive(Clone, Copy)]
enum Phase {
    /// There is only this one, or only it is allowed.
    Only(Carrier),
    Trial {
        carrier: Carrier,
        since: Instant,
        /// Once it has settled.
        start: Option<(Instant, Totals)>,
        /// Of the other one, where that had its turn.
        other: Option<Sample>,
        /// When the first of both trials began.
        began: Instant,
    },
    Chosen {
        carrier: Carrier,
        /// Bytes a second that it had when it was measured, or more since.
        rate: f64,
        /// When its present rate was last looked at, and its bytes then.
        window: (Instant, u64),
        /// When the measurement began.
        began: Instant,
    },
}

impl Choice {
    /// Begins with this carrier.
    pub(crate) fn new(first: Carrier) -> Self {
        Self(Phase::Only(first))
    }

    /// The carrier that takes work at present.
    pub(crate) fn present(&self) -> Carrier {
        match self.0 {
            Phase::Only(carrier) | Phase::Trial { carrier, .. } | Phase::Chosen { carrier, .. } => carrier,
        }
    }

    /// The one that was chosen by measurement, and its bytes a second.
    pub(crate) fn chosen(&self) -> Option<(Carrier, f64)> {
        match self.0 {
            Phase::Chosen { carrier, rate, .. } => Some((carrier, rate)),
            Phase::Only(_) | Phase::Trial { .. } => None,
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
            return self.begin(now);
        };
        self.0 = Phase::Chosen {
            carrier,
            rate,
            window: (now, totals.bytes(carrier)),
            began: now,
        };
        let reason = format!("{} was better here in an earlier transfer", carrier.name());
        Some(Decision::Choose(carrier, reason))
    }

    /// TCP connections are there, and the user wants them to be used.
    pub(crate) fn prefer_tcp(&mut self) -> Option<Decision> {
        self.0 = Phase::Only(Carrier::Tcp);
        Some(Decision::Choose(Carrier::Tcp, "it was asked for".to_owned()))
    }

    /// TCP connections are gone.
    pub(crate) fn lose_tcp(&mut self) -> Option<Decision> {
        let used_it = self.present() == Carrier::Tcp;
        self.0 = Phase::Only(Carrier::Quic);
        let told = "the TCP connections were lost".to_owned();
        used_it.then_some(Decision::Choose(Carrier::Quic, told))
    }

    fn begin(&mut self, now: Instant) -> Option<Decision> {
        self.try_out(now, self.present(), None, now)
    }

    fn try_out(
        &mut self,
        now: Instant,
        carrier: Carrier,
        other: Option<Sample>,
        began: Instant,
    ) -> Option<Decision> {
        let changes = self.present() != carrier;
        self.0 = Phase::Trial {
            carrier,
            since: now,
            start: None,
            other,
            began,
        };
        changes.then_some(Decision::Use(carrier))
    }

    /// Looks at the counters; often.
    pub(crate) fn look(&mut self, now: Instant, totals: Totals) -> Option<Decision> {
        match &mut self.0 {
            Phase::Only(_) => None,
            Phase::Trial {
                carrier,
                since,
                start,
                other,
                began,
            } => {
                let (carrier, other, began) = (*carrier, *other, *began);
                let Some((from, before)) = *start else {
                    if now.duration_since(*since) >= TRIAL_SETTLING {
                        *start = Some((now, totals));
                    }
                    return None;
                };
                let sample = Sample {
                    bytes: totals.bytes(carrier) - before.bytes(carrier),
                    elapsed: now.duration_since(from),
                    cpu: totals.cpu.saturating_sub(before.cpu),
                };
                if sample.elapsed < TRIAL_TIME && sample.bytes < TRIAL_BYTES {
                    return None;
                }
                // Nothing to send is no measurement.
                if sample.bytes == 0 {
                    *start = Some((now, totals));
                    return None;
                }
                let next = match carrier {
                    Carrier::Quic => Carrier::Tcp,
                    Carrier::Tcp => Carrier::Quic,
                };
                let Some(other) = other else {
                    return self.try_out(now, next, Some(sample), began);
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
                // Nothing at all is an end, or a disk that stands.
                if may && present > 0.0 && present < *rate / 2.0 {
                    return self.begin(now);
                }
                *rate = rate.max(present);
                None
            }
        }
    }

    fn choose(&mut self, now: Instant, totals: Totals, began: Instant, samples: [Sample; 2]) -> Decision {
        let [quic, tcp] = samples;
        let carrier = better(&quic, &tcp);
        self.0 = Phase::Chosen {
            carrier,
            rate: samples[carrier as usize].rate(),
            window: (now, totals.bytes(carrier)),
            began,
        };
        Decision::Choose(carrier, reason(carrier, &quic, &tcp))
    }
}

/// The one that is better by more than a tenth in goodput; where neither is, the one that takes less processor time.
fn better(quic: &Sample, tcp: &Sample) -> Carrier {
    let faster = quic.rate() / tcp.rate().max(1.0);
    if faster > 1.1 {
        Carrier::Quic
    } else if faster < 1.0 / 1.1 || tcp.cpu_per_gigabyte() < quic.cpu_per_gigabyte() {
        Carrier::Tcp
    } else {
        Carrier::Quic
    }
}

fn reason(carrier: Carrier, quic: &Sample, tcp: &Sample) -> String {
    let figures = |sample: &Sample| {
        let megabits = sample.rate() * 8.0 / 1e6;
        format!(
            "{megabits:.0} Mbit/s and {:.2} CPU s/GB",
            sample.cpu_per_gigabyte()
        )
    };
    let (tcp, quic) = (figures(tcp), figures(quic));
    format!(
        "{} is better here: measured TCP {tcp}, QUIC {quic}",
        carrier.name()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut choice = Choice::new(Carrier::Quic);
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
        let mut choice = Choice::new(Carrier::Quic);
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
        let mut choice = Choice::new(Carrier::Quic);
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
            let mut choice = Choice::new(Carrier::Quic);
            let remembered = Some((Carrier::Tcp, 2e8));
            let decision = choice.offer_tcp(clock, totals, remembered);
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
}
