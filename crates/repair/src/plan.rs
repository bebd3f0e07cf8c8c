//! How much parity a window needs on a path of some loss.
//!
//! Computed as if the window were a block: of k payloads and r parity datagrams more than r are lost with the
//! probability of a binomial tail. That is about twice what a sliding window leaves, see [`RESIDUAL_LOSS_MAX`].

use crate::limits::{EXTRA_PERCENT_MAX, LOSS_MIN, RESIDUAL_LOSS_MAX, WINDOW_MAX};

/// Parity for each payload, by the payloads of the window.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    loss: f64,
    ratios: [f32; WINDOW_MAX + 1],
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            loss: 0.0,
            ratios: [0.0; WINDOW_MAX + 1],
        }
    }
}

impl Plan {
    /// Follows the loss, 0 to 1; small changes are left out, as what is measured is no more exact.
    pub fn follow(&mut self, loss: f64) {
        let is_near = (loss - self.loss).abs() <= 0.05 * self.loss;
        if is_near || (loss < LOSS_MIN && self.loss == 0.0) {
            return;
        }
        *self = Self::for_loss(loss);
    }

    fn for_loss(loss: f64) -> Self {
        if loss < LOSS_MIN {
            return Self::default();
        }
        let mut plan = Self {
            loss,
            ..Self::default()
        };
        let mut parity_before = 0;
        for window in 1..=WINDOW_MAX {
            // A longer window never needs less parity in all.
            let most = window * EXTRA_PERCENT_MAX / 100;
            let parity =
                (parity_before..=most).find(|parity| residual(loss, window, *parity) <= RESIDUAL_LOSS_MAX);
            parity_before = parity.unwrap_or(most);
            plan.ratios[window] = match parity {
                Some(parity) => parity as f32 / window as f32,
                None => EXTRA_PERCENT_MAX as f32 / 100.0,
            };
        }
        plan
    }

    /// Whether any parity is needed.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.loss > 0.0
    }

    /// Parity datagrams for each payload where the window holds `payloads`.
    pub(crate) fn ratio(&self, payloads: usize) -> f32 {
        self.ratios[payloads.min(WINDOW_MAX)]
    }
}

/// The part of the payloads of a block that stays lost: itself lost, and so many of the others that parity does not
/// suffice.
fn residual(loss: f64, payloads: usize, parity: usize) -> f64 {
    let others = payloads + parity - 1;
    let kept = 1.0 - loss;
    // Probability of exactly `lost` losses among the others, from none on.
    let mut exactly = kept.powi(others as i32);
    let mut fewer = 0.0;
    for lost in 0..parity {
        fewer += exactly;
        exactly *= (others - lost) as f64 / (lost + 1) as f64 * loss / kept;
    }
    loss * (1.0 - fewer).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binomial_tail_is_the_one_of_the_textbook() {
        // k = 4, r = 2 at 5 %: 0.05 * (1 - 0.95^5 - 5 * 0.05 * 0.95^4)
        assert!((residual(0.05, 4, 2) - 0.001_129_63).abs() < 1e-7);
        assert!((residual(0.05, 1, 0) - 0.05).abs() < 1e-12);
        assert!((residual(0.5, 1, 1) - 0.25).abs() < 1e-12);
    }

    #[test]
    fn a_clean_path_gets_no_parity_and_a_lossy_one_what_it_needs() {
        let mut plan = Plan::default();
        assert!(!plan.is_active());
        plan.follow(0.0003);
        assert!(!plan.is_active());
        plan.follow(0.05);
        assert!(plan.is_active());
        assert_eq!(plan.ratio(4), 0.5);
        assert!((0.12..0.17).contains(&plan.ratio(64)), "{}", plan.ratio(64));
        assert_eq!(plan.ratio(1_000), plan.ratio(64));
        plan.follow(0.01);
        assert!(plan.ratio(64) < 0.07, "{}", plan.ratio(64));
        assert!(plan.ratio(4) < 0.5, "{}", plan.ratio(4));
        plan.follow(0.0);
        assert!(!plan.is_active());
        plan.follow(0.5);
        assert!((1..=64).all(|window| plan.ratio(window) <= 0.5));
    }
}
