//! The congestion controller for tunnels: a model of the path, and the phases in which it is measured.
//!
//! The reference is BBRv3 (draft-ietf-ccwg-bbr). As there: the rate is what the path was seen to deliver, the window is that
//! rate times the round trip without a queue, a start doubles until the path is full, and cycles probe with a fifth more and
//! drain with a quarter less. It differs in five places:
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

mod allowance;
mod answers;
mod phases;
mod rounds;
#[cfg(test)]
mod tests;

use std::time::Instant;

use super::bandwidth::Bandwidth;
use super::delivery::{Delivery, Pressure};
use super::estimate::Phase;
use super::gate::Gate;
use super::local_queue::LocalQueue;
use super::loss::{Floor, Tally};
use super::recent::Recent;
use super::round_trip::RoundTrip;
use super::sharing::Sharing;
use super::sustained::Sustained;
use super::tuning::{self, Tuning};

#[derive(Clone)]
pub(super) struct Model {
    tuning: Tuning,
    gate: Gate,
    mtu: u64,
    delivery: Delivery,
    round_trip: RoundTrip,
    bandwidth: Bandwidth,
    sustained: Sustained,
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
    /// There was a queue when the last probe began.
    probes_beside_queue: bool,
    /// The search for the base: since when no more than the target is in flight.
    drained_at: Option<Instant>,
    rounds_in_phase: u32,
    /// Rounds in a row in which the sender had nothing more to send.
    limited_rounds: u32,
    local_queue: LocalQueue,
    sharing: Sharing,
    /// A queue stood when our own had left.
    others_queue: bool,
    /// A probe down follows no probe up, and looks whether the floor is one.
    checks_floor: bool,
    /// Until when a probe for more would make others lose.
    costly_until: Instant,
    slowdown: Slowdown,
    recent: Recent,
    random: u64,
}

/// Windows of one base round trip in which the path delivered far less than it did before, although a queue stood.
#[derive(Clone, Copy, Debug)]
struct Slowdown {
    since: Instant,
    delivered: u64,
    windows: u32,
    /// When the last one was answered: the delivery rate of what left before is partly that of the faster path.
    answered: Instant,
    /// The bandwidth until then, while nothing that left since has been acknowledged.
    before: Option<u64>,
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
            sustained: Sustained::new(now),
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
            probes_beside_queue: false,
            drained_at: None,
            rounds_in_phase: 0,
            limited_rounds: 0,
            local_queue: LocalQueue::default(),
            sharing: Sharing::default(),
            others_queue: false,
            checks_floor: false,
            costly_until: now,
            slowdown: Slowdown {
                since: now,
                delivered: 0,
                windows: 0,
                answered: now,
                before: None,
            },
            recent: Recent::new(now),
            random: 0x9e37_79b9_7f4a_7c15,
        };
        model.publish();
        model
    }

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
        self.publish_allowance();
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
        let sample = self.delivery.end_acks(now, in_flight, self.round_trip.base());
        // Also of probes, which are no samples: where trains are lost whole, nothing else is acknowledged.
        self.recent.update(now, self.delivery.delivered());
        let Some(sample) = sample else {
            self.publish();
            return;
        };
        self.round_trip.update(now, sample.round_trip);
        let is_of_this_path = sample.departure.at >= self.slowdown.answered;
        if is_of_this_path {
            self.slowdown.before = None;
        }
        if let Some(rate) = sample.rate
            && is_of_this_path
            && (!sample.is_limited || rate >= self.bandwidth.most())
        {
            let lasting = self.sustained.update(now, rate, self.base());
            // A start doubles its rate in the time in which others would have to last, and loss at random makes the rates of a
            // short time lower than the path is.
            let is_steady = self.phase != Phase::Startup && self.floor.get() < tuning::FLOOR_DOUBTFUL;
            let rate = if is_steady { lasting } else { rate };
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
        self.recent.on_lost(lost_bytes);
        if is_persistent {
            let passes = self.recent.bytes_per_second();
            self.restart(now, (self.bandwidth.get() / 2).max(passes));
            self.gate.count_cut();
        } else if self.answered_until.is_some_and(|until| sent <= until) {
            // What left before the last answer has been answered.
        } else if lost_bytes == 0 {
            self.answer_mark(now);
        } else {
            self.count_loss(now, sent, lost_bytes);
        }
        self.publish();
    }

    pub(super) fn on_mtu_update(&mut self, mtu: u16) {
        self.mtu = mtu.into();
        self.publish();
    }
}

fn scale(bytes: u64, factor: f64) -> u64 {
    (bytes as f64 * factor) as u64
}
