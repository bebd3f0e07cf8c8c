//! Which carrier takes the chunks, decided by measurement: first each carries for a while, then the one that is
//! better by more than a tenth, in goodput or, where that is alike, in processor time of both ends. Pure: time and
//! counters are told.
//!
//! A carrier whose rate falls to half is measured against the other again, at most every [`HYSTERESIS`].

use std::time::{Duration, Instant};

use crate::carrier::Carrier;

/// A carrier is measured for so long, unless [`TRIAL_BYTES`] have arrived before.
pub(crate) const TRIAL_TIME: Duration = Duration::from_millis(500);

/// Both trials together are the first 64 MiB of a transfer.
pub(crate) const TRIAL_BYTES: u64 = 32 << 20;

/// At the beginning of a trial the other carrier's chunks still arrive, and this one's rate rises.
const SETTLING: Duration = Duration::from_millis(50);

/// Between two measurements.
pub(crate) const HYSTERESIS: Duration = Duration::from_secs(10);

/// Over which the present rate is measured.
const WINDOW: Duration = Duration::from_secs(2);

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
pub(crate) struct Choice {
    phase: Phase,
    has_tcp: bool,
    samples: [Option<Sample>; 2],
    /// The rate that the chosen carrier had when it was measured.
    rate: f64,
    window: (Instant, u64),
    measured: Option<Instant>,
}

enum Phase {
    /// There is only QUIC, or only it is allowed.
    Only(Carrier),
    Trial {
        carrier: Carrier,
        since: Instant,
        start: Option<(Instant, Totals)>,
    },
    Chosen(Carrier),
}

impl Choice {
    /// Begins with this carrier.
    pub(crate) fn new(now: Instant, first: Carrier) -> Self {
        Self {
            phase: Phase::Only(first),
            has_tcp: false,
            samples: [None; 2],
            rate: 0.0,
            window: (now, 0),
            measured: None,
        }
    }

    /// The carrier that takes work at present.
    pub(crate) fn present(&self) -> Carrier {
        match self.phase {
            Phase::Only(carrier) | Phase::Trial { carrier, .. } | Phase::Chosen(carrier) => carrier,
        }
    }

    /// TCP connections are there: both are measured, QUIC first.
    pub(crate) fn offer_tcp(&mut self, now: Instant) -> Option<Decision> {
        self.has_tcp = true;
        self.begin(now)
    }

    /// TCP connections are there, and the user wants them to be used.
    pub(crate) fn prefer_tcp(&mut self) -> Option<Decision> {
        self.phase = Phase::Only(Carrier::Tcp);
        Some(Decision::Choose(Carrier::Tcp, "it was asked for".to_owned()))
    }

    /// TCP connections are gone.
    pub(crate) fn lose_tcp(&mut self) -> Option<Decision> {
        let used_it = self.present() == Carrier::Tcp;
        self.has_tcp = false;
        self.phase = Phase::Only(Carrier::Quic);
        let told = "the TCP connections were lost".to_owned();
        used_it.then_some(Decision::Choose(Carrier::Quic, told))
    }

    fn begin(&mut self, now: Instant) -> Option<Decision> {
        self.samples = [None; 2];
        self.measured = Some(now);
        self.try_out(now, self.present())
    }

    fn try_out(&mut self, now: Instant, carrier: Carrier) -> Option<Decision> {
        let changes = self.present() != carrier;
        self.phase = Phase::Trial {
            carrier,
            since: now,
            start: None,
        };
        changes.then_some(Decision::Use(carrier))
    }

    /// Looks at the counters; often.
    pub(crate) fn look(&mut self, now: Instant, totals: Totals) -> Option<Decision> {
        match &mut self.phase {
            Phase::Only(_) => None,
            Phase::Trial {
                carrier,
                since,
                start,
            } => {
                let carrier = *carrier;
                let Some((began, before)) = *start else {
                    if now.duration_since(*since) >= SETTLING {
                        *start = Some((now, totals));
                    }
                    return None;
                };
                let sample = Sample {
                    bytes: totals.bytes(carrier) - before.bytes(carrier),
                    elapsed: now.duration_since(began),
                    cpu: totals.cpu.saturating_sub(before.cpu),
                };
                if sample.bytes < TRIAL_BYTES && sample.elapsed < TRIAL_TIME {
                    return None;
                }
                self.samples[carrier as usize] = Some(sample);
                match self.samples {
                    [Some(quic), Some(tcp)] => Some(self.choose(now, totals, quic, tcp)),
                    _ => {
                        let other = match carrier {
                            Carrier::Quic => Carrier::Tcp,
                            Carrier::Tcp => Carrier::Quic,
                        };
                        self.try_out(now, other)
                    }
                }
            }
            Phase::Chosen(carrier) => {
                let (since, before) = self.window;
                let elapsed = now.duration_since(since);
                if elapsed < WINDOW {
                    return None;
                }
                let bytes = totals.bytes(*carrier);
                let rate = (bytes - before) as f64 / elapsed.as_secs_f64();
                self.window = (now, bytes);
                let may = self
                    .measured
                    .is_none_or(|measured| now.duration_since(measured) >= HYSTERESIS);
                // Nothing at all is an end, or a disk that stands.
                if may && self.has_tcp && rate > 0.0 && rate < self.rate / 2.0 {
                    return self.begin(now);
                }
                self.rate = self.rate.max(rate);
                None
            }
        }
    }

    fn choose(&mut self, now: Instant, totals: Totals, quic: Sample, tcp: Sample) -> Decision {
        let carrier = better(&quic, &tcp);
        let chosen = match carrier {
            Carrier::Quic => &quic,
            Carrier::Tcp => &tcp,
        };
        self.rate = chosen.rate();
        self.window = (now, totals.bytes(carrier));
        self.phase = Phase::Chosen(carrier);
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
        let mut choice = Choice::new(clock, Carrier::Quic);
        assert_eq!(
            step(&mut choice, &mut clock, &mut totals, rates, costs),
            None,
            "there is nothing to choose"
        );
        assert_eq!(choice.offer_tcp(clock), None, "QUIC is tried first");
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
        let mut choice = Choice::new(clock, Carrier::Quic);
        choice.offer_tcp(clock);
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
        assert!(clock - began >= HYSTERESIS - Duration::from_secs(2));
        // A steady rate is left alone.
        assert_eq!(
            decide(&mut choice, &mut clock, &mut totals, [1e8, 1e6], costs),
            None
        );
    }

    #[test]
    fn without_tcp_connections_quic_carries_everything() {
        let (mut clock, mut totals) = (Instant::now(), Totals::default());
        let mut choice = Choice::new(clock, Carrier::Quic);
        choice.offer_tcp(clock);
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
}
