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
//! TCP falls silent where its path dies, which the system tells after long. Where nothing of what it has under way
//! arrives for much longer than it should take, while the receiver is heard by QUIC, QUIC takes work beside it until it
//! is seen to carry again, and what is under way on it at the end. Where that happens while TCP is measured, QUIC is
//! chosen, and TCP measured again where it has not died. Where the user asked for TCP, it is waited for until the
//! system gives it up ([`TCP_SILENCE_MAX`](crate::limits::TCP_SILENCE_MAX)).
//!
//! A carrier whose rate falls to half is measured against the other again, at most every [`CHOICE_HYSTERESIS`]. One
//! that was chosen in an earlier transfer between the same two places is taken at once, and measured again in the same
//! case.

use std::time::{Duration, Instant};

use files_proto::limits::CHUNK_BYTES;

use crate::carrier::Carrier;
use crate::limits::{
    CHOICE_HYSTERESIS, CHOICE_WINDOW, SILENCE_MIN, SILENCE_REST, TRIAL_BYTES, TRIAL_BYTES_LEFT_MIN,
    TRIAL_BYTES_MIN, TRIAL_SETTLING, TRIAL_TIME, TRIAL_TIME_MAX, TRIAL_TIME_MIN,
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
    /// Threads of which chunks are on their way, by carrier.
    pub(crate) under_way: [usize; 2],
    /// Whether the receiver has been heard of late: what it does not acknowledge has not come.
    pub(crate) is_heard: bool,
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
    silence: Silence,
}

/// Whether TCP carries what it is given.
#[derive(Default)]
struct Silence {
    is_silent: bool,
    /// Its bytes at the last look.
    seen: u64,
    /// Since when nothing has come of it, or nothing is under way on one that is silent.
    since: Option<Instant>,
}

impl Silence {
    /// Looks at the counters; `patience`: after how long it should have brought something, where that is known.
    fn look(&mut self, now: Instant, totals: &Totals, patience: Option<Duration>) {
        let is_under_way = totals.under_way[Carrier::Tcp as usize] > 0;
        if std::mem::replace(&mut self.seen, totals.tcp) != totals.tcp {
            self.is_silent = false;
            self.since = None;
        }
        // Silent, it is not to have what it lost again, and may prove itself after a while.
        if !totals.is_heard || is_under_way == self.is_silent {
            self.since = None;
        }
        let silence = now.duration_since(*self.since.get_or_insert(now));
        if self.is_silent {
            self.is_silent = silence < SILENCE_REST;
        } else if patience.is_some_and(|patience| silence >= patience) {
            *self = Self {
                is_silent: true,
                seen: totals.tcp,
                since: None,
            };
        }
    }
}

/// A carrier may bring everything later than its rate says, by this factor.
const PATIENCE: u32 = 4;

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
        /// Bytes a second that it had when it was chosen, where it was.
        before: Option<f64>,
        /// When the first of both trials began.
        began: Instant,
    },
    /// It is remembered, and takes work beside the other one until the first of it has arrived.
    Remembered {
        carrier: Carrier,
        rate: f64,
        /// Its bytes at the beginning.
        before: u64,
        /// Why it is to be used then.
        reason: &'static str,
    },
    Chosen {
        carrier: Carrier,
        /// Bytes a second that it had when it was measured, or more since.
        rate: f64,
        grounds: Grounds,
        /// When its present rate was last looked at, and its bytes then.
        window: (Instant, u64),
        /// When the measurement began.
        began: Instant,
    },
}

/// Why a carrier was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Grounds {
    /// It is better on this path.
    Path,
    /// It costs less within the user's limit, which says nothing of the path.
    Limit,
    /// The other one fell silent while it was measured: its path may be dead, or the receiver's disk stood still.
    Silence,
}

impl Choice {
    /// Begins with this carrier; `limit` is the user's, in bytes a second.
    pub(crate) fn new(first: Carrier, limit: Option<u64>) -> Self {
        Self {
            phase: Phase::Only(first),
            limit,
            silence: Silence::default(),
        }
    }

    /// The user's limit, which changes with the transfers that share it.
    pub(crate) fn set_limit(&mut self, limit: Option<u64>) {
        self.limit = limit;
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
                grounds: Grounds::Path,
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
        let reason = "was better here in an earlier transfer";
        if carrier == self.present() {
            return Some(self.recall(now, totals, carrier, rate, reason));
        }
        self.phase = Phase::Remembered {
            carrier,
            rate,
            before: totals.bytes(carrier),
            reason,
        };
        Some(Decision::Use(&BOTH))
    }

    fn recall(
        &mut self,
        now: Instant,
        totals: Totals,
        carrier: Carrier,
        rate: f64,
        reason: &str,
    ) -> Decision {
        self.phase = Phase::Chosen {
            carrier,
            rate,
            grounds: Grounds::Path,
            window: (now, totals.bytes(carrier)),
            began: now,
        };
        Decision::Choose(carrier, format!("{} {reason}", carrier.name()))
    }

    /// TCP connections are there, and the user wants them to be used.
    pub(crate) fn prefer_tcp(&mut self) -> Option<Decision> {
        self.phase = Phase::Only(Carrier::Tcp);
        Some(Decision::Choose(Carrier::Tcp, "it was asked for".to_owned()))
    }

    /// Whether TCP brings nothing of what it has: QUIC is to send that as well where it has nothing else to do, and TCP
    /// takes nothing more.
    pub(crate) fn is_tcp_silent(&self) -> bool {
        self.silence.is_silent
    }

    /// How long TCP may bring nothing while chunks are under way on it, as far as something is known of the path's
    /// rate: each of its threads has one that shares the path with those of the others.
    fn patience(&self, totals: &Totals) -> Option<Duration> {
        let rate = match &self.phase {
            Phase::Only(_) => return None,
            // Nothing is given to it.
            Phase::Trial {
                carrier: Carrier::Quic,
                is_proven: true,
                ..
            } => return None,
            Phase::Trial { other, before, .. } => other.as_ref().map(Sample::rate).or(*before)?,
            Phase::Remembered { rate, .. } | Phase::Chosen { rate, .. } => *rate,
        };
        let rate = self
            .limit
            .map_or(rate, |limit| rate.min(limit as f64 * LIMITED_SHARE));
        let bytes = totals.under_way[Carrier::Tcp as usize] as f64 * CHUNK_BYTES as f64;
        let time = Duration::try_from_secs_f64(bytes / rate.max(1.0)).ok()?;
        Some((time * PATIENCE).max(SILENCE_MIN))
    }

    /// Whether it goes by what is remembered, and has not seen it carry yet.
    pub(crate) fn recalls(&self) -> bool {
        matches!(self.phase, Phase::Remembered { .. })
    }

    /// TCP connections are gone.
    pub(crate) fn lose_tcp(&mut self) -> Option<Decision> {
        let used_it = self.present() == Carrier::Tcp;
        self.phase = Phase::Only(Carrier::Quic);
        self.silence = Silence::default();
        let told = "the TCP connections were lost".to_owned();
        used_it.then_some(Decision::Choose(Carrier::Quic, told))
    }

    fn begin(&mut self, now: Instant, totals: Totals) -> Option<Decision> {
        self.try_out(now, totals, self.present(), None, now)
    }

    /// TCP has fallen silent while it was measured.
    fn give_up_trial(
        &mut self,
        now: Instant,
        totals: Totals,
        tcp: Sample,
        quic: Option<Sample>,
        began: Instant,
    ) -> Option<Decision> {
        let Some(quic) = quic else {
            return self.try_out(now, totals, Carrier::Quic, Some(tcp), began);
        };
        self.phase = Phase::Chosen {
            carrier: Carrier::Quic,
            rate: quic.rate(),
            grounds: Grounds::Silence,
            window: (now, totals.quic),
            began: now,
        };
        let told = "TCP brought nothing more while it was measured".to_owned();
        Some(Decision::Choose(Carrier::Quic, told))
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
        let before = match self.phase {
            Phase::Chosen { rate, .. } if !changes => Some(rate),
            _ => None,
        };
        self.phase = Phase::Trial {
            carrier,
            since: now,
            is_proven: !changes,
            start: None,
            seen: totals.bytes(carrier),
            other,
            before,
            began,
        };
        changes.then_some(Decision::Use(&BOTH))
    }

    /// Looks at the counters; often.
    pub(crate) fn look(&mut self, now: Instant, totals: Totals) -> Option<Decision> {
        let limit = self.limit;
        let patience = self.patience(&totals);
        self.silence.look(now, &totals, patience);
        match &mut self.phase {
            Phase::Only(_) => None,
            Phase::Remembered {
                carrier,
                rate,
                before,
                reason,
            } => {
                let (carrier, rate, reason) = (*carrier, *rate, *reason);
                let has_come = totals.bytes(carrier) > *before;
                has_come.then(|| self.recall(now, totals, carrier, rate, reason))
            }
            Phase::Chosen {
                carrier: Carrier::Tcp,
                rate,
                ..
            } if self.silence.is_silent => {
                self.phase = Phase::Remembered {
                    carrier: Carrier::Tcp,
                    rate: *rate,
                    before: totals.tcp,
                    reason: "carries again after a silence",
                };
                Some(Decision::Use(&BOTH))
            }
            Phase::Trial {
                carrier: Carrier::Tcp,
                is_proven: true,
                since,
                start,
                other,
                began,
                ..
            } if self.silence.is_silent => {
                let (quic, began) = (*other, *began);
                let (from, bytes) =
                    start.map_or((*since, 0), |(from, before)| (from, totals.tcp - before.tcp));
                let tcp = Sample {
                    bytes,
                    elapsed: now.duration_since(from),
                    cpu: Duration::ZERO,
                    is_limited: false,
                };
                self.give_up_trial(now, totals, tcp, quic, began)
            }
            Phase::Trial {
                carrier,
                since,
                is_proven,
                start,
                seen,
                other,
                began,
                ..
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
                    let is_alone = totals.under_way[next as usize] == 0;
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
                grounds,
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
                // The limit lets pass no more, or what it lets pass was compressed.
                let expected = limit.map_or(*rate, |limit| rate.min(limit as f64 * LIMITED_SHARE));
                let is_due =
                    *grounds == Grounds::Silence && !self.silence.is_silent || present < expected / 2.0;
                // Nothing at all is an end, or a disk that stands.
                if may && present > 0.0 && is_due {
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
            grounds: match are_limited(&samples) {
                true => Grounds::Limit,
                false => Grounds::Path,
            },
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
    let why = match are_limited(samples) {
        // Each measured rate is about the limit, and says nothing.
        true => "costs less processor time within the limit",
        false => "is better here",
    };
    let [quic, tcp] = samples.each_ref().map(figures);
    format!("{} {why}: measured TCP {tcp}, QUIC {quic}", carrier.name())
}

#[cfg(test)]
mod tests;
