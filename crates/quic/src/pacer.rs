//! Spreads trains over time at the controller's rate.
//!
//! quinn-proto's pacer knows only window and smoothed round trip, and sends bursts of ten packets even on slow paths. This
//! one sends what the rate carries in a millisecond at once, so that trains are long at high rates and short at low ones,
//! and compensates for a driver that wakes up late.

use std::time::{Duration, Instant};

use packet::UDP_PAYLOAD_MAX;

use crate::congestion::bytes_in;

/// What goes at once, in time at the rate.
const TRAIN: Duration = Duration::from_millis(1);

/// Packets that go at once at any rate.
const TRAIN_PACKETS_MIN: u64 = 2;

/// How late a driver may wake up without losing rate.
const LATENESS: Duration = Duration::from_millis(4);

/// When the next train may leave.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    next: Option<Instant>,
}

impl Pacer {
    /// Packets of `mtu` bytes that may leave at `now`, at least one, or when the next may.
    pub(crate) fn packets(&self, now: Instant, bytes_per_second: u64, mtu: u16) -> Result<usize, Instant> {
        if bytes_per_second == u64::MAX {
            return Ok(usize::MAX);
        }
        let next = self.next.unwrap_or(now);
        if next > now {
            return Err(next);
        }
        let mtu = u64::from(mtu);
        let train = bytes_in(bytes_per_second, TRAIN)
            .min(UDP_PAYLOAD_MAX as u64)
            .max(TRAIN_PACKETS_MIN * mtu);
        let late = bytes_in(bytes_per_second, (now - next).min(LATENESS));
        Ok(((train + late) / mtu).max(1) as usize)
    }

    /// `bytes` left at `now`.
    pub(crate) fn spend(&mut self, now: Instant, bytes_per_second: u64, bytes: usize) {
        if bytes_per_second == u64::MAX {
            self.next = None;
            return;
        }
        let earliest = now.checked_sub(LATENESS).unwrap_or(now);
        let wait = Duration::from_secs_f64(bytes as f64 / bytes_per_second.max(1) as f64);
        self.next = Some(self.next.map_or(now, |next| next.max(earliest)) + wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: u16 = 1_452;

    /// Bytes that a driver sends in `seconds` that wakes up `late` after each time it asked for.
    fn sent(bytes_per_second: u64, late: Duration, seconds: u64) -> u64 {
        let mut pacer = Pacer::default();
        // tidy-allow(pure): first instant of virtual time
        let start = Instant::now();
        let (mut now, mut sent) = (start, 0);
        while now - start < Duration::from_secs(seconds) {
            match pacer.packets(now, bytes_per_second, MTU) {
                Ok(packets) => {
                    let bytes = packets * usize::from(MTU);
                    pacer.spend(now, bytes_per_second, bytes);
                    sent += bytes as u64;
                }
                Err(next) => now = next + late,
            }
        }
        sent
    }

    #[test]
    fn a_driver_that_wakes_up_late_keeps_the_rate() {
        for rate in [125_000, 12_500_000, 125_000_000] {
            for late in [0, 100, 1_500] {
                let bytes = sent(rate, Duration::from_micros(late), 2);
                let wanted = 2 * rate;
                assert!(
                    bytes * 100 >= wanted * 97 && bytes * 100 <= wanted * 104,
                    "{bytes} of {wanted} bytes, {late} µs late"
                );
            }
        }
    }

    #[test]
    fn trains_are_short_at_low_rates_and_long_at_high_ones() {
        let pacer = Pacer::default();
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let packets = |rate| pacer.packets(now, rate, MTU).unwrap();
        assert_eq!(packets(125_000), 2);
        assert_eq!(packets(12_500_000), 8);
        assert_eq!(packets(1_250_000_000), 45);
        assert_eq!(packets(u64::MAX), usize::MAX);
    }

    #[test]
    fn after_a_pause_a_train_goes_and_no_more() {
        let mut pacer = Pacer::default();
        // tidy-allow(pure): first instant of virtual time
        let start = Instant::now();
        pacer.spend(start, 12_500_000, 12_500);
        let later = start + Duration::from_secs(10);
        let packets = pacer.packets(later, 12_500_000, MTU).unwrap();
        assert!(packets * usize::from(MTU) <= 12_500 * 5);
    }
}
