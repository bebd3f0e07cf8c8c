//! What the clients saw of a run.

use std::time::Duration;

use crate::Error;
use crate::median::percentile;

/// Calls of one or more clients.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// Calls or messages that were answered.
    pub(super) calls: u64,
    /// How often threads that have ended since went to sleep.
    pub(super) sleeps: u64,
    /// From the first call to the last answer.
    pub(super) elapsed: Duration,
    /// Of each call, in microseconds; empty where messages do not wait for answers.
    pub(super) latencies: Vec<f64>,
}

impl Sample {
    /// Counts one call.
    pub(super) fn add(&mut self, latency: Duration) {
        self.calls += 1;
        self.latencies.push(latency.as_secs_f64() * 1e6);
    }

    /// All clients' calls together.
    pub(super) fn sum(
        samples: impl IntoIterator<Item = Result<Self, Error>>,
        elapsed: Duration,
    ) -> Result<Self, Error> {
        let mut sum = Self {
            elapsed,
            ..Self::default()
        };
        for sample in samples {
            let sample = sample?;
            sum.calls += sample.calls;
            sum.sleeps += sample.sleeps;
            sum.latencies.extend(sample.latencies);
        }
        Ok(sum)
    }

    /// p50, p99 and p99.9 of the latencies in microseconds.
    pub(super) fn percentiles(&mut self) -> Option<[f64; 3]> {
        if self.latencies.is_empty() {
            return None;
        }
        Some([0.5, 0.99, 0.999].map(|fraction| percentile(&mut self.latencies, fraction)))
    }
}
