//! How long packets waited in a link's queue: a histogram of even steps, because the percentiles of a run are taken
//! from the difference of two moments.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Width of a step: a tenth of the millisecond in which queues are told.
const STEP: Duration = Duration::from_micros(100);

/// Steps; longer waits count as the last one. Five seconds: four times the product of 250 ms, twice over.
const STEPS: usize = 50_000;

/// Waits of all packets so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct QueueDelays {
    counts: Vec<u32>,
}

/// Percentiles of the time that packets waited for the line, in milliseconds, to a tenth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueReport {
    /// Median.
    pub p50_ms: f64,
    /// 95th percentile.
    pub p95_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// Longest.
    pub max_ms: f64,
}

impl Default for QueueDelays {
    fn default() -> Self {
        Self {
            counts: vec![0; STEPS],
        }
    }
}

impl QueueDelays {
    /// Counts a packet that waited so long.
    pub(super) fn add(&mut self, wait: Duration) {
        let step = (wait.as_nanos() / STEP.as_nanos()) as usize;
        self.counts[step.min(STEPS - 1)] += 1;
    }

    /// The packets counted since `before`.
    pub(super) fn since(&self, before: &Self) -> QueueReport {
        let counts: Vec<u32> = self
            .counts
            .iter()
            .zip(&before.counts)
            .map(|(now, then)| now - then)
            .collect();
        let total: u64 = counts.iter().copied().map(u64::from).sum();
        let step_ms = STEP.as_secs_f64() * 1e3;
        let percentile = |fraction: f64| {
            let rank = (total as f64 * fraction).ceil() as u64;
            let mut seen = 0;
            let step = counts.iter().position(|count| {
                seen += u64::from(*count);
                seen >= rank
            });
            step.filter(|_| total > 0)
                .map_or(0.0, |step| step as f64 * step_ms)
        };
        QueueReport {
            p50_ms: percentile(0.5),
            p95_ms: percentile(0.95),
            p99_ms: percentile(0.99),
            max_ms: percentile(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_packets_between_two_moments() {
        let mut delays = QueueDelays::default();
        assert_eq!(delays.since(&QueueDelays::default()), QueueReport::default());
        delays.add(Duration::from_secs(60));
        let before = delays.clone();
        for milliseconds in 1..=100 {
            delays.add(Duration::from_millis(milliseconds));
        }
        let report = delays.since(&before);
        let near = |value: f64, wanted: f64| (value - wanted).abs() < 1e-6;
        assert!(
            near(report.p50_ms, 50.0) && near(report.p95_ms, 95.0),
            "{report:?}"
        );
        assert!(
            near(report.p99_ms, 99.0) && near(report.max_ms, 100.0),
            "{report:?}"
        );
    }
}
