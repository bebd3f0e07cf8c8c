//! The hard cap of the `fixed` profile: a schedule whose rate holds in every tenth of a second.
//!
//! quinn-proto's pacer follows window and round trip, sends bursts of ten packets at any rate, and does not limit
//! acknowledgements. A cap that an operator sets must hold for all packets.

use std::time::{Duration, Instant};

/// Over any span of this length the rate is not exceeded.
const SPAN: Duration = Duration::from_millis(100);

/// Longest train, in time at the rate: short against [`SPAN`], long against a wake-up.
const TRAIN: Duration = Duration::from_millis(2);

/// How late a driver may wake up without losing rate.
const LATENESS: Duration = Duration::from_millis(2);

/// When the next packets may leave.
#[derive(Debug)]
pub(crate) struct Cap {
    bits_per_second: u64,
    next: Option<Instant>,
}

impl Cap {
    pub(crate) fn new(bits_per_second: u64) -> Self {
        Self {
            bits_per_second: bits_per_second.max(1),
            next: None,
        }
    }

    /// Packets of `mtu` bytes that may leave at `now`, or when the next may.
    pub(crate) fn packets(&self, now: Instant, mtu: u16) -> Result<usize, Instant> {
        match self.next {
            Some(next) if next > now => Err(next),
            _ => Ok(self.train_bytes(mtu) / usize::from(mtu)),
        }
    }

    /// `bytes` in packets of at most `mtu` bytes leave at `now`.
    pub(crate) fn spend(&mut self, now: Instant, mtu: u16, bytes: usize) {
        // A span may begin with a train, and with what a late wake-up has left over: so much less goes after it.
        let budget = self.bytes_in(SPAN);
        let burst = self.train_bytes(mtu) + self.bytes_in(LATENESS);
        let kept = budget.saturating_sub(burst).max(budget / 2).max(1);
        let wait = SPAN.mul_f64(bytes as f64 / kept as f64);
        let earliest = now.checked_sub(LATENESS).unwrap_or(now);
        self.next = Some(self.next.map_or(now, |next| next.max(earliest)) + wait);
    }

    fn train_bytes(&self, mtu: u16) -> usize {
        self.bytes_in(TRAIN).max(usize::from(mtu))
    }

    fn bytes_in(&self, span: Duration) -> usize {
        (u128::from(self.bits_per_second) * span.as_micros() / 8_000_000) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_driver_keeps_the_rate_and_no_span_exceeds_it() {
        for (rate, mtu) in [
            (2_000_000_u64, 1_452_u16),
            (100_000_000, 1_452),
            (1_000_000_000, 9_000),
        ] {
            let mut pace = Cap::new(rate);
            // tidy-allow(pure): first instant of virtual time
            let start = Instant::now();
            let (mut now, mut sent) = (start, Vec::new());
            while now - start < Duration::from_secs(1) {
                match pace.packets(now, mtu) {
                    Ok(packets) => {
                        let bytes = packets * usize::from(mtu);
                        pace.spend(now, mtu, bytes);
                        sent.push((now, bytes));
                    }
                    Err(next) => {
                        now = next + Duration::from_micros(next.duration_since(start).as_nanos() as u64 % 900)
                    }
                }
            }
            let total: usize = sent.iter().map(|(_, bytes)| bytes).sum();
            assert!(total as u64 * 8 * 10 >= rate * 9, "{total} bytes at {rate}");
            for (index, (from, _)) in sent.iter().enumerate() {
                let within = sent[index..].iter().take_while(|(at, _)| *at - *from < SPAN);
                let bytes: usize = within.map(|(_, bytes)| bytes).sum();
                assert!(
                    bytes as u64 * 80 <= rate,
                    "{bytes} bytes in a tenth of a second at {rate}"
                );
            }
        }
    }
}
