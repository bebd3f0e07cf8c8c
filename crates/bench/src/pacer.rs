//! How many datagrams are due. Pure: time comes in as the time since the start.

use std::time::Duration;

use crate::limits;

/// Turns an offered rate into datagrams, without drift and with bounded catching up.
#[derive(Debug)]
pub(crate) struct Pacer {
    /// Datagrams per second; `None` is as fast as possible.
    rate: Option<f64>,
    sent: f64,
}

impl Pacer {
    /// `bits_per_second` of payload in datagrams of `payload_bytes`.
    pub(crate) fn new(bits_per_second: Option<u64>, payload_bytes: usize) -> Self {
        let rate = bits_per_second.map(|bits| bits as f64 / (8.0 * payload_bytes as f64));
        Self { rate, sent: 0.0 }
    }

    /// Datagrams that may be sent at `elapsed`.
    pub(crate) fn due(&mut self, elapsed: Duration) -> usize {
        let Some(rate) = self.rate else { return usize::MAX };
        let due = rate * elapsed.as_secs_f64();
        let catch_up = (rate * limits::CATCH_UP_MAX.as_secs_f64()).max(1.0);
        self.sent = self.sent.max(due - catch_up);
        (due - self.sent).max(0.0) as usize
    }

    /// Books `datagrams` as sent.
    pub(crate) fn sent(&mut self, datagrams: usize) {
        self.sent += datagrams as f64;
    }

    /// Datagrams that are worth one send: what falls due in one step, so that a fast generator sends trains and leaves
    /// the processor to what it measures.
    pub(crate) fn worth_sending(&self) -> usize {
        self.rate
            .map_or(1, |rate| (rate * limits::PACING_STEP.as_secs_f64()) as usize)
            .max(1)
    }

    /// How long to sleep until `count` datagrams are due.
    pub(crate) fn wait(&self, elapsed: Duration, count: usize) -> Duration {
        let Some(rate) = self.rate else {
            return Duration::ZERO;
        };
        let next = (self.sent + count as f64) / rate;
        Duration::from_secs_f64((next - elapsed.as_secs_f64()).max(0.0)).max(limits::PACING_STEP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `seconds` of virtual time with a wake-up each time the pacer asks for it; returns the datagrams sent.
    fn run(pacer: &mut Pacer, seconds: f64) -> usize {
        let (mut elapsed, mut total) = (Duration::ZERO, 0);
        while elapsed.as_secs_f64() < seconds {
            let due = pacer.due(elapsed);
            pacer.sent(due);
            total += due;
            elapsed += pacer.wait(elapsed, 1);
        }
        total
    }

    #[test]
    fn the_offered_rate_is_met_within_one_step() {
        let rate = 1_000_000_000;
        let total = run(&mut Pacer::new(Some(rate), 1_150), 2.0);
        let expected = 2.0 * rate as f64 / 8.0 / 1_150.0;
        assert!(
            (total as f64 - expected).abs() < 20.0,
            "{total} against {expected}"
        );
    }

    #[test]
    fn a_rate_below_one_datagram_per_step_is_met_too() {
        let total = run(&mut Pacer::new(Some(8 * 1_000 * 10), 1_000), 10.0);
        assert!((99..=101).contains(&total), "{total}");
    }

    #[test]
    fn a_long_pause_is_not_made_up_by_a_burst() {
        let mut pacer = Pacer::new(Some(800_000_000), 1_000);
        assert_eq!(pacer.due(Duration::from_secs(1)), 500);
        pacer.sent(500);
        assert_eq!(pacer.due(Duration::from_secs(1)), 0);
    }

    #[test]
    fn without_a_rate_everything_is_due_at_once() {
        let mut pacer = Pacer::new(None, 1_000);
        pacer.sent(1_000_000);
        assert_eq!(
            (pacer.due(Duration::ZERO), pacer.wait(Duration::ZERO, 1)),
            (usize::MAX, Duration::ZERO)
        );
    }
}
