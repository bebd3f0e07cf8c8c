//! Which new connections are let in: half-open handshakes are bounded per prefix and altogether, and above a named
//! rate an address has to prove itself by a Retry first (RFC 9000 section 8.1.2). Each shard of a process has its part of
//! the bounds, so that they hold for all together.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use crate::limits;

/// What to do with a new connection attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Begin the handshake.
    Accept,
    /// Ask for address validation first.
    Retry,
    /// Do not answer.
    Ignore,
}

/// Handshakes in progress, and the rate of attempts.
#[derive(Debug)]
pub(crate) struct Admission {
    shards: u8,
    half_open: BTreeMap<IpAddr, usize>,
    half_open_total: usize,
    window_start: Option<Instant>,
    attempts: u32,
}

impl Admission {
    /// For one of so many shards, at least one.
    pub(crate) fn new(shards: u8) -> Self {
        Self {
            shards,
            half_open: BTreeMap::new(),
            half_open_total: 0,
            window_start: None,
            attempts: 0,
        }
    }

    /// Judges an attempt from `remote`; `validated` says that a Retry or an earlier token proved the address.
    pub(crate) fn judge(
        &mut self,
        now: Instant,
        remote: IpAddr,
        validated: bool,
        connections: usize,
    ) -> Verdict {
        let of_prefix = self.half_open.get(&prefix(remote)).copied().unwrap_or(0);
        let shards = usize::from(self.shards);
        let exceeds = |part: usize| {
            of_prefix >= limits::HALF_OPEN_PER_PREFIX / part / shards
                || self.half_open_total >= limits::HALF_OPEN_TOTAL / part / shards
        };
        if connections >= limits::CONNECTIONS_MAX / shards || (validated && exceeds(1)) {
            return Verdict::Ignore;
        }
        // Forged addresses fill no more than half of the room: beyond it, every newcomer proves its own.
        if !validated && exceeds(2) {
            return Verdict::Retry;
        }
        let fresh = self
            .window_start
            .is_some_and(|start| now.duration_since(start) < Duration::from_secs(1));
        if !fresh {
            self.window_start = Some(now);
            self.attempts = 0;
        }
        self.attempts = self.attempts.saturating_add(1);
        if self.attempts > limits::RETRY_ABOVE_PER_SECOND / u32::from(self.shards) && !validated {
            Verdict::Retry
        } else {
            Verdict::Accept
        }
    }

    /// A handshake began.
    pub(crate) fn begin(&mut self, remote: IpAddr) {
        *self.half_open.entry(prefix(remote)).or_default() += 1;
        self.half_open_total += 1;
    }

    /// A handshake that began has completed or failed.
    pub(crate) fn end(&mut self, remote: IpAddr) {
        let prefix = prefix(remote);
        if let Some(count) = self.half_open.get_mut(&prefix) {
            *count -= 1;
            self.half_open_total -= 1;
            if *count == 0 {
                self.half_open.remove(&prefix);
            }
        }
    }
}

/// The network that one customer usually holds, by its first address: /24 of IPv4, also where mapped, /56 of IPv6.
#[must_use]
pub fn prefix(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & !0xff)),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 72 << 72)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first instant of virtual time; nothing depends on which one it is.
    fn start() -> Instant {
        // tidy-allow(pure): first instant of virtual time
        Instant::now()
    }

    #[test]
    fn one_prefix_cannot_hold_more_handshakes_than_its_share() {
        let mut admission = Admission::new(1);
        let now = start();
        for host in 0..limits::HALF_OPEN_PER_PREFIX {
            let ip = IpAddr::from([192, 0, 2, host as u8]);
            assert_eq!(admission.judge(now, ip, true, 0), Verdict::Accept);
            admission.begin(ip);
        }
        assert_eq!(
            admission.judge(now, IpAddr::from([192, 0, 2, 200]), true, 0),
            Verdict::Ignore
        );
        assert_eq!(
            admission.judge(now, IpAddr::from([192, 0, 3, 1]), true, 0),
            Verdict::Accept
        );
        admission.end(IpAddr::from([192, 0, 2, 0]));
        assert_eq!(
            admission.judge(now, IpAddr::from([192, 0, 2, 200]), true, 0),
            Verdict::Accept
        );
    }

    #[test]
    fn forged_addresses_leave_half_of_the_room_to_those_who_prove_theirs() {
        let mut admission = Admission::new(1);
        let (now, ip) = (start(), IpAddr::from([192, 0, 2, 1]));
        for _ in 0..limits::HALF_OPEN_PER_PREFIX / 2 {
            assert_eq!(admission.judge(now, ip, false, 0), Verdict::Accept);
            admission.begin(ip);
        }
        assert_eq!(admission.judge(now, ip, false, 0), Verdict::Retry);
        assert_eq!(admission.judge(now, ip, true, 0), Verdict::Accept);
    }

    #[test]
    fn above_the_named_rate_an_address_has_to_prove_itself_until_the_second_is_over() {
        let mut admission = Admission::new(1);
        let now = start();
        let ip = IpAddr::from([192, 0, 2, 1]);
        for _ in 0..limits::RETRY_ABOVE_PER_SECOND {
            assert_eq!(admission.judge(now, ip, false, 0), Verdict::Accept);
        }
        assert_eq!(admission.judge(now, ip, false, 0), Verdict::Retry);
        assert_eq!(admission.judge(now, ip, true, 0), Verdict::Accept);
        assert_eq!(
            admission.judge(now + Duration::from_secs(1), ip, false, 0),
            Verdict::Accept
        );
    }

    #[test]
    fn no_connection_is_accepted_beyond_the_total() {
        let mut admission = Admission::new(1);
        let ip = IpAddr::from([192, 0, 2, 1]);
        assert_eq!(
            admission.judge(start(), ip, true, limits::CONNECTIONS_MAX),
            Verdict::Ignore
        );
    }

    #[test]
    fn the_shards_of_a_process_have_together_what_one_alone_has() {
        let now = start();
        let mut accepted = 0;
        for _ in 0..4 {
            let mut admission = Admission::new(4);
            while admission.judge(now, IpAddr::from([192, 0, 2, 1]), true, 0) == Verdict::Accept {
                admission.begin(IpAddr::from([192, 0, 2, 1]));
                accepted += 1;
            }
        }
        assert_eq!(accepted, limits::HALF_OPEN_PER_PREFIX);
    }
}
