//! One direction of a path.
//!
//! A packet meets, in this order: the MTU, the queue in front of a rate-limited line, loss, and the delay. Jitter
//! alone keeps the order, as a real queue does; only packets chosen by [`LinkConfig::reorder`] are overtaken. Every
//! packet ends in exactly one of [`LinkCounts`], and the law stated there holds at every moment.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// How far behind its place a reordered packet can fall, on top of delay and jitter.
const REORDER_HOLD_MAX: Duration = Duration::from_millis(5);

/// What a link does to packets; may change while it runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkConfig {
    /// One-way delay of every packet.
    pub delay: Duration,
    /// Random extra delay, zero to this, that keeps the order.
    pub jitter: Duration,
    /// Probability of loss, 0 to 1; 1 is a blackout.
    pub loss: f64,
    /// Probability that a packet is sent twice, 0 to 1.
    pub duplicate: f64,
    /// Probability that a packet is held back so that others overtake it, 0 to 1.
    pub reorder: f64,
    /// Longest packet in bytes; longer ones are dropped.
    pub mtu: usize,
    /// Line rate; `None` is unlimited and has no queue.
    pub rate_bits_per_second: Option<u64>,
    /// Bytes that may wait in front of the line.
    pub queue_bytes: usize,
    /// A token bucket in front of the queue, which drops what exceeds it.
    pub policer: Option<Policer>,
}

/// A token bucket: what goes beyond its rate, and beyond the tokens saved up, is dropped without any delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policer {
    /// Tokens that come, in bits per second.
    pub bits_per_second: u64,
    /// Tokens that are kept at most, in bytes.
    pub burst_bytes: u64,
}

impl Default for LinkConfig {
    /// A perfect wire: no delay, no loss, any size, unlimited rate.
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            mtu: usize::MAX,
            rate_bits_per_second: None,
            queue_bytes: usize::MAX,
            policer: None,
        }
    }
}

/// What became of the packets of a link:
/// `sent + duplicated = delivered + lost + too_large + policed + queue_full + in_flight`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Packets handed to the link.
    pub sent: u64,
    /// Copies that the link added.
    pub duplicated: u64,
    /// Packets handed out.
    pub delivered: u64,
    /// Packets lost at random.
    pub lost: u64,
    /// Packets above the MTU.
    pub too_large: u64,
    /// Packets that the policer dropped.
    pub policed: u64,
    /// Packets that found the queue full.
    pub queue_full: u64,
}

impl LinkCounts {
    /// Packets that no longer travel.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.delivered + self.lost + self.too_large + self.policed + self.queue_full
    }
}

/// Opaque bytes and what the user wants to find beside them (addresses, ECN…).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet<T> {
    /// What counts against MTU, queue and rate.
    pub bytes: Vec<u8>,
    /// Travels along, costs nothing.
    pub meta: T,
}

/// One direction of a path; see the module's text for the order of its effects.
#[derive(Debug)]
pub struct Link<T> {
    config: LinkConfig,
    random: StdRng,
    counts: LinkCounts,
    travelling: BinaryHeap<Reverse<Travelling<T>>>,
    sequence: u64,
    line_free_at: Option<Instant>,
    last_in_order: Option<Instant>,
    /// Tokens of the policer, in bytes, as they were at that time; `None` is a full bucket.
    tokens: Option<(f64, Instant)>,
}

impl<T: Clone> Link<T> {
    /// A link whose dice are thrown from `seed`.
    #[must_use]
    pub fn new(config: LinkConfig, seed: u64) -> Self {
        Self {
            config,
            random: StdRng::seed_from_u64(seed),
            counts: LinkCounts::default(),
            travelling: BinaryHeap::new(),
            sequence: 0,
            line_free_at: None,
            last_in_order: None,
            tokens: None,
        }
    }

    /// The present configuration.
    #[must_use]
    pub fn config(&self) -> LinkConfig {
        self.config
    }

    /// Changes the configuration for packets sent from here on; those under way are not touched.
    pub fn set_config(&mut self, config: LinkConfig) {
        self.config = config;
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> LinkCounts {
        self.counts
    }

    /// Packets under way.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.travelling.len()
    }

    /// How long a packet that is sent now waits for those before it.
    #[must_use]
    pub fn queueing_delay(&self, now: Instant) -> Duration {
        self.line_free_at
            .map_or(Duration::ZERO, |free| free.saturating_duration_since(now))
    }

    /// Takes a packet.
    pub fn send(&mut self, now: Instant, packet: Packet<T>) {
        self.counts.sent += 1;
        if self.chance(self.config.duplicate) {
            self.counts.duplicated += 1;
            self.send_copy(now, packet.clone());
        }
        self.send_copy(now, packet);
    }

    /// Takes packets that a virtual network hands over as one (segmentation offload): its policer passes or drops them
    /// together.
    pub fn send_train(&mut self, now: Instant, train: impl IntoIterator<Item = Packet<T>>) {
        let train: Vec<_> = train.into_iter().collect();
        let bytes = train.iter().map(|packet| packet.bytes.len()).sum();
        if !self.passes_policer(now, bytes) {
            self.counts.sent += train.len() as u64;
            self.counts.policed += train.len() as u64;
            return;
        }
        let policer = self.config.policer.take();
        for packet in train {
            self.send(now, packet);
        }
        self.config.policer = policer;
    }

    /// When the next packet arrives.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.travelling.peek().map(|Reverse(next)| next.at)
    }

    /// The packet that arrives next, before it does.
    #[must_use]
    pub fn peek(&self) -> Option<(Instant, &Packet<T>)> {
        self.travelling
            .peek()
            .map(|Reverse(next)| (next.at, &next.packet))
    }

    /// A packet that has arrived by `now`; packets of the same instant come in the order in which they were sent.
    pub fn poll_delivery(&mut self, now: Instant) -> Option<Packet<T>> {
        if self.poll_timeout()? > now {
            return None;
        }
        let Reverse(arrived) = self.travelling.pop()?;
        self.counts.delivered += 1;
        Some(arrived.packet)
    }

    fn send_copy(&mut self, now: Instant, packet: Packet<T>) {
        if packet.bytes.len() > self.config.mtu {
            self.counts.too_large += 1;
            return;
        }
        if !self.passes_policer(now, packet.bytes.len()) {
            self.counts.policed += 1;
            return;
        }
        let Some(departure) = self.departure(now, packet.bytes.len()) else {
            self.counts.queue_full += 1;
            return;
        };
        if self.chance(self.config.loss) {
            self.counts.lost += 1;
            return;
        }
        let at = self.arrival(departure);
        self.travelling.push(Reverse(Travelling {
            at,
            sequence: self.sequence,
            packet,
        }));
        self.sequence += 1;
    }

    fn passes_policer(&mut self, now: Instant, bytes: usize) -> bool {
        let Some(policer) = self.config.policer else {
            return true;
        };
        let most = policer.burst_bytes as f64;
        let tokens = self.tokens.map_or(most, |(tokens, at)| {
            let came = policer.bits_per_second as f64 / 8.0 * (now - at).as_secs_f64();
            (tokens + came).min(most)
        });
        let passes = tokens >= bytes as f64;
        self.tokens = Some((if passes { tokens - bytes as f64 } else { tokens }, now));
        passes
    }

    /// When the last bit leaves, or `None` where the queue is full. The queue is not kept as a list: its length is
    /// what the line still has to send.
    fn departure(&mut self, now: Instant, bytes: usize) -> Option<Instant> {
        let Some(rate) = self.config.rate_bits_per_second else {
            return Some(now);
        };
        let start = self.line_free_at.map_or(now, |free| free.max(now));
        let waiting_bytes = (start - now).as_nanos() * u128::from(rate) / 8_000_000_000;
        if waiting_bytes + bytes as u128 > self.config.queue_bytes as u128 {
            return None;
        }
        let nanoseconds = (bytes as u128 * 8_000_000_000).div_ceil(u128::from(rate.max(1)));
        let departure = start + Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        self.line_free_at = Some(departure);
        Some(departure)
    }

    fn arrival(&mut self, departure: Instant) -> Instant {
        let at = departure + self.config.delay + self.random_up_to(self.config.jitter);
        if self.chance(self.config.reorder) {
            return at + self.random_up_to(REORDER_HOLD_MAX + self.config.delay);
        }
        let at = self.last_in_order.map_or(at, |last| last.max(at));
        self.last_in_order = Some(at);
        at
    }

    fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.random.random_bool(probability.min(1.0))
    }

    fn random_up_to(&mut self, most: Duration) -> Duration {
        if most.is_zero() {
            Duration::ZERO
        } else {
            self.random.random_range(Duration::ZERO..=most)
        }
    }
}

#[derive(Debug)]
struct Travelling<T> {
    at: Instant,
    sequence: u64,
    packet: Packet<T>,
}

impl<T> Travelling<T> {
    fn key(&self) -> (Instant, u64) {
        (self.at, self.sequence)
    }
}

impl<T> PartialEq for Travelling<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Travelling<T> {}

impl<T> PartialOrd for Travelling<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Travelling<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, for_each_seed};

    fn numbered(number: u32) -> Packet<u32> {
        Packet {
            bytes: vec![0; 100 + number as usize % 1_400],
            meta: number,
        }
    }

    fn harsh() -> LinkConfig {
        LinkConfig {
            delay: Duration::from_millis(20),
            jitter: Duration::from_millis(10),
            loss: 0.1,
            duplicate: 0.05,
            reorder: 0.05,
            mtu: 1_300,
            rate_bits_per_second: Some(50_000_000),
            queue_bytes: 60_000,
            policer: None,
        }
    }

    /// Sends 2,000 packets, 100 us apart, and returns the arrivals with their times since the start.
    fn run(config: LinkConfig, seed: u64) -> (Vec<(Duration, u32)>, LinkCounts) {
        let mut clock = Clock::default();
        let start = clock.now();
        let mut link = Link::new(config, seed);
        let mut arrivals = Vec::new();
        for number in 0..2_000 {
            link.send(clock.now(), numbered(number));
            clock.advance(Duration::from_micros(100));
            while let Some(packet) = link.poll_delivery(clock.now()) {
                arrivals.push((clock.elapsed(), packet.meta));
            }
            let counts = link.counts();
            assert_eq!(
                counts.sent + counts.duplicated,
                counts.ended() + link.in_flight() as u64
            );
        }
        while let Some(at) = link.poll_timeout() {
            clock.advance_to(at);
            while let Some(packet) = link.poll_delivery(clock.now()) {
                arrivals.push((at - start, packet.meta));
            }
        }
        (arrivals, link.counts())
    }

    #[test]
    fn every_packet_ends_in_exactly_one_count() {
        for_each_seed(20, |seed| {
            let (arrivals, counts) = run(harsh(), seed);
            assert_eq!(counts.sent + counts.duplicated, counts.ended());
            assert_eq!(counts.delivered, arrivals.len() as u64);
            assert!(
                counts.lost > 0 && counts.duplicated > 0 && counts.too_large > 0 && counts.queue_full > 0
            );
        });
    }

    #[test]
    fn equal_seeds_give_equal_runs_and_others_differ() {
        assert_eq!(run(harsh(), 7), run(harsh(), 7));
        assert_ne!(run(harsh(), 7), run(harsh(), 8));
    }

    #[test]
    fn jitter_alone_keeps_the_order_and_reordering_breaks_it() {
        let jitter = LinkConfig {
            jitter: Duration::from_millis(30),
            ..LinkConfig::default()
        };
        let (arrivals, _) = run(jitter, 1);
        assert!(arrivals.is_sorted_by_key(|(_, number)| *number));
        let (arrivals, _) = run(
            LinkConfig {
                reorder: 0.05,
                ..jitter
            },
            1,
        );
        assert_eq!(arrivals.len(), 2_000);
        assert!(!arrivals.is_sorted_by_key(|(_, number)| *number));
    }

    #[test]
    fn a_rate_spaces_packets_and_the_queue_bounds_the_wait() {
        let clock = Clock::default();
        let config = LinkConfig {
            rate_bits_per_second: Some(8_000_000),
            queue_bytes: 3_000,
            delay: Duration::from_millis(1),
            ..LinkConfig::default()
        };
        let mut link = Link::new(config, 0);
        for number in 0..5 {
            link.send(
                clock.now(),
                Packet {
                    bytes: vec![0; 1_000],
                    meta: number,
                },
            );
        }
        assert_eq!((link.counts().queue_full, link.in_flight()), (2, 3));
        let mut times = Vec::new();
        while let Some(at) = link.poll_timeout() {
            times.push((at - clock.now()).as_millis());
            link.poll_delivery(at).unwrap();
        }
        assert_eq!(times, [2, 3, 4]);
    }

    #[test]
    fn the_configuration_changes_while_packets_are_under_way() {
        let clock = Clock::default();
        let mut link = Link::new(
            LinkConfig {
                delay: Duration::from_secs(1),
                ..LinkConfig::default()
            },
            0,
        );
        link.send(clock.now(), numbered(0));
        link.set_config(LinkConfig {
            loss: 1.0,
            ..link.config()
        });
        link.send(clock.now(), numbered(1));
        link.set_config(LinkConfig {
            loss: 0.0,
            mtu: 50,
            ..link.config()
        });
        link.send(clock.now(), numbered(2));
        assert_eq!(
            (link.counts().lost, link.counts().too_large, link.in_flight()),
            (1, 1, 1)
        );
    }

    #[test]
    fn a_train_passes_a_policer_as_a_whole_or_not_at_all() {
        let config = LinkConfig {
            policer: Some(Policer {
                bits_per_second: 8_000,
                burst_bytes: 3_500,
            }),
            ..LinkConfig::default()
        };
        let mut link = Link::new(config, 1);
        let now = Clock::default().now();
        let train = |packets| {
            (0..packets).map(|meta| Packet {
                bytes: vec![0; 1_000],
                meta,
            })
        };
        link.send_train(now, train(4));
        assert_eq!((link.counts().policed, link.in_flight()), (4, 0));
        link.send_train(now, train(3));
        assert_eq!((link.counts().policed, link.in_flight()), (4, 3));
        link.send_train(now, train(1));
        assert_eq!((link.counts().sent, link.counts().policed), (8, 5));
    }

    #[test]
    fn a_policer_passes_its_burst_and_then_its_rate_and_delays_nothing() {
        let config = LinkConfig {
            policer: Some(Policer {
                bits_per_second: 8_000_000,
                burst_bytes: 100_000,
            }),
            ..LinkConfig::default()
        };
        let mut link = Link::new(config, 1);
        let mut now = Clock::default().now();
        for _ in 0..1_000 {
            // 16 Mbit/s for half a second.
            link.send(
                now,
                Packet {
                    bytes: vec![0; 1_000],
                    meta: 0,
                },
            );
            assert_eq!(link.queueing_delay(now), Duration::ZERO);
            now += Duration::from_micros(500);
        }
        let passed = 1_000 - link.counts().policed;
        assert!(
            (598..=602).contains(&passed),
            "{passed}: 100 at once and half of the rest, 500"
        );
    }
}
