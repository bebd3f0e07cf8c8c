//! Samples of the round trip and how much they vary, for reports.

use std::time::{Duration, Instant};

/// Samples of the round trip; both zero before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RoundTrips {
    /// The latest.
    pub(crate) latest: Duration,
    /// Mean deviation from the smoothed one (RFC 9002 section 5.3).
    pub(crate) variation: Duration,
}

/// Takes one sample from each batch of acknowledgements: that of the newest packet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Variation {
    newest: Option<Instant>,
    smoothed: Option<Duration>,
    round_trips: RoundTrips,
}

impl Variation {
    /// A packet that left at `sent` was acknowledged.
    pub(super) fn on_ack(&mut self, sent: Instant) {
        self.newest = self.newest.max(Some(sent));
    }

    /// Ends a batch of acknowledgements.
    pub(super) fn end_acks(&mut self, now: Instant) -> Option<RoundTrips> {
        let sample = now.saturating_duration_since(self.newest.take()?);
        let RoundTrips { latest, variation } = &mut self.round_trips;
        *latest = sample;
        match &mut self.smoothed {
            Some(smoothed) => {
                *variation = (3 * *variation + smoothed.abs_diff(sample)) / 4;
                *smoothed = (7 * *smoothed + sample) / 8;
            }
            None => {
                *variation = sample / 2;
                self.smoothed = Some(sample);
            }
        }
        Some(self.round_trips)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_packet_of_a_batch_is_the_sample_and_steady_samples_do_not_vary() {
        // tidy-allow(pure): first instant of virtual time
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut variation = Variation::default();
        assert_eq!(variation.end_acks(start), None);
        variation.on_ack(at(30));
        variation.on_ack(at(10));
        let first = variation.end_acks(at(50)).unwrap();
        let expected = RoundTrips {
            latest: Duration::from_millis(20),
            variation: Duration::from_millis(10),
        };
        assert_eq!(first, expected);
        let mut last = first;
        for step in 0..50 {
            variation.on_ack(at(100 + step));
            last = variation.end_acks(at(120 + step)).unwrap();
        }
        assert!(last.variation < Duration::from_micros(1), "{last:?}");
        variation.on_ack(at(200));
        assert!(variation.end_acks(at(300)).unwrap().variation >= Duration::from_millis(20));
    }
}
