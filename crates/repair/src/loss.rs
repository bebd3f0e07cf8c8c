//! Loss rate of a path: an average of what QUIC counts as sent and lost, which forgets old counts.

use crate::limits::{LOSS_MAX, LOSS_MEMORY, LOSS_PACKETS_MIN};

/// Loss of one connection's packets over the last seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct LossMeter {
    counted: Option<(u64, u64)>,
    sent: f64,
    lost: f64,
}

impl LossMeter {
    /// Takes the connection's counters, once in every [`crate::limits::LOSS_INTERVAL`].
    pub fn measure(&mut self, packets_sent: u64, packets_lost: u64) {
        let (sent, lost) = self
            .counted
            .replace((packets_sent, packets_lost))
            .unwrap_or((packets_sent, packets_lost));
        // A path that carries nothing is not forgotten: the next flow meets the same one.
        if packets_sent == sent {
            return;
        }
        self.sent = self.sent * LOSS_MEMORY + packets_sent.saturating_sub(sent) as f64;
        self.lost = self.lost * LOSS_MEMORY + packets_lost.saturating_sub(lost) as f64;
    }

    /// The loss to reckon with, 0 to 1: what was measured and one standard deviation of it. 0 while it is unknown.
    #[must_use]
    pub fn loss(&self) -> f64 {
        if self.sent < LOSS_PACKETS_MIN {
            return 0.0;
        }
        let loss = self.lost / self.sent;
        (loss + (loss / self.sent).sqrt()).min(LOSS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_is_unknown_at_first_then_followed_and_forgotten() {
        let mut meter = LossMeter::default();
        meter.measure(1_000, 500);
        assert_eq!(meter.loss(), 0.0);
        for step in 1..=80 {
            meter.measure(1_000 + 100 * step, 500 + 5 * step);
        }
        assert!((0.05..0.06).contains(&meter.loss()), "{}", meter.loss());
        let known = meter.loss();
        (0..1_000).for_each(|_| meter.measure(9_000, 900));
        assert_eq!(meter.loss(), known);
        for step in 1..=200 {
            meter.measure(9_000 + 100 * step, 900);
        }
        assert!(meter.loss() < crate::limits::LOSS_MIN, "{}", meter.loss());
    }
}
