//! Connections to the genuine site of a cover (specs/qr1.md, QR1-19): each rests as a browser's does, and is closed.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::AttemptId;
use crate::limits::{REDIRECTED_REST_MAX, REDIRECTED_REST_MIN};

/// Those of one stripe. Each race adds as many as it has attempts, and ends those of the one before.
#[derive(Default)]
pub struct Resting(Vec<RestingConnection>);

struct RestingConnection {
    attempt: AttemptId,
    address: SocketAddr,
    /// When it is closed.
    due: Instant,
}

impl Resting {
    /// The genuine site answered an attempt; `draw` is random.
    pub fn add(&mut self, now: Instant, attempt: AttemptId, address: SocketAddr, draw: u64) {
        let span = REDIRECTED_REST_MAX - REDIRECTED_REST_MIN;
        let rest = REDIRECTED_REST_MIN + Duration::from_millis(draw % (span.as_millis() as u64 + 1));
        self.0.push(RestingConnection {
            attempt,
            address,
            due: now + rest,
        });
    }

    /// When one is to be closed.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.0.iter().map(|connection| connection.due).min()
    }

    /// One that has rested, and is to be closed; to be asked until there is none.
    pub fn poll_rested(&mut self, now: Instant) -> Option<AttemptId> {
        self.take(|connection| connection.due <= now)
    }

    /// The one to this address, which is to be closed before an attempt there: without connection IDs there is one
    /// connection to each.
    pub fn take_at(&mut self, address: SocketAddr) -> Option<AttemptId> {
        self.take(|connection| connection.address == address)
    }

    /// The connection is over.
    pub fn forget(&mut self, attempt: AttemptId) {
        self.0.retain(|connection| connection.attempt != attempt);
    }

    fn take(&mut self, is_wanted: impl Fn(&RestingConnection) -> bool) -> Option<AttemptId> {
        let place = self.0.iter().position(is_wanted)?;
        Some(self.0.remove(place).attempt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// QR1-19.
    #[test]
    fn a_connection_to_the_genuine_site_rests_from_5_to_30_seconds_as_it_happens() {
        let (now, address) = (
            sim::Clock::default().now(),
            "192.0.2.1:443".parse().expect("an address"),
        );
        let rest = |draw| {
            let mut resting = Resting::default();
            resting.add(now, 7, address, draw);
            let due = resting.poll_timeout().expect("it rests");
            assert_eq!(resting.poll_rested(due - Duration::from_nanos(1)), None);
            assert_eq!(resting.poll_rested(due), Some(7));
            assert_eq!(resting.poll_timeout(), None);
            due - now
        };
        assert_eq!(rest(0), Duration::from_secs(5));
        assert_eq!(rest(25_000), Duration::from_secs(30));
        assert_eq!(rest(25_001), Duration::from_secs(5));
        assert_eq!(rest(u64::MAX).as_secs() / 30, 0);
    }
}
