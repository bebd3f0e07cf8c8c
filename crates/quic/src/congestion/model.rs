//! The congestion controller for tunnels: a model of the path, and the phases in which it is measured.
//!
//! The reference is BBRv3 (draft-ietf-ccwg-bbr). As there: the rate is what the path was seen to deliver, the window is that
//! rate times the round trip without a queue, a start doubles until the path is full, and cycles probe with a quarter more
//! and drain with a quarter less. It differs in five places:
//!
//! - Loss that stays when less is sent is no congestion, however much it is ([`super::loss`]), and the rate is raised by
//!   it, so that what arrives fills the path.
//! - Delay is answered: no phase lets a queue of its own stand above [`Tuning::queue_max`]; a start ends with the first one.
//! - Probes come every few round trips as long as they cost nobody anything, and every few seconds where they cause loss.
//!   A probe that finds more begins another start, so a path that became twenty times as fast is full ten round trips
//!   later.
//! - A path that became slower or longer is noticed from its delay, without waiting for filters to forget.
//! - Datagrams have senders that decide on their rate, and often control it: they may go a quarter faster than the path was
//!   seen to deliver at any time, and only the window, which bounds the queue, holds them back.

use std::time::{Duration, Instant};

use super::bandwidth::Bandwidth;
use super::delivery::{Delivery, Pressure, Sample, bytes_in, rate};
use super::estimate::{PathEstimate, Phase};
use super::gate::{Allowance, Gate};
use super::loss::{Floor, Tally};
use super::round_trip::RoundTrip;
use super::sharing::Sharing;
use super::tuning::{self, Tuning};

#[derive(Clone)]
pub(super) struct Model {
    tuning: Tuning,
    gate: Gate,
    mtu: u64,
    delivery: Delivery,
    round_trip: RoundTrip,
    bandwidth: Bandwidth,
    floor: Floor,
    phase: Phase,
    phase_since: Instant,
    /// When the last input came.
    now: Instant,
    /// The bandwidth when the last start began; and until when there is no other, because it found nothing.
    started_from: u64,
    no_start_until: Instant,
    /// A start has ended: the bandwidth is the path's.
    is_full: bool,
    /// Bandwidth at the last round of a start that grew, and rounds since.
    grown: u64,
    stalled_rounds: u32,
    /// Acknowledgements in a row that met a queue.
    queued_samples: u32,
    probing: Tally,
    steady: Tally,
    calm: Tally,
    /// Bytes in flight at which the path began to lose.
    inflight_high: Option<u64>,
    /// The largest delivery rate of this round and the last.
    round_rate: u64,
    last_round_rate: u64,
    /// Loss of what left until then has been answered.
    answered_until: Option<Instant>,
    /// When the next probe is due, and the bandwidth before the last one.
    probe_at: Instant,
    probed_from: u64,
    /// The search for the base: since when no more than the target is in flight.
    drained_at: Option<Instant>,
    rounds_in_phase: u32,
    /// Rounds in a row in which the sender had nothing more to send.
    limited_rounds: u32,
    sharing: Sharing,
    /// A queue stood when our own had left.
    others_queue: bool,
    /// A probe down follows no probe up, and looks whether the floor is one.
    checks_floor: bool,
    /// Until when a probe for more would make others lose.
    costly_until: Instant,
    slowdown: Slowdown,
    random: u64,
}

/// Windows of one base round trip in which the path delivered far less than it did before, although a queue stood.
#[derive(Clone, Copy, Debug)]
struct Slowdown {
    since: Instant,
    delivered: u64,
    previous: u64,
    windows: u32,
}

impl Model {
    pub(super) fn new(tuning: Tuning, gate: Gate, now: Instant, mtu: u16) -> Self {
        let model = Self {
            tuning,
            gate,
            mtu: mtu.into(),
            delivery: Delivery::new(now),
            round_trip: RoundTrip::new(now),
            bandwidth: Bandwidth::default(),
            floor: Floor::default(),
            phase: Phase::Startup,
            phase_since: now,
            now,
            started_from: 0,
            no_start_until: now,
            is_full: false,
            grown: 0,
            stalled_rounds: 0,
            queued_samples: 0,
            probing: Tally::default(),
            steady: Tally::default(),
            calm: Tally::default(),
            inflight_high: None,
            round_rate: 0,
            last_round_rate: 0,
            answered_until: None,
            probe_at: now,
            probed_from: 0,
            drained_at: None,
            rounds_in_phase: 0,
            limited_rounds: 0,
            sharing: Sharing::default(),
            others_queue: false,
            checks_floor: false,
            costly_until: now,
            slowdown: Slowdown {
                since: now,
                delivered: 0,
                previous: 0,
                windows: 0,
            },
            random: 0x9e37_79b9_7f4a_7c15,
        };
        model.publish();
        model
    }

    // Input.

    pub(super) fn on_sent(&mut self, now: Instant, bytes: u64) {
        if self.gate.take_idle() {
            self.delivery.limit();
        }
        // quinn-proto does not ask before it sends what does not count: acknowledgements, and probes.
        if !self.gate.was_asked() {
            return;
        }
        let pressure = self.pressure();
        self.delivery.on_sent(now, bytes, pressure);
        self.publish();
    }

    pub(super) fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64) {
        let packets = bytes as f64 / self.mtu as f64;
        match self.delivery.on_ack(now, sent, bytes) {
            Some(Pressure::Probing) => self.probing.acknowledged += packets,
            Some(Pressure::Steady) => self.steady.acknowledged += packets,
            Some(Pressure::Calm) => self.calm.acknowledged += packets,
            None => {}
        }
    }

    pub(super) fn on_end_acks(&mut self, now: Instant, in_flight: u64) {
        self.now = now;
        if self.gate.take_idle() {
            self.delivery.limit();
        }
        let Some(sample) = self.delivery.end_acks(now, in_flight, self.round_trip.base()) else {
            self.publish();
            return;
        };
        self.round_trip.update(now, sample.round_trip);
        if let Some(rate) = sample.rate
            && (!sample.is_limited || rate >= self.bandwidth.most())
        {
            self.bandwidth.update(rate);
            self.round_rate = self.round_rate.max(rate);
        }
        if sample.ends_round {
            self.end_round(now, &sample);
        }
        self.watch_queue(now);
        self.watch_slowdown(now);
        self.advance(now, &sample);
        self.publish();
    }

    /// `lost_bytes` were lost, of which the newest left at `sent`; none where a mark came instead.
    pub(super) fn on_congestion(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent: bool,
        lost_bytes: u64,
    ) {
        self.delivery.on_lost(lost_bytes);
        if is_persistent {
            self.restart(now, self.bandwidth.get() / 2);
            self.gate.count_cut();
        } else if lost_bytes == 0 {
            if self.answered_until.is_some_and(|until| sent <= until) {
                return;
            }
            let departure = self.delivery.departure(sent).copied();
            let pressure = departure.map_or(Pressure::Steady, |departure| departure.pressure);
            self.answer_congestion(now, pressure, departure.map(|departure| departure.in_flight));
        } else {
            self.count_loss(now, sent, lost_bytes);
        }
        self.publish();
    }

    pub(super) fn on_mtu_update(&mut self, mtu: u16) {
        self.mtu = mtu.into();
        self.publish();
    }

    // Loss and marks.

    fn count_loss(&mut self, now: Instant, sent: Instant, lost_bytes: u64) {
        // What left before the last answer has been answered.
        if self.answered_until.is_some_and(|until| sent <= until) {
            return;
        }
        let packets = lost_bytes as f64 / self.mtu as f64;
        let pressure = self
            .delivery
            .departure(sent)
            .map_or(Pressure::Steady, |departure| departure.pressure);
        let tally = match pressure {
            Pressure::Probing => &mut self.probing,
            Pressure::Steady => &mut self.steady,
            Pressure::Calm => {
                self.calm.lost += packets;
                return;
            }
        };
        tally.lost += packets;
        let tally = *tally;
        // What is less clear waits for the end of the round.
        if self.phase != Phase::Startup && self.floor.is_far_exceeded(tally.lost, tally.sent()) {
            let in_flight = self.delivery.departure(sent).map(|departure| departure.in_flight);
            self.answer_congestion(now, pressure, in_flight);
        }
    }

    /// Answers a round that lost more than is random.
    fn judge_round(&mut self, now: Instant, in_flight: u64) {
        if self.phase == Phase::Startup {
            return;
        }
        for (tally, pressure) in [(self.steady, Pressure::Steady), (self.probing, Pressure::Probing)] {
            if self.floor.is_exceeded(tally.lost, tally.sent()) {
                self.answer_congestion(now, pressure, Some(in_flight));
                return;
            }
        }
    }

    /// The path lost, or marked, more than is random, of what was sent with `pressure`.
    fn answer_congestion(&mut self, now: Instant, pressure: Pressure, in_flight: Option<u64>) {
        self.answered_until = Some(now);
        if self.phase == Phase::Startup {
            self.gate.count_cut();
            self.end_start(now);
            return;
        }
        let pipe = self.pipe();
        let in_flight = in_flight.unwrap_or(pipe);
        let mut high = in_flight.max(scale(pipe, tuning::CUT));
        // Nothing of ours overflows a queue without a probe: others share it, and each probe makes them lose.
        let overflows = pressure == Pressure::Steady && self.round_trip.had_queue();
        if overflows {
            self.sharing.overflowed(now, self.base());
        }
        if self.sharing.others_do_not_yield(now) {
            self.floor.learn(self.steady.acknowledged, self.steady.lost);
            self.inflight_high = None;
            self.costly_until = now;
            return;
        }
        if overflows {
            high = scale(in_flight, tuning::CUT_SHARED);
            self.bandwidth
                .restart(scale(self.bandwidth.get(), tuning::CUT_SHARED));
        } else if pressure == Pressure::Steady {
            let recent = self.round_rate.max(self.last_round_rate);
            let cut = scale(self.bandwidth.get(), tuning::CUT);
            self.bandwidth.bound(recent.min(self.bandwidth.get()).max(cut));
        }
        self.gate.count_cut();
        self.inflight_high = Some(self.inflight_high.map_or(high, |old| old.min(high)));
        self.postpone_probe(now, overflows || pressure == Pressure::Probing);
        if matches!(self.phase, Phase::Cruise | Phase::ProbeUp) {
            self.enter(now, Phase::ProbeDown);
        }
    }

    // Rounds.

    fn end_round(&mut self, now: Instant, sample: &Sample) {
        self.round_trip.end_round();
        self.rounds_in_phase += 1;
        self.limited_rounds = if sample.is_limited {
            self.limited_rounds + 1
        } else {
            0
        };
        let calm = self.calm.take();
        self.floor.learn(calm.acknowledged, calm.lost);
        match self.phase {
            Phase::Startup => self.end_round_of_start(now, sample),
            Phase::Cruise | Phase::ProbeDown
                if self.round_trip.queue() > self.tuning.queue_max(self.base())
                    && !self.delivery.is_limited() =>
            {
                // A queue that a round of sending less has not shortened is not ours, or the path is longer.
                if self.phase == Phase::ProbeDown && self.rounds_in_phase >= 2 {
                    self.search_base(now);
                } else if self.phase == Phase::Cruise {
                    self.enter(now, Phase::ProbeDown);
                }
            }
            _ => {}
        }
        self.judge_round(now, sample.departure.in_flight);
        self.probing = Tally::default();
        self.steady = Tally::default();
        self.last_round_rate = std::mem::take(&mut self.round_rate);
    }

    fn end_round_of_start(&mut self, now: Instant, sample: &Sample) {
        let bandwidth = self.bandwidth.get();
        if bandwidth as f64 >= self.grown as f64 * tuning::GROWTH {
            self.grown = bandwidth;
            self.stalled_rounds = 0;
            return;
        }
        let (lost, sent) = (self.probing.lost, self.probing.sent());
        let mut is_lossy = self.floor.is_far_exceeded(lost, sent);
        if !sample.is_limited {
            self.stalled_rounds += 1;
            is_lossy |= self.stalled_rounds >= 2 && self.floor.is_exceeded(lost, sent);
        }
        if self.stalled_rounds >= tuning::STALLED_ROUNDS || is_lossy {
            if is_lossy {
                self.gate.count_cut();
            }
            self.end_start(now);
        }
    }

    // Delay.

    /// A start ends with its first queue.
    fn watch_queue(&mut self, now: Instant) {
        if self.phase != Phase::Startup {
            return;
        }
        if self.round_trip.queue_now() <= self.tuning.queue_at_start(self.base()) {
            self.queued_samples = 0;
            return;
        }
        self.queued_samples += 1;
        if self.queued_samples >= tuning::QUEUED_SAMPLES && !self.delivery.is_limited() {
            self.end_start(now);
        }
    }

    /// Notices a path that delivers far less than it did: a queue grows, and acknowledgements come slowly, for two round
    /// trips in a row.
    fn watch_slowdown(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.slowdown.since);
        if elapsed < self.base().max(tuning::SLOWDOWN_WINDOW_MIN) {
            return;
        }
        let delivered = rate(self.delivery.delivered() - self.slowdown.delivered, elapsed);
        self.slowdown.since = now;
        self.slowdown.delivered = self.delivery.delivered();
        let is_slow = self.is_full
            && !self.tuning.is_local(self.base())
            && self.phase != Phase::ProbeRoundTrip
            && !self.delivery.is_limited()
            && self.round_trip.queue_now() > self.tuning.queue_max(self.base())
            && (delivered as f64) < self.bandwidth.get() as f64 * tuning::SLOWDOWN;
        if !is_slow {
            self.slowdown.windows = 0;
        } else {
            self.slowdown.windows += 1;
            if self.slowdown.windows >= tuning::SLOWDOWN_WINDOWS {
                self.slowdown.windows = 0;
                self.bandwidth
                    .restart(delivered.max(self.slowdown.previous).max(1));
                self.inflight_high = None;
                self.sharing = Sharing::default();
                self.answered_until = Some(now);
                self.gate.count_cut();
                self.enter(now, Phase::ProbeDown);
            }
        }
        self.slowdown.previous = delivered;
    }

    // Phases.

    /// Leaves a phase whose work is done.
    fn advance(&mut self, now: Instant, sample: &Sample) {
        let elapsed = now.saturating_duration_since(self.phase_since);
        let in_flight = self.delivery.in_flight();
        let pipe = self.pipe();
        if matches!(self.phase, Phase::ProbeUp | Phase::ProbeDown)
            && self.probed_from > 0
            && self.bandwidth.get() as f64 > self.probed_from as f64 * tuning::FOUND_MORE
            && self.round_trip.queue_now() <= self.tuning.queue_at_start(self.base())
            && !self.sharing.is_shared(now)
            && now >= self.no_start_until
        {
            self.begin_start(now);
            return;
        }
        match self.phase {
            Phase::Startup | Phase::Fixed => {}
            Phase::Drain => {
                if in_flight <= pipe {
                    self.postpone_probe(now, false);
                    // Jitter or random loss may have ended the start too early: the next probe tells.
                    self.probe_at = now + self.base();
                    self.enter(now, Phase::Cruise);
                }
            }
            Phase::Cruise => {
                if self.round_trip.is_stale(now) && !self.tuning.is_local(self.base()) {
                    self.search_base(now);
                } else if now >= self.probe_at {
                    if self.delivery.is_limited() {
                        self.postpone_probe(now, false);
                    } else if now >= self.costly_until {
                        self.begin_probe(now);
                    } else {
                        self.postpone_probe(now, false);
                        // Whether the loss that is taken for random still is.
                        if self.floor.get() > tuning::FLOOR_DOUBTFUL {
                            self.enter(now, Phase::ProbeDown);
                            self.checks_floor = true;
                        }
                    }
                }
            }
            Phase::ProbeUp => {
                let is_over = in_flight >= scale(pipe, self.tuning.gain_up(self.base()))
                    || self.delivery.is_limited()
                    || self.round_trip.queue_now() > self.tuning.queue_at_start(self.base())
                    || elapsed >= self.base() + self.base() / 2;
                if elapsed >= self.base() && is_over {
                    // What was sent cost nothing yet; what the path holds is at least this.
                    self.inflight_high = self
                        .inflight_high
                        .map(|high| high.max(scale(in_flight, tuning::HIGH_GROWTH)));
                    self.postpone_probe(now, false);
                    self.enter(now, Phase::ProbeDown);
                }
            }
            Phase::ProbeDown => {
                let is_short = self.round_trip.queue_now() <= self.tuning.queue_max(self.base());
                if in_flight <= pipe && elapsed >= self.base() && is_short {
                    self.others_queue = self.round_trip.is_queued_now();
                    self.enter(now, Phase::Cruise);
                }
            }
            Phase::ProbeRoundTrip => {
                if in_flight <= self.search_window() && self.drained_at.is_none() {
                    self.drained_at = Some(now);
                }
                if self.drained_at.is_some_and(|at| sample.departure.at >= at) {
                    self.round_trip.end_search(now);
                    self.enter(now, Phase::Cruise);
                }
            }
        }
    }

    fn enter(&mut self, now: Instant, phase: Phase) {
        self.phase = phase;
        self.phase_since = now;
        self.rounds_in_phase = 0;
        self.queued_samples = 0;
        self.drained_at = None;
        self.checks_floor = false;
    }

    fn begin_start(&mut self, now: Instant) {
        self.grown = self.bandwidth.get();
        self.started_from = self.bandwidth.get();
        self.stalled_rounds = 0;
        self.inflight_high = None;
        self.bandwidth.lift_bound();
        self.enter(now, Phase::Startup);
    }

    fn end_start(&mut self, now: Instant) {
        self.is_full = true;
        // A token bucket that has filled up looks like more bandwidth, once.
        if (self.bandwidth.get() as f64) < self.started_from as f64 * tuning::GROWTH {
            self.no_start_until = now + tuning::FRUITLESS_START_MEMORY;
        }
        self.enter(now, Phase::Drain);
    }

    /// The path is another one, or was dead: it is learnt anew, from `bandwidth` on.
    fn restart(&mut self, now: Instant, bandwidth: u64) {
        self.bandwidth.restart(bandwidth);
        self.begin_start(now);
    }

    fn begin_probe(&mut self, now: Instant) {
        self.bandwidth.begin_cycle();
        self.probed_from = self.bandwidth.get();
        self.enter(now, Phase::ProbeUp);
    }

    fn search_base(&mut self, now: Instant) {
        self.round_trip.begin_search();
        self.enter(now, Phase::ProbeRoundTrip);
    }

    /// Sets when the next probe is due: soon, or, where the last one made others lose, some seconds later.
    fn postpone_probe(&mut self, now: Instant, was_costly: bool) {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let part = (self.random >> 40) as f64 / (1_u64 << 24) as f64;
        let base = self.base();
        self.probe_at = now + base.mul_f64(tuning::PROBE_ROUNDS + tuning::PROBE_ROUNDS_RANDOM * part);
        if was_costly {
            let wait = if self.sharing.is_shared(now) {
                (base * tuning::SHARED_PROBE_ROUNDS)
                    .clamp(tuning::COSTLY_PROBE_WAIT, tuning::SHARED_PROBE_WAIT_MAX)
            } else {
                tuning::COSTLY_PROBE_WAIT
            };
            self.costly_until = now + wait.mul_f64(1.0 + part / 2.0);
        }
    }

    // What follows from the state.

    /// The round trip without a queue.
    fn base(&self) -> Duration {
        self.round_trip
            .base()
            .unwrap_or(crate::limits::INITIAL_ROUND_TRIP)
    }

    /// What has to be sent for each byte that arrives.
    fn overshoot(&self) -> f64 {
        1.0 / (1.0 - self.floor.get())
    }

    /// Bytes in flight that fill the path without a queue.
    fn pipe(&self) -> u64 {
        let time = self.base() + self.tuning.free_delay(self.base());
        scale(bytes_in(self.bandwidth.get(), time), self.overshoot()).max(self.window_min())
    }

    fn window_min(&self) -> u64 {
        tuning::WINDOW_PACKETS_MIN * self.mtu
    }

    fn search_window(&self) -> u64 {
        (self.pipe() / 2).max(self.window_min())
    }

    fn pressure(&self) -> Pressure {
        let holds_little = self.delivery.in_flight() <= scale(self.pipe(), tuning::LIMITED_PIPE);
        match self.phase {
            Phase::Drain | Phase::ProbeDown | Phase::ProbeRoundTrip => Pressure::Calm,
            // A sender that had nothing more to send for rounds, and decides on its rate itself.
            _ if self.limited_rounds >= 2
                && self.delivery.is_limited()
                && holds_little
                && self.gate.carries_datagrams() =>
            {
                Pressure::Calm
            }
            Phase::Startup | Phase::ProbeUp => Pressure::Probing,
            Phase::Cruise | Phase::Fixed => Pressure::Steady,
        }
    }

    /// Bytes that may be in flight before the path was ever full.
    fn first_window(&self) -> u64 {
        if self.is_full {
            0
        } else if self.gate.carries_datagrams() {
            tuning::FIRST_DATAGRAM_WINDOW
        } else {
            tuning::FIRST_PACKETS * self.mtu
        }
    }

    fn window(&self) -> u64 {
        let base = self.base();
        let bandwidth = self.bandwidth.get();
        let pipe = self.pipe();
        // Acknowledgements come some packets, or some milliseconds, late.
        let slack = bytes_in(bandwidth, tuning::ACKNOWLEDGEMENT_SLACK) + 3 * self.mtu;
        let carries_datagrams = self.gate.carries_datagrams();
        let window = match self.phase {
            Phase::Startup => {
                return (scale(pipe, tuning::WINDOW_START) + slack).max(self.first_window());
            }
            Phase::ProbeRoundTrip => return self.search_window(),
            Phase::ProbeDown if self.round_trip.queue_now() > self.tuning.queue_max(base) => pipe,
            _ if carries_datagrams || self.tuning.is_local(base) => {
                pipe + bytes_in(bandwidth, self.tuning.queue_max(base)) + slack
            }
            _ => 2 * pipe + slack,
        };
        self.inflight_high
            .map_or(window, |high| window.min(high.max(pipe + slack)))
    }

    fn bytes_per_second(&self) -> u64 {
        let base = self.base();
        if self.round_trip.base().is_some() && self.tuning.is_local(base) {
            return u64::MAX;
        }
        let carries_datagrams = self.gate.carries_datagrams();
        let gain = match self.phase {
            Phase::Startup => {
                let paced = scale(self.bandwidth.get(), tuning::GAIN_STARTUP);
                return paced.max(rate(self.first_window(), base)).max(1);
            }
            Phase::Drain => tuning::GAIN_DRAIN,
            Phase::ProbeUp => self.tuning.gain_up(base) * self.overshoot(),
            Phase::ProbeDown if self.checks_floor => tuning::GAIN_CHECK,
            Phase::ProbeDown => (tuning::GAIN_DOWN * self.overshoot()).min(tuning::GAIN_CHECK),
            _ if carries_datagrams => tuning::GAIN_DATAGRAMS * self.overshoot(),
            // The largest of noisy rates is a little too large: what it puts into the queue leaves it at once.
            _ if self.round_trip.has_standing_queue()
                && !self.others_queue
                && !self.sharing.is_shared(self.now) =>
            {
                tuning::GAIN_QUEUED * self.overshoot()
            }
            _ => self.overshoot(),
        };
        let least = rate(self.window_min(), base);
        scale(self.bandwidth.get(), gain).max(least).max(1)
    }

    fn publish(&self) {
        self.gate.publish(Allowance {
            in_flight: self.delivery.in_flight(),
            window: self.window(),
            bytes_per_second: self.bytes_per_second(),
        });
        self.gate.publish_estimate(&PathEstimate {
            phase: self.phase,
            bandwidth_bytes_per_second: self.bandwidth.get(),
            base_round_trip: self.round_trip.base().unwrap_or_default(),
            queueing_delay: self.round_trip.queue(),
            random_loss_per_million: (self.floor.get() * 1e6) as u32,
        });
    }
}

fn scale(bytes: u64, factor: f64) -> u64 {
    (bytes as f64 * factor) as u64
}
