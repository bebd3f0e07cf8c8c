//! A rival: one TCP-like sender with CUBIC (RFC 9438), whose losses are known a round trip later.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use sim::Packet;

use crate::party::Party;
use crate::segments::Segments;
use crate::world::{Meta, Way};

const C: f64 = 0.4;
const BETA: f64 = 0.7;

pub(crate) struct Cubic {
    segments: Segments,
    begins: Instant,
    /// In segments.
    window: f64,
    threshold: f64,
    most: f64,
    epoch: Option<Instant>,
    outstanding: VecDeque<(u64, Instant)>,
    recovery_until: u64,
    round_trip: Duration,
    last_progress: Instant,
}

impl Cubic {
    pub(crate) fn new(index: usize, start: Instant, way: Way, after: Duration) -> Self {
        Self {
            segments: Segments::new(index, way),
            begins: start + after,
            window: 10.0,
            threshold: f64::INFINITY,
            most: 0.0,
            epoch: None,
            outstanding: VecDeque::new(),
            recovery_until: 0,
            round_trip: Duration::from_millis(100),
            last_progress: start,
        }
    }

    fn acknowledged(&mut self, now: Instant, number: u64) {
        let Some(place) = self.outstanding.iter().position(|(sent, _)| *sent == number) else {
            return;
        };
        let (_, at) = self.outstanding.remove(place).unwrap();
        self.last_progress = now;
        self.round_trip = now - at;
        // The order is kept on the way: what left before and was not acknowledged is lost.
        let mut lost = 0;
        while self
            .outstanding
            .front()
            .is_some_and(|(sent, _)| *sent + 3 <= number)
        {
            self.outstanding.pop_front();
            lost += 1;
        }
        if lost > 0 && number >= self.recovery_until {
            self.recovery_until = self.segments.next();
            self.most = self.window;
            self.window = (self.window * BETA).max(2.0);
            self.threshold = self.window;
            self.epoch = Some(now);
        } else if lost == 0 {
            self.grow(now);
        }
    }

    fn grow(&mut self, now: Instant) {
        if self.window < self.threshold {
            self.window += 1.0;
            return;
        }
        let epoch = *self.epoch.get_or_insert(now);
        let k = (self.most * (1.0 - BETA) / C).cbrt();
        let t = (now - epoch + self.round_trip).as_secs_f64();
        let target = C * (t - k).powi(3) + self.most;
        // TCP-friendly region.
        let rounds = (now - epoch).as_secs_f64() / self.round_trip.as_secs_f64().max(1e-6);
        let reno = self.most * BETA + 3.0 * (1.0 - BETA) / (1.0 + BETA) * rounds;
        let target = target.max(reno).min(self.window * 1.5);
        if target > self.window {
            self.window += (target - self.window) / self.window;
        } else {
            self.window += 0.01 / self.window;
        }
    }
}

impl Party for Cubic {
    fn deliver(&mut self, now: Instant, way: Way, packet: Packet<Meta>) {
        if let Some(number) = self.segments.deliver(way, &packet) {
            self.acknowledged(now, number);
        }
    }

    fn work(&mut self, now: Instant, out: &mut Vec<(Way, Packet<Meta>)>) {
        self.segments.acknowledge(out);
        if now < self.begins {
            return;
        }
        if !self.outstanding.is_empty()
            && now - self.last_progress > self.round_trip * 3 + Duration::from_millis(200)
        {
            self.outstanding.clear();
            self.threshold = self.window / 2.0;
            self.window = 2.0;
            self.last_progress = now;
        }
        while (self.outstanding.len() as f64) < self.window {
            let number = self.segments.send(out);
            if self.outstanding.is_empty() {
                self.last_progress = now;
            }
            self.outstanding.push_back((number, now));
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        let timeout = self.last_progress + self.round_trip * 3 + Duration::from_millis(201);
        if self.outstanding.is_empty() {
            Some(self.begins)
        } else {
            Some(timeout)
        }
    }

    fn delivered(&self) -> u64 {
        self.segments.delivered()
    }
}
