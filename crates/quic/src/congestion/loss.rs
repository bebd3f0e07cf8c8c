//! Distinguishes congestion from random loss: congestion is loss that disappears when less is sent.
//!
//! A radio link, or an exchange that others congest, loses a part of the packets even if little is sent. That part, the
//! *floor*, is measured while less is sent than the path carries, and ignored. Loss clearly above it is congestion. BBRv3
//! tolerates 2 % and has no floor: at 3 % of random loss it gives the path up.

/// Rounds of sending less over which the floor is averaged, within these numbers of packets.
const MEMORY_ROUNDS: f64 = 8.0;
const MEMORY_PACKETS_MIN: f64 = 200.0;
const MEMORY_PACKETS_MAX: f64 = 2_000.0;

/// Packets after which the floor is trusted.
const FLOOR_PACKETS_MIN: f64 = 16.0;

/// Largest floor: a path that loses more is congested.
const FLOOR_MAX: f64 = 0.3;

/// Loss above the floor that is not congestion (draft-ietf-ccwg-bbr: `BBR.LossThresh`).
const MARGIN: f64 = 0.02;

/// Loss above the floor that no radio link begins with from one round to the next.
const FAR: f64 = 0.15;

/// Standard deviations of chance above that.
const DEVIATIONS: f64 = 3.0;

/// Chance is taken for at least as wild as at this loss.
const DEVIATION_LOSS_MIN: f64 = 0.002;

/// Lost packets that never matter.
const PACKETS_FREE: f64 = 3.0;

/// The floor, averaged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Floor {
    lost: f64,
    sent: f64,
}

impl Floor {
    /// So much came of packets that were sent below the path's rate in one round.
    pub(super) fn learn(&mut self, acknowledged: f64, lost: f64) {
        let sent = acknowledged + lost;
        let memory = (MEMORY_ROUNDS * sent).clamp(MEMORY_PACKETS_MIN, MEMORY_PACKETS_MAX);
        // Below the memory it is a plain average.
        let kept = if self.sent + sent <= memory {
            1.0
        } else {
            (1.0 - sent / memory).max(0.0)
        };
        self.sent = self.sent * kept + sent;
        self.lost = self.lost * kept + lost;
    }

    /// The part of all packets that is lost at any rate, 0 to [`FLOOR_MAX`].
    pub(super) fn get(&self) -> f64 {
        if self.sent < FLOOR_PACKETS_MIN {
            return 0.0;
        }
        (self.lost / self.sent).min(FLOOR_MAX)
    }

    /// Upper estimate of the floor; near one half after few packets (Agresti and Coull).
    pub(super) fn highest(&self) -> f64 {
        (self.lost + 2.0) / (self.sent + 4.0)
    }

    /// Whether `lost` of `sent` packets are so many more than the floor that the queue must have overflown, whatever is
    /// known of the floor.
    pub(super) fn is_far_exceeded(&self, lost: f64, sent: f64) -> bool {
        let chance = DEVIATIONS * (sent * self.get().max(DEVIATION_LOSS_MIN)).sqrt();
        lost > sent * (self.get() + FAR) + chance + PACKETS_FREE
    }

    /// Whether `lost` of `sent` packets are more than the floor and chance explain.
    pub(super) fn is_exceeded(&self, lost: f64, sent: f64) -> bool {
        // Chance is that of this count, and that of the floor's own, which may be higher than what was seen of it.
        let variance = sent * self.highest().max(DEVIATION_LOSS_MIN) * (1.0 + sent / self.sent.max(1.0));
        lost > sent * (self.get() + MARGIN) + DEVIATIONS * variance.sqrt() + PACKETS_FREE
    }
}

/// Packets of one kind, counted until somebody looks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) acknowledged: f64,
    pub(super) lost: f64,
}

impl Tally {
    pub(super) fn sent(&self) -> f64 {
        self.acknowledged + self.lost
    }

    pub(super) fn take(&mut self) -> Self {
        std::mem::take(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn above_no_loss_two_in_a_hundred_are_free_and_five_are_not() {
        let mut floor = Floor::default();
        floor.learn(1_000.0, 0.0);
        assert!(!floor.is_exceeded(20.0, 1_000.0));
        assert!(floor.is_exceeded(50.0, 1_000.0));
        assert!(!floor.is_exceeded(3.0, 10.0), "a few packets say nothing");
    }

    #[test]
    fn loss_that_stays_when_less_is_sent_is_no_congestion() {
        let mut floor = Floor::default();
        floor.learn(950.0, 50.0);
        assert!((floor.get() - 0.05).abs() < 1e-9);
        assert!(!floor.is_exceeded(60.0, 1_000.0));
        assert!(floor.is_exceeded(120.0, 1_000.0));
    }

    #[test]
    fn before_the_floor_is_known_only_an_overflow_counts() {
        let floor = Floor::default();
        assert!(!floor.is_exceeded(100.0, 1_000.0));
        assert!(!floor.is_far_exceeded(100.0, 1_000.0));
        assert!(floor.is_far_exceeded(300.0, 1_000.0));
    }

    #[test]
    fn a_floor_that_goes_is_forgotten() {
        let mut floor = Floor::default();
        floor.learn(900.0, 100.0);
        for _ in 0..40 {
            floor.learn(500.0, 0.0);
        }
        assert!(floor.get() < 0.001, "{}", floor.get());
    }

    #[test]
    fn no_floor_is_believed_from_a_few_packets_or_above_its_bound() {
        let mut floor = Floor::default();
        floor.learn(0.0, 10.0);
        assert_eq!(floor.get(), 0.0);
        floor.learn(0.0, 1_000.0);
        assert_eq!(floor.get(), FLOOR_MAX);
    }
}
