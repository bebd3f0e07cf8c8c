//! A rival: one TCP-like sender with BBR version 1 (draft-cardwell-iccrg-bbr-congestion-control-00), as Linux has it: it
//! answers no loss, and keeps two pipes in flight.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use sim::Packet;

use crate::party::Party;
use crate::segments::{PACKET, Segments};
use crate::world::{Meta, Way};

const HIGH_GAIN: f64 = 2.885;
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const WINDOW_GAIN: f64 = 2.0;
/// In packets.
const WINDOW_MIN: f64 = 4.0;
const WINDOW_FIRST: f64 = 10.0;
/// A start ends after so many rounds that grew by less than this.
const FULL_ROUNDS: u32 = 3;
const FULL_GROWTH: f64 = 1.25;
const TIMEOUT: Duration = Duration::from_secs(1);
const BANDWIDTH_ROUNDS: u64 = 10;
const BASE_MEMORY: Duration = Duration::from_secs(10);
const PROBE_ROUND_TRIP: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Startup,
    Drain,
    ProbeBandwidth { place: usize, since: Instant },
    ProbeRoundTrip { until: Option<Instant> },
}

/// A packet that is under way, and how much had been delivered when it left.
#[derive(Clone, Copy, Debug)]
struct Sent {
    number: u64,
    at: Instant,
    delivered: u64,
    delivered_at: Instant,
}

pub(crate) struct Bbr {
    segments: Segments,
    begins: Instant,
    mode: Mode,
    /// Largest delivery rates in bytes per second, each with its round.
    rates: VecDeque<(u64, f64)>,
    round: u64,
    round_ends_at: u64,
    full_rate: f64,
    full_rounds: u32,
    base: Duration,
    base_at: Instant,
    next_send: Instant,
    outstanding: VecDeque<Sent>,
    acknowledged: u64,
    acknowledged_at: Instant,
}

impl Bbr {
    pub(crate) fn new(index: usize, start: Instant, way: Way, after: Duration) -> Self {
        let begins = start + after;
        Self {
            segments: Segments::new(index, way),
            begins,
            mode: Mode::Startup,
            rates: VecDeque::new(),
            round: 0,
            round_ends_at: 0,
            full_rate: 0.0,
            full_rounds: 0,
            base: Duration::MAX,
            base_at: begins,
            next_send: begins,
            outstanding: VecDeque::new(),
            acknowledged: 0,
            acknowledged_at: begins,
        }
    }

    fn bandwidth(&self) -> f64 {
        self.rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max)
    }

    fn pipe(&self) -> f64 {
        self.bandwidth() * self.base.as_secs_f64() / PACKET as f64
    }

    fn gain(&self) -> f64 {
        match self.mode {
            Mode::Startup => HIGH_GAIN,
            Mode::Drain => 1.0 / HIGH_GAIN,
            Mode::ProbeBandwidth { place, .. } => CYCLE[place],
            Mode::ProbeRoundTrip { .. } => 1.0,
        }
    }

    /// In packets.
    fn window(&self) -> f64 {
        if self.rates.is_empty() {
            return WINDOW_FIRST;
        }
        match self.mode {
            Mode::ProbeRoundTrip { .. } => WINDOW_MIN,
            Mode::Startup | Mode::Drain => (self.pipe() * HIGH_GAIN).max(WINDOW_FIRST),
            Mode::ProbeBandwidth { .. } => (self.pipe() * WINDOW_GAIN).max(WINDOW_MIN),
        }
    }

    fn acknowledge(&mut self, now: Instant, number: u64) {
        // The order is kept on the way: what left before and was not acknowledged is lost.
        let mut has_lost = false;
        while self.outstanding.front().is_some_and(|sent| sent.number < number) {
            self.outstanding.pop_front();
            has_lost = true;
        }
        let Some(sent) = self.outstanding.pop_front_if(|sent| sent.number == number) else {
            return;
        };
        self.acknowledged += PACKET as u64;
        self.acknowledged_at = now;
        let round_trip = now - sent.at;
        let is_stale = now - self.base_at > BASE_MEMORY;
        if round_trip <= self.base || is_stale {
            self.base = round_trip;
            self.base_at = now;
        }
        let mut ends_round = false;
        if sent.number >= self.round_ends_at {
            self.round += 1;
            self.round_ends_at = self.segments.next();
            ends_round = true;
        }
        let elapsed = (now - sent.delivered_at).max(Duration::from_micros(1));
        let rate = (self.acknowledged - sent.delivered) as f64 / elapsed.as_secs_f64();
        self.rates.push_back((self.round, rate));
        let round = self.round;
        self.rates
            .retain(|(at, old)| at + BANDWIDTH_ROUNDS > round && (*old >= rate || *at == round));
        self.advance(now, ends_round, is_stale, has_lost);
    }

    fn advance(&mut self, now: Instant, ends_round: bool, is_stale: bool, has_lost: bool) {
        if self.mode == Mode::Startup && ends_round {
            if self.bandwidth() > self.full_rate * FULL_GROWTH {
                self.full_rate = self.bandwidth();
                self.full_rounds = 0;
            } else {
                self.full_rounds += 1;
            }
            if self.full_rounds >= FULL_ROUNDS {
                self.mode = Mode::Drain;
            }
        }
        let in_flight = self.outstanding.len() as f64;
        if self.mode == Mode::Drain && in_flight <= self.pipe() {
            self.mode = Mode::ProbeBandwidth { place: 2, since: now };
        }
        if let Mode::ProbeBandwidth { place, since } = self.mode {
            let is_over = match place {
                0 => now - since > self.base && (has_lost || in_flight >= CYCLE[0] * self.pipe()),
                1 => now - since > self.base || in_flight <= self.pipe(),
                _ => now - since > self.base,
            };
            if is_over {
                let place = (place + 1) % CYCLE.len();
                self.mode = Mode::ProbeBandwidth { place, since: now };
            }
        }
        match self.mode {
            Mode::ProbeRoundTrip { until: None } if in_flight <= WINDOW_MIN => {
                let until = Some(now + PROBE_ROUND_TRIP.max(self.base));
                self.mode = Mode::ProbeRoundTrip { until };
            }
            Mode::ProbeRoundTrip { until: Some(until) } if now >= until => {
                self.base_at = now;
                self.mode = if self.full_rounds >= FULL_ROUNDS {
                    Mode::ProbeBandwidth { place: 2, since: now }
                } else {
                    Mode::Startup
                };
            }
            Mode::ProbeRoundTrip { .. } => {}
            _ if is_stale => self.mode = Mode::ProbeRoundTrip { until: None },
            _ => {}
        }
    }
}

impl Party for Bbr {
    fn deliver(&mut self, now: Instant, way: Way, packet: Packet<Meta>) {
        if let Some(number) = self.segments.deliver(way, &packet) {
            self.acknowledge(now, number);
        }
    }

    fn work(&mut self, now: Instant, out: &mut Vec<(Way, Packet<Meta>)>) {
        self.segments.acknowledge(out);
        if now < self.begins {
            return;
        }
        if self
            .outstanding
            .back()
            .is_some_and(|last| now - last.at > TIMEOUT)
        {
            self.outstanding.clear();
        }
        while now >= self.next_send && (self.outstanding.len() as f64) < self.window() {
            let number = self.segments.send(out);
            if self.outstanding.is_empty() {
                self.acknowledged_at = now;
            }
            self.outstanding.push_back(Sent {
                number,
                at: now,
                delivered: self.acknowledged,
                delivered_at: self.acknowledged_at,
            });
            if !self.rates.is_empty() {
                let interval = PACKET as f64 / (self.bandwidth() * self.gain()).max(1_000.0);
                self.next_send = self.next_send.max(now) + Duration::from_secs_f64(interval);
            }
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        if self.outstanding.is_empty() || (self.outstanding.len() as f64) < self.window() {
            return Some(self.next_send);
        }
        self.outstanding
            .back()
            .map(|last| last.at + TIMEOUT + Duration::from_millis(1))
    }

    fn delivered(&self) -> u64 {
        self.segments.delivered()
    }
}
