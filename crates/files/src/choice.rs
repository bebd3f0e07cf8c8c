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
mod tests;
