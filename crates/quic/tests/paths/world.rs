//! One bottleneck in each direction, and everybody who shares it.

use std::time::{Duration, Instant};

use sim::{Link, LinkConfig, LinkCounts, Packet};

use crate::party::Party;

/// Where a packet belongs, and what it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meta {
    /// Who sent it.
    pub(crate) party: usize,
    /// ECN bits of a QUIC packet, or a number of the sender's own.
    pub(crate) number: u64,
    /// It belongs to the same train as the packet that was sent before it.
    pub(crate) follows: bool,
}

/// Whom a packet goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From client to server.
    Up,
    /// From server to client.
    Down,
}

pub(crate) struct World {
    pub(crate) start: Instant,
    pub(crate) now: Instant,
    pub(crate) up: Link<Meta>,
    pub(crate) down: Link<Meta>,
    pub(crate) parties: Vec<Box<dyn Party>>,
    /// Queueing delay that each packet of the way down, or up, met: the way with the load.
    pub(crate) delays: Vec<(Instant, Duration)>,
    pub(crate) loaded: Way,
    /// A policer meets trains as a whole.
    pub(crate) keeps_trains: bool,
}

impl World {
    pub(crate) fn new(config: LinkConfig, seed: u64, loaded: Way) -> Self {
        // tidy-allow(pure): first instant of virtual time
        let start = Instant::now();
        Self {
            start,
            now: start,
            up: Link::new(config, seed),
            down: Link::new(config, seed ^ 0x5555),
            parties: Vec::new(),
            delays: Vec::new(),
            loaded,
            keeps_trains: false,
        }
    }

    pub(crate) fn set_config(&mut self, config: LinkConfig) {
        self.up.set_config(config);
        self.down.set_config(config);
    }

    pub(crate) fn drive(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            self.step();
            let timers = self.parties.iter().filter_map(|party| party.next_timer());
            let arrivals = [self.up.poll_timeout(), self.down.poll_timeout()];
            let next = timers.chain(arrivals.into_iter().flatten()).min().unwrap_or(end);
            if next >= end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
        }
    }

    /// Everything that is due now.
    fn step(&mut self) {
        let mut out: Vec<(Way, Packet<Meta>)> = Vec::new();
        for _ in 0..1_000 {
            while let Some(packet) = self.up.poll_delivery(self.now) {
                let party = packet.meta.party;
                self.parties[party].deliver(self.now, Way::Up, packet);
            }
            while let Some(packet) = self.down.poll_delivery(self.now) {
                let party = packet.meta.party;
                self.parties[party].deliver(self.now, Way::Down, packet);
            }
            for party in &mut self.parties {
                party.work(self.now, &mut out);
            }
            if out.is_empty() {
                return;
            }
            let mut sent = out.drain(..).peekable();
            while let Some((way, packet)) = sent.next() {
                let link = match way {
                    Way::Up => &mut self.up,
                    Way::Down => &mut self.down,
                };
                if way == self.loaded {
                    self.delays.push((self.now, link.queueing_delay(self.now)));
                }
                let mut train = vec![packet];
                while let Some((_, next)) = sent.next_if(|(_, next)| self.keeps_trains && next.meta.follows) {
                    train.push(next);
                }
                link.send_train(self.now, train);
            }
        }
        panic!("no end of packets at one instant");
    }

    pub(crate) fn counts(&self) -> LinkCounts {
        match self.loaded {
            Way::Up => self.up.counts(),
            Way::Down => self.down.counts(),
        }
    }

    /// The queueing delay that `part` of the packets since `from` stayed below.
    pub(crate) fn delay_quantile(&self, from: Instant, part: f64) -> Duration {
        let mut delays: Vec<Duration> = self
            .delays
            .iter()
            .filter(|(at, _)| *at >= from)
            .map(|(_, delay)| *delay)
            .collect();
        delays.sort_unstable();
        let place = (delays.len() as f64 * part) as usize;
        delays
            .get(place.min(delays.len().saturating_sub(1)))
            .copied()
            .unwrap_or_default()
    }
}
